"""
What can be wrong with a ModelResource: who sees its rows, how they are named, what is shown.

Rule: a whitelist that cannot be kept is refused before anything is served, and
whatever a client may search, filter or order by must be in ``fields``: all of
it can be learnt.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist

from . import permissions
from .permissions import AUTHENTICATED, MODEL_PERMISSIONS, PUBLIC
from .rows.keys import key_problems

if TYPE_CHECKING:
    from .model_resources import ModelResource

REQUIRED: Any = object()
WHITELISTED = ("search_fields", "filter_fields", "ordering")


def permission_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What every declaration is checked for, and rows that everybody would see."""
    declared = resource.permission
    if not resource.states_permission:
        resource.permission = AUTHENTICATED  # for the common checks alone
    yield from resource._common_problems()
    resource.permission = declared
    if resource.shared:
        yield resource.error("Rows are never shared.", 57, "Their queryset knows who asks.")
    if declared in (AUTHENTICATED, PUBLIC) and not resource.overrides("get_queryset"):
        message = f"{declared!r} without get_queryset shows every row to everybody."
        hint = "Write get_queryset(self, request); to show every row, let it return .all()."
        yield resource.error(message, 51, hint)


def field_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What is wrong with the whitelist, and with the address that is made of it."""
    if resource.fields is REQUIRED:
        yield resource.error("fields is missing.", 50, "List every field a client may see.")
        return
    wrong = [*_list_problems(resource)]
    yield from wrong or chain(_lookup_problems(resource), _whitelist_problems(resource))


def operation_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """What is wrong with the operations, with who may do them, and with what they leave alone."""
    known = f"There are: {', '.join(MODEL_PERMISSIONS)}."
    if not _is_list_of(resource.operations, MODEL_PERMISSIONS):
        yield resource.error(f"operations is {resource.operations!r}.", 135, f"A list. {known}")
    for operation, permission in resource.operation_permissions.items():
        if operation not in resource.operations:
            message = f"operation_permissions: {operation!r} is not in operations."
            yield resource.error(message, 136, known)
        elif wrong := _wrong_to_write(permission):
            hint = "Write a codename, a function, or mcp.AUTHENTICATED."
            yield resource.error(f"operation_permissions: {wrong}", 137, hint)
    if not _is_list_of(resource.readonly_fields, resource.fields):
        message = f"readonly_fields is {resource.readonly_fields!r}."
        yield resource.error(message, 138, "A list of names that are in fields.")


def _is_list_of(names: Any, known: Any) -> bool:
    if not isinstance(names, list | tuple):
        return False
    return known is REQUIRED or all(name in [*known] for name in names)


def _wrong_to_write(permission: Any) -> str | None:
    if permission is PUBLIC:
        return "mcp.PUBLIC would let everybody write."
    return permissions.problem(permission)


def _list_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    for option in ("fields", *WHITELISTED):
        names = getattr(resource, option)
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            yield resource.error(f"{option} is {names!r}.", 60, "Write a list of names.")


def _lookup_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    uri, lookup = resource.uri, resource.lookup
    if resource.template is None or len(resource.template.names) != 1:
        yield resource.error(f"{uri!r} needs one variable.", 52, 'Such as "invoice://{number}".')
    elif lookup != "pk" and not _is_unique(resource, lookup):
        yield resource.error(f"{lookup} does not name one row.", 53, "Use a unique field.")
    elif wrong := key_problems(resource.model, lookup):
        yield resource.error(wrong[0], 59, "Name rows by a number, a text or a UUID.")
    elif lookup != "pk" and lookup not in resource.fields:
        yield resource.error(f"{lookup} is not in fields.", 54, "A URI shows its value.")


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
    for part in () if wrong else (resource.keyset, resource.search):
        for words in part.problems():
            yield resource.error(words, 61, "Name columns that have an order, or texts to search.")


def _shown_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    for words in resource.field_set.problems():
        yield resource.error(words, 56, "Name fields, paths over foreign keys, or properties.")


def _unlisted_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    key = {"pk", getattr(resource.model._meta.pk, "name", "pk")}
    allowed = {*resource.fields} | (key if resource.lookup == "pk" else set())  # the URI shows it
    for option in WHITELISTED:
        for name in getattr(resource, option):
            if name.removeprefix("-") not in allowed:
                hint = "Whatever can be searched, filtered or ordered by can be learnt."
                yield resource.error(f"{option}: {name!r} is not in fields.", 55, hint)
