"""
Requests that say everything themselves: each is a call, and its connection is its life.

Rule: nothing of a request outlives it. Closing the stream cancels the call
("MUST be treated by the server as cancellation of that request"); no session,
event id or request of ours ever goes over the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ...dispatch.active import Active
from ...dispatch.announcements import Announcement, listen, stop_listening
from ...dispatch.listening import Listening
from ...dispatch.serving import Serving
from ...dispatch.steps import StepRows
from ...exceptions import Stopped
from ...protocol import http
from ...protocol.connection import Connection
from ...protocol.envelope import STATELESS_KEYS
from ...protocol.events import Call
from ...protocol.headers import mirrored
from ...protocol.jsonrpc import JSON, Id, InvalidRequest, encode
from ...protocol.revisions import REVISIONS
from .callers import check_names
from .exchanges import Refused
from .outbox import Outbox
from .pulse import alive

if TYPE_CHECKING:
    from ...principal import Principal
    from .exchanges import Exchange

LISTEN = "subscriptions/listen"
STEPS = StepRows()
RETRY_AFTER = ((b"retry-after", b"1"),)


def stands_alone(message: Any, header: str | None) -> bool:
    """Whether a message needs no session, by its header or by what it says of itself."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and not STATELESS_KEYS.isdisjoint(meta):
        return True
    if isinstance(message, dict) and message.get("method") == "initialize":
        return False
    return header in REVISIONS and not REVISIONS[header].handshake


async def post(exchange: Exchange, message: Any) -> None:
    """Answer a message that needs no session. Raises ``Refused``."""
    connection = Connection(transport="http")
    headers = mirrored(exchange.scope["headers"])
    received = connection.receive(message, exchange.revision_header, headers)
    for reply in received.replies:
        await exchange.json(http.status(reply, handshake=False, called=False), reply)
        return
    if not received.events:
        await _acknowledge(exchange, message)
        return
    (call,) = received.events
    assert isinstance(call, Call)
    check_names(exchange, call)
    await Answering(exchange, connection, call, headers).run()


async def _acknowledge(exchange: Exchange, message: JSON) -> None:
    """Of what needs no answer, a notification is accepted; nothing was asked of the client."""
    if "method" not in message:
        raise Refused(400, InvalidRequest("Nothing was asked that this could answer"))
    await exchange.json(202)


class Answering:
    """One call, from its request to the end of its answer."""

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        call: Call,
        headers: dict[str, str | None],
    ) -> None:
        self._exchange, self._connection, self._call = exchange, connection, call
        self._headers = headers
        self._outbox = Outbox(exchange)
        self._active = Active(call, self._outbox.say)
        self._listens: Listens | None = None

    async def _who(self) -> Principal:
        return self._exchange.principal

    async def run(self) -> None:
        """Answer; or stop, when the client leaves."""
        with alive(self._outbox):
            try:
                message = await self._serving().response(self._active)
            except asyncio.CancelledError:
                self._active.stop.set()
                self._outbox.drop()
                raise
            self._active.end()
            await self._answer(message)

    def _serving(self) -> Serving:
        # Not kept here: it knows this object, and a circle would keep the request in memory.
        return Serving(
            self._exchange.server, self._connection, self._who, self,
            memory=STEPS, host=self._exchange.host, mirrored=self._headers,
        )  # fmt: skip

    async def _answer(self, message: JSON | None) -> None:
        await self._outbox.settle()
        if message is None:  # it was stopped from within
            message = self._connection.error(self._call, InvalidRequest("The call was stopped"))
        if self._exchange.begun:
            await self._outbox.answer(encode(message))
            return
        status, headers = _status(message)
        await self._exchange.json(status, message, headers)

    # What methods may change (``runs.Session``): here it lives as long as the call.

    async def set_log_level(self, level: str) -> None:
        raise Stopped  # no revision without a handshake has these methods

    subscribe = unsubscribe = set_log_level

    async def listen(self, id: Id, wanted: JSON) -> None:
        self._listens = Listens(self._exchange, self._connection, self._who, self._outbox.say)
        await self._listens.listen(id, wanted)


def _status(message: JSON) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    data = message.get("error", {}).get("data")
    if isinstance(data, dict) and "retryAfter" in data:
        return 503, RETRY_AFTER
    return http.status(message, handshake=False, called=True), ()


class Listens:
    """What one ``subscriptions/listen`` hears of this process's announcements."""

    open: set[Listens] = set()  # in this process, to be ended when it ends

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        who: Callable[[], Awaitable[Principal]],
        say: Callable[[JSON], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = exchange.server
        self._listening = Listening(exchange.server, connection, who, say, exchange.host)
        self._telling: asyncio.Task[None] | None = None

    async def listen(self, id: Id, wanted: JSON) -> None:
        """Acknowledge, and stay until either side ends it."""
        Listens.open.add(self)
        listen(self)  # before the acknowledgement: nothing may fall between
        try:
            await self._listening.listen(id, wanted)
        finally:
            stop_listening(self)
            Listens.open.discard(self)
            if self._telling is not None:
                self._telling.cancel()

    def end(self) -> None:
        """Close it from this side, and say so."""
        self._listening.end()

    def hear(self, news: Announcement) -> None:
        """Pass an announcement on; from any thread."""
        if news.server == self._server.name:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._heard, news)

    def _heard(self, news: Announcement) -> None:
        if news.kind != "elicitation_complete" and self._listening.take(news):
            self._telling = self._loop.create_task(self._listening.tell())
