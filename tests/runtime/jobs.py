"""Jobs of the tests of thread pools, and waiting for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

SECONDS = 60  # to wait for what comes at once, however busy the machine is


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what threads do sets no asyncio.Event
            await asyncio.sleep(0.001)


def raise_error(error: BaseException) -> None:
    raise error


def thread_name() -> str:
    return threading.current_thread().name


def have_ended(prefix: str) -> bool:
    """Whether the threads of that name have ended, after a moment if need be."""
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            thread.join(SECONDS)
    return not any(thread.name.startswith(prefix) for thread in threading.enumerate())
