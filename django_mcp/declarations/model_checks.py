"""System checks of model resources: permissions, whitelists, the URI, and rows nobody can find.

A name in ``search_fields``, ``filter_fields`` or ``ordering`` must be in ``fields``, because a
client can learn a value by searching for it.

``unreachable`` warns of a resource whose rows no client can find. Clients can call lists, searches,
resources at a fixed URI and tools without a key. The rows that these return show keys of other
rows, by which clients read those.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model

from . import permissions
from .attribute_checks import permission_problem
from .fields.entries import Column, Related
from .fields.keys import key_problems
from .outputs import RowOutput
from .permissions import AUTHENTICATED, MODEL_PERMISSIONS, PUBLIC

if TYPE_CHECKING:
    from .catalog import Catalog
    from .model_resources import ModelResource
    from .tools import Tool

REQUIRED: Any = object()
WHITELISTED = ("search_fields", "filter_fields", "ordering")


def permission_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield the problems of every declaration, and rows that would be visible to everybody."""
    declared = resource.permission
    if not resource._states_permission:
        # Unset means Django's "view" permission. The common checks need a permission of the
        # ordinary kind, so this one is set while they run.
        resource.permission = AUTHENTICATED
    yield from resource._common_problems()
    resource.permission = declared
    if resource._asks_django:
        yield from resource._codename_problems(resource._to_view)
    if resource.shared:
        message = "shared has no effect on rows, because their queryset depends on the user."
        yield resource._error(message, 57, "Remove shared.")
    if declared in (AUTHENTICATED, PUBLIC) and not resource._overrides("get_queryset"):
        message = f"{declared!r} without get_queryset shows every row to everybody."
        hint = "Write get_queryset(self, request). To show every row, let it return .all()."
        yield resource._error(message, 51, hint)


def field_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with the whitelist and with the URI."""
    if resource.fields is REQUIRED:
        hint = "List every field that a client may see."
        yield resource._error("fields is missing.", 50, hint)
        return
    yield from chain(_lookup_problems(resource), _whitelist_problems(resource))


def operation_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with ``operations``, their permissions and ``readonly_fields``."""
    known = f"The operations are: {', '.join(MODEL_PERMISSIONS)}."
    if not _is_list_of(resource.operations, MODEL_PERMISSIONS):
        hint = f"Write a list. {known}"
        yield resource._error(f"operations is {resource.operations!r}.", 135, hint)
    for operation, permission in resource.operation_permissions.items():
        if operation not in resource.operations:
            message = f"operation_permissions: {operation!r} is not in operations."
            yield resource._error(message, 136, known)
        elif wrong := _operation_permission_problem(permission):
            hint = "Write a codename, a function, or mcp.AUTHENTICATED."
            yield resource._error(f"operation_permissions: {wrong}", 137, hint)
    if not _is_list_of(resource.readonly_fields, resource.fields):
        message = f"readonly_fields is {resource.readonly_fields!r}."
        yield resource._error(message, 138, "Write a list of names that are in fields.")


def _is_list_of(names: Any, known: Any) -> bool:
    return known is REQUIRED or all(name in [*known] for name in names)


def _operation_permission_problem(permission: Any) -> str | None:
    if permission is PUBLIC:
        return "mcp.PUBLIC would allow everybody to write."
    return permissions.problem(permission) or permission_problem(permission)


def _lookup_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with the URI's variable, which identifies a row."""
    uri, lookup = resource.uri, resource._lookup
    if resource._template is None or len(resource._template.names) != 1:
        hint = 'Write a URI such as "invoice://{number}".'
        yield resource._error(f"{uri!r} must have exactly one variable.", 52, hint)
    elif lookup != "pk" and not _is_unique(resource, lookup):
        message = f"The variable {lookup} of the URI does not identify one row."
        yield resource._error(message, 53, "Use a unique field that is not nullable.")
    elif wrong := key_problems(resource.model, lookup):
        yield resource._error(wrong[0], 59, "Identify rows by a number, a string or a UUID.")
    elif lookup != "pk" and lookup not in resource.fields:
        message = f"The variable {lookup} of the URI is not in fields."
        yield resource._error(message, 54, "Add it: the URI shows its value to clients.")


def _is_unique(resource: ModelResource, name: str) -> bool:
    """Whether a field always identifies exactly one row."""
    try:
        field = resource.model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    alone = [made.fields == (name,) for made in resource.model._meta.total_unique_constraints]
    unique = getattr(field, "unique", False) or any(alone)
    return bool(field.concrete and unique and not getattr(field, "null", False))


def _whitelist_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield problems of the whitelist, and if there are none, those of ordering and search."""
    wrong = [*_shown_problems(resource)] or [*_unlisted_problems(resource)]
    yield from wrong
    for part in () if wrong else (resource._keyset, resource._search):
        for message in part.problems():
            hint = "Name columns that have an order, or text columns to search."
            yield resource._error(message, 61, hint)


def _shown_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    for message in resource._field_set.problems():
        hint = "Name fields, paths over foreign keys, properties or methods."
        yield resource._error(message, 56, hint)


def _unlisted_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield names that clients can search, filter or order by but that are not in ``fields``."""
    key = {"pk", getattr(resource.model._meta.pk, "name", "pk")}
    allowed = {*resource.fields} | (key if resource._lookup == "pk" else set())  # the URI shows it
    for option in WHITELISTED:
        for name in getattr(resource, option):
            if name.removeprefix("-") not in allowed:
                hint = (
                    "Add it. By searching, filtering or ordering, clients can find out its values."
                )
                yield resource._error(f"{option}: {name!r} is not in fields.", 55, hint)


MESSAGE = (
    "Clients cannot find its rows. They are neither listed nor searched, and no row that clients "
    "can find without a key contains their keys."
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


def _findable(catalog: Catalog, resources: list[ModelResource]) -> set[ModelResource]:
    """Return the resources whose rows a client can find without knowing a key."""
    found = {resource for resource in resources if _is_listed(resource)}
    while True:
        # Each round follows the keys that the previous one found, until nothing is added.
        keys = {key for resource in found for key in _keys_shown(resource)}
        more = {resource for resource in resources if _key(resource, resource._lookup) in keys}
        more |= {
            tool._output.found
            for tool in catalog.tools.values()
            if isinstance(tool._output, RowOutput)
            and tool._output.found
            and _is_callable(tool, found)
        }
        if more <= found:
            return found
        found |= more


def _is_callable(tool: Tool, found: set[ModelResource]) -> bool:
    """Whether a client can find a key for every required argument of ``tool``."""
    needed = [one.binding for one in tool._arguments.parameters.values() if one.required]
    return all(binding is None or binding.resource in found for binding in needed)


def _is_listed(resource: ModelResource) -> bool:
    return bool(resource.listed or resource.search_fields or resource.filter_fields)


def _keys_shown(resource: ModelResource) -> Iterator[tuple[type[Model], str]]:
    """Yield the keys that rows of ``resource`` show: their own, and those of related rows."""
    yield _key(resource, resource._lookup)
    for name, entry in resource._field_set.entries.items():
        yield _key(resource, name)
        target: Any = entry.model if isinstance(entry, Related) and entry.path is None else None
        target = entry.points_to if isinstance(entry, Column) else target
        if target is not None:
            yield target, "pk"


def _key(resource: ModelResource, name: str) -> tuple[type[Model], str]:
    """Return a field that identifies rows. The primary key always has the name ``pk``."""
    return resource.model, "pk" if name == resource.model._meta.pk.name else name
