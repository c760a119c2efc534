"""
Streams: opened for requests or for news, taken over by who resumes them, closed.

Rule: a stream belongs to its session and is looked up within it. News go to the
session's current stream alone; what none has taken is kept as a mark. What was
said where nothing was written yet is said again on the next: it may never get out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import F, Q, QuerySet

from ..conf import settings
from ..exceptions import Busy
from ..models import DONE, Ask, Call, Event, Session, Stream
from . import clock
from .events import FULL, Address, append_here, begin
from .pruning import KEPT
from .rows import digest_of, erase, one_transaction, rows
from .sessions import SUBSCRIPTIONS, Gone, lock

STREAMS = 10_000  # that a session may have, with those that are closed
FORGOTTEN = 100  # of them at once, where there are so many
STANDALONES = 4  # that may be open
MARKS = SUBSCRIPTIONS + 10
UNBEGUN: dict[str, Any] = {"closed": True, "released": 1}  # left before anything was written
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
    news from now on; it begins with what may not have been heard, and ``words``
    for what no stream has taken.
    ``again``, with the same ``nonce``, after an unknown commit: there will be
    one stream. Raises ``Gone`` or ``Busy``.
    """
    if again:
        lock(session.pk)  # the attempt may still be at it
        if opened := _opened(session, calls, nonce):
            return opened
    _admit(session.pk)
    if missed := _missed(session.pk, words) if standalone else ():
        _told(session.pk, closed=True)
    stream = Stream(session_id=session.pk, standalone=standalone, nonce=nonce)
    stream.owed = (len(calls) if owed is None else owed) - bury(session.pk, calls)
    if not standalone and stream.owed <= 0:
        stream.closed, stream.ended = True, clock.now()
    begin(stream, [*missed, *messages], finals)
    enter(session.pk, stream.pk, calls)
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
        recall(call, stored[call.request_id])
    return stream


def recall(call: Call, one: Call) -> None:
    """Let a call be what it is in the database; one that others have taken over is over here."""
    call.pk, call.stream_id, call.session_id = one.pk, one.stream_id, one.session_id
    call.request_digest, call.cancelled = one.request_digest, one.cancelled
    call.state = one.state if one.fence == call.fence else DONE


def _admit(session_id: int) -> None:
    """Count one more stream; where there are too many, those make room that are long over."""
    few = rows(Session).filter(pk=session_id, streams__lt=STREAMS)
    if few.update(streams=F("streams") + 1):
        return
    lock(session_id)
    over = list(_long_over(session_id)[:FORGOTTEN])
    if not over:
        raise Busy(f"A session has at most {STREAMS:,} streams in an hour. Begin another session.")
    erase_streams(over)
    rows(Session).filter(pk=session_id).update(streams=F("streams") - len(over) + 1)


def _long_over(session_id: int) -> QuerySet[Stream, int]:
    """The streams that nobody comes back for: those that were trimmed have no time of their end."""
    old = Q(ended=None) | Q(ended__lt=clock.now() - KEPT)
    found = rows(Stream).filter(old, session=session_id, closed=True)
    return found.order_by("pk").values_list("pk", flat=True)


def erase_streams(ids: Sequence[int]) -> None:
    """Delete streams that are closed, and all of them."""
    erase(rows(Ask).filter(call__stream__in=ids))
    erase(rows(Call).filter(stream__in=ids))
    erase(rows(Event).filter(stream__in=ids))
    erase(rows(Stream).filter(pk__in=ids))


def bury(session_id: int, calls: Sequence[Call]) -> int:
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


def enter(session_id: int, stream_id: int, calls: Sequence[Call]) -> None:
    for call in calls:
        call.pk, call.session_id, call.stream_id = None, session_id, stream_id
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


def _missed(session_id: int, words: Words | None, **which: Any) -> list[str]:
    """What nobody may have heard: it waits for a stream, or for the first word of one."""
    if words is None:
        return []
    theirs = _unread(session_id).filter(**which)
    found = rows(Event).filter(stream__in=list(theirs.values_list("pk", flat=True)))
    said = list(found.order_by("pk").values_list("data", flat=True))
    marked = list(rows(Session).values_list("dirty", flat=True).get(pk=session_id))
    told = words(marked) if marked else ()
    return list(dict.fromkeys(reversed([*said, *told])))[:MARKS][::-1]


def _told(session_id: int, **which: Any) -> None:
    """What was missed was said on another stream; of these that is once for all."""
    _unread(session_id).filter(**which).update(reader=F("reader") + 1)
    rows(Session).filter(pk=session_id).update(dirty=[])


def _unread(session_id: int) -> QuerySet[Stream]:
    theirs = rows(Stream).filter(session=session_id, standalone=True, reader=1)
    return theirs.exclude(nonce="")


def begun(stream_id: int) -> None:
    """Its client was told something: the attempt to open it is over."""
    rows(Stream).filter(pk=stream_id, reader=1).update(nonce="")


