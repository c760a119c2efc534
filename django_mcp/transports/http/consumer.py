"""
The MCP endpoint of one server, as an ASGI consumer of Channels.

``MCPConsumer`` checks the request, calls the function for its HTTP method (``HANDLERS``), and turns
every error into a response. Each request gets exactly one response, so Channels' dispatch by
message type and its channel layer are not used. ``watched`` is around the work of a request: it
stops when the client disconnects, its token is revoked or the process shuts down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from channels.consumer import AsyncConsumer

from ...exceptions import Busy
from ...protocol import http_rules
from ...protocol.jsonrpc import InternalError, Overloaded, ProtocolError, decode
from ...runtime import address_probe
from ...runtime.address_probe import REQUEST_HEADER as ADDRESS_PROBE
from ...storage.databases import is_unmigrated
from ...storage.jobs import BROKEN
from . import legacy_sse, sessions, stateless
from .authentication import check_session, identify
from .request import Application, ClientDisconnected, Exchange, RequestRejected
from .security import challenge, guard, preflight
from .shutdown import OUTCOME_UNKNOWN_ERROR, RETRY_AFTER_HEADERS, SHUTTING_DOWN_ERROR
from .stateless import STATELESS_REVISIONS

if TYPE_CHECKING:
    from ...declarations.server import Server

logger = logging.getLogger("django_mcp.sessions")
UNMIGRATED = Overloaded(
    "Tables of this server are missing in its database: run manage.py migrate.",
    data={"retryAfter": 1},
)
UNREACHABLE = Overloaded("Nothing can be answered just now. Try again.", data={"retryAfter": 1})


class MCPConsumer(AsyncConsumer):  # type: ignore[misc]
    """ASGI consumer that serves ``server``: ``MCPConsumer.as_asgi(server=mcp.server)``.

    ``page`` is an ASGI application that answers requests of browsers for an HTML page.
    """

    def __init__(self, server: Server, page: Application | None = None) -> None:
        self.server, self.page = server, page

    async def dispatch(self, message: Any) -> None:
        raise NotImplementedError("A request is answered as a whole.")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer the request; turn every exception into a response."""
        try:
            exchange = Exchange(self.server, scope, receive, send)
        except RequestRejected as refused:
            # The headers were rejected, so the response is made for a request without any.
            exchange = Exchange(self.server, {**scope, "headers": ()}, receive, send)
            await exchange.refuse(refused)
            return
        try:
            if exchange.method in VISITS and self.page is not None and is_visit(exchange):
                guard(exchange, VISITS)
                await exchange.hand_over(self.page)
                return
            guard(exchange)
            if ADDRESS_PROBE in exchange.headers:
                exchange.cors += _seen_address(exchange)
            await HANDLERS[exchange.method](exchange)
        except RequestRejected as refused:
            await exchange.refuse(refused)
        except ClientDisconnected:
            pass
        except Busy as error:
            await exchange.refuse(RequestRejected(503, Overloaded(str(error)), RETRY_AFTER_HEADERS))
        except Exception as error:
            await exchange.refuse(_failed(error))


def _failed(error: Exception) -> RequestRejected:
    """Log an unexpected error, and return the response for it, which contains no details."""
    if is_unmigrated(error):
        # Without a traceback: until the migrations run, every request would log one.
        logger.error("%s (%s)", UNMIGRATED, str(error).partition("\n")[0])
        return RequestRejected(503, UNMIGRATED, RETRY_AFTER_HEADERS)
    if isinstance(error, BROKEN):
        logger.exception("Request rejected: a database cannot be reached")
        return RequestRejected(503, UNREACHABLE, RETRY_AFTER_HEADERS)
    logger.exception("A request failed")
    return RequestRejected(500, InternalError())


def _seen_address(exchange: Exchange) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that ``mcp_doctor`` asks for; nothing if the request is not signed."""
    forwarded = (value for name, value in exchange.scope["headers"] if name == b"x-forwarded-for")
    value = address_probe.response_value(
        exchange.headers[ADDRESS_PROBE],
        (exchange.scope.get("client") or ("",))[0],
        b", ".join(forwarded).decode("latin-1"),
    )
    return ((address_probe.RESPONSE_HEADER.encode(), value.encode()),) if value else ()


async def post(exchange: Exchange) -> None:
    """Answer a POST of one message or a batch. Raise ``RequestRejected``."""
    if exchange.server.sse and (id := legacy_sse.addressed(exchange)) is not None:
        await _post_to_stream(exchange, id)
        return
    header = exchange.revision_header
    await identify(exchange, None if header in STATELESS_REVISIONS else exchange.session_id)
    if not http_rules.NEEDED["POST"] <= http_rules.accepts(exchange.headers.get("accept")):
        raise RequestRejected(406, "Accept must list application/json and text/event-stream.")
    message = await _read_message(exchange)
    if stateless.stands_alone(message, header):
        await watched(exchange, stateless.post(exchange, message))
    else:
        check_session(exchange)
        await watched(exchange, sessions.post(exchange, message))


async def _post_to_stream(exchange: Exchange, id: str) -> None:
    """Answer a POST over HTTP+SSE, whose responses go to the session's stream."""
    await identify(exchange, id, legacy_sse.NAME)
    check_session(exchange)
    message = await _read_message(exchange)
    await watched(exchange, legacy_sse.post(exchange, message))


