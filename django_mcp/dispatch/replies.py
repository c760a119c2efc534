"""
What one POST in a session is answered with: plain JSON, or a stream that is written down.

Rule: as long as nothing is said and nobody is asked there are no rows. From
then on, or when the grace is over, the calls and all they say are rows, and
whoever waits for the answer reads the stream. A call whose tool has committed
its outcome is answered by that, whatever else is found out later.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from ..conf import settings
from ..delivery import events, single, steps, streams
from ..delivery.doorbell import Ring, ring
from ..delivery.jobs import surely
from ..delivery.leases import lease
from ..delivery.poller import poller
from ..delivery.sessions import Gone
from ..delivery.writer import MOST, MOST_SIZE, TooMuch, writer
from ..exceptions import Busy
from ..models import DONE, Session
from ..models import Call as Row
from ..protocol.connection import Connection
from ..protocol.jsonrpc import JSON, InternalError, encode
from . import outcomes, pages
from .callers import Caller
from .kept import Kept

if TYPE_CHECKING:
    from .durable import Docket

logger = logging.getLogger("django_mcp")


class Reply:
    """To the calls of one POST, which ``docket`` works on.

    ``answered`` is settled once it is known how: with True where there is a
    ``stream`` to read, False where ``responses`` are all there is.
    """

    def __init__(
        self, docket: Docket, session: Session, who: Caller, connection: Connection
    ) -> None:
        self.docket, self.session, self.who, self.connection = docket, session, who, connection
        self.loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self.kept: list[Kept] = []
        self.ready: list[JSON] = []  # replies to what became no call
        self.stream: int | None = None
        self.is_gone = False
        self.answered: asyncio.Future[bool] = self.loop.create_future()
        self._said: list[tuple[Kept, str]] = []
        self._size = 0
        self._opening: asyncio.Future[None] | None = None
        self._is_letting_go = False
        self._is_mute = False  # the session has no room for one more stream
        self._grace: asyncio.TimerHandle | None = None

    @classmethod
    def resumed(cls, docket: Docket, session: Session, row: Row, connection: Connection) -> Reply:
        """To a call that is a row."""
        reply = cls(docket, session, Caller.named(session, row), connection)
        reply.stream, reply._opening = row.stream_id, reply.loop.create_future()
        reply._opening.set_result(None)
        reply._settle(True)
        return reply

    def wait(self) -> None:
        """Give the calls a while to be answered by plain JSON, where they may be."""
        if self.is_single:
            self.open()
        elif not self._settled():
            self._grace = self.loop.call_later(settings.JSON_GRACE, self._is_late)

    def _is_late(self) -> None:
        if not all(kept.is_done or kept.is_plain for kept in self.kept):
            self.open()

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
    def is_single(self) -> bool:
        """Whether the session's only stream answers, so that nothing begins before it is a row."""
        return self.connection.revision.one_stream

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

    def say(self, kept: Kept, text: str) -> int:
        """Say it, now or when there is a stream: how many messages wait to be written."""
        with self._lock:
            if self.stream is not None:
                return self.docket.writer.say(kept.address, text, kept.refused)
            if self._is_mute:
                return 0
            if len(self._said) >= MOST or self._size + len(text) > MOST_SIZE:
                raise TooMuch("The call says more than can be passed on.")
            self._said.append((kept, text))
            self._size += len(text)
            waiting = len(self._said)
            first = self._opening is None and waiting == 1
        if first:
            self.loop.call_soon_threadsafe(self.open)
        return waiting

    # Opening.

    def open(self) -> asyncio.Future[None]:
        """Have rows made of the calls, and of what they have said."""
        with self._lock:
            if self._opening is None:
                if self._grace is not None:
                    self._grace.cancel()
                self._opening = self.docket.spawn(self._open())
            return self._opening

    def stays_plain(self, kept: Kept) -> bool:
        """Whether a call that is decided is answered without a row; from any thread."""
        with self._lock:
            wanted = self._opening is not None or self._said or self._is_letting_go
            kept.is_plain = self._is_mute or not wanted
            return kept.is_plain

    async def written(self, kept: Kept) -> None:
        """Come back when the call is a row, if ever, and all that it said is written down."""
        await asyncio.shield(self.open())
        if kept.row is not None:
            await writer().flush(kept.address)

    async def opened(self) -> None:
        """Come back when there are rows. Raises ``Busy`` where there will be none."""
        await asyncio.shield(self.open())
        if self.stream is None:
            raise Busy("Too many requests are being answered in this session.")

    async def _open(self) -> None:
        if plain := [kept.active.task for kept in self.kept if kept.is_plain and not kept.is_done]:
            await asyncio.wait([task for task in plain if task is not None])
        async with poller().claiming():
            try:
                left = [kept for kept in self.kept if not kept.is_done]
                calls = [self._row(kept) for kept in left]
                stream = await surely(
                    self._insert, calls, self._taken(), self.texts, uuid.uuid4().hex, again=False
                )
                self._enter(left, calls, stream)
            except Gone:
                self._end()
            except Busy:
                self._mute()
            except Exception:
                logger.exception("Calls could not be written down")
                self._mute()

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
        if self.is_single:
            return single.enter(self.session, calls, finals, nonce, again=again)
        opened = streams.open(
            self.session, calls=calls, messages=messages, finals=finals, nonce=nonce, again=again
        )
        return int(opened.pk)

    def _row(self, kept: Kept) -> Row:
        call = kept.active.call
        return Row(
            request_id=json.dumps(call.id), method=call.method, params=call.params, meta=call.meta,
            user=self.who.user, scopes=self.who.scopes,
            atomic=outcomes.of_tool(kept.server, call),
        )  # fmt: skip

    def _enter(self, left: list[Kept], calls: list[Row], stream: int) -> None:
        for kept, row in zip(left, calls, strict=True):
            kept.row, kept.rounds.id = row, f"c{row.pk}"
            self.docket.enter(kept)
            if row.cancelled or row.state == DONE:  # before it was known to be written down
                kept.cancel()
        with self._lock:  # what is said from now on comes after what waited
            self.stream = stream
            said, self._said = self._said, []
            for kept, text in said:
                self.docket.writer.say(kept.address, text, kept.refused, must=True)
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
            kept.cancel()
        self._settle(False)

    # Letting go.

    def let_go(self, kept: Kept) -> None:
        """Have the client come back for the rest; from any thread."""
        with self._lock:
            self._is_letting_go = True
        self.loop.call_soon_threadsafe(lambda: self.docket.spawn(self._release(kept)))

    async def _release(self, kept: Kept) -> None:
        with suppress(Busy):
            await self.opened()
            if kept.row is None:
                return  # it was answered before that
            await writer().flush(kept.address)
            await surely(streams.release, kept.address.stream)
            ring(Ring(kept.address.stream, changed=True))

    # Answering.

    def take(self, kept: Kept, response: JSON | None) -> None:
        """The outcome of a call, once: its response, or None if it was cancelled."""
        if kept.is_taken:
            return
        kept.is_taken = True
        kept.active.end()
        kept.response = response
        if self._said:
            self.open()
        if kept.is_plain or (self._opening is None and not kept.pages):
            kept.is_done = True
            self.docket.leave(kept)
            if self._opening is None or self._is_mute:
                self._settled()
        else:
            self.docket.spawn(self._conclude(kept))

    async def _conclude(self, kept: Kept) -> None:
        try:
            await self._written_down(kept)
        except Exception:
            logger.exception("The answer to %s was not written", kept.active.call.method)
            await self._excused(kept)
        finally:
            kept.is_done = True
            self.docket.leave(kept)
            if self._opening is None or self._is_mute:
                self._settled()

    async def _written_down(self, kept: Kept) -> None:
        if kept.pages:
            await surely(pages.expect, self.session, kept.pages)
        if self._opening is not None:
            await asyncio.shield(self._opening)
        kept.is_done = True
        if kept.row is not None and (kept.response is not None or kept.is_committed):
            await self._finish(kept)

    async def _excused(self, kept: Kept) -> None:
        """Say that the response cannot be had; if not even that is taken, the call is left."""
        if kept.is_committed or kept.response is None:
            return
        kept.response = self.connection.error(kept.active.call, InternalError())
        try:
            if kept.row is not None:
                await self._finish(kept)
        except Exception:
            logger.exception("%s is left without an answer", kept.row)
            kept.response = None

    async def _finish(self, kept: Kept) -> None:
        """Write the response down, after all that the call has said; if its tool has not.

        Where that is not known, because the connection broke at the commit, this waits for its
        lock and finds out.
        """
        to = kept.address
        if not kept.is_committed:
            await writer().flush(to)
            text = kept.text(self.connection)
            mine = await surely(events.finish, to.call, to.fence, text, to.stream, again=False)
            if mine and kept.rounds.has_steps:
                await surely(steps.forget, kept.rounds.id)
        ring(Ring(to.stream, changed=True))

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
