"""Tails: every event once and in order, from memory or from rows; and why there is no more."""

from __future__ import annotations

import pytest

from django_mcp.models import Event, Stream
from django_mcp.storage import event_log, streams
from django_mcp.storage import stream_reader as module
from django_mcp.storage.stream_reader import StreamEnd
from django_mcp.storage.wakeups import StreamWakeup, stream_wakeups, wake_readers

from .loops import Reader, a_loop
from .rows import call, given, session

pytestmark = pytest.mark.django_db


@pytest.fixture
def slow(monkeypatch):
    """A loop whose poller does not look."""
    with a_loop(monkeypatch, period=60) as made:
        yield made


def opened(*made, **options) -> Stream:
    return streams.open(session(), calls=made or [call()], **options)


def said(loop, stream, *texts, told=True) -> None:
    """Append as this process does: commit, then ring."""
    last = event_log.append(stream.pk, texts)
    if told:
        numbered = list(enumerate(texts, last - len(texts) + 1))
        loop.do(wake_readers, StreamWakeup(stream.pk, numbered))


def test_what_is_there_comes_first_and_then_what_follows(slow):
    stream = opened(messages=["a", "b"])
    reader = Reader(slow, stream)
    assert reader.until(2) == [(1, "a"), (2, "b")]
    said(slow, stream, "c", "d")
    assert reader.until(4)[2:] == [(3, "c"), (4, "d")]


def test_from_a_cursor_comes_the_rest(slow):
    stream = opened(messages=["a", "b", "c"])
    assert Reader(slow, stream, after=2).until(1) == [(3, "c")]


