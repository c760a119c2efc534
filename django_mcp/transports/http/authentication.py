"""Authentication of HTTP requests: the principal of the token, the session, and token expiry.

A token is read only from the Authorization header. An invalid token gets 401, and so does a request
without a token if the server has nothing public. A token that its verifier finds too narrow gets
403. A session belongs to the principal that opened it: all others get 404, and the attempt is
logged. Verifiers that only query the database run in one job of a thread pool, with the session.

``until`` ends a connection when its token expires. It does not end the calls of the connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from django.utils import timezone

from ...auth.principal import (
    LookupVerifier,
    Principal,
    TokenVerifier,
    anonymous,
    client_network,
    look_up_with_retry,
    verifier_groups,
)
from ...exceptions import InsufficientScope
from ...runtime import threads
from ...runtime.async_orm import orm_in_pool
from .lookups import lookups
from .request import RequestRejected
from .security import challenge, insufficient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ...auth.principal import Principal
    from ...declarations.server import Server
    from ...models import Session
    from .request import Exchange

logger = logging.getLogger("django_mcp.oauth")
MAX_TOKEN_LENGTH = 8_192


async def identify(exchange: Exchange, id: str | None = None, transport: str = "http") -> None:
    """Set the principal of a request, and its session if ``id`` names one.

    Raise ``RequestRejected``.

    An error about the session is stored for ``check_session``, as requests that need no session
    ignore the header.
    """
    token = bearer(exchange.headers.get("authorization"))
    if token is None and not exchange.server._catalog.has_public:
        raise challenge(exchange)
    exchange.principal, session = await _look_up(exchange, token, id)
    if id is not None:
        is_meant = session is not None and session.transport == transport
        found = _owned(exchange, session if is_meant else None, token)
        exchange.session, exchange.no_session = found


def check_session(exchange: Exchange) -> None:
    """Raise ``RequestRejected`` if the request's session does not exist for its caller."""
    if exchange.no_session is not None:
        raise exchange.no_session


async def still(exchange: Exchange) -> bool:
    """Whether the request's token is still valid and of the same principal. Raise ``Busy``.

    If so, replace the principal by a fresh one, as permissions may have changed.
    """
    token = bearer(exchange.headers.get("authorization"))
    if token is None:
        return True
    try:
        principal, _ = await _look_up(exchange, token, None)
    except RequestRejected:
        return False
    same = principal.key == exchange.principal.key
    if same:
        exchange.principal = principal
    return same


async def _look_up(
    exchange: Exchange, token: str | None, id: str | None
) -> tuple[Principal, Session | None]:
    """Return the principal and the session. Raise ``RequestRejected``."""
    server = exchange.server
    if token is None:
        found = (None, None) if id is None else await lookups().find((), server, None, id)
        return anonymous(client_network(exchange.remote)), found[1]
    if len(token) > MAX_TOKEN_LENGTH:
        raise challenge(exchange, invalid=True)
    try:
        principal, session = await _verified(server, token, id)
    except InsufficientScope as narrow:
        raise insufficient(exchange, narrow.scopes) from None
    if principal is None or not principal.is_authenticated:
        _log_unknown(server, token)
        raise challenge(exchange, invalid=True)
    return principal, session


async def _verified(
    server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    """Return the principal of the first verifier that knows the token, and the session.

    Consecutive verifiers that only look up share one job in a thread. The order of the verifiers
    is kept.
    """
    for only_look_up, verifiers in verifier_groups():
        if only_look_up:
            looking_up = cast(tuple[LookupVerifier, ...], verifiers)
            found = await look_up_with_retry(partial(lookups().find, looking_up, server, token, id))
        else:
            found = await _verify_in_order(verifiers, server, token, id)
        if found[0] is not None:
            return found
    return None, None


async def _verify_in_order(
    verifiers: Iterable[TokenVerifier], server: Server, token: str, id: str | None
) -> tuple[Principal | None, Session | None]:
    for verifier in verifiers:
        async with orm_in_pool(threads.verifiers):
            principal = await verifier.verify(token, server)
        if principal is not None:
            found = (None, None) if id is None else await lookups().find((), server, None, id)
            return principal, found[1]
    return None, None


def _owned(
    exchange: Exchange, session: Session | None, token: str | None
) -> tuple[Session | None, RequestRejected | None]:
    """Return the session if it is the caller's, or else the error to raise when it is needed."""
    if session is not None and session.server == exchange.server.name:
        if session.owner == exchange.principal.key:
            return session, None
        _log_misuse(session, exchange.principal)
        if token is None:
            return None, challenge(exchange)
    return None, RequestRejected(404, "There is no such session: initialize a new one.")


def _log_unknown(server: Server, token: str) -> None:
    """Log only the start of the token's digest: a log must not contain credentials."""
    digest = hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
    logger.info("Unknown access token: server=%s sha256=%s", server.name, digest[:12])


def _log_misuse(session: Session, caller: Principal) -> None:
    """Log that a caller used the session of another principal, without its id or a token."""
    caller_key = caller.key or "nobody"
    logger.warning(
        "Session used by another principal: session=%s owner=%s principal=%s",
        session.pk,
        session.owner or "nobody",
        caller_key,
    )


def bearer(authorization: str | None) -> str | None:
    """Return the token of an Authorization header (RFC 6750, 2.1); None if there is no token."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


MAX_TIMER_SECONDS = 86_400.0 * 30  # seconds; a later expiry is treated as one at this time


def expiry_of(principal: Principal) -> datetime | None:
    """Return when the principal's token expires; None if never, or if there is no token."""
    return None if principal.auth is None else principal.auth.expires


@contextmanager
def until(
    expires: datetime | None, end: Callable[[], object], *, later: float = 0
) -> Iterator[None]:
    """Call ``end`` in the loop ``later`` seconds after the expiry, unless the block has ended."""
    if expires is None:
        yield
        return
    seconds = max(0.0, (expires - timezone.now()).total_seconds()) + later
    timer = asyncio.get_running_loop().call_later(min(seconds, MAX_TIMER_SECONDS), end)
    try:
        yield
    finally:
        timer.cancel()
