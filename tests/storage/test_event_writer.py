"""The event writer: messages are committed in groups, in order and within limits; readers wake."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError

from django_mcp.models import Call, Event, Stream
from django_mcp.storage import event_log, jobs, sessions, streams
from django_mcp.storage import event_writer as module
from django_mcp.storage.event_log import FULL, EventAddress
from django_mcp.storage.event_writer import OutputTooLarge, writer

from .loops import Reader, a_loop
from .rows import call, given, session

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop(monkeypatch):
    with a_loop(monkeypatch, period=60) as made:
        yield made


@pytest.fixture
def flushes(monkeypatch):
    """Record how many streams each commit is for."""
    found = []
    append_many = event_log.append_many

    def counted(said, *args, **options):
        found.append(len(said))
        return append_many(said, *args, **options)

    monkeypatch.setattr(event_log, "append_many", counted)
    return found


def opened(*made: Call) -> Stream:
    return streams.open(session(), calls=made or [call()])


def texts(stream: Stream) -> list[str]:
    return list(Event.objects.filter(stream=stream).order_by("seq").values_list("data", flat=True))


class CallOutput:
    """The messages of one call, given to the writer of a loop."""

    def __init__(self, loop, stream: Stream, made: Call | None = None) -> None:
        fenced = (made.pk, made.fence) if made is not None else ()
        self.loop, self.to = loop, EventAddress(stream.pk, *fenced)
        self.refused: list[int | None] = []
        self.writer = loop.do(writer)

    def say(self, *said: str) -> None:
        for text in said:
            self.writer.queue_message(self.to, text, self.refused.append)

    def flush(self) -> None:
        self.loop.run(self.writer.flush(self.to))


def test_messages_are_written_in_order_by_a_flush(loop):
    output = CallOutput(loop, stream := opened())
    output.say("a", "b", "c")
    assert texts(stream) == []  # nothing has waited for the commit
    output.flush()
    assert texts(stream) == ["a", "b", "c"] and not output.refused


def test_readers_are_woken_after_the_commit(loop):
    stream = opened()
    reader, output = Reader(loop, stream), CallOutput(loop, stream)
    loop.sleep(0.02)
    output.say("a", "b")
    assert reader.until(2) == [(1, "a"), (2, "b")]


def test_queued_messages_of_all_streams_are_one_commit(loop, flushes):
    outputs = [CallOutput(loop, opened()) for _ in range(5)]
    for output in outputs:
        output.say("a", "b")
    for output in outputs:
        output.flush()
    assert flushes == [5]


def test_two_calls_can_write_to_one_stream(loop):
    one, other = call(1), call(2)
    stream = opened(one, other)
    reader = Reader(loop, stream)
    first, second = CallOutput(loop, stream, one), CallOutput(loop, stream, other)
    first.say("a", "b")
    second.say("c")
    first.flush()
    second.flush()
    assert sorted(texts(stream)) == ["a", "b", "c"]
    assert [text for _, text in reader.until(3)] == texts(stream)


def test_messages_can_be_added_from_any_thread(loop):
    output = CallOutput(loop, stream := opened())
    threads = [threading.Thread(target=output.say, args=[str(n)]) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output.flush()
    assert sorted(texts(stream), key=int) == [str(n) for n in range(20)]


def test_flush_does_not_wait_for_other_streams(loop, monkeypatch):
    monkeypatch.setattr(module, "MESSAGES_PER_COMMIT", 1)
    talkative, quiet = CallOutput(loop, opened()), CallOutput(loop, stream := opened())
    talkative.say(*map(str, range(200)))
    quiet.say("a")
    quiet.flush()
    assert texts(stream) == ["a"] and talkative.to in talkative.writer._queues
    talkative.flush()


def test_many_messages_are_written_in_several_commits(loop, flushes, monkeypatch):
    monkeypatch.setattr(module, "MESSAGES_PER_COMMIT", 100)
    output = CallOutput(loop, stream := opened())
    output.say(*map(str, range(1000)))
    output.flush()
    assert texts(stream) == [str(n) for n in range(1000)] and len(flushes) == 10


def test_size_of_a_commit_is_limited(loop, flushes, monkeypatch):
    monkeypatch.setattr(module, "SIZE_PER_COMMIT", 10)
    output = CallOutput(loop, stream := opened())
    output.say("x" * 8, "y" * 8, "z" * 8)
    output.flush()
    assert len(texts(stream)) == 3 and len(flushes) == 3


# Bounds.


def test_queue_limit_raises_output_too_large(loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_QUEUED_MESSAGES", 3)
    output = CallOutput(loop, stream := opened())
    output.say("a", "b", "c")
    with pytest.raises(OutputTooLarge):
        output.say("d")
    output.flush()
    output.say("e")
    output.flush()
    assert texts(stream) == ["a", "b", "c", "e"]


@pytest.mark.parametrize("bound", ["MAX_QUEUED_SIZE", "MAX_TOTAL_QUEUED_SIZE"])
def test_size_of_queued_messages_is_limited(loop, monkeypatch, bound):
    monkeypatch.setattr(module, bound, 10)
    output = CallOutput(loop, stream := opened())
    output.say("x" * 6)
    with pytest.raises(OutputTooLarge):
        output.say("y" * 6)
    output.flush()
    output.say("z" * 6)
    output.flush()
    assert len(texts(stream)) == 2 and output.writer._size == 0


def test_full_stream_is_reported_to_the_call(loop):
    output = CallOutput(loop, stream := opened())
    with given(EVENTS=2):
        output.say("a", "b", "c")
        output.flush()
    assert texts(stream) == [] and output.refused == [FULL]
    assert output.writer._size == 0


# Calls that have ended or were taken over.


def test_call_that_was_taken_over_writes_nothing(loop):
    one = call()
    stream = opened(one)
    output = CallOutput(loop, stream, one)
    Call.objects.filter(pk=one.pk).update(fence=1)
    output.say("a")
    output.flush()
    assert texts(stream) == [] and output.refused == [None]


def test_ended_session_does_not_affect_other_streams(loop):
    gone, here = CallOutput(loop, ended := opened()), CallOutput(loop, stream := opened())
    sessions.end(ended.session)
    gone.say("a")
    here.say("b")
    here.flush()
    gone.flush()
    assert gone.refused == [None] and texts(stream) == ["b"]


# Outages.


def test_messages_are_written_once_after_an_outage(loop, monkeypatch):
    append_many, broken = event_log.append_many, [True, True, True]

    def away(said, nonce, *, is_retry):
        if len(broken) > 1:
            broken.pop()
            raise OperationalError("gone away")
        outcomes = append_many(said, nonce, is_retry=is_retry)
        if broken:  # it was committed, but the caller gets an error
            broken.pop()
            raise OperationalError("lost in the middle of the commit")
        return outcomes

    monkeypatch.setattr(event_log, "append_many", away)
    monkeypatch.setattr(jobs, "FIRST_PAUSE_SECONDS", 0.001)
    output = CallOutput(loop, stream := opened())
    output.say("a", "b")
    output.flush()
    assert texts(stream) == ["a", "b"] and not broken and not output.refused


def test_message_that_cannot_be_written_does_not_affect_other_streams(loop, monkeypatch):
    append_many = event_log.append_many

    def picky(said, *args, **options):
        if any("poison" in text for found in said.values() for text in found):
            raise ValueError("cannot be written")
        return append_many(said, *args, **options)

    monkeypatch.setattr(event_log, "append_many", picky)
    bad, good = CallOutput(loop, opened()), CallOutput(loop, stream := opened())
    bad.say("poison")
    good.say("a")
    good.flush()
    bad.flush()
    assert texts(stream) == ["a"] and bad.refused == [None]
    good.say("b")
    good.flush()
    assert texts(stream) == ["a", "b"]
