"""Changes that only this process knows of reach every follower in every event loop at once."""

from __future__ import annotations

import asyncio
import threading

from django_mcp.changes import feed
from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import change_feed, deliver_local_changes, has_followers
from tests.announcing import Announcement, announce

CHANGE = Announcement("updated", "shop://x", "shop")


class Follower:
    def __init__(self) -> None:
        self.received: list[Announcement] = []

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        self.received += [Announcement("updated", uri, server) for uri in changes.uris]


class Broadcaster(Follower):
    is_eager = False

    async def broadcast(self, states: feed.ChangeLogStates) -> None:
        raise AssertionError("nothing is polled")


async def test_every_follower_receives_changes_until_it_leaves():
    one, other, here = Follower(), Follower(), change_feed()
    for follower in (one, other, other):  # the second time has no effect
        here.follow_local(follower)
    announce(CHANGE)
    await asyncio.sleep(0)
    for _ in range(2):
        here.leave_local(other)
    announce(CHANGE)
    await asyncio.sleep(0)
    assert one.received == [CHANGE, CHANGE] and other.received == [CHANGE]


async def test_there_are_clients_while_there_are_followers():
    one, here = Follower(), change_feed()
    assert not here.local_followers
    here.follow_local(one)
    assert has_followers()
    here.leave_local(one)
    assert not here.local_followers


async def test_failing_follower_does_not_affect_the_others(caplog):
    class Failing(Follower):
        def receive_local(self, server: str, changes: ChangeSet) -> None:
            raise RuntimeError("a bug")

    one = Follower()
    for follower in (Failing(), one):
        change_feed().follow_local(follower)
    announce(CHANGE)
    await asyncio.sleep(0)
    assert one.received == [CHANGE] and "not delivered: follower=Failing" in caplog.text


async def test_failing_follower_of_the_logs_does_not_affect_the_others(caplog):
    """The cursor has moved on, so the others would never get these changes."""

    class Failing:
        async def receive(self, server: str, changes: ChangeSet) -> None:
            raise RuntimeError("a bug")

    class Receiving:
        received: list[str] = []

        async def receive(self, server: str, changes: ChangeSet) -> None:
            self.received.append(server)

    here = change_feed()
    here._followers = [Failing(), Receiving()]  # type: ignore[list-item]
    try:
        await here._pass_on("shop", CHANGE.changes)
    finally:
        here._followers = []
    assert Receiving.received == ["shop"]
    assert "not delivered: follower=Failing" in caplog.text


async def test_changes_from_a_thread_arrive_in_the_loop():
    one = Follower()
    change_feed().follow_local(one)
    await asyncio.to_thread(deliver_local_changes, "shop", CHANGE.changes)
    await asyncio.sleep(0)
    assert one.received == [CHANGE]


def test_only_one_loops_broadcaster_receives_changes():
    """Sessions belong to no loop: two broadcasters would notify them twice."""
    ready, end = threading.Barrier(3, timeout=30), threading.Event()
    followers = [Follower() for _ in range(2)]
    broadcasters = [Broadcaster() for _ in range(2)]

    async def serve(number: int) -> None:
        here = change_feed()
        here.follow_local(followers[number])
        here.broadcaster = broadcasters[number]
        ready.wait()
        await asyncio.to_thread(end.wait, 30)
        await asyncio.sleep(0)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(serve(n))) for n in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    announce(CHANGE)
    end.set()
    for thread in threads:
        thread.join()
    assert [one.received for one in followers] == [[CHANGE], [CHANGE]]
    assert sum(len(one.received) for one in broadcasters) == 1
