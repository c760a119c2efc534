"""
Each condition under which a URI can be read, and whether a user meets it, for ``mcp_explain``.

``conditions`` yields decisions in the order in which reading checks them, and stops at the first
that denies access. It distinguishes hidden from missing rows, so it is for developers, never for
clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..declarations.arguments import KeyBinding
from ..declarations.model_resources import ModelResource
from ..declarations.permissions import Decision, decide, decided_by, method_of
from ..declarations.resources import Resource
from ..declarations.search_tools import FileResource
from ..exceptions import InvalidArguments, ToolError

if TYPE_CHECKING:
    from ..declarations.request import Request

Decisions = Iterator[Decision]


def conditions(
    resource: Resource, variables: Mapping[str, str], request: Request
) -> list[Decision]:
    """Return the decisions on reading ``resource`` with these variables of its URI."""
    decisions = [decide(resource, request)]
    if decisions[0].allowed:
        decisions += _stop_at_denial(_conditions_of(resource, variables, request))
    return decisions


def _stop_at_denial(decisions: Decisions) -> Decisions:
    for decision in decisions:
        yield decision
        if not decision.allowed:
            return


def _decision(allowed: bool, words: str) -> Decision:
    return Decision(allowed, lambda: words)


def _conditions_of(resource: Resource, variables: Mapping[str, str], request: Request) -> Decisions:
    if isinstance(resource, ModelResource):
        yield from _for_key(resource, variables[resource._lookup], request)
    elif isinstance(resource, FileResource):
        yield from _for_file(resource, variables, request)
    else:
        yield from _for_arguments(resource, variables, request)


# Rows.


def _for_key(resource: ModelResource, given: Any, request: Request) -> Decisions:
    try:
        key = resource._key(given)
    except ValueError:
        yield _decision(False, f"{str(given)[:80]!r} is not a key of {resource._verbose_name}")
        return
    yield from _for_row(resource, resource._lookup, key, request)


def _for_row(resource: ModelResource, lookup: str, key: Any, request: Request) -> Decisions:
    model, name = resource.model, f"{resource._verbose_name} {str(key)[:80]}"
    exists = model._base_manager.filter(**{lookup: key}).exists()
    yield _decision(exists, f"{name} {'is' if exists else 'is not'} in the database")
    method = method_of(resource, "get_queryset")
    row = resource.get_queryset(request).filter(**{lookup: key}).first()
    yield _decision(row is not None, f"{method} {'has it' if row else 'leaves it out'}")
    if row is not None and resource._overrides("has_object_permission"):
        answer = resource.has_object_permission(request, row, "view")
        yield decided_by(method_of(resource, "has_object_permission"), answer)


def _for_file(resource: FileResource, variables: Mapping[str, str], request: Request) -> Decisions:
    rows, name = resource._resource, variables["file"]
    yield from _for_key(rows, variables[rows._lookup], request)
    is_file = name in rows._field_set.files
    words = f"{name[:80]!r} {'is' if is_file else 'is not'} a file that fields shows"
    yield _decision(is_file, words)


# Functions.


def _for_arguments(resource: Resource, variables: Mapping[str, str], request: Request) -> Decisions:
    try:
        values = resource._values(variables)
    except ToolError as error:
        yield _decision(False, str(error))
        return
    for name, parameter in resource._arguments.parameters.items():
        if parameter.binding is not None and values.get(name) is not None:
            yield from _add_prefix(name, _for_bound_rows(parameter.binding, values[name], request))
    yield _decision(resource._is_there(request, variables), resource._read_by)


def _for_bound_rows(binding: KeyBinding, value: Any, request: Request) -> Decisions:
    yield decide(binding.resource, request)
    for one in value if binding.many else [value]:
        try:
            lookup, key = binding.key(one)
        except InvalidArguments as error:
            yield _decision(False, str(error))
        else:
            yield from _for_row(binding.resource, lookup, key, request)


def _add_prefix(name: str, decisions: Decisions) -> Decisions:
    yield from (_decision(one.allowed, f"{name}: {one.reason}") for one in decisions)