async def _read_message(exchange: Exchange) -> Any:
    """Return the decoded body. Raise ``RequestRejected``."""
    headers = exchange.headers
    if not http_rules.is_json(headers.get("content-type")):
        raise RequestRejected(415, "Content-Type must be application/json.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestRejected(
            415, "The body must not be compressed.", ((b"accept-encoding", b"identity"),)
        )
    raw = await exchange.body()
    try:
        return decode(raw)
    except ProtocolError as error:
        raise RequestRejected(400, error) from None


async def get(exchange: Exchange) -> None:
    """Send a stream of a session. Over HTTP+SSE this opens or resumes the session."""
    if exchange.revision_header in STATELESS_REVISIONS:
        raise RequestRejected(405, "This revision has no GET.", ((b"allow", b"POST"),))
    over_sse = legacy_sse.is_meant(exchange)
    if over_sse:
        await identify(exchange, legacy_sse.resumed_id(exchange), legacy_sse.NAME)
    else:
        await identify(exchange, exchange.session_id)
    accept = exchange.headers.get("accept")
    is_optional = over_sse and accept is None  # the first revision does not require the header
    if not is_optional and not http_rules.NEEDED["GET"] <= http_rules.accepts(accept):
        raise RequestRejected(406, "Accept must list text/event-stream.")
    check_session(exchange)
    await exchange.body()
    await watched(exchange, (legacy_sse if over_sse else sessions).get(exchange))


async def delete(exchange: Exchange) -> None:
    """Delete a session."""
    if exchange.revision_header in STATELESS_REVISIONS:
        raise RequestRejected(405, "This revision has no DELETE.", ((b"allow", b"POST"),))
    if (id := legacy_sse.addressed(exchange)) is not None:
        await identify(exchange, id, legacy_sse.NAME)
    else:
        await identify(exchange, exchange.session_id)
    check_session(exchange)
    await exchange.body()
    await sessions.delete(exchange)


async def options(exchange: Exchange) -> None:
    """Answer a CORS preflight."""
    await exchange.body()  # some servers close a connection whose body was not read
    await preflight(exchange)


HANDLERS: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    "POST": post, "GET": get, "DELETE": delete, "OPTIONS": options,
}  # fmt: skip

# A browser's visit is a GET that accepts HTML and has none of the protocol's headers.
VISITS = ("GET", "HEAD")
PROTOCOL_HEADERS = (http_rules.PROTOCOL_VERSION, http_rules.SESSION_ID, http_rules.LAST_EVENT_ID)


def is_visit(exchange: Exchange) -> bool:
    """Whether a GET or HEAD asks for an HTML page, as a browser does."""
    headers = exchange.headers
    return http_rules.takes_page(headers.get("accept")) and headers.keys().isdisjoint(
        PROTOCOL_HEADERS
    )


async def watched(exchange: Exchange, work: Awaitable[None]) -> None:
    """Await ``work`` as an open request: ``Exchange.cancel`` may cancel it before its end."""
    requests = exchange.open_requests
    requests.open.add(exchange)
    requests.first_checks.join(exchange)
    try:
        await work
    except asyncio.CancelledError:
        if not exchange.is_cut():
            raise
        if not exchange.gone:
            revoked = challenge(exchange, invalid=True) if exchange.is_revoked else None
            await exchange.refuse(revoked or _ended(exchange))
    finally:
        requests.first_checks.leave(exchange)
        requests.done(exchange)
        if exchange.watcher is not None:
            exchange.watcher.cancel()


def _ended(exchange: Exchange) -> RequestRejected:
    """Return the error for work that the shutdown cut short.

    503 invites a retry, so it is only for requests that cannot have had an effect.
    """
    return (
        RequestRejected(500, OUTCOME_UNKNOWN_ERROR)
        if exchange.at_work
        else RequestRejected(503, SHUTTING_DOWN_ERROR, RETRY_AFTER_HEADERS)
    )
