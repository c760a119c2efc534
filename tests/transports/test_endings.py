"""Endings that leave the process as it is; tests/management/ has those that end it."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from django_mcp.transports import stdio
from django_mcp.transports.stdio import (
    CALLS_SECONDS,
    CLEANUP_SECONDS,
    EXIT_SECONDS,
    FLUSH_SECONDS,
    STDERR_SECONDS,
    StdioShutdown,
)

SECONDS = 30


async def heard(ending):
    await asyncio.wait_for(ending.begun.wait(), SECONDS)
    return True


def test_two_seconds_are_kept():
    assert (
        0
        < CALLS_SECONDS
        < CLEANUP_SECONDS
        < FLUSH_SECONDS
        < EXIT_SECONDS
        < EXIT_SECONDS + STDERR_SECONDS
        < 2
    )


async def test_it_is_begun_from_any_thread_and_once():
    ending = StdioShutdown()
    with ending.awaited():
        assert not ending.begun.is_set()
        threads = [threading.Thread(target=ending.begin) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert await heard(ending)
        first = ending.seconds_left(EXIT_SECONDS)
        ending.begin()
        await asyncio.sleep(0.01)
        assert ending.seconds_left(EXIT_SECONDS) < first <= EXIT_SECONDS
        assert ending.seconds_left(0) == 0 < ending.seconds_left(SECONDS)
        for thread in threads:
            thread.join()


async def test_a_signal_begins_it():
    ending = StdioShutdown()
    with ending.awaited():
        signal.raise_signal(signal.SIGTERM)
        assert await heard(ending)


async def test_a_signal_that_ends_nothing_does_not():
    if not hasattr(signal, "SIGUSR1"):
        pytest.skip("it is of POSIX")
    seen, ending = [], StdioShutdown()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with ending.awaited():
            signal.raise_signal(signal.SIGUSR1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ending.begun.wait(), 0.1)
        assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_it_is_heard_while_the_loop_is_stuck():
    ending = StdioShutdown()
    with ending.awaited():
        ending.begin()
        deadline = time.monotonic() + SECONDS
        while not ending.seconds_left(EXIT_SECONDS) and time.monotonic() < deadline:
            time.sleep(0.001)  # noqa: ASYNC251
        assert ending.seconds_left(EXIT_SECONDS) and not ending.begun.is_set()
        assert await heard(ending)


async def test_the_end_of_the_block_is_the_end_and_leaves_nothing():
    threads, handler = set(threading.enumerate()), signal.getsignal(signal.SIGTERM)
    ending = StdioShutdown()
    with pytest.raises(KeyError), ending.awaited():
        raise KeyError
    assert await heard(ending)
    ending.begin()  # nobody hears it any more
    assert set(threading.enumerate()) <= threads
    assert signal.getsignal(signal.SIGTERM) is handler


def test_nor_does_it_matter_that_the_loop_is_gone():
    made = []

    async def begin():
        made.append(StdioShutdown())

    asyncio.run(begin())
    with made[0].awaited():
        pass


def test_a_stream_that_is_not_there_is_not_flushed(monkeypatch):
    flushed = []

    class Stream:
        def flush(self):
            flushed.append(self)

    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", Stream())
    stdio.flush()
    assert len(flushed) == 1
