"""Jobs for the tests of thread pools, and helpers that wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

SECONDS = 60  # timeout for events that follow at once, on a busy machine


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - threads set no asyncio.Event
            await asyncio.sleep(0.001)


def raise_error(error: BaseException) -> None:
    raise error


def thread_name() -> str:
    return threading.current_thread().name


def have_ended(prefix: str) -> bool:
    """Wait for the threads with that prefix, and return whether they have ended."""
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            thread.join(SECONDS)
    return not any(thread.name.startswith(prefix) for thread in threading.enumerate())
