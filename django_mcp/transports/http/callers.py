"""
Who is calling: the token and the session of a request, found in one look-up.

Rule: a token is read from the Authorization header and from nowhere else. What
is not valid is answered by a challenge, and so is whoever shows no token and
asks for what is not for everybody - whether it exists is not told, except where
all there is is for everybody. A session is its owner's alone: to anybody else it
is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from ... import threads
from ...delivery import sessions
from ...dispatch.listening import MAX_SUBSCRIPTIONS
from ...principal import LookupVerifier, Principal, TokenVerifier, anonymous, verifiers
from ...protocol.events import Call
from ...protocol.jsonrpc import Id, InvalidRequest
from .exchanges import Refused

if TYPE_CHECKING:
    from ...declare.catalogs import Catalog
    from ...declare.declarations import Declaration
    from ...declare.servers import Server
    from ...models import Session
    from .exchanges import Exchange

MAX_TOKEN = 8_192


async def identify(exchange: Exchange, id: str | None = None, transport: str = "http") -> None:
    """Set the principal of a request, and its session if it names one. Raises ``Refused``.

    What is wrong with the session is kept, for ``check_session``: whoever does not need one
    ignores the header.
    """
    token = bearer(exchange.headers.get("authorization"))
    if token is None and not exchange.server.catalog.has_public:
        raise challenge(exchange.server)
    exchange.principal, session = await _look_up(exchange.server, token, id)
    if id is not None:
        is_meant = session is not None and session.transport == transport
        found = _owned(exchange, session if is_meant else None, token)
        exchange.session, exchange.no_session = found


def check_session(exchange: Exchange) -> None:
    """Raises ``Refused`` if the session that the request names is not there for its caller."""
    if exchange.no_session is not None:
        raise exchange.no_session


async def still(exchange: Exchange) -> bool:
    """Whether the caller is still the one it was when the request came. Raises ``Busy``.

    If so, its principal is a fresh one: what it may do may have changed.
    """
    token = bearer(exchange.headers.get("authorization"))
    if token is None:
        return True
    try:
        principal, _ = await _look_up(exchange.server, token, None)
    except Refused:
        return False
    same = principal.key == exchange.principal.key
    if same:
        exchange.principal = principal
    return same


async def _look_up(
    server: Server, token: str | None, id: str | None
) -> tuple[Principal, Session | None]:
    """One hop, however much there is to find, unless a verifier has no way to come along."""
    if token is None:
        return anonymous(), None if id is None else await threads.lookups.run(sessions.find, id)
    if len(token) > MAX_TOKEN:
        raise challenge(server, invalid=True)
    principal, session = await _verified(server, token, id)
    if principal is None or not principal.is_authenticated:
        raise challenge(server, invalid=True)
    return principal, session


async def _verified(
    server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    """What the first verifier says that knows the token."""
    for verifier in verifiers():
        if _only_looks_up(verifier):
            found = await threads.lookups.run(_found, verifier, server, token, id)
        else:
            found = await _asked(verifier, server, token, id)
        if found[0] is not None:
            return found
    return None, None


def _found(
    verifier: LookupVerifier, server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    """In a thread: whom the token speaks for, and the session, if that may matter."""
    principal = verifier.lookup(token, server)
    return principal, None if principal is None or id is None else sessions.find(id)


async def _asked(
    verifier: TokenVerifier, server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    async with threads.bounded(threads.verifiers):
        principal = await verifier.verify(token, server)
    if principal is None or id is None:
        return principal, None
    return principal, await threads.lookups.run(sessions.find, id)


def _only_looks_up(verifier: TokenVerifier | LookupVerifier) -> TypeGuard[LookupVerifier]:
    """Whether there is no more to its ``verify`` than that."""
    return isinstance(verifier, LookupVerifier) and type(verifier).verify is LookupVerifier.verify


def _owned(
    exchange: Exchange, session: Session | None, token: str | None
) -> tuple[Session | None, Refused | None]:
    """The session if it is the caller's, or what to say if it is not."""
    if session is not None and session.server == exchange.server.name:
        if session.owner == exchange.principal.key:
            return session, None
        if token is None:
            return None, challenge(exchange.server)
    return None, Refused(404, "There is no such session: initialize a new one.")


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header (RFC 6750, 2.1); None if it holds no such thing."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def challenge(server: Server, *, invalid: bool = False, about: Id | None = None) -> Refused:
    """The 401 that asks for a token (RFC 6750, 3), for the request of an id if that is known."""
    words = f'Bearer realm="{_quotable(server.name)}"'
    if invalid:
        words += ', error="invalid_token", error_description="The token is not valid here."'
    said = "The token is not valid here." if invalid else "A token is needed."
    error = InvalidRequest(said, about=about)
    return Refused(401, error, ((b"www-authenticate", words.encode()),))


def _quotable(text: str) -> str:
    """What of a text may stand in a quoted string (RFC 9110, 5.6.4) as it is."""
    return re.sub(r"[^ !#-\[\]-~]", "?", text)


# What everybody may name.


def check_names(exchange: Exchange, call: Call) -> None:
    """Raises a challenge where somebody unknown names what is not for everybody."""
    catalog = exchange.server.catalog
    if exchange.principal.is_authenticated or catalog.is_public or call.method not in _NAMED:
        return
    for candidates in _NAMED[call.method](catalog, call.params):
        if not any(thing is not None and thing.is_public for thing in candidates):
            raise challenge(exchange.server, about=call.id)


# What is no name at all is for the method to refuse.


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
