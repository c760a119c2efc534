"""
Who is calling: the token and the session of a request, found in one look-up.

Rule: a token is read from the Authorization header and from nowhere else. What
is not valid is answered by a challenge, and so is whoever shows no token where
nothing is for everybody; one that its verifier finds too narrow, by 403. A
session is its owner's alone: to anybody else it is not there, and whoever shows
one that is not theirs is in the log, by name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, cast

from ... import threads
from ...delivery import sessions
from ...exceptions import InsufficientScope
from ...principal import (
    LookupVerifier,
    Principal,
    TokenVerifier,
    anonymous,
    looked_up,
    verifiers,
)
from .challenges import challenge, insufficient
from .exchanges import Refused

if TYPE_CHECKING:
    from ...declare.servers import Server
    from ...models import Session
    from .exchanges import Exchange

logger = logging.getLogger("django_mcp")
MAX_TOKEN = 8_192


async def identify(exchange: Exchange, id: str | None = None, transport: str = "http") -> None:
    """Set the principal of a request, and its session if it names one. Raises ``Refused``.

    What is wrong with the session is kept, for ``check_session``: whoever does not need one
    ignores the header.
    """
    token = bearer(exchange.headers.get("authorization"))
    if token is None and not exchange.server.catalog.has_public:
        raise challenge(exchange)
    exchange.principal, session = await _look_up(exchange, token, id)
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
        principal, _ = await _look_up(exchange, token, None)
    except Refused:
        return False
    same = principal.key == exchange.principal.key
    if same:
        exchange.principal = principal
    return same


async def _look_up(
    exchange: Exchange, token: str | None, id: str | None
) -> tuple[Principal, Session | None]:
    """One hop, however much there is to find, unless a verifier has no way to come along."""
    if token is None:
        return anonymous(), None if id is None else await threads.lookups.run(sessions.find, id)
    if len(token) > MAX_TOKEN:
        raise challenge(exchange, invalid=True)
    try:
        principal, session = await _verified(exchange.server, token, id)
    except InsufficientScope as narrow:
        raise insufficient(exchange, narrow.scopes) from None
    if principal is None or not principal.is_authenticated:
        raise challenge(exchange, invalid=True)
    return principal, session


async def _verified(
    server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    """What the first verifier says that knows the token; in one hop, those that only look up."""
    for only_look_up, group in groupby(verifiers(), _only_looks_up):
        if only_look_up:
            looking = cast(list[LookupVerifier], list(group))
            found = await looked_up(_found, looking, server, token, id)
        else:
            found = await _asked(list(group), server, token, id)
        if found[0] is not None:
            return found
    return None, None


def _found(
    verifiers: Iterable[LookupVerifier], server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    """In a thread: whom the token speaks for, and the session, if that may matter."""
    said = (verifier.lookup(token, server) for verifier in verifiers)
    principal = next((one for one in said if one is not None), None)
    return principal, None if principal is None or id is None else sessions.find(id)


async def _asked(
    verifiers: Iterable[TokenVerifier], server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    for verifier in verifiers:
        async with threads.bounded(threads.verifiers):
            principal = await verifier.verify(token, server)
        if principal is not None:
            session = None if id is None else await threads.lookups.run(sessions.find, id)
            return principal, session
    return None, None


def _only_looks_up(verifier: TokenVerifier | LookupVerifier) -> bool:
    """Whether there is no more to its ``verify`` than that."""
    return isinstance(verifier, LookupVerifier) and type(verifier).verify is LookupVerifier.verify


def _owned(
    exchange: Exchange, session: Session | None, token: str | None
) -> tuple[Session | None, Refused | None]:
    """The session if it is the caller's, or what to say if it is not."""
    if session is not None and session.server == exchange.server.name:
        if session.owner == exchange.principal.key:
            return session, None
        _tell(session, exchange.principal)
        if token is None:
            return None, challenge(exchange)
    return None, Refused(404, "There is no such session: initialize a new one.")


def _tell(session: Session, caller: Principal) -> None:
    """Neither the session's id nor a token: by names alone nobody comes in."""
    who = caller.key or "nobody"
    logger.warning("Session %s of %s was shown by %s", session.pk, session.owner or "nobody", who)


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header (RFC 6750, 2.1); None if it holds no such thing."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
