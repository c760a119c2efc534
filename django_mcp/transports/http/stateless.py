"""POST requests of revisions without a handshake: one request is one call, and has no session.

A call ends with its connection. Closing the stream cancels the call ("MUST be treated by the server
as cancellation of that request"). The server sends no session id, no event id and no request.

The response is JSON if nothing is sent before it. The first progress or log message turns it into
an SSE stream, which ends with the response. ``ResponseWriter`` takes messages from any thread
without waiting for the client. Above a limit it drops them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...calls.call_state import ActiveCall
from ...calls.callers import SessionCaller
from ...calls.methods import lacks
from ...calls.once import StepRows
from ...calls.runner import CallRunner
from ...conf import settings
from ...exceptions import Stopped
from ...protocol import http_rules, sse
from ...protocol.connection import ClientCall, Connection
from ...protocol.envelope import STATELESS_KEYS
from ...protocol.http_rules import mirrored
from ...protocol.jsonrpc import JSON, Id, InternalError, InvalidRequest, encode
from ...protocol.revisions import REVISIONS
from ...runtime.runtime import keep_alives
from .listen import MAX_REQUEST_BYTES, ListenResponse
from .request import ClientDisconnected, RequestRejected
from .security import check_names, check_scopes
from .shutdown import ENDING, draining, retry_after

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from .request import Exchange

logger = logging.getLogger("django_mcp")
MAX_BUFFERED_BYTES = 1_000_000  # bytes that may wait for a slow client
RESERVED_BYTES = 10_000  # bytes more, for the messages that ``when_full`` sends


class ResponseWriter:
    """The buffer and writer of the messages that precede a response.

    Create it in the event loop. ``say`` may be called from any thread. When a message exceeds the
    limit, ``when_full`` is called once, in the loop, and may send last messages. Without
    ``when_full``, the message is dropped.
    """

    def __init__(self, exchange: Exchange, when_full: Callable[[], object] | None = None) -> None:
        self._exchange, self.when_full = exchange, when_full
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._waiting: list[bytes] = []
        self._size = 0
        # The total is limited too: some servers buffer whatever is written, so that the number of
        # waiting bytes here stays at 0 however slow the client is.
        self._left = int(settings.RESULT_SIZE)
        self._room = MAX_BUFFERED_BYTES
        self._writer: asyncio.Task[None] | None = None
        self._spoken = self._is_closed = False

    def say(self, message: JSON) -> None:
        """Send ``message`` before the response. Safe in any thread; never blocks."""
        self._spoken = True
        data = sse.event(encode(message))
        if threading.get_ident() == self._home:
            self._put(data)
        else:
            self._loop.call_soon_threadsafe(self._put, data)

    def tick(self) -> None:
        """Send an SSE comment to keep the connection open, which starts the stream if needed."""
        if not self._waiting:
            self._put(sse.comment())

    def _put(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._size + len(data) > self._room or len(data) > self._left:
            self._full()
            return
        self._waiting.append(data)
        self._size += len(data)
        self._left -= len(data)
        if self._writer is None or self._writer.done():
            self._writer = self._loop.create_task(self._write())

    def _full(self) -> None:
        when_full, self.when_full = self.when_full, None
        if when_full is None:
            logger.debug("A notification was dropped: the client reads too slowly")
            return
        self._room += RESERVED_BYTES
        self._left += RESERVED_BYTES
        when_full()

    async def _write(self) -> None:
        try:
            if not self._exchange.begun:
                await self._exchange.start_sse()
            while self._waiting:
                data, self._waiting, self._size = b"".join(self._waiting), [], 0
                await self._exchange.write(data)
        except ClientDisconnected:
            self.close()

    async def settle(self) -> None:
        """Wait until all messages are written, also those of other threads.

        ``call_soon_threadsafe`` is first in, first out, and threads call it before ``say`` returns.
        So after one pass of the loop all messages of finished calls to ``say`` are in the buffer.
        """
        if self._spoken:
            await asyncio.sleep(0)
        while self._writer is not None and not self._writer.done():
            await self._writer

    async def answer(self, text: str) -> None:
        """Write the encoded response, and end the stream."""
        self.close()
        await self._exchange.write(sse.event(text))
        await self._exchange.end()

    def close(self) -> None:
        """Take no more messages, and drop those that wait."""
        self._is_closed, self._waiting = True, []

    def drop(self) -> None:
        """Close, and cancel the write, because the client has disconnected."""
        self.close()
        if self._writer is not None:
            self._writer.cancel()


STEPS = StepRows()


def stands_alone(message: Any, header: str | None) -> bool:
    """Whether a message needs no session, by its ``_meta`` or the header MCP-Protocol-Version."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and not STATELESS_KEYS.isdisjoint(meta):
        return True
    if isinstance(message, dict) and message.get("method") == "initialize":
        return False
    return header in REVISIONS and not REVISIONS[header].handshake


