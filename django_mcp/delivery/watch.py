"""
Looking for changes, for all in this loop who follow them.

Rule: what was committed, in whichever process, is seen within a period; whoever
saves rings, and then it is seen at once. One look asks each database one query
where nothing has changed. It is taken in a thread of its own: a database in
which a project's transaction holds everything up holds up nothing but this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from .. import threads
from ..exceptions import Busy
from . import changes, poller
from .changes import Tip
from .jobs import BROKEN, PerLoop, reconnecting
from .layers import line
from .patience import LOCKS, codes

logger = logging.getLogger("django_mcp")
# Seconds between two looks where rings come from other processes: who serves nobody does not ring.
UNRUNG = 0.3
SELDOM = 2  # pauses of the poller between two looks: a change is no word in a conversation
SLOWEST = 5.0  # seconds between two looks where they fail, or take long
Tips = Mapping[str, Tip]  # how each database stands


class Follower(Protocol):
    """Who wants to know, and is asked at every look."""

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be asked any more."""
        ...

    @property
    def is_eager(self) -> bool:
        """Whether anybody waits for what it finds."""
        ...

    async def follow(self, tips: Tips) -> bool:
        """Go on from where it was; whether there is more to do at once."""
        ...


class Watch:
    """The looks of one loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._followers: list[Follower] = []
        self._task: asyncio.Task[None] | None = None
        self._called = asyncio.Event()
        self._took = 0.0
        self._is_lost = False

    def begin(self, follower: Follower) -> None:
        """Look for it, as long as it is wanted."""
        if follower not in self._followers:
            self._followers.append(follower)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())
            mine = poller.poller()
            mine.watch = self
            mine.wake()

    def wake(self) -> None:
        """Something was rung for."""
        self._called.set()

    async def _run(self) -> None:
        try:
            while self._followers:
                await self._turn()
                await self._nap()
                self._followers = [one for one in self._followers if one.is_wanted]
        finally:
            poller.poller().watch = None
            poller.poller().rest()

    async def _nap(self) -> None:
        pause = min(max(self._period(), poller.TAKES * self._took), SLOWEST)
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOWEST if self._is_lost else pause):
                await self._called.wait()

    def _period(self) -> float:
        if not any(one.is_eager for one in self._followers):
            return poller.LONGEST
        return UNRUNG if line().is_prompt else SELDOM * poller.PERIOD

    async def _turn(self) -> None:
        self._called.clear()
        try:
            tips = await threads.changes.run(reconnecting, self._look)
            for follower in list(self._followers):
                if await follower.follow(tips):
                    self._called.set()
            self._is_lost = False
        except Busy:
            logger.debug("A look for changes is put off")
        except BROKEN as error:
            if codes(error) & LOCKS:
                logger.debug("A transaction of the project's keeps a look for changes waiting")
                return
            self._is_lost = True
            logger.warning("Changes cannot be read: %s", error)
        except Exception:
            self._is_lost = True
            logger.exception("A look for changes failed")

    def _look(self) -> dict[str, Tip]:
        began = time.perf_counter()
        found = changes.tips()
        self._took = time.perf_counter() - began
        if any(tip.waiting for tip in found.values()):
            self._loop.call_soon_threadsafe(self.wake)  # there was more than a batch
        return found


watch = PerLoop(Watch)
