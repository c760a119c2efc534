"""Wake-ups in one process: readers of a stream are woken in the event loop that runs them."""

from __future__ import annotations

import asyncio
import threading

from django_mcp.storage.wakeups import StreamWakeup, stream_wakeups, wake_readers


class RecordingReader:
    def __init__(self, stream: int) -> None:
        self.stream, self.received, self.threads = stream, [], []

    def wake(self, one: StreamWakeup) -> None:
        self.received.append(one)
        self.threads.append(threading.get_ident())


async def test_only_readers_of_the_stream_are_woken():
    one, other, elsewhere = RecordingReader(1), RecordingReader(1), RecordingReader(2)
    for follower in (one, other, elsewhere):
        stream_wakeups().register(follower)
    wake_readers(news := StreamWakeup(1, [(1, "a")]))
    assert one.received == other.received == [news] and elsewhere.received == []


async def test_unregistered_reader_is_not_woken():
    one, other = RecordingReader(1), RecordingReader(1)
    stream_wakeups().register(one)
    stream_wakeups().register(other)
    stream_wakeups().forget(one)
    wake_readers(StreamWakeup(1))
    assert one.received == [] and len(other.received) == 1 and stream_wakeups().streams() == [1]
    stream_wakeups().forget(other)
    stream_wakeups().forget(other)
    assert not stream_wakeups() and stream_wakeups().streams() == []


async def test_wakeup_from_a_thread_is_delivered_in_the_event_loop():
    stream_wakeups().register(one := RecordingReader(1))
    await asyncio.to_thread(wake_readers, StreamWakeup(1))
    await asyncio.sleep(0)
    assert one.threads == [threading.get_ident()]


async def test_wakeup_from_another_event_loop_is_delivered_in_the_readers_loop():
    stream_wakeups().register(one := RecordingReader(1))

    def elsewhere():
        async def wake():
            wake_readers(StreamWakeup(1))

        asyncio.run(wake())

    await asyncio.to_thread(elsewhere)
    await asyncio.sleep(0)
    assert one.threads == [threading.get_ident()]


def test_closed_event_loop_causes_no_error():
    async def registered():
        stream_wakeups().register(RecordingReader(1))

    asyncio.run(registered())
    wake_readers(StreamWakeup(1))
