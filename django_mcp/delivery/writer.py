"""
What calls say while they work, on its way into the log.

Rule: all that is said in a while is committed together, by one job at a time,
and only then made known. It may be said from any thread, and none waits for its
commit; but who says more than is written is slowed down, so that little waits,
and not for long. What waits is bounded: a call that says more is told so. A
call's outcome is written after all that it said.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from . import events
from .doorbell import Ring, ring
from .events import FULL, Address, Outcomes
from .jobs import PerLoop, surely

Said = dict[Address, list[str]]
logger = logging.getLogger("django_mcp")
# What may wait for the log: for one call, and for all of a loop's.
MOST, MOST_SIZE, MOST_IN_ALL = 20_000, 8_000_000, 64_000_000
AT_ONCE, AT_ONCE_SIZE = 2_000, 4_000_000  # of one call, in one commit
# After so many messages a call pauses: by the square of those that wait, and in no case for long.
TURN, PAUSE, LONGEST_PAUSE = 64, 5e-8, 0.005


class TooMuch(Exception):
    """More is said than can be written down."""


@dataclass(slots=True)
class Lane:
    """What one call has said that is not committed."""

    refused: Callable[[int | None], None]  # told when the log takes no more from the call
    waiting: list[str] = field(default_factory=list)
    size: int = 0

    def take(self) -> list[str]:
        """As much as may go into one commit, at least one."""
        size = count = 0
        for text in self.waiting[:AT_ONCE]:
            size += len(text)
            if count and size > AT_ONCE_SIZE:
                break
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        self.size -= sum(map(len, taken))
        return taken


def pace(waiting: int) -> None:
    """Slow down who has said so much that is not written yet.

    A thread that never waits lets others go on each five milliseconds (the interpreter's switch
    interval), and a transaction has a dozen steps.
    """
    if waiting and waiting % TURN == 0:
        time.sleep(min(waiting * waiting * PAUSE, LONGEST_PAUSE))


class Writer:
    """Writes for one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._lanes: dict[Address, Lane] = {}
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._told: asyncio.Future[None] = self._loop.create_future()  # at each commit
        self._is_called = False

    def say(
        self, to: Address, text: str, refused: Callable[[int | None], None], *, must: bool = False
    ) -> int:
        """Have ``text`` written, soon; from any thread: how many wait. Raises ``TooMuch``.

        What ``must`` be taken was found to be not too much before.
        """
        with self._lock:
            lane = self._lanes.get(to) or Lane(refused)
            full = len(lane.waiting) >= MOST or lane.size + len(text) > MOST_SIZE
            if lane.waiting and not must and (full or self._size + len(text) > MOST_IN_ALL):
                raise TooMuch("The call says more than can be passed on.")
            self._lanes[to] = lane
            lane.waiting.append(text)
            lane.size += len(text)
            self._size += len(text)
            waiting = len(lane.waiting)
            called, self._is_called = self._is_called, True
        if not called:
            self._loop.call_soon_threadsafe(self._begin)
        return waiting

    async def flush(self, to: Address) -> None:
        """Come back when all that was said there is committed, or refused."""
        while to in self._lanes:
            await asyncio.shield(self._told)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._write())

    async def _write(self) -> None:
        while said := self._taken():
            self._tell(said, await self._committed(said))
            told, self._told = self._told, self._loop.create_future()
            told.set_result(None)

    def _taken(self) -> Said:
        """What goes into the next commit; who had a turn comes last in the next."""
        said: dict[Address, list[str]] = {}
        size = 0
        with self._lock:
            for to, lane in list(self._lanes.items()):
                if size < AT_ONCE_SIZE:
                    said[to] = lane.take()
                    size += sum(map(len, said[to]))
                    self._lanes[to] = self._lanes.pop(to)
            self._size -= size
            self._is_called = bool(said)
        return said

    async def _committed(self, said: Said) -> Outcomes:
        try:
            return await surely(events.append_many, said, uuid.uuid4().hex, again=False)
        except Exception:
            if len(said) == 1:
                logger.exception("What a call said could not be written")
                return dict.fromkeys(said)
        found: Outcomes = {}
        for to, texts in said.items():  # one of them spoils it for all
            found |= await self._committed({to: texts})
        return found

    def _tell(self, said: Said, ends: Outcomes) -> None:
        speakers = Counter(to.stream for to in said)
        for to, texts in said.items():
            end = ends[to]
            if end is None or end == FULL:
                self._refuse(to, end)
                continue
            self._settle(to)
            new = list(enumerate(texts, end - len(texts) + 1)) if speakers[to.stream] == 1 else []
            ring(Ring(to.stream, new, changed=not new))

    def _settle(self, to: Address) -> None:
        """A lane is there while any of it is on its way, and no longer."""
        with self._lock:
            if not self._lanes[to].waiting:
                del self._lanes[to]

    def _refuse(self, to: Address, outcome: int | None) -> None:
        with self._lock:
            lane = self._lanes.pop(to)
            self._size -= lane.size
        lane.refused(outcome)


writer = PerLoop(Writer)