async def post(exchange: Exchange, message: Any) -> None:
    """Answer a message that needs no session. Raise ``RequestRejected``."""
    connection = Connection(transport="http", lacks=partial(lacks, exchange.server))
    headers = mirrored(exchange.scope["headers"])
    received = connection.receive(message, exchange.revision_header, headers)
    for reply in received.replies:
        await exchange.json(http_rules.status(reply, handshake=False, called=False), reply)
        return
    call = next((event for event in received.events if isinstance(event, ClientCall)), None)
    if call is None:
        await _acknowledge(exchange, message)
        return
    if call.method == "subscriptions/listen" and exchange.size > MAX_REQUEST_BYTES:
        raise RequestRejected(413, "This is too much to listen to.")
    check_names(exchange, call)
    draining().check(call.id)
    await check_scopes(exchange, [call])
    await StatelessCall(exchange, connection, call, headers).run()


async def _acknowledge(exchange: Exchange, message: JSON) -> None:
    """Accept a notification; raise ``RequestRejected`` for a response to no request."""
    if "method" not in message:
        raise RequestRejected(400, InvalidRequest("Nothing was asked that this could answer"))
    await exchange.json(202)


class StatelessCall:
    """One call without a session, from its request to the end of its response.

    It is also the session state that methods may change: it lives as long as the call.
    """

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        call: ClientCall,
        headers: dict[str, str | None],
    ) -> None:
        self._exchange, self._connection, self._call = exchange, connection, call
        self._headers = headers
        self._outbox = ResponseWriter(exchange)
        self._active = ActiveCall(call, self._outbox.say)

    async def _who(self) -> Principal:
        return self._exchange.principal

    async def run(self) -> None:
        """Run the call and answer it; stop it if the client disconnects."""
        self._exchange.stop = self._active.stop.set
        if (task := asyncio.current_task()) is not None:
            self._active.interrupt = partial(self._exchange.cut, task)
        timer = keep_alives()
        timer.join(self._outbox)
        try:
            message = await self._serving().response(self._active)
        except asyncio.CancelledError:
            self._active.stop.set()
            if not self._exchange.survives():
                logger.info("%s was cancelled: the client left", self._call.method)
                self._outbox.drop()
                raise
            message = None
        finally:
            timer.leave(self._outbox)
        self._active.end()
        await self._outbox.settle()
        await self._answer(self._stopped() if message is None else message)

    def _serving(self) -> CallRunner:
        # Not stored on self: it refers to this object, and the reference cycle would keep the
        # request in memory until the garbage collector runs.
        return CallRunner(
            self._exchange.server, self._connection,
            SessionCaller.of(self._exchange.principal), self,
            memory=STEPS, host=self._exchange.host, mirrored=self._headers,
        )  # fmt: skip

    def _stopped(self) -> JSON:
        """Return the error for a call that was stopped while its client was connected."""
        stopped = ENDING if draining().ending else InternalError("The call was stopped")
        return self._connection.error(self._call, self._active.refusal or stopped)

    async def _answer(self, message: JSON) -> None:
        try:
            text = encode(message)
        except (TypeError, ValueError):
            logger.exception("The response to %s cannot be written", self._call.method)
            message = self._connection.error(self._call, InternalError())
            text = encode(message)
        if self._exchange.begun:
            await self._outbox.answer(text)
            return
        self._outbox.close()
        status, headers = _status(message)
        await self._exchange.text(status, text, headers)

    # What methods may change about a session.

    async def set_log_level(self, level: str) -> None:
        raise Stopped  # not reached: no revision without a handshake has these methods

    unsubscribe = set_log_level

    async def subscribe(self, uri: str, place: str) -> None:
        raise Stopped

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str]) -> None:
        listens = ListenResponse(self._exchange, self._connection, self._who, self._outbox.say)
        exchange, self._outbox.when_full = self._exchange, listens.end
        exchange.when_ending = exchange.when_revoked = listens.end
        try:
            await listens.listen(id, wanted, places)
        finally:  # break the reference cycle, which would keep the request in memory
            self._outbox.when_full = exchange.when_ending = exchange.when_revoked = None


def _status(message: JSON) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    if later := retry_after(message):
        return 503, later
    return http_rules.status(message, handshake=False, called=True), ()
