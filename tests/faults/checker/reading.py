"""Reading one stream to its end, over connections that break or are cut.

A reader resumes from the last event id, at any worker. It ends when it has all responses and the
server has ended the stream, or after a timeout.
"""

from __future__ import annotations

import asyncio
import enum
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .client import Address, Answer, Broken
from .context import pause
from .expectation import JSON, Reading, Stream
from .sessions import LATER, Ended, Session
from .sse import Parser

SNAPSHOT, FLOW, DENSE = 0.03, 0.15, 10  # seconds, of a connection at least; events in a second
GOODBYE = 15.0  # seconds in which a stream ends after its last response


class Ending(enum.Enum):
    ANSWERED = "every response came"
    OVER = "the stream is over, and a response did not come"
    NAMELESS = "it broke before it had an id"
    GONE = "the session is over"
    TAKEN = "another connection took it over"
    HANGING = "it has no end"
    LEFT = "the reader had enough"


@dataclass
class Cut:
    """A cut: close the connection after some bytes of its body, and resume after a pause."""

    after: int
    reset: bool
    rest: float


@dataclass
class Plan:
    """How a stream is read: where its connections are cut, and which server resumes it."""

    cuts: list[Cut] = field(default_factory=list)
    place: Callable[[], Address] | None = None
    leave: Callable[[], bool] | None = None  # whether the reader has had enough
    yields: bool = False  # whether it gives way to another reader
    crawl: float = 0.0  # seconds in which a byte a second is read, after the first cut

    @classmethod
    def drawn(cls, rng: random.Random, most: int = 3, size: int = 3_000) -> Plan:
        """Return a plan with random cuts: before the first byte, in an event, or between two."""
        cuts = [
            Cut(rng.choice((0, rng.randrange(1, 200), rng.randrange(size))),
                rng.random() < 0.5, rng.choice((0.0, rng.uniform(0, 0.3), rng.uniform(0, 1.5))))
            for _ in range(rng.randrange(most + 1))
        ]  # fmt: skip
        return cls(cuts)


