"""The catalog: all declarations of one server, resolved once and then unchanged.

The server makes it after all of the project's modules are loaded. Resolving collects every mistake
as a check message and does not stop at the first one. Each name and URI belongs to one declaration.
If two declare the same, an error names both. A declaration with an error is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from .declaration import Declaration
from .elicitation_checks import question_problems
from .model_resources import ModelResource
from .prompts import Prompt
from .registry import model_extensions
from .resources import Resource
from .search_tools import derived_from
from .tools import Tool

if TYPE_CHECKING:
    from .server import Server

D = TypeVar("D", bound=Declaration)

logger = logging.getLogger("django_mcp")
# The check for options of a wrong type. Resolving such a declaration would raise odd errors.
WRONG_TYPE = "django_mcp.E060"


class Catalog:
    """The resolved declarations of a server. ``messages`` are the check messages about them."""

    def __init__(self, server: Server, declared: Iterable[Declaration]) -> None:
        self.server = server
        self.messages: list[CheckMessage] = []
        self.tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.models: dict[type[Model], list[ModelResource]] = {}
        self._broken: set[Declaration] = set()
        self._fill(list(declared))

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
            "tools": [self.tools],
            "prompts": [self.prompts],
            "resources": [self.resources, self.templates],
        }
        return frozenset(
            kind
            for kind, owned in kinds.items()
            if not all(
                declaration._is_public
                for declarations in owned
                for declaration in declarations.values()
            )
        )

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
        for owned in (self.tools, self.prompts, self.resources, self.templates):
            yield from owned.values()

    def _fill(self, declared: list[Declaration]) -> None:
        """Resolve and add the declarations.

        Model resources are resolved first, because the arguments and results of the others are
        bound through them.
        """
        models = [declaration for declaration in declared if isinstance(declaration, ModelResource)]
        for resource in models:
            self.models.setdefault(resource.model, []).append(resource)
        found: dict[Declaration, list[CheckMessage]] = {}
        for declaration in [
            *models,
            *(declaration for declaration in declared if declaration not in models),
        ]:
            found[declaration] = self._resolve(declaration)
        for declaration in declared:
            self._add(declaration, found[declaration])

    def _resolve(self, declaration: Declaration) -> list[CheckMessage]:
        """Resolve one declaration.

        Return its check messages, and mark it as broken if one is an error.
        """
        try:
            found = [*declaration._attribute_problems()]
            if not any(message.id == WRONG_TYPE for message in found):
                found += [*declaration._resolve(self), *question_problems(declaration)]
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
        for owned, key in self._entries(declaration):
            self._add_entry(owned, key, declaration)
        for added in self._added_by(declaration):
            self._add(added, self._resolve(added))

    def _added_by(self, declaration: Declaration) -> Iterator[Declaration]:
        """Yield the declarations that a declaration without errors adds to the catalog."""
        yield from declaration._derived()
        if isinstance(declaration, ModelResource):
            for extension in (derived_from, *model_extensions):
                yield from extension(declaration)

    def _entries(self, declaration: Declaration) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the dictionary and the key under which a declaration is found."""
        if isinstance(declaration, Tool):
            yield self.tools, declaration.name
        elif isinstance(declaration, Prompt):
            yield self.prompts, declaration.name
        elif isinstance(declaration, Resource):  # anything else only adds derived declarations
            yield (self.templates if declaration._is_template else self.resources), declaration.uri

    def _add_entry(self, owned: dict[str, D], key: str, declaration: D) -> None:
        first = owned.setdefault(key, declaration)
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
