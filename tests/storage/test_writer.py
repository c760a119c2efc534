"""The writer: what many say is committed together, in order, within bounds, and then made known."""

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
    """How many streams each commit was for."""
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


class Speaker:
    """One call, as it speaks to the writer of a loop."""

    def __init__(self, loop, stream: Stream, made: Call | None = None) -> None:
        fenced = (made.pk, made.fence) if made is not None else ()
        self.loop, self.to = loop, EventAddress(stream.pk, *fenced)
        self.refused: list[int | None] = []
        self.writer = loop.do(writer)

    def say(self, *said: str) -> None:
        for text in said:
            self.writer.say(self.to, text, self.refused.append)

    def flush(self) -> None:
        self.loop.run(self.writer.flush(self.to))


def test_what_is_said_is_written_in_order(loop):
    speaker = Speaker(loop, stream := opened())
    speaker.say("a", "b", "c")
    assert texts(stream) == []  # nobody waited
    speaker.flush()
    assert texts(stream) == ["a", "b", "c"] and not speaker.refused


def test_it_is_made_known_once_it_is_written(loop):
    stream = opened()
    reader, speaker = Reader(loop, stream), Speaker(loop, stream)
    loop.sleep(0.02)
    speaker.say("a", "b")
    assert reader.until(2) == [(1, "a"), (2, "b")]


def test_all_that_waits_is_one_commit(loop, flushes):
    speakers = [Speaker(loop, opened()) for _ in range(5)]
    for speaker in speakers:
        speaker.say("a", "b")
    for speaker in speakers:
        speaker.flush()
    assert flushes == [5]


def test_two_calls_of_one_stream(loop):
    one, other = call(1), call(2)
    stream = opened(one, other)
    reader = Reader(loop, stream)
    first, second = Speaker(loop, stream, one), Speaker(loop, stream, other)
    first.say("a", "b")
    second.say("c")
    first.flush()
    second.flush()
    assert sorted(texts(stream)) == ["a", "b", "c"]
    assert [text for _, text in reader.until(3)] == texts(stream)


def test_it_is_said_from_any_thread(loop):
    speaker = Speaker(loop, stream := opened())
    threads = [threading.Thread(target=speaker.say, args=[str(n)]) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    speaker.flush()
    assert sorted(texts(stream), key=int) == [str(n) for n in range(20)]


def test_a_flush_waits_for_nobody_else(loop, monkeypatch):
    monkeypatch.setattr(module, "MESSAGES_PER_COMMIT", 1)
    talkative, quiet = Speaker(loop, opened()), Speaker(loop, stream := opened())
    talkative.say(*map(str, range(200)))
    quiet.say("a")
    quiet.flush()
    assert texts(stream) == ["a"] and talkative.to in talkative.writer._lanes
    talkative.flush()


def test_a_burst_goes_into_several_commits(loop, flushes, monkeypatch):
    monkeypatch.setattr(module, "MESSAGES_PER_COMMIT", 100)
    speaker = Speaker(loop, stream := opened())
    speaker.say(*map(str, range(1000)))
    speaker.flush()
    assert texts(stream) == [str(n) for n in range(1000)] and len(flushes) == 10


def test_one_commit_is_of_bounded_size(loop, flushes, monkeypatch):
    monkeypatch.setattr(module, "SIZE_PER_COMMIT", 10)
    speaker = Speaker(loop, stream := opened())
    speaker.say("x" * 8, "y" * 8, "z" * 8)
    speaker.flush()
    assert len(texts(stream)) == 3 and len(flushes) == 3


# Bounds.


def test_who_says_too_much_is_told(loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_QUEUED_MESSAGES", 3)
    speaker = Speaker(loop, stream := opened())
    speaker.say("a", "b", "c")
    with pytest.raises(OutputTooLarge):
        speaker.say("d")
    speaker.flush()
    speaker.say("e")
    speaker.flush()
    assert texts(stream) == ["a", "b", "c", "e"]


@pytest.mark.parametrize("bound", ["MAX_QUEUED_SIZE", "MAX_TOTAL_QUEUED_SIZE"])
def test_what_waits_is_bounded_in_size(loop, monkeypatch, bound):
    monkeypatch.setattr(module, bound, 10)
    speaker = Speaker(loop, stream := opened())
    speaker.say("x" * 6)
    with pytest.raises(OutputTooLarge):
        speaker.say("y" * 6)
    speaker.flush()
    speaker.say("z" * 6)
    speaker.flush()
    assert len(texts(stream)) == 2 and speaker.writer._size == 0


def test_a_full_stream_says_so(loop):
    speaker = Speaker(loop, stream := opened())
    with given(EVENTS=2):
        speaker.say("a", "b", "c")
        speaker.flush()
    assert texts(stream) == [] and speaker.refused == [FULL]
    assert speaker.writer._size == 0


# Calls that are no longer one's own.


def test_a_call_that_was_taken_over_says_nothing_more(loop):
    one = call()
    stream = opened(one)
    speaker = Speaker(loop, stream, one)
    Call.objects.filter(pk=one.pk).update(fence=1)
    speaker.say("a")
    speaker.flush()
    assert texts(stream) == [] and speaker.refused == [None]


def test_others_are_written_all_the_same(loop):
    gone, here = Speaker(loop, ended := opened()), Speaker(loop, stream := opened())
    sessions.end(ended.session)
    gone.say("a")
    here.say("b")
    here.flush()
    gone.flush()
    assert gone.refused == [None] and texts(stream) == ["b"]


# When the log is away.


def test_a_log_that_comes_back_has_all_of_it_once(loop, monkeypatch):
    append_many, broken = event_log.append_many, [True, True, True]

    def away(said, nonce, *, again):
        if len(broken) > 1:
            broken.pop()
            raise OperationalError("gone away")
        outcomes = append_many(said, nonce, again=again)
        if broken:  # it was committed, and nobody learnt of it
            broken.pop()
            raise OperationalError("lost in the middle of the commit")
        return outcomes

    monkeypatch.setattr(event_log, "append_many", away)
    monkeypatch.setattr(jobs, "FIRST_PAUSE_SECONDS", 0.001)
    speaker = Speaker(loop, stream := opened())
    speaker.say("a", "b")
    speaker.flush()
    assert texts(stream) == ["a", "b"] and not broken and not speaker.refused


def test_what_cannot_be_written_spoils_nothing_for_others(loop, monkeypatch):
    append_many = event_log.append_many

    def picky(said, *args, **options):
        if any("poison" in text for found in said.values() for text in found):
            raise ValueError("cannot be written")
        return append_many(said, *args, **options)

    monkeypatch.setattr(event_log, "append_many", picky)
    bad, good = Speaker(loop, opened()), Speaker(loop, stream := opened())
    bad.say("poison")
    good.say("a")
    good.flush()
    bad.flush()
    assert texts(stream) == ["a"] and bad.refused == [None]
    good.say("b")
    good.flush()
    assert texts(stream) == ["a", "b"]