def test_what_this_process_wrote_needs_no_query(slow, django_assert_num_queries):
    stream = opened(messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    with django_assert_num_queries(0, using=_alias()):
        slow.do(wake_readers, StreamWakeup(stream.pk, [(2, "b")]))
        assert reader.until(2)[1] == (2, "b")


def test_what_does_not_follow_on_is_read_from_the_rows(slow):
    stream = opened(messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    said(slow, stream, "b", told=False)  # by another process
    said(slow, stream, "c")
    assert reader.until(3) == [(1, "a"), (2, "b"), (3, "c")]


def test_what_was_told_twice_comes_once(slow):
    stream = opened(messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    said(slow, stream, "b", "c")
    slow.do(wake_readers, StreamWakeup(stream.pk, [(2, "b"), (3, "c")]))
    slow.do(wake_readers, StreamWakeup(stream.pk, [(3, "c")]))
    said(slow, stream, "d")
    assert [text for _, text in reader.until(4)] == ["a", "b", "c", "d"]


def test_a_ring_before_the_first_look_loses_nothing(slow):
    stream = opened(messages=["a", "b"])
    reader = Reader(slow, stream)  # it looks, in a thread
    said(slow, stream, "c")
    assert reader.until(3) == [(1, "a"), (2, "b"), (3, "c")]
    slow.sleep(0.05)
    assert reader.seqs == [1, 2, 3]


def test_a_lost_ring_is_made_up_for_by_the_poller(loop):
    stream = opened()
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    said(loop, stream, "a", told=False)
    assert reader.until(1) == [(1, "a")]


def test_many_events_come_by_pages(slow, monkeypatch):
    monkeypatch.setattr(module, "EVENTS_PER_PAGE", 7)
    stream = opened()
    event_log.append(stream.pk, [str(n) for n in range(100)])
    reader = Reader(slow, stream)
    assert [text for _, text in reader.until(100)] == [str(n) for n in range(100)]
    assert reader.seqs == list(range(1, 101))


def test_a_reader_that_does_not_come_costs_no_memory(slow, monkeypatch):
    monkeypatch.setattr(module, "MAX_BUFFERED_EVENTS", 3)
    stream = opened(messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    reader.open.clear()
    for n in range(20):
        said(slow, stream, str(n))
    (tail,) = slow.do(lambda: list(stream_wakeups()))
    assert len(tail._fresh or ()) <= 3
    slow.do(reader.open.set)
    assert reader.until(21)[1:] == [(n + 2, str(n)) for n in range(20)]


def test_a_large_event_is_not_kept_in_memory(slow):
    stream = opened(messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    reader.open.clear()
    said(slow, stream, "x" * (module.MAX_BUFFERED_SIZE + 1))
    (tail,) = slow.do(lambda: list(stream_wakeups()))
    assert tail._fresh is None
    slow.do(reader.open.set)
    assert reader.until(2)[1][0] == 2


# Endings.


def test_a_finished_stream_ends_after_its_last_event(slow):
    one = call()
    stream = opened(one, messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    assert event_log.finish(one.pk, 0, "the end", stream.pk)
    slow.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.FINISHED and reader.events == [(1, "a"), (2, "the end")]


def test_the_end_is_seen_by_the_poller_too(loop):
    one = call()
    stream = opened(one)
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    event_log.finish(one.pk, 0, "the end", stream.pk)
    assert reader.ended() is StreamEnd.FINISHED and reader.events == [(1, "the end")]


def test_a_stream_without_events_that_is_closed_ends(slow):
    stream = opened()
    reader = Reader(slow, stream)
    streams.close(stream.pk)
    slow.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.FINISHED and reader.events == []


def test_the_older_connection_ends_at_once(slow):
    stream = opened(messages=["a"])
    reader = Reader(slow, stream)
    reader.until(1)
    state = streams.take(stream.session, stream.pk)
    newer = Reader(slow, stream, state.reader, 1)
    slow.do(wake_readers, StreamWakeup(stream.pk, reader=state.reader))
    assert reader.ended() is StreamEnd.TAKEN
    said(slow, stream, "b")
    assert newer.until(1) == [(2, "b")] and newer.ending is None


def test_a_connection_taken_over_in_another_process_ends_too(loop):
    stream = opened()
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    streams.take(stream.session, stream.pk)
    assert reader.ended() is StreamEnd.TAKEN


def test_a_release_comes_after_what_was_said(slow):
    stream = opened()
    reader = Reader(slow, stream)
    event_log.append(stream.pk, ["a", "b"])
    streams.release(stream.pk)
    slow.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1, 2]


def test_a_release_is_for_the_connections_there_were(slow):
    stream = opened()
    streams.release(stream.pk)
    state = streams.take(stream.session, stream.pk)
    newer = Reader(slow, stream, state.reader)
    slow.sleep(0.05)
    assert newer.ending is None


def test_a_process_may_let_a_connection_go(slow):
    reader = Reader(slow, opened(messages=["a"]))
    reader.until(1)
    (tail,) = slow.do(lambda: list(stream_wakeups()))
    slow.do(tail.release)
    assert reader.ended() is StreamEnd.RELEASED


def test_a_stream_that_is_no_more(loop):
    stream = opened(messages=["a"])
    reader = Reader(loop, stream)
    reader.until(1)
    streams.close(stream.pk)
    streams.erase_streams([stream.pk])
    assert reader.ended() in (StreamEnd.GONE, StreamEnd.FINISHED)


def test_a_stream_of_a_session_that_ended(slow):
    reader = Reader(slow, stream := opened(messages=["a"]))
    reader.until(1)
    from django_mcp.storage import sessions

    sessions.end(stream.session)
    slow.do(wake_readers, StreamWakeup(stream.pk, changed=True))
    assert reader.ended() is StreamEnd.GONE


def test_what_was_trimmed_under_a_slow_reader_is_not_passed_over(slow, monkeypatch):
    monkeypatch.setattr(module, "EVENTS_PER_PAGE", 2)
    stream = opened(messages=["a", "b", "c", "d", "e"])
    reader = Reader(slow, stream, stalled=True)
    reader.until(2)
    Event.objects.filter(stream=stream, seq=3).delete()
    slow.do(reader.open.set)
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1, 2]


def test_of_a_page_that_was_trimmed_in_its_middle_comes_what_follows_on(slow):
    stream = opened(messages=["a", "b", "c", "d", "e"])
    Event.objects.filter(stream=stream, seq__in=[3, 4]).delete()
    reader = Reader(slow, stream)
    assert reader.ended() is StreamEnd.RELEASED and reader.seqs == [1, 2]


# Many.


def test_a_tail_is_small():
    from django_mcp.storage.stream_reader import StreamReader

    assert not hasattr(StreamReader(1, 1, 1), "__dict__")


def test_nobody_who_left_is_rung_for(slow):
    reader = Reader(slow, opened())
    assert slow.do(lambda: bool(stream_wakeups()))
    reader.task.cancel()
    slow.sleep(0)
    assert not slow.do(lambda: bool(stream_wakeups()))


def test_two_read_the_same_stream(slow):
    stream = opened(messages=["a"])
    one, other = Reader(slow, stream), Reader(slow, stream)
    said(slow, stream, "b")
    assert one.until(2) == other.until(2)


def test_quiet_connections_show_that_they_live(loop):
    with given(KEEPALIVE=0.1):
        reader = Reader(loop, opened())
        loop.until(lambda: reader.signs >= 2)
    assert reader.events == []


def _alias() -> str:
    from django.conf import settings

    return settings.DJANGO_MCP.get("DATABASE", "default")
