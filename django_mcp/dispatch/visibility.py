"""
What of some resources a caller may see: for reading, subscribing and telling.

Rule: one answer for all three, asked afresh each time, of the same queryset;
where a router has rows read from a replica, of the database that they are written to.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..declare.model_resources import ModelResource, written
from ..declare.resources import Resource
from ..exceptions import InvalidArguments
from .places import AnyRow, place_of, resources

if TYPE_CHECKING:
    from ..declare.requests import Request


FIRST = 100  # rows that are asked one by one


def visible(request: Request, uris: Iterable[str]) -> dict[str, str]:
    """Those of ``uris`` that ``request``'s user may read, and the row of each if it is one.

    One query for each model resource.
    """
    seen: dict[str, str] = {}
    keys: dict[ModelResource, dict[object, list[str]]] = {}
    for uri in uris:
        if isinstance(uri, AnyRow):
            seen |= {uri: ""} if _lists_any(request, uri) else {}
            continue
        for resource, variables in request.server.catalog.at(uri):
            if isinstance(resource, ModelResource):
                _collect(keys, resource, uri)
            elif resource.admits(request) and _fits(resource, variables, request):
                seen[uri] = ""
    for rows, wanted in keys.items():
        for key, row in rows.fetch(request, list(wanted), fresh=True).items():
            for uri in wanted.get(key, ()):  # a database may know other spellings
                seen[uri] = place_of(rows, row)
    return seen


def _collect(
    keys: dict[ModelResource, dict[object, list[str]]], rows: ModelResource, uri: str
) -> None:
    with suppress(ValueError):
        keys.setdefault(rows, {}).setdefault(rows.key(uri), []).append(uri)


def _lists_any(request: Request, label: str) -> bool:
    """Whether lists show the user any row of a model; where each is asked, one of the first."""
    shown = [one for one in resources(request.server).get(label, ()) if one.listed]
    return any(_shows_any(request, one) for one in shown if one.admits(request))


def _shows_any(request: Request, rows: ModelResource) -> bool:
    found = written(rows.get_listed(request))
    if (gate := rows.gate(request)) is None:
        return found.exists()
    return any(map(gate, found[:FIRST]))


def _fits(resource: Resource, variables: dict[str, str], request: Request) -> bool:
    """Whether the variables are arguments, and name rows the user may use."""
    try:
        resource.arguments.bind(resource.values(variables), request, write=False)
    except InvalidArguments:
        return False
    return resource.is_there(request, variables)
