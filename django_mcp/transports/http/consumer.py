"""
The MCP endpoint of one server, as an ASGI consumer of Channels.

Rule: a message of one kind comes, and one answer goes, so there is no dispatch
by type, no channel layer and no sweep of connections for each: the pools tend
their own. A client that leaves is noticed while its answer is being made, and
ends what should not outlive it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from channels.consumer import AsyncConsumer

from ...delivery.jobs import BROKEN
from ...dispatch.rechecks import rechecks
from ...dispatch.revocations import revocations
from ...exceptions import Busy
from ...protocol import http
from ...protocol.jsonrpc import Overloaded, ProtocolError, decode
from .. import sse
from . import sessions, stateless
from .callers import check_session, identify
from .challenges import challenge
from .draining import ENDING, RETRY_AFTER, UNKNOWN, draining
from .exchanges import Application, Exchange, Left, Refused
from .guards import guard, preflight
from .pulse import soon

if TYPE_CHECKING:
    from ...declare.servers import Server

logger = logging.getLogger("django_mcp")
UNREACHABLE = Overloaded("Nothing can be answered just now. Try again.", data={"retryAfter": 1})


class MCPConsumer(AsyncConsumer):  # type: ignore[misc]
    """Serves ``server``: ``MCPConsumer.as_asgi(server=mcp.server)``.

    ``page`` is an ASGI application that answers visits of browsers.
    """

    def __init__(self, server: Server, page: Application | None = None) -> None:
        self.server, self.page = server, page

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            exchange = Exchange(self.server, scope, receive, send)
        except Refused as refused:
            exchange = Exchange(self.server, {**scope, "headers": ()}, receive, send)
            await exchange.refuse(refused)
            return
        await self.answer(exchange)

    async def dispatch(self, message: Any) -> None:
        raise NotImplementedError("A request is answered as a whole.")

    async def answer(self, exchange: Exchange) -> None:
        """Answer, whatever happens."""
        draining()  # where no lifespan is told of, a signal is heard from the first request on
        try:
            if self.page is not None and is_visit(exchange):
                guard(exchange, VISITS)
                await exchange.hand_over(self.page)
                return
            guard(exchange)
            await METHODS[exchange.method](exchange)
        except Refused as refused:
            await exchange.refuse(refused)
        except Left:
            pass
        except Busy as error:
            await exchange.refuse(Refused(503, Overloaded(str(error)), RETRY_AFTER))
        except BROKEN:
            logger.exception("Nobody can be let in while a database cannot be reached")
            await exchange.refuse(Refused(503, UNREACHABLE, RETRY_AFTER))
        except Exception:
            logger.exception("A request failed")
            await exchange.refuse(Refused(500, "Internal error"))


async def post(exchange: Exchange) -> None:
    """One message, or a batch of them."""
    if (id := sse.addressed(exchange)) is not None:
        await _post_to_stream(exchange, id)
        return
    header = exchange.revision_header
    fresh = header is not None and stateless.stands_alone(None, header)
    await identify(exchange, None if fresh else _session_id(exchange))
    _check_types(exchange)
    message = await _message(exchange)
    if stateless.stands_alone(message, header):
        await watched(exchange, stateless.post(exchange, message))
    else:
        check_session(exchange)
        await watched(exchange, sessions.post(exchange, message))


async def _post_to_stream(exchange: Exchange, id: str) -> None:
    """The same over HTTP+SSE: what is answered is answered on the session's stream."""
    await identify(exchange, id, sse.NAME)
    _check_content(exchange)
    check_session(exchange)
    message = await _message(exchange)
    await watched(exchange, sse.post(exchange, message))


async def _message(exchange: Exchange) -> Any:
    raw = await exchange.body()
    try:
        return decode(raw)
    except ProtocolError as error:
        raise Refused(400, error) from None


async def get(exchange: Exchange) -> None:
    """A stream of a session; over HTTP+SSE, a session."""
    if stateless.stands_alone(None, exchange.revision_header):
        raise Refused(405, "This revision has no GET.", ((b"allow", b"POST"),))
    over_sse = sse.is_meant(exchange)
    if over_sse:
        await identify(exchange, sse.resumed_id(exchange), sse.NAME)
    else:
        await identify(exchange, _session_id(exchange))
    if not (over_sse and sse.takes_anything(exchange)):
        _check_stream(exchange)
    check_session(exchange)
    await exchange.body()
    await watched(exchange, (sse if over_sse else sessions).get(exchange))


