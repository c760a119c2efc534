"""The event log: append events to streams, finish calls with their response, read after a cursor.

An append locks the row of the stream by an UPDATE of its last sequence number, and reads the number
after that. The lock is held until the commit. So sequence numbers have no gaps, and events become
visible in order: a reader that has seen number 7 cannot miss a number 6 that is committed later.

An append in the name of a call writes nothing if the call was cancelled or taken over by another
process (its fence, a fencing token, has changed). An append beyond the limits of a stream is
refused before it is written. A response is stored however full its stream is.

Events are inserted by one handwritten statement for many, without model instances: a call may send
thousands of messages, and instances would cost more than all the rest. Messages are parameters of
the statement. All its other values are numbers, or are generated and checked here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db import connections
from django.db.models import Case, F, Max, Q, TextField, When
from django.utils import timezone

from ..conf import settings
from ..exceptions import TooLarge
from ..models import DONE, RUNNING, Ask, Call, Event, Stream
from . import databases
from .databases import erase, one_transaction, rows

# Limits of one statement: events, because some databases limit parameters, and their bytes.
MAX_EVENTS_PER_APPEND, MAX_BYTES_PER_APPEND = 900, 4_000_000
# Bytes of a statement for MariaDB beside the messages, for the statement and for each row.
STATEMENT_SIZE, ROW_SIZE = 300, 150
ESCAPED = "\0\n\r\x1a\"'\\"  # characters that the driver escapes with a backslash
_packets: dict[str, int] = {}  # max_allowed_packet by alias, read once in a process
COLUMNS = ("stream_id", "seq", "data", "size", "final", "nonce", "created")


class NewEvent(NamedTuple):
    """A message to insert as an event: the stream, its number in it, and its size in bytes."""

    stream: int
    seq: int
    data: str
    size: int
    final: bool = False


def size_of(message: str) -> int:
    return len(message) if message.isascii() else len(message.encode())


def entry(stream: int, seq: int, message: str, *, final: bool = False) -> NewEvent:
    return NewEvent(stream, seq, message, size_of(message), final)


def insert(entries: Iterable[NewEvent], nonce: str = "") -> None:
    """Insert events within the caller's transaction.

    ``nonce`` identifies the attempt. Raise ``ValueError`` if it has other characters than letters
    and digits, and ``TooLarge`` if MariaDB would not accept a message.
    """
    # It is part of the SQL text, and not a parameter: a quote in it would be an SQL injection.
    if not nonce.isalnum() and nonce:
        raise ValueError(f"{nonce!r} is no nonce.")
    limit = packet_size()
    for batch in _statements(entries):
        if limit is None or _fits(batch, limit):
            _execute(batch, nonce)
            continue
        for event in batch:
            if not _fits([event], limit):
                raise TooLarge(
                    f"The response has {event.size:,} bytes. Escaped, it is longer than the "
                    f"{limit:,} bytes that the database accepts in one statement. "
                    "Ask for less data."
                )
            _execute([event], nonce)


def packet_size() -> int | None:
    """Return the limit of a statement in bytes for MariaDB, or None for other databases.

    MariaDB closes the connection when a statement is longer. That would look like an outage, and
    the statement would be retried.
    """
    connection = connections[settings.DATABASE]
    if connection.vendor != "mysql":
        return None
    if connection.alias not in _packets:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            _packets[connection.alias] = int(cursor.fetchone()[0])
    return _packets[connection.alias]


def _fits(entries: list[NewEvent], limit: int) -> bool:
    """Whether a statement with these events is within ``limit`` bytes."""
    rest = STATEMENT_SIZE + ROW_SIZE * len(entries)
    # Escaping at most doubles a text, so escapes are counted only in texts near the limit.
    if 2 * sum([event.size for event in entries]) + rest <= limit:
        return True
    return sum([event.size + _escapes(event.data) for event in entries]) + rest <= limit


def _escapes(text: str) -> int:
    return sum([text.count(one) for one in ESCAPED])


def _statements(entries: Iterable[NewEvent]) -> Iterator[list[NewEvent]]:
    """Split events into statements within the limits, each with at least one event."""
    batch: list[NewEvent] = []
    size = 0
    for event in entries:
        size += event.size
        if batch and (len(batch) == MAX_EVENTS_PER_APPEND or size > MAX_BYTES_PER_APPEND):
            yield batch
            batch, size = [], event.size
        batch.append(event)
    if batch:
        yield batch


def _execute(entries: list[NewEvent], nonce: str) -> None:
    connection = connections[settings.DATABASE]
    name = connection.ops.quote_name
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    into = f"INSERT INTO {name(Event._meta.db_table)} ({', '.join(map(name, COLUMNS))}) VALUES "
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            # Python's sqlite3 caches 128 statements with their parameters, so one statement text
            # for any number of events keeps the messages of one event in memory, not of many.
            statement = into + "(%s, %s, %s, %s, %s, %s, %s)"
            values = [(*e, nonce, now) for e in entries]
            if len(values) == 1:
                cursor.execute(statement, values[0])
            else:
                cursor.executemany(statement, values)
            return
        rest = f"'{nonce}', '{now}')"
        texts = [f"({e.stream}, {e.seq}, %s, {e.size}, {e.final}, {rest}" for e in entries]
        cursor.execute(into + ", ".join(texts), [e.data for e in entries])


FULL: Final = 0  # the result of an append to a stream that has no room for it
EVENTS_PER_PAGE, EVENTS_PER_SMALL_PAGE = 200, 20
# Bytes of a page, which a slow reader keeps in memory, and of an event that is read at once.
BYTES_PER_PAGE, SMALL_EVENT_BYTES = 262_144, 2_048
# Columns of a call that are emptied when it is done.
CLEARED: dict[str, Any] = {"params": {}, "meta": {}, "known": {}}


class EventAddress(NamedTuple):
    """The stream to append to, and the call with its fence in whose name, if there is one."""

    stream: int
    call: int | None = None
    fence: int = 0


Messages = Mapping[EventAddress, Sequence[str]]
# The new last number of the stream; None if it is closed or its call may not append; or ``FULL``.
AppendResults = dict[EventAddress, int | None]


class StoredResponse(NamedTuple):
    """A response in the log: its number in the stream, and what readers of the stream must know.

    ``seq`` is None if an earlier attempt stored it, whose commit was in doubt.
    """

    seq: int | None
    closed: bool = False  # it was the last response that the stream owed
    reader: int = 0  # the connection that reads the stream: others have ended


class _Fenced(Exception):
    """Appends in the name of calls that were cancelled or taken over."""

    def __init__(self, addresses: list[EventAddress]) -> None:
        super().__init__()
        self.addresses = addresses


# Appending.


def append(
    stream_id: int, messages: Sequence[str], *, call: tuple[int, int] | None = None
) -> int | None:
    """Append to one stream.

    Return its new last number, None if it is closed or the call may not append, or ``FULL``.
    """
    address = EventAddress(stream_id, *(call or ()))
    return append_many({address: messages})[address]


def append_many(messages: Messages, nonce: str = "", *, is_retry: bool = False) -> AppendResults:
    """Append to many streams in one transaction.

    ``nonce`` identifies this attempt. If it is unknown whether it was committed, repeat it with
    ``is_retry=True`` and the same nonce: nothing is written twice.
    """
    results: AppendResults = {to: FULL for to in messages if _has_too_large(messages[to])}
    # The transaction of fenced appends is rolled back. It is repeated with the appends of others.
    while left := {to: messages[to] for to in messages if to not in results}:
        try:
            return results | _append_all(left, nonce, is_retry=is_retry)
        except _Fenced as fenced:
            results |= dict.fromkeys(fenced.addresses)
    return results


def _has_too_large(messages: Sequence[str]) -> bool:
    return any(size_of(message) > settings.RESULT_SIZE for message in messages)


def _ends_of_first_attempt(messages: Messages, nonce: str) -> AppendResults:
    """Lock the streams. Return the last numbers that an attempt with this nonce has written.

    Empty if that attempt was rolled back.
    """
    streams = {address.stream for address in messages}
    for stream in sorted(streams):
        # Lock the stream: the earlier attempt may not have been committed yet.
        rows(Stream).filter(pk=stream).update(last=F("last"))
    found = rows(Event).filter(stream__in=streams, nonce=nonce).order_by()
    ends = dict(found.values_list("stream_id").annotate(Max("seq")))
    return {address: ends[address.stream] for address in messages if address.stream in ends}


@one_transaction
def _append_all(messages: Messages, nonce: str, *, is_retry: bool) -> AppendResults:
    done = _ends_of_first_attempt(messages, nonce) if is_retry else {}
    left = {address: messages[address] for address in messages if address not in done}
    return done | (append_in_transaction(left, nonce) if left else {})


def append_in_transaction(messages: Messages, nonce: str = "") -> AppendResults:
    """Append within the caller's transaction."""
    # Streams are locked in the order of their ids, so that two appends do not deadlock.
    in_order = sorted(messages, key=lambda address: address.stream)
    accepted = [
        address for address in in_order if _reserve_numbers(address.stream, messages[address])
    ]
    # The fence is read under the lock of the stream. A process that takes a call over locks the
    # stream too (``calls._lock_if_free``), so the fence cannot change before this commits.
    ends, closed, owned = _ends(messages)
    if fenced := [a for a in accepted if a.call is not None and a not in owned]:
        raise _Fenced(fenced)
    insert(_numbered({address: messages[address] for address in accepted}, ends), nonce)
    refused = {a: None if a.stream in closed or a.stream not in ends else FULL for a in messages}
    return refused | {address: ends[address.stream] for address in accepted}


