"""POST requests of revisions without a handshake: one request is one call, and has no session.

A call ends with its connection. Closing the stream cancels the call ("MUST be treated by the server
as cancellation of that request"). The server sends no session id, no event id and no request.

The response is JSON if nothing is sent before it. The first progress or log message turns it into
an SSE stream, which ends with the response. ``ResponseWriter`` takes messages from any thread
without waiting for the client. Above a limit it drops them.

``ListenResponse`` is the stream of change notifications that ``subscriptions/listen`` holds open.
The acknowledgement is the first message, and every later change that matches is sent. If the server
ends the subscription, "the server MUST send ``notifications/cancelled``", and then the result. A
token that was revoked ends the subscription before the next notification, and so does its expiry,
as it was when the subscription began. If the verifier cannot tell which tokens were revoked, it
verifies the token again, at most every ``VERIFIED_SECONDS`` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...auth.principal import ANONYMOUS
from ...calls.call_state import ActiveCall, CallOutput
from ...calls.callers import reload_principal
from ...calls.methods import lacks
from ...calls.once import StepRows
from ...calls.runner import CallRunner
from ...changes.permission_rechecks import permission_rechecker
from ...changes.subscriptions import (
    BUSY_RETRY_SECONDS,
    ClientSubscriptions,
    followed_models,
    listener_registry,
)
from ...conf import settings
from ...exceptions import Busy, Stopped
from ...protocol import http_rules, sse
from ...protocol.connection import STATELESS_KEYS, ClientCall, Connection
from ...protocol.http_rules import mirrored
from ...protocol.jsonrpc import JSON, Id, InternalError, InvalidRequest, encode
from ...protocol.revisions import REVISIONS
from .authentication import expiry_of, still, until
from .request import ClientDisconnected, RequestRejected
from .security import check_names, check_scopes
from .shutdown import SHUTTING_DOWN_ERROR, retry_after_headers

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from .request import Exchange

logger = logging.getLogger("django_mcp.sessions")
MAX_BUFFERED_BYTES = 1_000_000  # bytes that may wait for a slow client
RESERVED_BYTES = 10_000  # bytes more, for the messages that ``when_full`` sends
MAX_LISTENS_PER_PROCESS = 10_000
MAX_ANONYMOUS_LISTENS = 7_500  # of them, of all anonymous clients: users with a token need the rest
MAX_LISTENS_PER_PRINCIPAL = 1_000  # of them, of one principal, or of one network without a token
MAX_REQUEST_BYTES = 300_000  # bytes of the request: it stays in memory as long as the subscription
VERIFIED_SECONDS = 5.0  # seconds for which a token that was verified is not verified again


class ResponseWriter(CallOutput):
    """The buffer and writer of the messages that precede a response.

    Create it in the event loop. ``send`` may be called from any thread. When a message exceeds the
    limit, ``when_full`` is called once, in the loop, and may send last messages. Without
    ``when_full``, the message is dropped.
    """

    def __init__(self, exchange: Exchange, when_full: Callable[[], object] | None = None) -> None:
        self._exchange, self.when_full = exchange, when_full
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._waiting: list[bytes] = []
        self._size = 0
        # The total is limited too: some servers buffer whatever is written, so that the number of
        # waiting bytes here stays at 0 however slow the client is.
        self._left = int(settings.RESULT_SIZE)
        self._room = MAX_BUFFERED_BYTES
        self._writer: asyncio.Task[None] | None = None
        self._has_sent = self._is_closed = False

    def send(self, message: JSON) -> None:
        """Send ``message`` before the response. Safe in any thread; never blocks."""
        self._has_sent = True
        data = sse.event(encode(message))
        if threading.get_ident() == self._loop_thread:
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

        In other threads ``send`` calls ``call_soon_threadsafe`` before it returns, and that is
        first in, first out. So after one pass of the loop the messages of all finished calls to
        ``send`` are in the buffer.
        """
        if self._has_sent:
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
STATELESS_REVISIONS = frozenset(name for name, one in REVISIONS.items() if not one.handshake)


