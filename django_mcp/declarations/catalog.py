"""The catalog: all declarations of one server, resolved once and then unchanged.

The server makes it after all of the project's modules are loaded. Resolving collects every mistake
as a check message and does not stop at the first one. Each name and URI belongs to one declaration.
If two declare the same, an error names both. A declaration with an error is left out.

``unreachable`` warns of a resource whose rows no client can find. Clients can call lists, searches,
resources at a fixed URI and tools without a key. The rows that these return show keys of other
rows, by which clients read those.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.db.models import Model

from .declaration import Declaration, ToolDeclaration
from .elicitation_forms import question_problems
from .fields import search_methods
from .fields.entries import Column, RelatedRows
from .generic_tools import GenericModels, generic_tools
from .model_resources import ModelResource
from .model_rows import ModelRows
from .model_tools import aggregate_tool_of, derived_from, vector_tool_of
from .outputs import RowOutput
from .prompts import Prompt
from .registry import model_extensions
from .resources import Resource
from .throttles import Throttle, listed
from .tools import Tool
from .ui_resources import ui_resource_of

if TYPE_CHECKING:
    from .server import Server

D = TypeVar("D", bound=Declaration)

logger = logging.getLogger("django_mcp")
# The check for options of a wrong type. Resolving such a declaration would raise odd errors.
WRONG_TYPE = "django_mcp.E060"


class DeclaredList:
    """The declarations of a list in their order, and what is the same for every request."""

    def __init__(self, declarations: Iterable[Declaration]) -> None:
        self.declarations = tuple(declarations)
        self.is_public = all(one._is_public for one in self.declarations)
        self.is_free = all(one._decides_without_database for one in self.declarations)
        # From 1 on, by name. If two have the same name, the first one has it.
        pairs = [*enumerate(self.declarations, 1)]
        self.positions: dict[Any, int] = {
            declaration.name: position for position, declaration in reversed(pairs)
        }


class Catalog:
    """The resolved declarations of a server. ``messages`` are the check messages about them."""

    def __init__(self, server: Server, declared: Iterable[Declaration]) -> None:
        self.server = server
        self.messages: list[CheckMessage] = []
        self.tools: dict[str, Tool] = {}
        # Tools of model resources that clients call by the generic tools, so no list shows them.
        self.model_tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.models: dict[type[Model], list[ModelResource]] = {}
        self._broken: set[Declaration] = set()
        self._fill(list(declared))

    @cached_property
    def tool_list(self) -> DeclaredList:
        return DeclaredList(self.tools.values())

    @cached_property
    def prompt_list(self) -> DeclaredList:
        return DeclaredList(self.prompts.values())

    @cached_property
    def template_list(self) -> DeclaredList:
        return DeclaredList(self.templates.values())

    @cached_property
    def resource_list(self) -> DeclaredList:
        return DeclaredList(one for one in self.resources.values() if one.listed)

    @cached_property
    def throttles(self) -> tuple[Throttle, ...]:
        """Those of the server's ``throttle``."""
        return listed(self.server.throttle)

    @cached_property
    def has_audited(self) -> bool:
        """Whether ``audit`` is on for any of the declarations."""
        return any(declaration._owner.audit for declaration in self._declarations())

    @cached_property
    def has_public(self) -> bool:
        """Whether anything is public."""
        return any(declaration._is_public for declaration in self._declarations())

    @cached_property
    def is_public(self) -> bool:
        """Whether everything is public, so that a token shows a client nothing more."""
        return not self.private_kinds

    @cached_property
    def private_kinds(self) -> frozenset[str]:
        """Those of "tools", "prompts" and "resources" of which at least one is not public."""
        kinds: dict[str, list[dict[str, Any]]] = {
            "tools": [self.tools, self.model_tools],
            "prompts": [self.prompts],
            "resources": [self.resources, self.templates],
        }
        return frozenset(
            kind
            for kind, dictionaries in kinds.items()
            if not all(
                declaration._is_public
                for declarations in dictionaries
                for declaration in declarations.values()
            )
        )

    @cached_property
    def has_ui(self) -> bool:
        """Whether a tool has a page, or says whether a page may call it."""
        return any(tool._ui_uri or tool.visibility is not None for tool in self.tools.values())

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """The names of the protocol's capabilities that the server has by its declarations."""
        completing: list[Prompt | Resource] = [*self.prompts.values(), *self.templates.values()]
        has = {
            "logging": True,
            "tools": bool(self.tools),
            "prompts": bool(self.prompts),
            # Servers that use embedded resources SHOULD implement resources (server/tools).
            "resources": bool(self.resources or self.templates)
            or any(tool._output.embeds for tool in self.tools.values()),
            "completions": any(declaration._completers for declaration in completing),
        }
        return frozenset(name for name, is_there in has.items() if is_there)

    def _declarations(self) -> Iterator[Declaration]:
        for entries in (self.tools, self.model_tools, self.prompts, self.resources, self.templates):
            yield from entries.values()

    def _fill(self, declared: list[Declaration]) -> None:
        """Resolve and add the declarations.

        Model resources are resolved first, because the arguments and results of the others are
        bound through them.
        """
        models = [declaration for declaration in declared if isinstance(declaration, ModelResource)]
        for resource in models:
            self.models.setdefault(resource.model, []).append(resource)
        self._generic = {
            resource
            for declaration in declared
            if isinstance(declaration, GenericModels)
            for resource in declaration._select(self.models)
        }
        found: dict[Declaration, list[CheckMessage]] = {}
        for resource in models:
            found[resource] = self._resolve(resource)
        for resource in models:
            if resource not in self._broken:
                resource._link_related_models(self.models)
        for declaration in declared:
            if declaration not in found:
                found[declaration] = self._resolve(declaration)
        for declaration in declared:
            self._add(declaration, found[declaration])
        self._add_generic_tools([one for one in models if one in self._generic - self._broken])

    def _add_generic_tools(self, resources: list[ModelResource]) -> None:
        for tool in generic_tools(resources, self.model_tools.values()) if resources else ():
            self._add(tool, self._resolve(tool))
        # Switches and messages for developers name both in the same way.
        for name in self.tools.keys() & self.model_tools.keys():
            self._add_entry({name: self.tools[name]}, name, self.model_tools[name])

    def _resolve(self, declaration: Declaration) -> list[CheckMessage]:
        """Resolve one declaration.

        Return its check messages, and mark it as broken if one is an error.
        """
        try:
            found = [*declaration._attribute_problems()]
            if not any(message.id == WRONG_TYPE for message in found):
                found += [*declaration._resolve(self.find), *question_problems(declaration)]
        except Exception as error:  # attributes of the project may have any value
            logger.error("Declaration cannot be resolved: %s", declaration, exc_info=error)
            message = f"It cannot be resolved: {type(error).__name__}: {error}"
            hint = "See the traceback in the log. An attribute probably has a wrong type."
            found = [declaration._error(message, 7, hint)]
        if any(message.is_serious() for message in found):
            self._broken.add(declaration)
        return found

    def _add(self, declaration: Declaration, found: list[CheckMessage]) -> None:
        """Add a declaration without errors, and the declarations that it adds."""
        self.messages += found
        if declaration in self._broken:
            return
        for entries, key in self._entries(declaration):
            self._add_entry(entries, key, declaration)
        added = [*self._added_by(declaration)]
        if isinstance(declaration, ToolDeclaration) and not isinstance(declaration, Tool):
            tools = [one for one in added if isinstance(one, Tool)]
            self.messages += declaration._approval_problems(tools)
        for one in added:
            self._add(one, self._resolve(one))

    def _added_by(self, declaration: Declaration) -> Iterator[Declaration]:
        """Yield the declarations that a declaration without errors adds to the catalog."""
        yield from declaration._derived()
        if isinstance(declaration, Tool):
            yield from ui_resource_of(declaration, self.server)
        if isinstance(declaration, ModelResource):
            for extension in (derived_from, aggregate_tool_of, vector_tool_of, *model_extensions):
                yield from extension(declaration)

    def _entries(self, declaration: Declaration) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the dictionary and the key under which a declaration is found."""
        if isinstance(declaration, Tool):
            yield self._tools_with(declaration), declaration.name
        elif isinstance(declaration, Prompt):
            yield self.prompts, declaration.name
        elif isinstance(declaration, Resource):  # anything else only adds derived declarations
            yield (self.templates if declaration._is_template else self.resources), declaration.uri

    def _tools_with(self, tool: Tool) -> dict[str, Tool]:
        """Return the dictionary that a tool belongs to."""
        is_generic = tool._row_operation and getattr(tool, "_resource", None) in self._generic
        return self.model_tools if is_generic else self.tools

    def _add_entry(self, entries: dict[str, D], key: str, declaration: D) -> None:
        first = entries.setdefault(key, declaration)
        if first is not declaration:
            message = (
                f"{key!r} is declared twice: by {first._origin()} and by {declaration._origin()}."
            )
            hint = "Give one of them another name or URI."
            self.messages.append(Error(message, hint=hint, obj=declaration, id="django_mcp.E001"))

    # Lookup.

    def find(self, model: type[Model], chosen: Any = None) -> ModelResource:
        """Return the model resource that ``model`` is bound through.

        Raise ``ImproperlyConfigured``.

        ``chosen`` is the resource class that an annotation names.
        """
        candidates = self.models.get(model, [])
        if chosen is not None:
            candidates = [resource for resource in candidates if isinstance(resource, chosen)]
        if len(candidates) > 1:
            candidates = [resource for resource in candidates if resource.default]
        if len(candidates) != 1:
            raise ImproperlyConfigured(self._find_error(model, chosen))
        if candidates[0] in self._broken:
            raise ImproperlyConfigured(f"{candidates[0]} has an error of its own.")
        return candidates[0]

    def _find_error(self, model: type[Model], chosen: Any = None) -> str:
        """Return why ``find`` found no resource."""
        name = f"{model._meta.app_label}.{model.__name__}"
        name = name if chosen is None else f"{name} with {chosen.__name__}"
        if not any(isinstance(one, chosen or object) for one in self.models.get(model, [])):
            return f"{name} is not registered on the server {self.server.public_name!r}."
        return (
            f"Several resources expose {name}. Set default = True on one of them, or name one "
            "with Annotated."
        )

    def resource_of(self, model: type[Model]) -> ModelResource:
        """Return the model resource whose ``fields`` apply to an instance of ``model``.

        It may be registered for a parent model. Raise ``ValueError`` if there is none.
        """
        for kind in model.__mro__:
            if kind in self.models:
                return self.find(kind)
        raise ValueError(self._find_error(model))

    def called_tool(self, params: Mapping[str, Any]) -> Tool | None:
        """Return the tool that a ``tools/call`` request with these parameters runs, or None."""
        tool = self.tools.get(str(params.get("name")))
        return None if tool is None else tool._called_tool(params.get("arguments"))

    def at(self, uri: str) -> Iterator[tuple[Resource, dict[str, str]]]:
        """Yield the resources that match ``uri``, with the variables.

        A resource without variables is first.
        """
        if uri in self.resources:
            yield self.resources[uri], {}
        for resource in self.templates.values():
            variables = resource._match(uri)
            if variables is not None:
                yield resource, variables


# Rows that no client can find.

MESSAGE = (
    "Clients cannot find its rows. They are neither listed nor searchable, and no other resource "
    "that clients can search shows their keys."
)
HINT = (
    "Write search_fields or filter_fields, or listed = True. If clients get the keys from a tool "
    "or from a person, silence this warning."
)


def unreachable(catalog: Catalog) -> Iterator[Warning]:
    """Yield a warning for each model resource whose rows can be read only by a known key."""
    resources = [resource for of_model in catalog.models.values() for resource in of_model]
    found = _findable(catalog, resources)
    for resource in resources:
        if resource not in found:
            yield Warning(MESSAGE, hint=HINT, obj=resource, id="django_mcp.W062")


def _findable(catalog: Catalog, resources: list[ModelResource]) -> set[ModelRows]:
    """Return the resources whose rows a client can find without knowing a key."""
    found: set[ModelRows] = {resource for resource in resources if _is_listed(resource)}
    while True:
        # Each round follows the keys that the previous one found, until nothing is added.
        keys = {key for resource in found for key in _keys_shown(resource)}
        more: set[ModelRows] = {
            resource for resource in resources if _key(resource, resource._lookup) in keys
        }
        more |= {
            tool._output.finds_rows_of
            for tool in chain(catalog.tools.values(), catalog.model_tools.values())
            if isinstance(tool._output, RowOutput)
            and tool._output.finds_rows_of
            and _is_callable(tool, found)
        }
        if more <= found:
            return found
        found |= more


def _is_callable(tool: Tool, found: set[ModelRows]) -> bool:
    """Whether a client can find a key for every required argument of ``tool``."""
    needed = [one.binding for one in tool._arguments.parameters.values() if one.required]
    return all(binding is None or binding.resource in found for binding in needed)


def _is_listed(resource: ModelResource) -> bool:
    found_by_text = resource.vector_search is not None and resource.vector_search.embed is not None
    return bool(
        resource.listed or resource.search_fields or resource.filter_fields or found_by_text
    )


def _keys_shown(resource: ModelRows) -> Iterator[tuple[type[Model], str]]:
    """Yield the keys that rows of ``resource`` show: their own, and those of related rows."""
    yield _key(resource, resource._lookup)
    for name, entry in resource._field_set.entries.items():
        yield _key(resource, name)
        target: Any = entry.model if isinstance(entry, RelatedRows) and entry.path is None else None
        target = entry.points_to if isinstance(entry, Column) else target
        if target is not None:
            yield target, "pk"


def _key(resource: ModelRows, name: str) -> tuple[type[Model], str]:
    """Return a field that identifies rows. The primary key always has the name ``pk``."""
    return resource.model, "pk" if name == resource.model._meta.pk.name else name


# Indexes that full-text search needs.


def full_text_warnings(catalog: Catalog, databases: Sequence[str]) -> Iterator[Warning]:
    """Yield a warning for each index or table that a full-text search needs and that is missing.

    Queries the databases.
    """
    for resource in chain.from_iterable(catalog.models.values()):
        declared, alias = resource.full_text_search, router.db_for_read(resource.model)
        if declared is None or alias not in databases:
            continue
        missing = search_methods.missing_in_database(
            resource.model, resource.search_fields, declared, alias
        )
        if missing:
            message = f"full_text_search: the database {alias!r} has {missing[0]}."
            hint = f"Write a migration: {missing[1]}"
            # No error: it would prevent the migration that makes the index.
            yield Warning(message, hint=hint, obj=resource, id="django_mcp.W243")