def _reserve_numbers(stream_id: int, messages: Sequence[str]) -> int:
    """Lock the stream and raise its last number. Return 0 if it is closed or has no room."""
    count, size = len(messages), sum(map(size_of, messages))
    room = rows(Stream).filter(
        pk=stream_id,
        closed=False,
        last__lte=F("first") - 1 + settings.EVENTS - count,
        size__lte=most_bytes() - size,
    )
    return room.update(last=F("last") + count, size=F("size") + size)


def most_bytes() -> int:
    """Return how many bytes of events a stream may hold before its last response."""
    return 10 * int(settings.RESULT_SIZE)


def _ends(
    addresses: Iterable[EventAddress],
) -> tuple[dict[int, int], set[int], set[EventAddress]]:
    """Return the last numbers of streams, which are closed, and which calls may append.

    A call may append if it runs with the same fence and is not cancelled.
    """
    calls = {address.call for address in addresses if address.call is not None}
    streams = {address.stream for address in addresses if address.call is None}
    ends: dict[int, int] = {}
    closed: set[int] = set()
    owned: set[EventAddress] = set()
    if calls:
        running = rows(Call).filter(pk__in=calls, state=RUNNING, cancelled=False)
        for stream, last, is_closed, call, fence in running.values_list(
            "stream_id", "stream__last", "stream__closed", "pk", "fence"
        ):
            ends[stream] = last
            closed |= {stream} if is_closed else set()
            owned.add(EventAddress(stream, call, fence))
    if streams - ends.keys():
        found = rows(Stream).filter(pk__in=streams - ends.keys())
        for stream, last, is_closed in found.values_list("pk", "last", "closed"):
            ends[stream] = last
            closed |= {stream} if is_closed else set()
    return ends, closed, owned