def current(session: Session) -> int | None:
    """The stream that takes the session's news."""
    return rows(Session).filter(pk=session.pk).values_list("current", flat=True).first()


def announce_here(news: Mapping[int, Sequence[tuple[str, str]]]) -> list[int]:
    """To each session its messages, with their marks, within the caller's transaction.

    What takes no stream, and is marked already, is not written: many are so.
    """
    found = rows(Session).filter(pk__in=list(news))
    found.update(streams=F("streams"))  # their locks
    marked = {pk: (current, dirty) for pk, current, dirty in found.values_list(*_NEWS)}
    addresses = {pk: Address(current) for pk, (current, _) in marked.items() if current}
    outcomes = append_here({to: [text for text, _ in news[pk]] for pk, to in addresses.items()})
    for pk, (current, dirty) in marked.items():
        outcome = outcomes[addresses[pk]] if current else None
        if not outcome:
            _mark_all(pk, current, dirty, [mark for _, mark in news[pk]], is_full=outcome == FULL)
    return [to.stream for to in addresses.values() if outcomes[to]]


def _mark_all(
    session_id: int, current: int | None, dirty: list[str], marks: Sequence[str], *, is_full: bool
) -> None:
    for mark in dict.fromkeys(marks):
        _mark(session_id, current, dirty, mark, is_full=is_full)
        dirty = [*(one for one in dirty if one != mark), mark]
        is_full = False


_NEWS = ("pk", "current", "dirty")


def _mark(
    session_id: int, current: int | None, dirty: list[str], mark: str, *, is_full: bool
) -> None:
    """Keep for the session's next stream what the current one, if there is one, did not take.

    A session's only stream stays: its next connection is told.
    """
    stays = current if is_full and not close(current or 0, owed=0) else None
    if mark not in dirty or current:
        kept = [*(one for one in dirty if one != mark), mark]
        rows(Session).filter(pk=session_id).update(current=stays, dirty=kept[-MARKS:])


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
    missed = _missed(session_id, words, **UNBEGUN)
    to = Address(stream_id)
    if missed and append_here({to: missed})[to]:
        _told(session_id, **UNBEGUN)


@one_transaction
def leave(session_id: int, stream_id: int, number: int, *, unread: bool = False) -> None:
    """Connection ``number`` of a standalone stream broke, and nobody has taken it over since.

    Who comes back without a cursor never reads on: so news go to another stream of the session
    that is read, or are kept as marks. To one that was never begun nobody can come back.
    """
    lock(session_id)
    mine = rows(Stream).filter(pk=stream_id, session=session_id, reader=number)
    if not mine.update(released=number):
        return
    theirs = rows(Stream).filter(session=session_id, standalone=True, closed=False)
    read = theirs.filter(released__lt=F("reader")).order_by("-pk").values_list("pk", flat=True)
    rows(Session).filter(pk=session_id, current=stream_id).update(current=read.first())
    if unread and number == 1:
        close(stream_id)


def release(stream_id: int) -> None:
    """Whoever reads the stream now is to end the connection; the client comes back."""
    rows(Stream).filter(pk=stream_id).update(released=F("reader"))


def close(stream_id: int, **which: Any) -> bool:
    """Nothing more is said on it; False if it is none of ``which``."""
    found = rows(Stream).filter(pk=stream_id, closed=False, **which)
    return bool(found.update(closed=True, ended=clock.now()))


def states(ids: Collection[int]) -> dict[int, StreamState]:
    """How streams are now, in one query; those that are gone are missing."""
    return {row[0]: StreamState(*row) for row in look(ids)}


def look(ids: Collection[int]) -> Sequence[tuple[int, ...]]:
    """The same as plain rows: asked often, for thousands, it must take no time."""
    connection = connections[settings.DATABASE]
    columns = ", ".join(map(connection.ops.quote_name, StreamState._fields))
    return _selected(columns, ids)


def totals(ids: Collection[int]) -> tuple[Any, ...]:
    """Equal to what it was if nothing has become of any of these streams.

    What is added up never becomes less, so that no change makes up for another.
    """
    name = connections[settings.DATABASE].ops.quote_name
    closed = f"SUM(CASE WHEN {name('closed')} THEN 1 ELSE 0 END)"
    sums = ", ".join(f"SUM({name(one)})" for one in ("last", "first", "reader", "released"))
    return _selected(f"COUNT(*), {closed}, {sums}", ids)[0]


def _selected(columns: str, ids: Collection[int]) -> Sequence[tuple[Any, ...]]:
    connection = connections[settings.DATABASE]
    name = connection.ops.quote_name
    among = ", ".join(str(int(id)) for id in ids) or "NULL"
    table, key = name(Stream._meta.db_table), name("id")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table} WHERE {key} IN ({among})")
        found: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return found
