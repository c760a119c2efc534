"""
What one POST in a session is answered with: plain JSON, or a stream that is written down.

Rule: as long as nothing is said and nobody is asked there are no rows. From
then on, or when the grace is over, the calls and all they say are rows, and
whoever waits for the answer reads the stream. A call that the log takes
nothing from any more is told so, or stopped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..conf import settings
from ..delivery import events, steps, streams
from ..delivery.doorbell import Ring, ring
from ..delivery.events import FULL, Address
from ..delivery.jobs import surely
from ..delivery.leases import lease
from ..delivery.poller import poller
from ..delivery.sessions import Gone
from ..delivery.writer import MOST, MOST_SIZE, TooMuch, writer
from ..exceptions import Busy, ToolError
from ..models import Call as Row
from ..models import Session
from ..protocol.connection import Connection
from ..protocol.jsonrpc import JSON, InternalError, encode
from . import pages
from .active import Active
from .callers import Caller
from .rounds import Rounds

if TYPE_CHECKING:
    from .durable import Docket

logger = logging.getLogger("django_mcp")


@dataclass(eq=False)
class Kept:
    """A call of a session that this process works on, and its row once it has one."""

    active: Active
    reply: Reply
    rounds: Rounds = field(default_factory=Rounds)
    row: Row | None = None
    response: JSON | None = None
    is_done: bool = False
    is_full: bool = False  # the log has no room for what else it says
    count: int = 0  # of what it said, and its size
    size: int = 0
    pages: list[str] = field(default_factory=list)  # that its client was sent to

    @property
    def address(self) -> Address:
        assert self.row is not None and self.row.stream_id is not None
        return Address(self.row.stream_id, self.row.pk, self.row.fence)

    def send(self, message: JSON) -> None:
        """Say something; from any thread. Raises ``ToolError`` when that is too much."""
        text = encode(message)
        self.count, self.size = self.count + 1, self.size + len(text)
        if self.is_full or self.count > settings.EVENTS or self.size > events.most_bytes():
            raise ToolError("The call says more than its client can be told.")
        try:
            self.reply.say(self, text)
        except TooMuch as error:
            raise ToolError(str(error)) from None

    def refused(self, outcome: int | None) -> None:
        """The log took nothing: there is no room, or the call is no longer this process's."""
        if outcome == FULL:
            self.is_full = True
        else:
            self.active.cancel()

    def text(self, connection: Connection) -> str:
        """Its response as it is written; what holds no JSON becomes an internal error."""
        try:
            return encode(self.response)
        except (TypeError, ValueError):
            logger.exception("The answer to %s cannot be written", self.active.call.method)
            self.response = connection.error(self.active.call, InternalError())
            return encode(self.response)


