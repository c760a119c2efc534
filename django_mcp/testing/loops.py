"""
The loop of a synchronous client: it runs in the test's own thread, while the test waits.

Rule: between two uses of a client nothing of the loop runs and no job is on the test's
connections, so that the test may use the ORM; and what a test gave as a function is called outside
of the loop, so that it may too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from .. import threads

T = TypeVar("T")
WITHIN = (
    "A synchronous client cannot be used where an event loop runs, as in an async test: "
    "use AsyncClient, which is awaited (async_mcp_client, or self.async_mcp)."
)


class Loop:
    """An event loop that runs while somebody waits for something in it."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._errands: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._wanted: asyncio.Event | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns, with the test's errands done in between."""
        if _is_running():
            work.close()
            raise RuntimeError(WITHIN)
        task = self._runner.get_loop().create_task(work, context=copy_context())
        try:
            while True:
                self._runner.run(self._until(task))
                if task.done():
                    return task.result()
                self._do(*self._errands.popleft())
        except BaseException:
            task.cancel()
            raise
        finally:
            settled()

    async def _until(self, task: asyncio.Task[Any]) -> None:
        """Until it is done, or there is an errand."""
        self._wanted = asyncio.Event()
        if self._errands:
            return
        wanted = asyncio.ensure_future(self._wanted.wait())
        await asyncio.wait([task, wanted], return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()

    def _do(self, function: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        settled()
        try:
            value = function()
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have the test's thread call ``function``, while the loop stands still."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._errands.append((partial(function, *args), answer))
        if self._wanted is not None:
            self._wanted.set()
        return await answer

    def close(self) -> None:
        if not _is_running():
            self._runner.close()


def settled(seconds: float = 10) -> None:
    """Wait until no job of ours is on the test's connections; a tool may still be stuck."""
    end = time.monotonic() + seconds
    while not threads.at_rest() and time.monotonic() < end:
        time.sleep(0.0005)


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
