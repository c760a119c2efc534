"""
Streams: opened for requests or for news, taken over by who resumes them, closed.

Rule: a stream belongs to its session and is looked up within it. News go to the
session's current stream alone; what none has taken is kept as a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from django.db import connections
from django.db.models import F
from django.utils import timezone

from ..conf import settings
from ..exceptions import Busy
from ..models import DONE, Ask, Call, Event, Session, Stream
from .events import FULL, Address, append_here, begin
from .rows import digest_of, erase, one_transaction, rows
from .sessions import SUBSCRIPTIONS, Gone, lock

STREAMS = 1_000  # that a session may have, with those that are closed
STANDALONES = 4  # that may be open
MARKS = SUBSCRIPTIONS + 10
Words = Callable[[Sequence[str]], Sequence[str]]


class StreamState(NamedTuple):
    """How far a stream is, and whose turn it is to read it."""

    id: int
    last: int
    first: int
    closed: int  # a boolean; not every database has them
    standalone: int
    reader: int
    released: int


# Opening.


@one_transaction
def open(
    session: Session,
    *,
    calls: Sequence[Call] = (),
    messages: Sequence[str] = (),
    finals: Sequence[str] = (),
    owed: int | None = None,
    standalone: bool = False,
    words: Words | None = None,
    nonce: str = "",
    again: bool = False,
) -> Stream:
    """A new stream, its calls, and what is said so far: ``messages``, then ready responses.

    It owes a response to each call. A call that was cancelled before comes back
    ``cancelled`` and is owed nothing. A standalone stream takes the session's
    news from now on; it begins with ``words`` for what no stream has taken.
    ``again``, with the same ``nonce``, after an unknown commit: there will be
    one stream. Raises ``Gone`` or ``Busy``.
    """
    if again and (opened := _opened(session, calls, nonce)):
        return opened
    _admit(session.pk)
    marked = _marks(session.pk) if standalone else []
    missed = words(marked) if words and marked else ()
    stream = Stream(session_id=session.pk, standalone=standalone, nonce=nonce)
    stream.owed = (len(calls) if owed is None else owed) - _bury(session.pk, calls)
    if not standalone and stream.owed <= 0:
        stream.closed, stream.ended = True, timezone.now()
    begin(stream, [*missed, *messages], finals)
    _enter(session.pk, stream, calls)
    if standalone:
        _seat(session, stream)
    return stream


def _opened(session: Session, calls: Sequence[Call], nonce: str) -> Stream | None:
    """The stream of an attempt that came through after all, and its calls as they are."""
    stream = rows(Stream).filter(session=session.pk, nonce=nonce).first()
    if stream is None:
        return None
    stored = {call.request_id: call for call in rows(Call).filter(stream=stream)}
    for call in calls:
        one = stored[call.request_id]
        call.pk, call.stream_id, call.session_id = one.pk, one.stream_id, session.pk
        call.request_digest, call.state, call.cancelled = (
            one.request_digest, one.state, one.cancelled
        )  # fmt: skip
    return stream


def _admit(session_id: int) -> None:
    """Count one more stream, or let the oldest that is over make room for it."""
    few = rows(Session).filter(pk=session_id, streams__lt=STREAMS)
    if few.update(streams=F("streams") + 1):
        return
    lock(session_id)
    over = rows(Stream).filter(session=session_id, closed=True).order_by("pk").first()
    if over is None:
        raise Busy("Too many requests are being answered in this session.")
    erase_stream(over.pk)


def erase_stream(stream_id: int) -> None:
    """Delete a stream that is closed, and all of it."""
    erase(rows(Ask).filter(call__stream=stream_id))
    erase(rows(Call).filter(stream=stream_id))
    erase(rows(Event).filter(stream=stream_id))
    erase(rows(Stream).filter(pk=stream_id))


def _bury(session_id: int, calls: Sequence[Call]) -> int:
    """Heed the cancels that came before their calls; how many calls they end."""
    for call in calls:
        call.request_digest = digest_of(call.request_id)
    wanted = {call.request_digest for call in calls}
    if not wanted:
        return 0
    early = rows(Call).filter(session=session_id, request_digest__in=wanted, stream=None)
    found = set(early.values_list("request_digest", flat=True))
    if found:
        erase(early)
    for call in calls:
        call.cancelled = call.request_digest in found
        if call.cancelled:
            call.state, call.params, call.meta = DONE, {}, {}
    return sum(call.cancelled for call in calls)


def _enter(session_id: int, stream: Stream, calls: Sequence[Call]) -> None:
    for call in calls:
        call.pk, call.session_id, call.stream_id = None, session_id, stream.pk
        call.save(force_insert=True, using=settings.DATABASE)


# Standalone streams.


def _seat(session: Session, stream: Stream) -> None:
    """Make a stream the current one; beyond four, one gives way: first who has let go."""
    theirs = rows(Stream).filter(session=session.pk, standalone=True, closed=False)
    others = theirs.exclude(pk=stream.pk).order_by("pk").values_list("pk", "reader", "released")
    if len(seats := list(others)) >= STANDALONES:
        idle = (pk for pk, reader, released in seats if released >= reader)
        close(next(idle, seats[0][0]))
    rows(Session).filter(pk=session.pk).update(current=stream.pk, dirty=[])
    session.current, session.dirty = stream.pk, []


def _marks(session_id: int) -> list[str]:
    return list(rows(Session).values_list("dirty", flat=True).get(pk=session_id))


def current(session: Session) -> int | None:
    """The stream that takes the session's news."""
    return rows(Session).filter(pk=session.pk).values_list("current", flat=True).first()


