"""Wake-ups in one process: whoever reads a stream is woken, in the event loop that reads it."""

from __future__ import annotations

import asyncio
import threading

from django_mcp.storage.wakeups import StreamWakeup, stream_wakeups, wake_readers


class Follower:
    def __init__(self, stream: int) -> None:
        self.stream, self.heard, self.threads = stream, [], []

    def wake(self, one: StreamWakeup) -> None:
        self.heard.append(one)
        self.threads.append(threading.get_ident())


async def test_only_readers_of_the_stream_are_woken():
    one, other, elsewhere = Follower(1), Follower(1), Follower(2)
    for follower in (one, other, elsewhere):
        stream_wakeups().register(follower)
    wake_readers(news := StreamWakeup(1, [(1, "a")]))
    assert one.heard == other.heard == [news] and elsewhere.heard == []


async def test_a_reader_that_has_left_is_not_woken():
    one, other = Follower(1), Follower(1)
    stream_wakeups().register(one)
    stream_wakeups().register(other)
    stream_wakeups().forget(one)
    wake_readers(StreamWakeup(1))
    assert one.heard == [] and len(other.heard) == 1 and stream_wakeups().streams() == [1]
    stream_wakeups().forget(other)
    stream_wakeups().forget(other)
    assert not stream_wakeups() and stream_wakeups().streams() == []


async def test_a_wakeup_from_a_thread_is_delivered_in_the_loop():
    stream_wakeups().register(one := Follower(1))
    await asyncio.to_thread(wake_readers, StreamWakeup(1))
    await asyncio.sleep(0)
    assert one.threads == [threading.get_ident()]


async def test_a_wakeup_from_another_loop_is_delivered_here():
    stream_wakeups().register(one := Follower(1))

    def elsewhere():
        async def wake():
            wake_readers(StreamWakeup(1))

        asyncio.run(wake())

    await asyncio.to_thread(elsewhere)
    await asyncio.sleep(0)
    assert one.threads == [threading.get_ident()]


def test_a_loop_that_ended_disturbs_nobody():
    async def registered():
        stream_wakeups().register(Follower(1))

    asyncio.run(registered())
    wake_readers(StreamWakeup(1))