def _numbered(messages: Messages, ends: Mapping[int, int]) -> Iterator[NewEvent]:
    """Yield the events with their numbers, so that the last has the number of its stream's end."""
    counts: dict[int, int] = defaultdict(int)
    for address, texts in messages.items():
        counts[address.stream] += len(texts)
    last = {stream: ends[stream] - count for stream, count in counts.items()}
    for address, texts in messages.items():
        for text in texts:
            last[address.stream] += 1
            yield entry(address.stream, last[address.stream], text)


def begin(stream: Stream, messages: Sequence[str], finals: Sequence[str]) -> None:
    """Insert a new stream with its first events, within the caller's transaction."""
    texts = [*messages, *finals]
    sizes = [size_of(text) for text in texts]
    stream.last, stream.size = len(texts), sum(sizes)
    stream.save(force_insert=True, using=settings.DATABASE)
    insert(
        NewEvent(stream.pk, seq, text, size, final=seq > len(messages))
        for seq, (text, size) in enumerate(zip(texts, sizes, strict=True), 1)
    )


def append_unlimited(stream_id: int, messages: Sequence[str]) -> bool:
    """Append without the limits of a stream, within the caller's transaction.

    For messages that a full stream must not lose, such as withdrawn questions. Return False if the
    stream is closed.
    """
    stream, size = rows(Stream).filter(pk=stream_id), sum(map(size_of, messages))
    open = stream.filter(closed=False)
    if not open.update(last=F("last") + len(messages), size=F("size") + size):
        return False
    ends = {stream_id: stream.values_list("last", flat=True).get()}
    insert(_numbered({EventAddress(stream_id): messages}, ends))
    return True


