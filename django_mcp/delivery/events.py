"""
The log: events are appended to streams, and read after a cursor.

Rule: whoever appends takes the stream's lock by moving its end, and only then
learns where that is. So a sequence has no gap and becomes visible in order. A
call that was taken over, or cancelled, appends nothing and has no outcome. What
would be too much is refused before it is written; a response always has room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db.models import Case, F, Max, Q, TextField, When

from ..conf import settings
from ..models import DONE, RUNNING, Ask, Call, Event, Stream
from . import clock
from .entries import Entry, entry, insert, size_of
from .rows import erase, one_transaction, rows

FULL: Final = 0  # the outcome of an append that found no room
PAGE, FEW = 200, 20
# A reader may take its time with what it was given: bytes of a page, and of what is small in it.
PAGE_SIZE, SMALL = 262_144, 2_048
# What a call that is over no longer keeps.
CLEARED: dict[str, Any] = {"params": {}, "meta": {}, "known": {}}


class Address(NamedTuple):
    """Where something is said: on a stream, and in which call's name."""

    stream: int
    call: int | None = None
    fence: int = 0


Said = Mapping[Address, Sequence[str]]
Outcomes = dict[Address, int | None]  # the stream's new end; None: it may say nothing; or FULL


class _Fenced(Exception):
    """These speak for calls that are no longer theirs."""

    def __init__(self, addresses: list[Address]) -> None:
        super().__init__()
        self.addresses = addresses


# Appending.


def append(
    stream_id: int, messages: Sequence[str], *, call: tuple[int, int] | None = None
) -> int | None:
    """Append to one stream. The stream's new end; None where nothing may be said; or ``FULL``."""
    address = Address(stream_id, *(call or ()))
    return append_many({address: messages})[address]


def append_many(said: Said, nonce: str = "", *, again: bool = False) -> Outcomes:
    """Append to many streams in one transaction.

    ``nonce`` names this flush. When it is not known whether its commit came
    through, repeat it with ``again``: nothing is written twice.
    """
    outcomes: Outcomes = {to: FULL for to in said if not _are_events(said[to])}
    while left := {address: said[address] for address in said if address not in outcomes}:
        try:
            return outcomes | _append_all(left, nonce, again=again)
        except _Fenced as fenced:
            outcomes |= dict.fromkeys(fenced.addresses)
    return outcomes


def _are_events(messages: Sequence[str]) -> bool:
    return all(size_of(message) <= settings.RESULT_SIZE for message in messages)


def _written(said: Said, nonce: str) -> Outcomes:
    """What a flush of that nonce has written: all of it, or nothing. It may still be at it."""
    streams = {address.stream for address in said}
    for stream in sorted(streams):
        rows(Stream).filter(pk=stream).update(last=F("last"))  # its lock
    found = rows(Event).filter(stream__in=streams, nonce=nonce).order_by()
    ends = dict(found.values_list("stream_id").annotate(Max("seq")))
    return {address: ends[address.stream] for address in said if address.stream in ends}


@one_transaction
def _append_all(said: Said, nonce: str, *, again: bool) -> Outcomes:
    done = _written(said, nonce) if again else {}
    left = {address: said[address] for address in said if address not in done}
    return done | (append_here(left, nonce) if left else {})


def append_here(said: Said, nonce: str = "") -> Outcomes:
    """Append within the caller's transaction."""
    in_order = sorted(said, key=lambda address: address.stream)
    grown = [address for address in in_order if _grow(address.stream, said[address])]
    ends, closed, owned = _ends(said)
    if fenced := [a for a in grown if a.call is not None and a not in owned]:
        raise _Fenced(fenced)
    insert(_numbered({address: said[address] for address in grown}, ends), nonce)
    refused = {a: None if a.stream in closed or a.stream not in ends else FULL for a in said}
    return refused | {address: ends[address.stream] for address in grown}


def _grow(stream_id: int, messages: Sequence[str]) -> int:
    """Take the stream's lock and make room; 0 where there is none."""
    count, size = len(messages), sum(map(size_of, messages))
    room = rows(Stream).filter(
        pk=stream_id,
        closed=False,
        last__lte=F("first") - 1 + settings.EVENTS - count,
        size__lte=most_bytes() - size,
    )
    return room.update(last=F("last") + count, size=F("size") + size)


def most_bytes() -> int:
    """Bytes that a stream may hold before its last response."""
    return 10 * int(settings.RESULT_SIZE)


def _ends(said: Iterable[Address]) -> tuple[dict[int, int], set[int], set[Address]]:
    """Where streams end now, which are closed, and which calls may speak as they say."""
    calls = {address.call for address in said if address.call is not None}
    streams = {address.stream for address in said if address.call is None}
    ends: dict[int, int] = {}
    closed: set[int] = set()
    owned: set[Address] = set()
    if calls:
        running = rows(Call).filter(pk__in=calls, state=RUNNING, cancelled=False)
        for stream, last, shut, call, fence in running.values_list(
            "stream_id", "stream__last", "stream__closed", "pk", "fence"
        ):
            ends[stream] = last
            closed |= {stream} if shut else set()
            owned.add(Address(stream, call, fence))
    if streams - ends.keys():
        found = rows(Stream).filter(pk__in=streams - ends.keys())
        for stream, last, shut in found.values_list("pk", "last", "closed"):
            ends[stream] = last
            closed |= {stream} if shut else set()
    return ends, closed, owned


