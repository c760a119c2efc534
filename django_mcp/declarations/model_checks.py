"""What can be wrong with a ModelResource: who sees its rows, how they are named, what is shown.

Rule: a whitelist that cannot be kept is refused before anything is served, and
whatever a client may search, filter or order by must be in ``fields``: all of
it can be learnt.

Resources whose rows no client can find, which a check says.

Clients can call without a key: lists, searches, resources at a fixed URI and tools whose arguments
name no row. Rows found that way show keys of other rows, which open their resources and the tools
that take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model

from . import permissions
from .fields.entries import Column, Related
from .fields.keys import key_problems
from .outputs import RowOutput
from .permissions import AUTHENTICATED, MODEL_PERMISSIONS, PUBLIC
from .signature_checks import permission_problem

if TYPE_CHECKING:
    from .catalog import Catalog
    from .model_resources import ModelResource
    from .tools import Tool

REQUIRED: Any = object()
WHITELISTED = ("search_fields", "filter_fields", "ordering")


def permission_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What every declaration is checked for, and rows that everybody would see."""
    declared = resource.permission
    if not resource._states_permission:
        resource.permission = AUTHENTICATED  # for the common checks alone
    yield from resource._common_problems()
    resource.permission = declared
    if resource._asks_django:
        yield from resource._codename_problems(resource._to_view)
    if resource.shared:
        yield resource._error("Rows are never shared.", 57, "Their queryset knows who asks.")
    if declared in (AUTHENTICATED, PUBLIC) and not resource._overrides("get_queryset"):
        message = f"{declared!r} without get_queryset shows every row to everybody."
        hint = "Write get_queryset(self, request); to show every row, let it return .all()."
        yield resource._error(message, 51, hint)


def field_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What is wrong with the whitelist, and with the address that is made of it."""
    if resource.fields is REQUIRED:
        yield resource._error("fields is missing.", 50, "List every field a client may see.")
        return
    yield from chain(_lookup_problems(resource), _whitelist_problems(resource))


def operation_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What is wrong with the operations, with who may do them, and with what they leave alone."""
    known = f"There are: {', '.join(MODEL_PERMISSIONS)}."
    if not _is_list_of(resource.operations, MODEL_PERMISSIONS):
        yield resource._error(f"operations is {resource.operations!r}.", 135, f"A list. {known}")
    for operation, permission in resource.operation_permissions.items():
        if operation not in resource.operations:
            message = f"operation_permissions: {operation!r} is not in operations."
            yield resource._error(message, 136, known)
        elif wrong := _wrong_to_write(permission):
            hint = "Write a codename, a function, or mcp.AUTHENTICATED."
            yield resource._error(f"operation_permissions: {wrong}", 137, hint)
    if not _is_list_of(resource.readonly_fields, resource.fields):
        message = f"readonly_fields is {resource.readonly_fields!r}."
        yield resource._error(message, 138, "A list of names that are in fields.")


def _is_list_of(names: Any, known: Any) -> bool:
    return known is REQUIRED or all(name in [*known] for name in names)


def _wrong_to_write(permission: Any) -> str | None:
    if permission is PUBLIC:
        return "mcp.PUBLIC would let everybody write."
    return permissions.problem(permission) or permission_problem(permission)


def _lookup_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    uri, lookup = resource.uri, resource._lookup
    if resource._template is None or len(resource._template.names) != 1:
        yield resource._error(f"{uri!r} needs one variable.", 52, 'Such as "invoice://{number}".')
    elif lookup != "pk" and not _is_unique(resource, lookup):
        yield resource._error(f"{lookup} does not name one row.", 53, "Use a unique field.")
    elif wrong := key_problems(resource.model, lookup):
        yield resource._error(wrong[0], 59, "Name rows by a number, a text or a UUID.")
    elif lookup != "pk" and lookup not in resource.fields:
        yield resource._error(f"{lookup} is not in fields.", 54, "A URI shows its value.")


def _is_unique(resource: ModelResource, name: str) -> bool:
    try:
        field = resource.model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    alone = [made.fields == (name,) for made in resource.model._meta.total_unique_constraints]
    unique = getattr(field, "unique", False) or any(alone)
    return bool(field.concrete and unique and not getattr(field, "null", False))


def _whitelist_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What cannot be shown, else what is not shown, else what cannot be in order or searched."""
    wrong = [*_shown_problems(resource)] or [*_unlisted_problems(resource)]
    yield from wrong
    for part in () if wrong else (resource._keyset, resource._search):
        for words in part.problems():
            yield resource._error(words, 61, "Name columns that have an order, or texts to search.")


def _shown_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    for words in resource._field_set.problems():
        yield resource._error(
            words, 56, "Name fields, paths over foreign keys, properties or methods."
        )


def _unlisted_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    key = {"pk", getattr(resource.model._meta.pk, "name", "pk")}
    allowed = {*resource.fields} | (key if resource._lookup == "pk" else set())  # the URI shows it
    for option in WHITELISTED:
        for name in getattr(resource, option):
            if name.removeprefix("-") not in allowed:
                hint = "Whatever can be searched, filtered or ordered by can be learnt."
                yield resource._error(f"{option}: {name!r} is not in fields.", 55, hint)


MESSAGE = (
    "Clients cannot find its rows: they are not listed or searched, and nothing that clients can "
    "find without a key shows their keys."
)
HINT = (
    "Write search_fields or filter_fields, or listed = True. Where clients learn the keys from a "
    "tool or from a person, silence this warning."
)


def unreachable(catalog: Catalog) -> Iterator[Warning]:
    """A warning for each model resource whose rows a client can only read by a key it is told."""
    resources = [resource for of_model in catalog.models.values() for resource in of_model]
    found = _found(catalog, resources)
    for resource in resources:
        if resource not in found:
            yield Warning(MESSAGE, hint=HINT, obj=resource, id="django_mcp.W062")


def _found(catalog: Catalog, resources: list[ModelResource]) -> set[ModelResource]:
    """The resources whose rows a client can find that was told no key."""
    found = {resource for resource in resources if _is_listed(resource)}
    while True:
        # Each round follows the keys that were found in the one before, until nothing is new.
        keys = {key for resource in found for key in _keys_shown(resource)}
        more = {resource for resource in resources if _key(resource, resource._lookup) in keys}
        more |= {
            tool._output.found
            for tool in catalog.tools.values()
            if isinstance(tool._output, RowOutput) and tool._output.found and _callable(tool, found)
        }
        if more <= found:
            return found
        found |= more


def _callable(tool: Tool, found: set[ModelResource]) -> bool:
    """Whether a client can name all rows that ``tool`` cannot be called without."""
    needed = [one.binding for one in tool._arguments.parameters.values() if one.required]
    return all(binding is None or binding.resource in found for binding in needed)


def _is_listed(resource: ModelResource) -> bool:
    return bool(resource.listed or resource.search_fields or resource.filter_fields)


def _keys_shown(resource: ModelResource) -> Iterator[tuple[type[Model], str]]:
    """The keys that rows of ``resource`` show: their own, and those of rows they point to."""
    yield _key(resource, resource._lookup)
    for name, entry in resource._field_set.entries.items():
        yield _key(resource, name)
        target: Any = entry.model if isinstance(entry, Related) and entry.path is None else None
        target = entry.points_to if isinstance(entry, Column) else target
        if target is not None:
            yield target, "pk"


def _key(resource: ModelResource, name: str) -> tuple[type[Model], str]:
    """A field that names rows. Of a primary key by its usual name, ``pk``."""
    return resource.model, "pk" if name == resource.model._meta.pk.name else name
