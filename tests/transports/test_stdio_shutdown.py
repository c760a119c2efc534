"""Shutdown of the stdio transport; tests/management has the tests that end a process."""

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


async def has_begun(shutdown):
    await asyncio.wait_for(shutdown.begun.wait(), SECONDS)
    return True


def test_shutdown_takes_less_than_two_seconds():
    assert (
        0
        < CALLS_SECONDS
        < CLEANUP_SECONDS
        < FLUSH_SECONDS
        < EXIT_SECONDS
        < EXIT_SECONDS + STDERR_SECONDS
        < 2
    )


async def test_shutdown_is_begun_once_from_any_thread():
    shutdown = StdioShutdown()
    with shutdown.watching():
        assert not shutdown.begun.is_set()
        threads = [threading.Thread(target=shutdown.begin) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert await has_begun(shutdown)
        first = shutdown.seconds_left(EXIT_SECONDS)
        shutdown.begin()
        await asyncio.sleep(0.01)
        assert shutdown.seconds_left(EXIT_SECONDS) < first <= EXIT_SECONDS
        assert shutdown.seconds_left(0) == 0 < shutdown.seconds_left(SECONDS)
        for thread in threads:
            thread.join()


async def test_signal_begins_the_shutdown():
    shutdown = StdioShutdown()
    with shutdown.watching():
        signal.raise_signal(signal.SIGTERM)
        assert await has_begun(shutdown)


async def test_other_signals_do_not_begin_the_shutdown():
    if not hasattr(signal, "SIGUSR1"):
        pytest.skip("needs POSIX signals")
    seen, shutdown = [], StdioShutdown()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with shutdown.watching():
            signal.raise_signal(signal.SIGUSR1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(shutdown.begun.wait(), 0.1)
        assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_shutdown_begins_while_the_event_loop_is_blocked():
    shutdown = StdioShutdown()
    with shutdown.watching():
        shutdown.begin()
        deadline = time.monotonic() + SECONDS
        while not shutdown.seconds_left(EXIT_SECONDS) and time.monotonic() < deadline:
            time.sleep(0.001)  # noqa: ASYNC251
        assert shutdown.seconds_left(EXIT_SECONDS) and not shutdown.begun.is_set()
        assert await has_begun(shutdown)


async def test_leaving_the_block_begins_the_shutdown_and_cleans_up():
    threads, handler = set(threading.enumerate()), signal.getsignal(signal.SIGTERM)
    shutdown = StdioShutdown()
    with pytest.raises(KeyError), shutdown.watching():
        raise KeyError
    assert await has_begun(shutdown)
    shutdown.begin()  # has no effect any more
    assert set(threading.enumerate()) <= threads
    assert signal.getsignal(signal.SIGTERM) is handler


def test_shutdown_works_after_the_event_loop_was_closed():
    made = []

    async def begin():
        made.append(StdioShutdown())

    asyncio.run(begin())
    with made[0].watching():
        pass


def test_missing_stream_is_not_flushed(monkeypatch):
    flushed = []

    class Stream:
        def flush(self):
            flushed.append(self)

    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", Stream())
    stdio.flush()
    assert len(flushed) == 1