def stands_alone(message: Any, header: str | None) -> bool:
    """Whether a message needs no session, by its ``_meta`` or the header MCP-Protocol-Version."""
    match message:
        case {"params": {"_meta": dict(meta)}} if not STATELESS_KEYS.isdisjoint(meta):
            return True
        case {"method": "initialize"}:
            return False
    return header in STATELESS_REVISIONS


async def post(exchange: Exchange, message: Any) -> None:
    """Answer a message that needs no session. Raise ``RequestRejected``."""
    connection = Connection(transport="http", lacks=partial(lacks, exchange.server))
    headers = mirrored(exchange.scope["headers"])
    received = connection.receive(message, exchange.revision_header, headers)
    if received.replies:
        reply = received.replies[0]
        await exchange.json(http_rules.status(reply, handshake=False, called=False), reply)
        return
    call = next((event for event in received.events if isinstance(event, ClientCall)), None)
    if call is None and "method" not in message:
        raise RequestRejected(400, InvalidRequest("Nothing was asked that this could answer"))
    if call is None:
        await exchange.json(202)
        return
    if call.method == "subscriptions/listen" and exchange.size > MAX_REQUEST_BYTES:
        raise RequestRejected(413, "This is too much to listen to.")
    await check_names(exchange, call)
    exchange.check_shutdown(call.id)
    await check_scopes(exchange, [call])
    await StatelessCall(exchange, connection, call, headers).run()


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
        self._response_writer = ResponseWriter(exchange)
        self._active = ActiveCall(call, self._response_writer)

    async def _get_principal(self) -> Principal:
        return self._exchange.principal

    async def run(self) -> None:
        """Run the call and answer it; stop it if the client disconnects."""
        self._exchange.stop = self._active.stop.set
        self._active.interrupt = self._exchange.cancel
        timer = self._exchange.open_requests.keep_alives
        timer.join(self._response_writer)
        try:
            # The runner is not stored on self: it refers to this object, and the reference cycle
            # would keep the request in memory until the garbage collector runs.
            runner = CallRunner(
                self._exchange.server, self._connection,
                partial(reload_principal, self._exchange.principal), self,
                memory=STEPS, host=self._exchange.host, mirrored=self._headers,
                principal=self._exchange.principal,
            )  # fmt: skip
            message = await runner.response(self._active)
        except asyncio.CancelledError:
            self._active.stop.set()
            if not self._exchange.survives():
                logger.info("Call cancelled, the client disconnected: method=%s", self._call.method)
                self._response_writer.drop()
                raise
            message = None
        finally:
            timer.leave(self._response_writer)
        self._active.end()
        await self._response_writer.settle()
        await self._answer(self._stopped() if message is None else message)

    def _stopped(self) -> JSON:
        """Return the error for a call that was stopped while its client was connected."""
        is_ending = self._exchange.open_requests.is_shutting_down
        stopped = SHUTTING_DOWN_ERROR if is_ending else InternalError("The call was stopped")
        return self._connection.error(self._call, self._active.refusal or stopped)

    async def _answer(self, message: JSON) -> None:
        try:
            text = encode(message)
        except (TypeError, ValueError):
            logger.exception("Response cannot be encoded: method=%s", self._call.method)
            message = self._connection.error(self._call, InternalError())
            text = encode(message)
        if self._exchange.begun:
            await self._response_writer.answer(text)
            return
        self._response_writer.close()
        if "error" not in message:
            await self._exchange.text(200, text)
        elif later := retry_after_headers(message):
            await self._exchange.text(503, text, later)
        else:
            status = http_rules.status(message, handshake=False, called=True)
            await self._exchange.text(status, text)

    # The ``ClientSession`` of protocol methods.

    def log_level(self) -> str | None:
        return self._call.log_level

    async def set_log_level(self, level: str) -> None:
        raise Stopped  # not reached: no revision without a handshake has these methods

    unsubscribe = set_log_level

    async def subscribe(self, uri: str, row_ref: str) -> None:
        raise Stopped

    async def listen(self, id: Id, wanted: JSON, row_refs: Mapping[str, str]) -> None:
        listens = ListenResponse(
            self._exchange, self._connection, self._get_principal, self._response_writer.send
        )
        exchange, self._response_writer.when_full = self._exchange, listens.end
        exchange.when_ending = exchange.when_revoked = listens.end
        try:
            await listens.listen(id, wanted, row_refs)
        finally:  # break the reference cycle, which would keep the request in memory
            self._response_writer.when_full = exchange.when_ending = exchange.when_revoked = None