def announce(session_id: int, message: str, mark: str) -> int | None:
    """Say it on the current stream, which is returned; or keep its mark, and None."""
    return next(iter(announce_all([session_id], message, mark)), None)


@one_transaction
def announce_all(session_ids: Sequence[int], message: str, mark: str) -> list[int]:
    """Say it to each session: the streams that took it. For the others the mark is kept.

    What takes no stream, and is marked already, is not written: many are so.
    """
    found = rows(Session).filter(pk__in=session_ids)
    found.update(streams=F("streams"))  # their locks
    marked = {pk: (current, dirty) for pk, current, dirty in found.values_list(*_NEWS)}
    addresses = {pk: Address(current) for pk, (current, _) in marked.items() if current}
    outcomes = append_here({to: [message] for to in addresses.values()})
    for pk, (current, dirty) in marked.items():
        outcome = outcomes[addresses[pk]] if current else None
        if not outcome:
            _mark(pk, current, dirty, mark, is_full=outcome == FULL)
    return [to.stream for to in addresses.values() if outcomes[to]]


_NEWS = ("pk", "current", "dirty")


def _mark(
    session_id: int, current: int | None, dirty: list[str], mark: str, *, is_full: bool
) -> None:
    """Keep for the session's next stream what the current one, if there is one, did not take."""
    if current and is_full:
        close(current)
    if mark not in dirty or current:
        kept = [*(one for one in dirty if one != mark), mark]
        rows(Session).filter(pk=session_id).update(current=None, dirty=kept[-MARKS:])


# Connections.


def take(session: Session, stream_id: int, words: Words | None = None) -> StreamState | None:
    """Become the one who reads a stream of this session; None where it has no such stream.

    A standalone stream becomes the current one again, and is told ``words`` for
    what no stream has taken.
    """
    if not 0 < stream_id < 2**63:
        return None
    theirs = rows(Stream).filter(pk=stream_id, session=session.pk)
    kind = theirs.values_list("standalone", "closed").first()
    if kind is None:
        return None
    try:
        return _take(session, stream_id, words, news=kind == (True, False))
    except Gone:
        return None


@one_transaction
def _take(
    session: Session, stream_id: int, words: Words | None, *, news: bool
) -> StreamState | None:
    if news:
        lock(session.pk, current=stream_id)
        session.current = stream_id
        _catch_up(session.pk, stream_id, words)
    if not rows(Stream).filter(pk=stream_id).update(reader=F("reader") + 1):
        return None
    return states([stream_id]).get(stream_id)


def _catch_up(session_id: int, stream_id: int, words: Words | None) -> None:
    marked = _marks(session_id)
    to = Address(stream_id)
    if marked and words and append_here({to: words(marked)})[to]:
        rows(Session).filter(pk=session_id).update(dirty=[])


@one_transaction
def leave(session_id: int, stream_id: int, number: int) -> None:
    """Connection ``number`` of a standalone stream broke, and nobody has taken it over since.

    Who comes back without a cursor never reads on: so news go to another stream of the session
    that is read, or are kept as marks.
    """
    lock(session_id)
    mine = rows(Stream).filter(pk=stream_id, session=session_id, reader=number)
    if not mine.update(released=number):
        return
    theirs = rows(Stream).filter(session=session_id, standalone=True, closed=False)
    read = theirs.filter(released__lt=F("reader")).order_by("-pk").values_list("pk", flat=True)
    rows(Session).filter(pk=session_id, current=stream_id).update(current=read.first())


def release(stream_id: int) -> None:
    """Whoever reads the stream now is to end the connection; the client comes back."""
    rows(Stream).filter(pk=stream_id).update(released=F("reader"))


def close(stream_id: int) -> None:
    """Nothing more is said on it."""
    rows(Stream).filter(pk=stream_id, closed=False).update(closed=True, ended=timezone.now())


def states(ids: Collection[int]) -> dict[int, StreamState]:
    """How streams are now, in one query; those that are gone are missing."""
    return {row[0]: StreamState(*row) for row in look(ids)}


def look(ids: Collection[int]) -> Sequence[tuple[int, ...]]:
    """The same as plain rows: asked every second, for thousands, it must take no time."""
    connection = connections[settings.DATABASE]
    name = connection.ops.quote_name
    columns = ", ".join(map(name, StreamState._fields))
    among = ", ".join(str(int(id)) for id in ids) or "NULL"
    table, key = name(Stream._meta.db_table), name("id")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table} WHERE {key} IN ({among})")
        found: Sequence[tuple[int, ...]] = cursor.fetchall()
        return found