class Reader:
    """Reads one stream. ``owed`` are the ids of the requests whose responses are still expected."""

    can_be_trimmed = True

    def __init__(
        self,
        session: Session,
        stream: Stream,
        owed: Iterable[Any] = (),
        plan: Plan | None = None,
        *,
        hear: Callable[[JSON], None] = lambda message: None,
    ) -> None:
        self.session, self.stream, self.plan, self.hear = session, stream, plan or Plan(), hear
        self.context, self.rng = session.context, session.rng
        self.owed = set(owed)
        self.asked = frozenset(self.owed)  # what alone the stream is about
        self.deadline = self.context.new_deadline()
        self.at = 0
        self.last: Reading | None = None
        self.readings: list[Reading] = []
        self.runs: list[Any] = []  # which processes said that they began to work on it
        self._retry, self.began = 0.0, time.monotonic()
        self.crawled = 0  # bytes, read one by one
        self.is_refused = False  # told that the stream has ended, and nothing follows

    @property
    def state(self) -> str:
        waited = time.monotonic() - self.began
        where = f"at {self.stream.id}-{self.at} after {waited:.0f} s"
        more = f"{self.deadline.failures} strikes, {len(self.readings)} connections"
        return f"{self.stream.label} waits for {self.owed} {where}, {more}, runs {self.runs}"

    async def read(self, answer: Answer | None) -> Ending:
        """Read the stream to its end. Without an open connection, begin by resuming it."""
        with self.context.waiting(lambda: self.state):
            return await self._read(answer)

    async def _read(self, answer: Answer | None) -> Ending:
        while True:
            if answer is None:
                found = await self._resumed()
                if isinstance(found, Ending):
                    return found
                answer = found
            how = await self._connection(answer)
            answer = None
            if not self.owed and how != "cut":
                return Ending.ANSWERED
            if how == "left":
                return Ending.LEFT
            if how == "ended" and self.plan.yields and self.last and not self.last.is_released:
                return Ending.TAKEN
            if self.deadline.is_over:
                return self._hangs()
            if self.stream.id is None:
                return Ending.NAMELESS
            await asyncio.sleep(self._retry)

    # One connection.

    async def _connection(self, answer: Answer) -> str:
        """Read a connection, and return how it ended."""
        reading = self._reading()
        self.readings.append(reading)
        cut = self.plan.cuts.pop(0) if self.plan.cuts else None
        self._retry = 0.0 if cut is None else cut.rest
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(0.1, self.deadline.left)) as timer:
                how = await self._pieces(answer, reading, cut, timer)
        except Broken:
            self.deadline.count_failure()
            self.context.findings.counts["broken"] += 1
            how = "broken"
        except TimeoutError:
            how = self._silent(began)
        finally:
            reading.end()
            self.last, self.at = reading, max(self.at, reading.at)
            answer.cut(reset=cut is not None and cut.reset)
        if how == "ended" and reading.retry is not None:
            self._retry = min(reading.retry / 1000, 2.0)
        return how

    def _reading(self) -> Reading:
        return Reading(self.stream, self.at, primes=self.session.primes)

    async def _pieces(
        self, answer: Answer, reading: Reading, cut: Cut | None, timer: asyncio.Timeout
    ) -> str:
        parser, left, moments = Parser(), cut.after if cut else -1, list[float]()
        if left == 0:
            return "cut"
        if self.plan.crawl and len(self.readings) > 1:
            return await self._crawl(answer, reading, timer)
        async for piece in answer.pieces():
            if self.can_be_trimmed:
                self.stream.may_be_trimmed = self.context.faults.pruned_since(self.stream.began)
            if left > 0:
                piece, left = piece[:left], max(0, left - len(piece))
            for event in parser.feed(piece):
                self._take(reading, reading.take(event), timer)
                moments.append(time.monotonic())
            if left == 0:
                self.context.findings.counts["cuts amid an event"] += parser.is_amid
                return "cut"
            if self.plan.leave is not None and self.plan.leave():
                return "left"
        self._note(reading, moments)
        return "ended"

    async def _crawl(self, answer: Answer, reading: Reading, timer: asyncio.Timeout) -> str:
        """Read one byte per second for ``Plan.crawl`` seconds."""
        parser, end = Parser(), time.monotonic() + self.plan.crawl
        self.plan.crawl = 0.0
        async for piece in answer.pieces(1):
            for event in parser.feed(piece):
                self._take(reading, reading.take(event), timer)
            self.crawled += 1
            if time.monotonic() >= end:
                return "cut"
            await asyncio.sleep(1)
        return "ended"

    def _take(self, reading: Reading, new: tuple[int, JSON] | None, timer: asyncio.Timeout) -> None:
        if new is None:
            return
        for message in new[1] if isinstance(new[1], list) else [new[1]]:
            self._heard(message, timer)

    def _heard(self, message: JSON, timer: asyncio.Timeout) -> None:
        if self.owed and self.deadline.left < self.deadline.seconds - 1:
            self.deadline.renew()
            timer.reschedule(asyncio.get_running_loop().time() + max(0.1, self.deadline.left))
        if not self._is_ours(message):
            self.context.findings.add("wrong", f"{self.stream.label}: of another call: {message}")
        if "method" not in message:
            self.owed.discard(message.get("id"))
            if not self.owed:
                timer.reschedule(asyncio.get_running_loop().time() + GOODBYE)
        elif message["method"] == "notifications/message":
            self.runs.append((message["params"].get("data") or {}).get("process"))
        self.hear(message)

    def _is_ours(self, message: JSON) -> bool:
        """Whether the message concerns a request of this stream, or none."""
        if "method" not in message:
            return message.get("id") in self.asked
        if message["method"] != "notifications/progress":
            return True
        return message["params"].get("progressToken") in {f"t{id}" for id in self.asked}

    def _note(self, reading: Reading, moments: Sequence[float]) -> None:
        """Record whether a resumed connection got stored events first and new ones after them."""
        if not reading.began_at or len(moments) < 3:
            return
        # What had been stored came at once, and then so much in each second that some of it was
        # stored while that snapshot was taken and read.
        span = moments[-1] - moments[0]
        live = [moment for moment in moments[1:] if moment > moments[0] + SNAPSHOT]
        flows = len(live) < len(moments) - 2 and span >= FLOW and len(live) >= DENSE * span
        self.context.findings.count_fault("a", injected=1, observed=int(flows))

    def _silent(self, began: float) -> str:
        if not self.owed:
            waited = time.monotonic() - began
            what = f"is open {GOODBYE} s after its last response ({waited:.0f} s in all)"
            self.context.findings.add(
                "wrong", f"{self.stream.label}: stream {self.stream.id} {what}"
            )
            return "ended"
        return "silent"

    # The next.

    async def _resumed(self) -> Answer | Ending:
        attempt = 0
        while not self.deadline.is_over:
            place = self.plan.place or self.session.somewhere
            try:
                buffer = 4_096 if self.plan.crawl else None
                cursor = self.stream.cursor_at(self.at)
                answer = await self.session.resume(cursor, place(), buffer=buffer)
            except Broken:
                self.deadline.count_failure()
            else:
                self.context.findings.counts["resumes"] += 1
                if answer.status == 200 and answer.is_stream:
                    return answer
                if answer.status == 405:
                    answer.cut(reset=False)
                    self.is_refused = True
                    return Ending.OVER if self.owed else Ending.ANSWERED
                if not await self._may_retry(answer):
                    return Ending.GONE
            attempt += 1
            await pause(self.rng, attempt)
        return self._hangs()

    async def _may_retry(self, answer: Answer) -> bool:
        try:
            said = await answer.json()
        except Broken:
            said = None
        if answer.status in LATER:
            self.deadline.count_failure()
        try:
            what = f"{self.stream.label}: GET after {self.stream.cursor_at(self.at)}"
            await self.session.check(answer.status, said, what)
        except Ended:
            return False
        return True

    def _hangs(self) -> Ending:
        if self.owed:
            self.context.findings.add("hanging", self.state)
            return Ending.HANGING
        return Ending.ANSWERED