# Responses.


@one_transaction
def finish(
    call_id: int,
    fence: int,
    message: str,
    stream_id: int,
    *,
    has_asked: bool = True,
    is_retry: bool = False,
) -> StoredResponse | None:
    """Mark a call as done and append its response: both, or neither and return None.

    ``has_asked`` is False for a call that has never asked its client, so that there are no
    questions to delete. Use ``is_retry=True`` to repeat it after an unknown commit.
    """
    if _mark_done(call_id, fence, has_asked=has_asked):
        return append_response(stream_id, message)
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False)
    return StoredResponse(None) if is_retry and mine.filter(state=DONE).exists() else None


def finish_in_transaction(
    call_id: int, fence: int, message: str, stream_id: int, *, has_asked: bool = True
) -> StoredResponse | None:
    """Do what ``finish`` does, in the caller's transaction. Roll it back if this returns None."""
    if not _mark_done(call_id, fence, has_asked=has_asked):
        return None
    return append_response(stream_id, message)


def _mark_done(call_id: int, fence: int, *, has_asked: bool) -> bool:
    """Lock a call and mark it as done. Return False if it is cancelled or taken over.

    A cancel is a conditional UPDATE of the same row, so the database decides which was first.
    """
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False, state=RUNNING)
    if not mine.update(state=DONE, **CLEARED):
        return False
    if has_asked:
        erase(rows(Ask).filter(call=call_id))
    return True


def append_response(stream_id: int, message: str) -> StoredResponse | None:
    """Append a response within the caller's transaction. Return None if the stream is closed."""
    size = size_of(message)
    added = {"last": F("last") + 1, "size": F("size") + size}
    stream = rows(Stream).filter(pk=stream_id)
    if not stream.filter(closed=False).update(**response_sent(), **added):
        return None
    last, closed, reader = stream.values_list("last", "closed", "reader").get()
    insert([NewEvent(stream_id, last, message, size, final=True)])
    return StoredResponse(last, closed, reader)


def response_sent() -> dict[str, object]:
    """Return the column updates of a stream that owes one response less. The last closes it."""
    closing = When(pending_responses__lte=1, then=True)
    ending = When(pending_responses__lte=1, then=databases.now())
    # MariaDB assigns column by column, and later expressions see the new values. So
    # ``pending_responses``, which the others read, must be last.
    return {
        "closed": Case(closing, default=F("closed")),
        "ended": Case(ending, default=F("ended")),
        "pending_responses": F("pending_responses") - 1,
    }


# Reading.


def read(stream_id: int, after: int, limit: int = EVENTS_PER_PAGE) -> list[tuple[int, str]]:
    """Return the next events after a cursor: numbers and messages, at least one if there is one.

    A page has at most ``limit`` events and, beyond the first, ``BYTES_PER_PAGE`` bytes.
    """
    # Large events are fetched by a second query, only those that fit into the page.
    with_data = When(Q(size__lte=SMALL_EVENT_BYTES) | Q(seq=after + 1), then=F("data"))
    found = rows(Event).filter(stream=stream_id, seq__gt=after).order_by("seq")
    columns = ("seq", "size", Case(with_data, output_field=TextField()))
    page: dict[int, str | None] = {}
    room = BYTES_PER_PAGE
    for seq, size, data in found.values_list(*columns)[:limit]:
        room -= size if page else 0
        if room < 0:
            break
        page[seq] = data
    if large := [seq for seq, data in page.items() if data is None]:
        page |= dict(found.filter(seq__in=large).values_list("seq", "data"))
    return [(seq, data) for seq, data in page.items() if data is not None]


def find_messages(stream_id: int, text: str) -> Iterator[str]:
    """Yield the messages of a stream whose JSON contains ``text``, the latest first."""
    found = rows(Event).filter(stream=stream_id, data__contains=text).order_by("-seq")
    before = 2**62
    while page := list(
        found.filter(seq__lt=before).values_list("seq", "data")[:EVENTS_PER_SMALL_PAGE]
    ):
        yield from (data for _, data in page)
        before = page[-1][0]


def final_messages(stream_id: int, after: int = 0) -> list[tuple[int, str]]:
    """Return the responses after a cursor, which retention keeps when it deletes other events."""
    found = rows(Event).filter(stream=stream_id, seq__gt=after, final=True)
    return list(found.order_by("seq").values_list("seq", "data"))
