"""Helpers for the tests of wake-ups between workers: connections that record what they receive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from django_mcp.storage.wakeups import ChannelLayerConnection

SECONDS = 30


class Receiver:
    """A connection to the channel layer, and the streams that it was woken for."""

    def __init__(self, line: ChannelLayerConnection | None = None) -> None:
        self.heard: list[int] = []
        self.line = line or ChannelLayerConnection()
        self.line.open(self.heard.extend)

    async def __aenter__(self) -> Receiver:
        await until(lambda: self.line.is_working)
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.line.close()


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(SECONDS):
        while not (found := condition()):  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.005)
    return found


async def unusable_connection() -> ChannelLayerConnection:
    """Return a connection that was opened and found that no layer is usable."""
    line = ChannelLayerConnection()
    line.open(print)
    await until(lambda: not line.is_open)
    assert not line.is_working
    return line


def logged(caplog: pytest.LogCaptureFixture, words: str) -> int:
    ours = [one for one in caplog.records if one.name.startswith("django_mcp")]
    return sum(words in one.getMessage() for one in ours)
