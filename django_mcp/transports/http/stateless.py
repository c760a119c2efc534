"""
Requests that say everything themselves: each is a call, and its connection is its life.

Rule: nothing of a request outlives it. Closing the stream cancels the call
("MUST be treated by the server as cancellation of that request"); no session,
event id or request of ours ever goes over the wire.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...dispatch.active import Active
from ...dispatch.callers import Caller
from ...dispatch.serving import Serving
from ...dispatch.steps import StepRows
from ...exceptions import Stopped
from ...protocol import http
from ...protocol.connection import Connection
from ...protocol.envelope import STATELESS_KEYS
from ...protocol.events import Call
from ...protocol.headers import mirrored
from ...protocol.jsonrpc import JSON, Id, InternalError, InvalidRequest, encode
from ...protocol.revisions import REVISIONS
from .draining import ENDING, draining
from .exchanges import Refused
from .listens import MAX_SIZE, Listens
from .naming import check_names
from .outbox import Outbox
from .pulse import alive
from .scopes import check_scopes

if TYPE_CHECKING:
    from ...principal import Principal
    from .exchanges import Exchange

STEPS = StepRows()
logger = logging.getLogger("django_mcp")


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
    call = next((event for event in received.events if isinstance(event, Call)), None)
    if call is None:
        await _acknowledge(exchange, message)
        return
    if call.method == "subscriptions/listen" and exchange.size > MAX_SIZE:
        raise Refused(413, "This is too much to listen to.")
    check_names(exchange, call)
    draining().check(call.id)
    await check_scopes(exchange, [call])
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

    async def _who(self) -> Principal:
        return self._exchange.principal

    async def run(self) -> None:
        """Answer; or stop, when the client leaves."""
        self._exchange.stop = self._active.stop.set
        if (task := asyncio.current_task()) is not None:
            self._active.interrupt = partial(self._exchange.cut, task)
        try:
            with alive(self._outbox):
                message = await self._serving().response(self._active)
        except asyncio.CancelledError:
            self._active.stop.set()
            if not self._exchange.survives():
                logger.info("%s was cancelled: the client left", self._call.method)
                self._outbox.drop()
                raise
            message = None
        self._active.end()
        await self._outbox.settle()
        await self._answer(self._stopped() if message is None else message)

    def _serving(self) -> Serving:
        # Not kept here: it knows this object, and a circle would keep the request in memory.
        return Serving(
            self._exchange.server, self._connection, Caller.of(self._exchange.principal), self,
            memory=STEPS, host=self._exchange.host, mirrored=self._headers,
        )  # fmt: skip

    def _stopped(self) -> JSON:
        """What is said of a call that was stopped, though its client is there."""
        stopped = ENDING if draining().ending else InternalError("The call was stopped")
        return self._connection.error(self._call, self._active.refusal or stopped)

    async def _answer(self, message: JSON) -> None:
        try:
            text = encode(message)
        except (TypeError, ValueError):
            logger.exception("The answer to %s cannot be written", self._call.method)
            message = self._connection.error(self._call, InternalError())
            text = encode(message)
        if self._exchange.begun:
            await self._outbox.answer(text)
            return
        self._outbox.close()
        status, headers = _status(message)
        await self._exchange.text(status, text, headers)

    # What methods may change (``runs.Session``): here it lives as long as the call.

    async def set_log_level(self, level: str) -> None:
        raise Stopped  # no revision without a handshake has these methods

    unsubscribe = set_log_level

    async def subscribe(self, uri: str, place: str) -> None:
        raise Stopped

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str]) -> None:
        listens = Listens(self._exchange, self._connection, self._who, self._outbox.say)
        exchange, self._outbox.when_full = self._exchange, listens.end
        exchange.when_ending = exchange.when_revoked = listens.end
        try:
            await listens.listen(id, wanted, places)
        finally:  # a circle would keep the request in memory
            self._outbox.when_full = exchange.when_ending = exchange.when_revoked = None


def _status(message: JSON) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    data = message.get("error", {}).get("data")
    if isinstance(data, dict) and "retryAfter" in data:
        return 503, ((b"retry-after", b"%d" % math.ceil(data["retryAfter"])),)
    return http.status(message, handshake=False, called=True), ()