async def delete(exchange: Exchange) -> None:
    """The end of a session."""
    if stateless.stands_alone(None, exchange.revision_header):
        raise Refused(405, "This revision has no DELETE.", ((b"allow", b"POST"),))
    if (id := sse.addressed(exchange)) is not None:
        await identify(exchange, id, sse.NAME)
    else:
        await identify(exchange, _session_id(exchange))
    check_session(exchange)
    await exchange.body()
    await sessions.delete(exchange)


async def options(exchange: Exchange) -> None:
    """What a page in a browser may send."""
    await exchange.body()  # some servers close a connection on which a body is left
    await preflight(exchange)


METHODS: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    "POST": post, "GET": get, "DELETE": delete, "OPTIONS": options,
}  # fmt: skip

# A person's visit is a GET that asks for a page, and says nothing of the protocol's.
VISITS = ("GET", "HEAD")
OURS = (http.PROTOCOL_VERSION, http.SESSION_ID, http.LAST_EVENT_ID)


def is_visit(exchange: Exchange) -> bool:
    """Whether a browser was pointed at the endpoint, to be shown a page."""
    headers = exchange.headers
    return (
        exchange.method in VISITS
        and http.takes_page(headers.get("accept"))
        and not any(name in headers for name in OURS)
    )


def _session_id(exchange: Exchange) -> str | None:
    return exchange.headers.get(http.SESSION_ID)


def _check_types(exchange: Exchange) -> None:
    headers = exchange.headers
    if not http.acceptable("POST", headers.get("accept")):
        raise Refused(406, "Accept must list application/json and text/event-stream.")
    _check_content(exchange)


def _check_stream(exchange: Exchange) -> None:
    if not http.acceptable("GET", exchange.headers.get("accept")):
        raise Refused(406, "Accept must list text/event-stream.")


def _check_content(exchange: Exchange) -> None:
    headers = exchange.headers
    if not http.is_json(headers.get("content-type")):
        raise Refused(415, "Content-Type must be application/json.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "The body must not be compressed.", ((b"accept-encoding", b"identity"),))


async def watched(exchange: Exchange, work: Awaitable[None]) -> None:
    """Do ``work``, and cut it short when the client leaves or the process ends."""
    watch, process = Watch(exchange), draining()
    process.begin(watch)
    try:
        with soon(watch):
            await work
    except asyncio.CancelledError:
        if not exchange.is_cut():
            raise
        if not exchange.gone.is_set():
            await exchange.refuse(exchange.last_word or _ended(exchange))
    finally:
        process.done(watch)
        watch.leave()


def _ended(exchange: Exchange) -> Refused:
    """To try again is for what was not begun."""
    return Refused(500, UNKNOWN) if exchange.at_work else Refused(503, ENDING, RETRY_AFTER)


class Watch:
    """Over the current task, which answers a request."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._task = exchange, asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None

    def pulse(self) -> None:
        """Begin to look whether the client leaves, and whether it may stay."""
        soon.leave(self)
        revocations().attend()
        if self._exchange.method == "GET":  # a call is followed when it lasts
            rechecks().attend()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        try:
            await self._exchange.left()
        except Exception:
            logger.exception("Nobody knows whether a client is there; its call is stopped")
            self._exchange.gone.set()
        self.cut()

    def leave(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    # The caller's right to go on is taken back.

    @property
    def owner(self) -> str:
        kept = self._exchange.owner
        return self._exchange.principal.key if kept is None else kept

    def revoke(self) -> None:
        if self._exchange.when_revoked is not None:
            self._exchange.when_revoked()
        else:
            self._exchange.last_word = challenge(self._exchange, invalid=True)
            self.cut()

    # The process is about to end.

    def end(self) -> None:
        if self._exchange.when_ending is not None:
            self._exchange.when_ending()

    def late(self) -> None:
        if self._exchange.when_late is not None:
            self._exchange.when_late()
        else:
            self.cut()

    def cut(self) -> None:
        if self._task is not None:
            self._exchange.cut(self._task)
