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
from typing import Final, NamedTuple

from django.db.models import Case, F, Max, TextField, When
from django.utils import timezone

from ..conf import settings
from ..models import DONE, RUNNING, Ask, Call, Event, Stream
from .rows import erase, one_transaction, rows

FULL: Final = 0  # the outcome of an append that found no room
STATEMENT = 4_000_000  # bytes of events that go into one statement
PAGE, SMALL = 200, 65_536


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


def size_of(message: str) -> int:
    return len(message) if message.isascii() else len(message.encode())


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
    outcomes = _written(said, nonce) if again else {}
    outcomes |= {address: FULL for address in said if not _are_events(said[address])}
    while left := {address: said[address] for address in said if address not in outcomes}:
        try:
            return outcomes | _append_all(left, nonce)
        except _Fenced as fenced:
            outcomes |= dict.fromkeys(fenced.addresses)
    return outcomes


def _are_events(messages: Sequence[str]) -> bool:
    return all(size_of(message) <= settings.RESULT_SIZE for message in messages)


def _written(said: Said, nonce: str) -> Outcomes:
    """What a flush of that nonce has written: all of it, or nothing."""
    streams = {address.stream for address in said}
    found = rows(Event).filter(stream__in=streams, nonce=nonce).order_by()
    ends = dict(found.values_list("stream_id").annotate(Max("seq")))
    return {address: ends[address.stream] for address in said if address.stream in ends}


@one_transaction
def _append_all(said: Said, nonce: str) -> Outcomes:
    return append_here(said, nonce)


def append_here(said: Said, nonce: str = "") -> Outcomes:
    """Append within the caller's transaction."""
    in_order = sorted(said, key=lambda address: address.stream)
    grown = [address for address in in_order if _grow(address.stream, said[address])]
    ends, closed, owned = _ends(said)
    if fenced := [a for a in grown if a.call is not None and a not in owned]:
        raise _Fenced(fenced)
    _insert(_numbered({address: said[address] for address in grown}, ends), nonce)
    refused = {a: None if a.stream in closed or a.stream not in ends else FULL for a in said}
    return refused | {address: ends[address.stream] for address in grown}


def _grow(stream_id: int, messages: Sequence[str]) -> int:
    """Take the stream's lock and make room; 0 where there is none."""
    count, size = len(messages), sum(map(size_of, messages))
    room = rows(Stream).filter(
        pk=stream_id,
        closed=False,
        last__lte=settings.EVENTS - count,
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


def _numbered(said: Said, ends: Mapping[int, int]) -> Iterator[Event]:
    """The events, numbered up to the ends of their streams."""
    counts: dict[int, int] = defaultdict(int)
    for address, messages in said.items():
        counts[address.stream] += len(messages)
    following = {stream: ends[stream] - count for stream, count in counts.items()}
    for address, messages in said.items():
        for message in messages:
            following[address.stream] += 1
            yield event(address.stream, following[address.stream], message)


def event(stream_id: int, seq: int, message: str, *, final: bool = False) -> Event:
    return Event(stream_id=stream_id, seq=seq, data=message, size=size_of(message), final=final)


def _insert(events: Iterable[Event], nonce: str = "") -> None:
    """Insert events, not too many bytes at a time."""
    waiting: list[Event] = []
    size = 0
    for one in events:
        one.nonce = nonce
        if waiting and size + one.size > STATEMENT:
            rows(Event).bulk_create(waiting)
            waiting, size = [], 0
        waiting.append(one)
        size += one.size
    rows(Event).bulk_create(waiting)


def begin(stream: Stream, messages: Sequence[str], finals: Sequence[str]) -> None:
    """The first events of a stream that nobody else knows yet, and that is saved with them."""
    events = [
        event(0, seq, message, final=seq > len(messages))
        for seq, message in enumerate([*messages, *finals], 1)
    ]
    stream.last, stream.size = len(events), sum(one.size for one in events)
    stream.save(force_insert=True, using=settings.DATABASE)
    for one in events:
        one.stream_id = stream.pk
    _insert(events)


def enlarge(stream_id: int, messages: Sequence[str]) -> bool:
    """Append within the caller's transaction what always has room; False if it is closed."""
    stream, size = rows(Stream).filter(pk=stream_id), sum(map(size_of, messages))
    open = stream.filter(closed=False)
    if not open.update(last=F("last") + len(messages), size=F("size") + size):
        return False
    ends = {stream_id: stream.values_list("last", flat=True).get()}
    _insert(_numbered({Address(stream_id): messages}, ends))
    return True


# Outcomes.


@one_transaction
def finish(call_id: int, fence: int, message: str, stream_id: int, *, again: bool = False) -> bool:
    """The outcome of a call, and its response: both, or nothing and False.

    ``again`` asks after an unknown commit: True as well if it was done before.
    """
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False)
    if not mine.filter(state=RUNNING).update(state=DONE, params={}, meta={}, known={}):
        return again and mine.filter(state=DONE).exists()
    erase(rows(Ask).filter(call=call_id))
    return _respond(stream_id, message)


def _respond(stream_id: int, message: str) -> bool:
    added = {"last": F("last") + 1, "size": F("size") + size_of(message)}
    stream = rows(Stream).filter(pk=stream_id)
    if not stream.filter(closed=False).update(**settled(), **added):
        return False
    last = stream.values_list("last", flat=True).get()
    _insert([event(stream_id, last, message, final=True)])
    return True


def settled() -> dict[str, object]:
    """The changes to a stream that owes one response less."""
    closing = When(owed__lte=1, then=True)
    ending = When(owed__lte=1, then=timezone.now())
    # MariaDB assigns one by one, and looks at what it has assigned: `owed` must be last.
    return {
        "closed": Case(closing, default=F("closed")),
        "ended": Case(ending, default=F("ended")),
        "owed": F("owed") - 1,
    }


# Reading.


def read(stream_id: int, after: int, limit: int = PAGE) -> list[tuple[int, str]]:
    """The next events after a cursor, by number: as many as fit in memory, at least one."""
    small = Case(When(size__lte=SMALL, then=F("data")), output_field=TextField())
    found = rows(Event).filter(stream=stream_id, seq__gt=after).order_by("seq")
    page: list[tuple[int, str]] = []
    for seq, data in found.values_list("seq", small)[:limit]:
        if data is None:
            return page or list(found.filter(seq=seq).values_list("seq", "data"))
        page.append((seq, data))
    return page


def finals(stream_id: int, after: int = 0) -> list[tuple[int, str]]:
    """The responses after a cursor, which are kept when all else is trimmed."""
    found = rows(Event).filter(stream=stream_id, seq__gt=after, final=True)
    return list(found.order_by("seq").values_list("seq", "data"))
