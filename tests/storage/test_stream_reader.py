"""Stream readers: each event once and in order, from memory or the database, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from django_mcp.calls.session_output import response_wakeup
from django_mcp.models import Event, Stream
from django_mcp.storage import event_log, streams
from django_mcp.storage import stream_reader as module
from django_mcp.storage.stream_reader import StreamEnd
from django_mcp.storage.wakeups import StreamWakeup, stream_wakeups, wake_readers
from tests.unreachable import unreachable

from .loops import Reader, a_loop
from .rows import call, given, session

pytestmark = pytest.mark.django_db


@pytest.fixture
def manual_loop(monkeypatch):
    """A loop whose poller does not poll."""
    with a_loop(monkeypatch, period=60) as made:
        yield made


def opened(*made, **options) -> Stream:
    return streams.open(session(), calls=made or [call()], **options)


def append(loop, stream, *texts, wake=True) -> None:
    """Append as this process does: commit, then wake readers."""
    last = event_log.append(stream.pk, texts)
    if wake:
        numbered = list(enumerate(texts, last - len(texts) + 1))
        loop.do(wake_readers, StreamWakeup(stream.pk, numbered))


def test_reader_gets_stored_events_and_then_new_ones(manual_loop):
    stream = opened(messages=["a", "b"])
    reader = Reader(manual_loop, stream)
    assert reader.until(2) == [(1, "a"), (2, "b")]
    append(manual_loop, stream, "c", "d")
    assert reader.until(4)[2:] == [(3, "c"), (4, "d")]


def test_reader_with_a_cursor_gets_the_events_after_it(manual_loop):
    stream = opened(messages=["a", "b", "c"])
    assert Reader(manual_loop, stream, after=2).until(1) == [(3, "c")]


def test_events_of_this_process_are_read_without_a_query(manual_loop, django_assert_num_queries):
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    with django_assert_num_queries(0, using=_alias()):
        manual_loop.do(wake_readers, StreamWakeup(stream.pk, [(2, "b")]))
        assert reader.until(2)[1] == (2, "b")


def test_events_of_an_opened_stream_are_read_without_a_query(
    manual_loop, django_assert_num_queries
):
    stream = opened(messages=["a", "b"])
    with django_assert_num_queries(0, using=_alias()):
        reader = Reader(manual_loop, stream, opened=StreamWakeup(stream.pk, [(1, "a"), (2, "b")]))
        assert reader.until(2) == [(1, "a"), (2, "b")]
    append(manual_loop, stream, "c", wake=False)  # by another process
    append(manual_loop, stream, "d")
    assert reader.until(4)[2:] == [(3, "c"), (4, "d")]


def test_opened_stream_with_many_events_is_read_from_the_database(manual_loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_BUFFERED_EVENTS", 1)
    stream = opened(messages=["a", "b"])
    reader = Reader(manual_loop, stream, opened=StreamWakeup(stream.pk, [(1, "a"), (2, "b")]))
    assert reader.until(2) == [(1, "a"), (2, "b")]


def test_gap_in_wakeups_is_filled_from_the_database(manual_loop):
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    append(manual_loop, stream, "b", wake=False)  # by another process
    append(manual_loop, stream, "c")
    assert reader.until(3) == [(1, "a"), (2, "b"), (3, "c")]


def test_event_in_two_wakeups_is_delivered_once(manual_loop):
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    append(manual_loop, stream, "b", "c")
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, [(2, "b"), (3, "c")]))
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, [(3, "c")]))
    append(manual_loop, stream, "d")
    assert [text for _, text in reader.until(4)] == ["a", "b", "c", "d"]


def test_wakeup_before_the_first_read_loses_nothing(manual_loop):
    stream = opened(messages=["a", "b"])
    reader = Reader(manual_loop, stream)  # it reads, in a thread
    append(manual_loop, stream, "c")
    assert reader.until(3) == [(1, "a"), (2, "b"), (3, "c")]
    manual_loop.sleep(0.05)
    assert reader.seqs == [1, 2, 3]


def test_poller_delivers_events_of_a_lost_wakeup(loop):
    stream = opened()
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    append(loop, stream, "a", wake=False)
    assert reader.until(1) == [(1, "a")]


def test_many_events_are_read_in_pages(manual_loop, monkeypatch):
    monkeypatch.setattr(module, "EVENTS_PER_PAGE", 7)
    stream = opened()
    event_log.append(stream.pk, [str(n) for n in range(100)])
    reader = Reader(manual_loop, stream)
    assert [text for _, text in reader.until(100)] == [str(n) for n in range(100)]
    assert reader.seqs == list(range(1, 101))


def test_slow_reader_buffers_a_limited_number_of_events(manual_loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_BUFFERED_EVENTS", 3)
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    reader.open.clear()
    for n in range(20):
        append(manual_loop, stream, str(n))
    (tail,) = manual_loop.do(lambda: list(stream_wakeups()))
    assert len(tail._buffer or ()) <= 3
    manual_loop.do(reader.open.set)
    assert reader.until(21)[1:] == [(n + 2, str(n)) for n in range(20)]


def test_large_event_is_not_buffered(manual_loop):
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    reader.open.clear()
    append(manual_loop, stream, "x" * (module.MAX_BUFFERED_SIZE + 1))
    (tail,) = manual_loop.do(lambda: list(stream_wakeups()))
    assert tail._buffer is None
    manual_loop.do(reader.open.set)
    assert reader.until(2)[1][0] == 2


# Endings.


def test_finished_stream_ends_after_its_last_event(manual_loop):
    one = call()
    stream = opened(one, messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    assert event_log.finish(one.pk, 0, "the end", stream.pk)
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.FINISHED and reader.events == [(1, "a"), (2, "the end")]


def test_wakeup_with_the_last_event_ends_a_reader(manual_loop, django_assert_num_queries):
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    with django_assert_num_queries(0, using=_alias()):
        manual_loop.do(wake_readers, StreamWakeup(stream.pk, [(2, "the end")], closed=True))
        assert reader.ended() is StreamEnd.FINISHED
    assert reader.events == [(1, "a"), (2, "the end")]


def test_wakeup_with_the_last_event_does_not_skip_earlier_ones(manual_loop):
    stream = opened(one := call(), messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    append(manual_loop, stream, "b", wake=False)  # by another process
    assert event_log.finish(one.pk, 0, "the end", stream.pk) == (3, True, 1)
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, [(3, "the end")], closed=True))
    assert reader.ended() is StreamEnd.FINISHED
    assert reader.events == [(1, "a"), (2, "b"), (3, "the end")]


def test_wakeup_with_the_last_event_ends_a_reader_whose_stream_was_taken(manual_loop):
    stream = opened(one := call(), messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    streams.take(stream.session, stream.pk)  # in another process, whose wake-up was lost
    stored = event_log.finish(one.pk, 0, "the end", stream.pk)
    manual_loop.do(wake_readers, response_wakeup(stream.pk, stored, "the end"))
    assert reader.ended() is StreamEnd.TAKEN and reader.events == [(1, "a")]


def test_poller_notices_the_end_of_a_stream(loop):
    one = call()
    stream = opened(one)
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    event_log.finish(one.pk, 0, "the end", stream.pk)
    assert reader.ended() is StreamEnd.FINISHED and reader.events == [(1, "the end")]


def test_closed_stream_without_events_ends(manual_loop):
    stream = opened()
    reader = Reader(manual_loop, stream)
    streams.close(stream.pk)
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.FINISHED and reader.events == []


def test_older_reader_ends_when_a_newer_takes_the_stream(manual_loop):
    stream = opened(messages=["a"])
    reader = Reader(manual_loop, stream)
    reader.until(1)
    state = streams.take(stream.session, stream.pk)
    newer = Reader(manual_loop, stream, state.reader, 1)
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, reader=state.reader))
    assert reader.ended() is StreamEnd.TAKEN
    append(manual_loop, stream, "b")
    assert newer.until(1) == [(2, "b")] and newer.ending is None


def test_reader_ends_when_another_process_takes_the_stream(loop):
    stream = opened()
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    streams.take(stream.session, stream.pk)
    assert reader.ended() is StreamEnd.TAKEN


def test_released_reader_gets_all_events_first(manual_loop):
    stream = opened()
    reader = Reader(manual_loop, stream)
    event_log.append(stream.pk, ["a", "b"])
    streams.release(stream.pk)
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1, 2]


def test_release_does_not_end_later_readers(manual_loop):
    stream = opened()
    streams.release(stream.pk)
    state = streams.take(stream.session, stream.pk)
    newer = Reader(manual_loop, stream, state.reader)
    manual_loop.sleep(0.05)
    assert newer.ending is None


def test_reader_can_be_released_by_its_process(manual_loop):
    reader = Reader(manual_loop, opened(messages=["a"]))
    reader.until(1)
    (tail,) = manual_loop.do(lambda: list(stream_wakeups()))
    manual_loop.do(tail.release)
    assert reader.ended() is StreamEnd.RELEASED


def test_reader_of_a_deleted_stream_ends(loop):
    stream = opened(messages=["a"])
    reader = Reader(loop, stream)
    reader.until(1)
    streams.close(stream.pk)
    streams.erase_streams([stream.pk])
    assert reader.ended() in (StreamEnd.GONE, StreamEnd.FINISHED)


def test_reader_ends_when_the_session_has_ended(manual_loop):
    reader = Reader(manual_loop, stream := opened(messages=["a"]))
    reader.until(1)
    from django_mcp.storage import sessions

    sessions.end(stream.session)
    manual_loop.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.GONE


def test_slow_reader_is_released_at_a_deleted_event(manual_loop, monkeypatch):
    monkeypatch.setattr(module, "EVENTS_PER_PAGE", 2)
    stream = opened(messages=["a", "b", "c", "d", "e"])
    reader = Reader(manual_loop, stream, stalled=True)
    reader.until(2)
    Event.objects.filter(stream=stream, seq=3).delete()
    manual_loop.do(reader.open.set)
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1, 2]


def test_reader_is_released_before_a_gap_within_a_page(manual_loop):
    stream = opened(messages=["a", "b", "c", "d", "e"])
    Event.objects.filter(stream=stream, seq__in=[3, 4]).delete()
    reader = Reader(manual_loop, stream)
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1, 2]


# Several readers.


def test_reader_has_no_instance_dict():
    from django_mcp.storage.stream_reader import StreamReader

    assert not hasattr(StreamReader(1, 1, 1), "__dict__")


def test_cancelled_reader_is_unregistered(manual_loop):
    reader = Reader(manual_loop, opened())
    assert manual_loop.do(lambda: bool(stream_wakeups()))
    reader.task.cancel()
    manual_loop.sleep(0)
    assert not manual_loop.do(lambda: bool(stream_wakeups()))


def test_two_readers_get_the_same_events(manual_loop):
    stream = opened(messages=["a"])
    one, other = Reader(manual_loop, stream), Reader(manual_loop, stream)
    append(manual_loop, stream, "b")
    assert one.until(2) == other.until(2)


def test_idle_reader_gets_keepalives(loop):
    with given(KEEPALIVE=0.1):
        reader = Reader(loop, opened())
        loop.until(lambda: reader.signs >= 2)
    assert reader.events == []


# Database outages.


@pytest.fixture
def outage(monkeypatch):
    """Let no reader read its rows until the test calls the function."""
    read, away = module._read_page, [True]

    def read_page(*given):
        if away:
            raise unreachable()
        return read(*given)

    monkeypatch.setattr(module, "_read_page", read_page)
    return away.clear


def test_reader_gets_keepalives_while_its_read_waits_for_the_database(loop, outage):
    stream = opened(messages=["a"])
    with given(KEEPALIVE=0.1):
        reader = Reader(loop, stream)
        loop.until(lambda: reader.signs >= 2)
    assert reader.events == []
    append(loop, stream, "b")
    outage()
    assert reader.until(2) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("why", [StreamEnd.EXPIRED, StreamEnd.GONE])
def test_reader_ends_while_its_read_waits_for_the_database(manual_loop, outage, why):
    reader = Reader(manual_loop, opened(messages=["a"]))
    (tail,) = manual_loop.do(lambda: list(stream_wakeups()))
    manual_loop.do(tail.end, why)
    assert reader.ended() is why and reader.events == []
    assert tail._reading.cancelling()


def test_released_reader_waits_for_the_database_and_gets_its_events(manual_loop, outage):
    reader = Reader(manual_loop, opened(messages=["a"]))
    (tail,) = manual_loop.do(lambda: list(stream_wakeups()))
    manual_loop.do(tail.release)
    manual_loop.sleep(0.05)
    assert reader.ending is None
    outage()
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1]


def test_cancelled_read_continues_with_the_next_call(manual_loop, outage):
    stream = opened(messages=["a"])

    async def reading():
        with module.StreamReader(stream.session_id, stream.pk, 1) as tail:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tail.events(), 0.01)
            outage()
            return await asyncio.wait_for(tail.events(), 20)

    assert manual_loop.run(reading()) == [(1, "a")]


def _alias() -> str:
    from django.conf import settings

    return settings.DJANGO_MCP.get("DATABASE", "default")