class Reply:
    """To the calls of one POST, which ``docket`` works on.

    ``answered`` is settled once it is known how: with True where there is a
    ``stream`` to read, False where ``responses`` are all there is.
    """

    def __init__(
        self, docket: Docket, session: Session, who: Caller, connection: Connection
    ) -> None:
        self.docket, self.session, self.who, self.connection = docket, session, who, connection
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self.kept: list[Kept] = []
        self.ready: list[JSON] = []  # replies to what became no call
        self.stream: int | None = None
        self.is_gone = False
        self.answered: asyncio.Future[bool] = self._loop.create_future()
        self._said: list[tuple[Kept, str]] = []
        self._size = 0
        self._opening: asyncio.Future[None] | None = None
        self._is_mute = False  # the session has no room for one more stream
        self._grace: asyncio.TimerHandle | None = None

    @classmethod
    def resumed(cls, docket: Docket, session: Session, row: Row, connection: Connection) -> Reply:
        """To a call that is a row."""
        reply = cls(docket, session, Caller.named(session, row), connection)
        reply.stream, reply._opening = row.stream_id, reply._loop.create_future()
        reply._opening.set_result(None)
        reply._settle(True)
        return reply

    def wait(self) -> None:
        """Give the calls a while to be answered by plain JSON."""
        if not self._settled():
            self._grace = self._loop.call_later(settings.JSON_GRACE, self.open)

    @property
    def responses(self) -> list[JSON]:
        answered = (kept.response for kept in self.kept)
        return [*self.ready, *(response for response in answered if response is not None)]

    @property
    def texts(self) -> list[str]:
        """The responses that are there, as they are written."""
        done = (kept for kept in self.kept if kept.is_done and kept.response is not None)
        return [*map(encode, self.ready), *(kept.text(self.connection) for kept in done)]

    @property
    def is_opening(self) -> bool:
        """Whether there are rows, or will be."""
        return self._opening is not None and not self._is_mute

    @property
    def is_overloaded(self) -> bool:
        """Whether the one call there was is refused before any effect, to be tried again."""
        data = [one.get("error", {}).get("data") for one in self.responses]
        return len(data) == 1 and isinstance(data[0], dict) and "retryAfter" in data[0]

    # Saying.

    def say(self, kept: Kept, text: str) -> None:
        with self._lock:
            if self.stream is not None:
                self.docket.writer.say(kept.address, text, kept.refused)
                return
            if self._is_mute:
                return
            if len(self._said) >= MOST or self._size + len(text) > MOST_SIZE:
                raise TooMuch("The call says more than can be passed on.")
            self._said.append((kept, text))
            self._size += len(text)
            first = self._opening is None and len(self._said) == 1
        if first:
            self._loop.call_soon_threadsafe(self.open)

    # Opening.

    def open(self) -> asyncio.Future[None]:
        """Have rows made of the calls, and of what they have said."""
        if self._opening is None:
            if self._grace is not None:
                self._grace.cancel()
            self._opening = self.docket.spawn(self._open())
        return self._opening

    async def opened(self) -> None:
        """Come back when there are rows. Raises ``Busy`` where there will be none."""
        await asyncio.shield(self.open())
        if self.stream is None:
            raise Busy("Too many requests are being answered in this session.")

    async def _open(self) -> None:
        left = [kept for kept in self.kept if not kept.is_done]
        calls, finals = [self._row(kept) for kept in left], self.texts
        async with poller().claiming():
            try:
                stream = await surely(
                    self._insert,
                    calls,
                    self._taken(),
                    finals,
                    uuid.uuid4().hex,
                    again=False,
                )
            except Gone:
                self._end()
            except Busy:
                self._mute()
            except Exception:
                logger.exception("Calls could not be written down")
                self._mute()
            else:
                self._enter(left, calls, stream)

    def _taken(self) -> list[str]:
        with self._lock:
            said, self._said = self._said, []
        return [text for _, text in said]

    def _insert(
        self, calls: list[Row], messages: list[str], finals: list[str], nonce: str, *, again: bool
    ) -> int:
        """In a thread of the log: the rows. Raises ``Gone`` or ``Busy``."""
        process = lease.hold()
        for call in calls:
            call.process = process
        opened = streams.open(
            self.session, calls=calls, messages=messages, finals=finals, nonce=nonce, again=again
        )
        return int(opened.pk)

    def _row(self, kept: Kept) -> Row:
        call = kept.active.call
        return Row(
            request_id=json.dumps(call.id), method=call.method, params=call.params, meta=call.meta,
            user=self.who.user, scopes=self.who.scopes,
        )  # fmt: skip

    def _enter(self, left: list[Kept], calls: list[Row], stream: int) -> None:
        for kept, row in zip(left, calls, strict=True):
            kept.row, kept.rounds.id = row, f"c{row.pk}"
            self.docket.enter(kept)
            if row.cancelled:  # before it was written down
                kept.active.cancel()
        with self._lock:
            self.stream = stream
            said, self._said = self._said, []
        for kept, text in said:
            self.docket.writer.say(kept.address, text, kept.refused)
        self._settle(True)

    def _mute(self) -> None:
        """There is no room to say anything: the calls are answered by JSON, when they are."""
        with self._lock:
            self._is_mute, self._said = True, []
        self._settled()

    def _end(self) -> None:
        """The session is over, and so are its calls."""
        self.is_gone = self._is_mute = True
        for kept in self.kept:
            kept.active.cancel()
        self._settle(False)

    # Letting go.

    def let_go(self, kept: Kept) -> None:
        """Have the client come back for the rest; from any thread."""
        self._loop.call_soon_threadsafe(lambda: self.docket.spawn(self._release(kept)))

    async def _release(self, kept: Kept) -> None:
        with suppress(Busy):
            await self.opened()
            await writer().flush(kept.address)
            await surely(streams.release, kept.address.stream)
            ring(Ring(kept.address.stream, changed=True))

    # Answering.

    def take(self, kept: Kept, response: JSON | None) -> None:
        """The outcome of a call: its response, or None if it was cancelled."""
        kept.active.end()
        kept.response = response
        if self._said:
            self.open()
        if self._opening is None and not kept.pages:
            kept.is_done = True
            self.docket.leave(kept)
            self._settled()
        else:
            self.docket.spawn(self._conclude(kept))

    async def _conclude(self, kept: Kept) -> None:
        if kept.pages:
            await surely(pages.expect, self.session, kept.pages)
        if self._opening is not None:
            await asyncio.shield(self._opening)
        kept.is_done = True
        if kept.row is not None and kept.response is not None:
            await self._finish(kept)
        self.docket.leave(kept)
        if self._opening is None or self._is_mute:
            self._settled()

    async def _finish(self, kept: Kept) -> None:
        """Write the response down, after all that the call has said."""
        to, text = kept.address, kept.text(self.connection)
        await writer().flush(to)
        if await surely(events.finish, to.call, to.fence, text, to.stream, again=False):
            ring(Ring(to.stream, changed=True))
        if kept.rounds.has_steps:
            await surely(steps.forget, kept.rounds.id)

    def _settled(self) -> bool:
        """Whether all there is to answer is here, and plain JSON will do."""
        if not all(kept.is_done for kept in self.kept):
            return False
        self._settle(False)
        return True

    def _settle(self, streamed: bool) -> None:
        if self._grace is not None:
            self._grace.cancel()
        if not self.answered.done():
            self.answered.set_result(streamed)