def _numbered(said: Said, ends: Mapping[int, int]) -> Iterator[Entry]:
    """The events, numbered up to the ends of their streams."""
    counts: dict[int, int] = defaultdict(int)
    for address, messages in said.items():
        counts[address.stream] += len(messages)
    following = {stream: ends[stream] - count for stream, count in counts.items()}
    for address, messages in said.items():
        for message in messages:
            following[address.stream] += 1
            yield entry(address.stream, following[address.stream], message)


def begin(stream: Stream, messages: Sequence[str], finals: Sequence[str]) -> None:
    """The first events of a stream that nobody else knows yet, and that is saved with them."""
    told = [*messages, *finals]
    stream.last, stream.size = len(told), sum(map(size_of, told))
    stream.save(force_insert=True, using=settings.DATABASE)
    numbered = enumerate(told, 1)
    insert(entry(stream.pk, seq, text, final=seq > len(messages)) for seq, text in numbered)


def enlarge(stream_id: int, messages: Sequence[str]) -> bool:
    """Append within the caller's transaction what always has room; False if it is closed."""
    stream, size = rows(Stream).filter(pk=stream_id), sum(map(size_of, messages))
    open = stream.filter(closed=False)
    if not open.update(last=F("last") + len(messages), size=F("size") + size):
        return False
    ends = {stream_id: stream.values_list("last", flat=True).get()}
    insert(_numbered({Address(stream_id): messages}, ends))
    return True


# Outcomes.


@one_transaction
def finish(call_id: int, fence: int, message: str, stream_id: int, *, again: bool = False) -> bool:
    """The outcome of a call, and its response: both, or nothing and False.

    ``again`` asks after an unknown commit: True as well if it was done before.
    """
    if _end(call_id, fence):
        return _respond(stream_id, message)
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False)
    return again and mine.filter(state=DONE).exists()


def finish_here(call_id: int, fence: int, message: str, stream_id: int) -> bool:
    """The same within the caller's transaction, which is to be rolled back if this is False."""
    return _end(call_id, fence) and _respond(stream_id, message)


def _end(call_id: int, fence: int) -> bool:
    """Take the lock of a call that may have an outcome, and clear what it no longer needs."""
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False, state=RUNNING)
    if not mine.update(state=DONE, **CLEARED):
        return False
    erase(rows(Ask).filter(call=call_id))
    return True


def _respond(stream_id: int, message: str) -> bool:
    added = {"last": F("last") + 1, "size": F("size") + size_of(message)}
    stream = rows(Stream).filter(pk=stream_id)
    if not stream.filter(closed=False).update(**settled(), **added):
        return False
    last = stream.values_list("last", flat=True).get()
    insert([entry(stream_id, last, message, final=True)])
    return True


def settled() -> dict[str, object]:
    """The changes to a stream that owes one response less."""
    closing = When(owed__lte=1, then=True)
    ending = When(owed__lte=1, then=clock.now())
    # MariaDB assigns one by one, and looks at what it has assigned: `owed` must be last.
    return {
        "closed": Case(closing, default=F("closed")),
        "ended": Case(ending, default=F("ended")),
        "owed": F("owed") - 1,
    }


# Reading.


def read(stream_id: int, after: int, limit: int = PAGE) -> list[tuple[int, str]]:
    """The next events after a cursor, by number: one, and as many more as are ``PAGE_SIZE``."""
    with_data = When(Q(size__lte=SMALL) | Q(seq=after + 1), then=F("data"))
    found = rows(Event).filter(stream=stream_id, seq__gt=after).order_by("seq")
    columns = ("seq", "size", Case(with_data, output_field=TextField()))
    page: dict[int, str | None] = {}
    room = PAGE_SIZE
    for seq, size, data in found.values_list(*columns)[:limit]:
        room -= size if page else 0
        if room < 0:
            break
        page[seq] = data
    if large := [seq for seq, data in page.items() if data is None]:
        page |= dict(found.filter(seq__in=large).values_list("seq", "data"))
    return [(seq, data) for seq, data in page.items() if data is not None]


def latest(stream_id: int, word: str) -> Iterator[str]:
    """The events that hold a word, from the last one back."""
    found = rows(Event).filter(stream=stream_id, data__contains=word).order_by("-seq")
    before = 2**62
    while page := list(found.filter(seq__lt=before).values_list("seq", "data")[:FEW]):
        yield from (data for _, data in page)
        before = page[-1][0]


def finals(stream_id: int, after: int = 0) -> list[tuple[int, str]]:
    """The responses after a cursor, which are kept when all else is trimmed."""
    found = rows(Event).filter(stream=stream_id, seq__gt=after, final=True)
    return list(found.order_by("seq").values_list("seq", "data"))
