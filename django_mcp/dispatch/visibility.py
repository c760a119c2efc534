"""
What of some resources a caller may see: for reading, subscribing and telling.

Rule: one answer for all three, asked afresh each time, of the same queryset.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..declare.model_resources import ModelResource
from ..declare.resources import Resource
from ..exceptions import InvalidArguments

if TYPE_CHECKING:
    from ..declare.requests import Request


def visible(request: Request, uris: Iterable[str]) -> set[str]:
    """Those of ``uris`` that ``request``'s user may read. One query per model."""
    seen: set[str] = set()
    keys: dict[ModelResource, dict[object, list[str]]] = {}
    for uri in uris:
        for resource, variables in request.server.catalog.at(uri):
            if isinstance(resource, ModelResource):
                _collect(keys, resource, uri)
            elif resource.admits(request) and _fits(resource, variables, request):
                seen.add(uri)
    for rows, wanted in keys.items():
        for key in rows.fetch(request, list(wanted)):
            seen.update(wanted.get(key, ()))  # a database may know other spellings
    return seen


def _collect(
    keys: dict[ModelResource, dict[object, list[str]]], rows: ModelResource, uri: str
) -> None:
    with suppress(ValueError):
        keys.setdefault(rows, {}).setdefault(rows.key(uri), []).append(uri)


def _fits(resource: Resource, variables: dict[str, str], request: Request) -> bool:
    """Whether the variables are arguments, and name rows the user may use."""
    try:
        resource.arguments.bind(resource.values(variables), request, write=False)
    except InvalidArguments:
        return False
    return resource.is_there(request, variables)
