"""
What a request names, before anything of it is done: by that it may be refused as a whole.

Rule: whoever shows no token and names what is not for everybody is asked for one - whether it
exists is not told, except where all there is is for everybody. What is no name at all is for the
method to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...dispatch.listening import MAX_SUBSCRIPTIONS
from ...protocol.events import Call
from .challenges import challenge

if TYPE_CHECKING:
    from ...declare.catalogs import Catalog
    from ...declare.declarations import Declaration
    from .exchanges import Exchange


def check_names(exchange: Exchange, call: Call) -> None:
    """Raises a challenge where somebody unknown names what is not for everybody."""
    catalog = exchange.server.catalog
    if exchange.principal.is_authenticated or catalog.is_public:
        return
    for candidates in named(catalog, call):
        if not any(one.is_public for one in candidates):
            raise challenge(exchange, about=call.id)


def named(catalog: Catalog, call: Call) -> Iterator[list[Declaration]]:
    """For each name that a call gives: what may be meant by it."""
    if call.method in _NAMED:
        for candidates in _NAMED[call.method](catalog, call.params):
            yield [one for one in candidates if one is not None]


def _tool(catalog: Catalog, params: dict[str, Any]) -> Names:
    if isinstance(name := params.get("name"), str):
        yield [catalog.tools.get(name)]


def _prompt(catalog: Catalog, params: dict[str, Any]) -> Names:
    if isinstance(name := params.get("name"), str):
        yield [catalog.prompts.get(name)]


def _resource(catalog: Catalog, params: dict[str, Any]) -> Names:
    if isinstance(uri := params.get("uri"), str):
        yield [resource for resource, _ in catalog.at(uri)]


def _listened(catalog: Catalog, params: dict[str, Any]) -> Names:
    wanted = params.get("notifications")
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    for uri in uris[:MAX_SUBSCRIPTIONS] if isinstance(uris, list) else ():
        yield from _resource(catalog, {"uri": uri})


def _referred(catalog: Catalog, params: dict[str, Any]) -> Names:
    ref = params.get("ref")
    if not isinstance(ref, dict):
        return
    if ref.get("type") == "ref/prompt":
        yield from _prompt(catalog, ref)
    elif isinstance(uri := ref.get("uri"), str):
        exact = [resource for resource, _ in catalog.at(uri)]
        yield [catalog.templates.get(uri), *exact]


Names = Iterator[list["Declaration | None"]]  # for each name, what may be meant
_NAMED: dict[str, Callable[[Catalog, dict[str, Any]], Names]] = {
    "tools/call": _tool,
    "prompts/get": _prompt,
    "resources/read": _resource,
    "resources/subscribe": _resource,
    "subscriptions/listen": _listened,
    "completion/complete": _referred,
}
