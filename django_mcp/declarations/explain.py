"""
The way to what is at a URI: every gate on it, and which one is closed.

Rule: the gates are those that reading passes, in that order, and the last one told
is the first that is closed. Here hidden is told from missing, so it is for the
developer at the shell, and is sent to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidArguments, ToolError
from .bindings import KeyBinding
from .model_resources import ModelResource
from .permissions import RuleDecision, decision, method_of, said
from .resources import Resource
from .search_tools import FileResource

if TYPE_CHECKING:
    from .request import Request

Trace = Iterator[RuleDecision]


def trace(resource: Resource, variables: Mapping[str, str], request: Request) -> list[RuleDecision]:
    """The gates between ``request``'s user and what ``resource`` has for these variables."""
    passed = [decision(resource, request)]
    if passed[0].allows:
        passed += _until_closed(_gates(resource, variables, request))
    return passed


def _until_closed(gates: Trace) -> Trace:
    for gate in gates:
        yield gate
        if not gate.allows:
            return


def _gates(resource: Resource, variables: Mapping[str, str], request: Request) -> Trace:
    if isinstance(resource, ModelResource):
        yield from _to_key(resource, variables[resource.lookup], request)
    elif isinstance(resource, FileResource):
        yield from _to_file(resource, variables, request)
    else:
        yield from _to_arguments(resource, variables, request)


# Rows.


def _to_key(resource: ModelResource, given: Any, request: Request) -> Trace:
    try:
        key = resource.key(given)
    except ValueError:
        yield RuleDecision(False, f"{str(given)[:80]!r} is no key of {resource.verbose_name}")
        return
    yield from _to_row(resource, resource.lookup, key, request)


def _to_row(resource: ModelResource, lookup: str, key: Any, request: Request) -> Trace:
    only = {lookup: key}
    model, name = resource.model, f"{resource.verbose_name} {str(key)[:80]}"
    exists = model._base_manager.filter(**only).exists()
    yield RuleDecision(exists, f"{name} {'is' if exists else 'is not'} in the database")
    gate = method_of(resource, "get_queryset")
    row = resource.get_queryset(request).filter(**only).first()
    yield RuleDecision(row is not None, f"{gate} {'has it' if row else 'leaves it out'}")
    if row is not None and resource.overrides("has_object_permission"):
        answer = resource.has_object_permission(request, row, "view")
        yield said(method_of(resource, "has_object_permission"), answer)


def _to_file(resource: FileResource, variables: Mapping[str, str], request: Request) -> Trace:
    rows, name = resource.rows, variables["file"]
    yield from _to_key(rows, variables[rows.lookup], request)
    shown = name in rows.field_set.files
    words = f"{name[:80]!r} {'is' if shown else 'is not'} a file that fields shows"
    yield RuleDecision(shown, words)


# Functions.


def _to_arguments(resource: Resource, variables: Mapping[str, str], request: Request) -> Trace:
    try:
        values = resource.values(variables)
    except ToolError as error:
        yield RuleDecision(False, str(error))
        return
    for name, parameter in resource.arguments.parameters.items():
        if parameter.binding is not None and values.get(name) is not None:
            yield from _named(name, _to_bound(parameter.binding, values[name], request))
    yield RuleDecision(resource.is_there(request, variables), resource.teller)


def _to_bound(binding: KeyBinding, value: Any, request: Request) -> Trace:
    yield decision(binding.resource, request)
    for one in value if binding.many else [value]:
        try:
            lookup, key = binding.key(one)
        except InvalidArguments as error:
            yield RuleDecision(False, str(error))
        else:
            yield from _to_row(binding.resource, lookup, key, request)


def _named(name: str, gates: Trace) -> Trace:
    yield from (RuleDecision(gate.allows, f"{name}: {gate.words}") for gate in gates)