class ListenResponse:
    """One ``subscriptions/listen`` over HTTP, as a listener of ``changes.subscriptions``."""

    # Open subscriptions in this process, by ``Principal.limit_keys``. Event loops of several
    # threads change and add up these counts. Without the lock a count could be lost, or an event
    # loop could change the dict while another one iterates over it.
    open: Counter[tuple[str, ...]] = Counter()
    _open_lock = threading.Lock()

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        get_principal: Callable[[], Awaitable[Principal]],
        send: Callable[[JSON], None],
    ) -> None:
        self._exchange = exchange
        self.subscriptions = ClientSubscriptions(
            exchange.server, connection, get_principal, send, exchange.host
        )
        self._verified_at = time.monotonic()  # when the caller's token was last verified

    async def listen(self, id: Id, wanted: JSON, row_refs: Mapping[str, str]) -> None:
        """Acknowledge, and return when either side ends the subscription or the token expires.

        Raise ``Busy`` if there are too many subscriptions.
        """
        owner = self._exchange.principal.limit_keys
        with self._open_lock:
            if self.open[owner] >= MAX_LISTENS_PER_PRINCIPAL or self._is_full(owner[0]):
                raise Busy("There are too many listens.")
            self.open[owner] += 1
        self.subscriptions.set_principal(self._exchange.principal)
        listener_registry().add(self)
        # The listener is registered before the acknowledgement. Changes between the two would be
        # lost otherwise.
        try:
            await listener_registry().follow(self, *followed_models(wanted, row_refs))
            permission_rechecker().start_if_needed()
            with until(expiry_of(self._exchange.principal), self.end):
                await self.subscriptions.listen(id, wanted, row_refs)
        finally:
            listener_registry().remove(self)
            with self._open_lock:
                self.open[owner] -= 1
                if not self.open[owner]:  # or the counter would grow with each principal
                    del self.open[owner]

    def _is_full(self, owner: str) -> bool:
        """Whether the process has too many subscriptions for another one of ``owner``.

        The caller holds ``_open_lock``.
        """
        if owner == ANONYMOUS:
            anonymous = sum(count for keys, count in self.open.items() if keys[0] == ANONYMOUS)
            if anonymous >= MAX_ANONYMOUS_LISTENS:
                return True
        return self.open.total() >= MAX_LISTENS_PER_PROCESS

    def end(self) -> None:
        """End the subscription from the server's side, and notify the client."""
        self.subscriptions.end_listens()

    # What a listener of ``changes.subscriptions`` implements.

    @property
    def principal(self) -> Principal:
        return self._exchange.principal

    def renew(self, principal: Principal) -> None:
        self._exchange.principal = principal

    def complete(self, id: str) -> None:
        """Do nothing: in this revision the result names the page, and no notification follows."""

    async def is_token_valid(self) -> bool:
        """Whether the caller's token is still valid; verify it at most every ``VERIFIED_SECONDS``.

        While the token cannot be verified, wait and try again: no notification is sent meanwhile.
        """
        while time.monotonic() - self._verified_at > VERIFIED_SECONDS:
            try:
                if not await still(self._exchange):
                    return False
            except Busy:
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception(
                    "Notifications postponed: the token of a listener cannot be verified"
                )
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            else:
                self._verified_at = time.monotonic()
        return True
