"""
What many want to know at once is asked for once.

Rule: whoever wants what is being asked for already waits for that, and nobody waits long. How many
different things are asked for at once is limited. What cannot be told now is ``Busy``, and so an
answer to come again: it says nothing of the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from .. import threads
from ..delivery.jobs import PerLoop
from ..exceptions import Busy

T = TypeVar("T")
PATIENCE = 10.0  # seconds that anybody waits
AT_ONCE = 32  # different things
UNKNOWN = "What this token is good for cannot be told just now."
Way = dict[str, "asyncio.Task[threads.Outcome[T]]"]


class Flights(Generic[T]):
    """What is being asked for in each loop, by its name."""

    def __init__(self) -> None:
        self._under_way: PerLoop[Way[T]] = PerLoop(dict)

    async def run(self, name: str, function: Callable[[], T]) -> T:
        """What ``function`` returns or raises, in a thread. Raises ``Busy``."""
        task = self.begin(name, function)
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
        if not done:
            raise Busy(UNKNOWN)
        return task.result().get()

    def begin(self, name: str, function: Callable[[], T]) -> asyncio.Task[threads.Outcome[T]]:
        """The same for nobody who waits. Raises ``Busy``."""
        way = self._under_way()
        if (task := way.get(name)) is None:
            if len(way) >= AT_ONCE:
                raise Busy(UNKNOWN)
            task = way[name] = asyncio.get_running_loop().create_task(_outcome(function))
            task.add_done_callback(lambda done: way.pop(name, None))
        return task


async def _outcome(function: Callable[[], T]) -> threads.Outcome[T]:
    """Never raises: there may be nobody left who waits."""
    try:
        loop = asyncio.get_running_loop()
        return threads.Outcome(await loop.run_in_executor(threads.issuers, function))
    except Exception as error:
        return threads.Outcome(error=error)
