"""The doorbell: who follows a stream is woken, in the loop that follows it."""

from __future__ import annotations

import asyncio
import threading

from django_mcp.storage.wakeups import StreamWakeup, doorbell, ring


class Follower:
    def __init__(self, stream: int) -> None:
        self.stream, self.heard, self.threads = stream, [], []

    def hear(self, one: StreamWakeup) -> None:
        self.heard.append(one)
        self.threads.append(threading.get_ident())


async def test_who_follows_hears_and_nobody_else():
    one, other, elsewhere = Follower(1), Follower(1), Follower(2)
    for follower in (one, other, elsewhere):
        doorbell().register(follower)
    ring(news := StreamWakeup(1, [(1, "a")]))
    assert one.heard == other.heard == [news] and elsewhere.heard == []


async def test_who_has_left_hears_nothing():
    one, other = Follower(1), Follower(1)
    doorbell().register(one)
    doorbell().register(other)
    doorbell().forget(one)
    ring(StreamWakeup(1))
    assert one.heard == [] and len(other.heard) == 1 and doorbell().streams() == [1]
    doorbell().forget(other)
    doorbell().forget(other)
    assert not doorbell() and doorbell().streams() == []


async def test_a_ring_from_a_thread_is_heard_in_the_loop():
    doorbell().register(one := Follower(1))
    await asyncio.to_thread(ring, StreamWakeup(1))
    await asyncio.sleep(0)
    assert one.threads == [threading.get_ident()]


async def test_a_ring_in_another_loop_is_heard_here():
    doorbell().register(one := Follower(1))

    def elsewhere():
        async def rings():
            ring(StreamWakeup(1))

        asyncio.run(rings())

    await asyncio.to_thread(elsewhere)
    await asyncio.sleep(0)
    assert one.threads == [threading.get_ident()]


def test_a_loop_that_ended_disturbs_nobody():
    async def registered():
        doorbell().register(Follower(1))

    asyncio.run(registered())
    ring(StreamWakeup(1))
