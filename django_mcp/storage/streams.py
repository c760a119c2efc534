"""Streams of sessions: open them for requests or notifications, resume them, close them.

A stream is always looked up together with its session, so that a client cannot read the streams of
others. Notifications that belong to no request go to one stream, the session's current standalone
stream. If there is none, or it is full, the session keeps marks, such as "uri:file://a" for a
changed resource. Its next stream begins with the notifications for them. A stream whose connection
broke before anything was sent is not resumed, so its events are repeated on the next one.

Sessions of the HTTP+SSE transport have one stream for everything. It is never closed. A request is
stored before the server accepts it, because its response can only be sent on that stream. Requests
beyond the limits are refused before they are stored, and ``retention`` deletes the oldest events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from random import randrange
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import F, Q, QuerySet, Sum

from ..conf import settings
from ..exceptions import Busy
from ..models import DONE, ENDLESS, Ask, Call, Event, Session, Stream
from . import databases, sessions
from .databases import digest_of, erase, one_transaction, rows
from .event_log import (
    FULL,
    ROW_SIZE,
    STATEMENT_SIZE,
    EventAddress,
    append_in_transaction,
    begin,
    entry,
    insert,
    most_bytes,
    packet_size,
    size_of,
)
from .sessions import MAX_SUBSCRIPTIONS_PER_SESSION, SessionEnded, lock

REPLAY_TIME = timedelta(hours=1)  # how long events can be replayed after a stream was closed
MAX_STREAMS_PER_SESSION = 10_000  # limit for one session, closed streams included
STREAMS_PER_DELETE = 100  # old streams deleted at once when a session reaches the limit
# The bytes of closed streams are summed up when one in ten streams is opened. It is chosen at
# random, because a client that could predict it would keep more than the limit.
SIZE_CHECKED_ONE_IN, STREAMS_PER_CHECK = 10, 20
MAX_STANDALONE_STREAMS = 4  # open standalone streams of one session
MAX_NOTIFICATIONS = MAX_SUBSCRIPTIONS_PER_SESSION + 10
CLOSED_UNSENT: dict[str, Any] = {"closed": True, "released": 1}  # closed before anything was sent
# Returns the notifications for marks.
NotificationEncoder = Callable[[Sequence[str]], Sequence[str]]


class StreamState(NamedTuple):
    """The columns of a stream's row that its readers need."""

    id: int
    last: int
    first: int
    closed: int  # a boolean; not every database has them
    standalone: int
    reader: int
    released: int


class RequestRefused(Exception):
    """Requests that cannot be stored. They have not begun; each is answered with an error."""

    def __init__(self, ids: Collection[str]) -> None:
        super().__init__(self.__doc__)
        self.ids = frozenset(ids)  # as JSON


class DuplicateRequest(RequestRefused):
    """A request with this id was received before in this session. Use another id."""


class RequestTooLarge(RequestRefused):
    """The arguments are larger than the server's database takes at once. Send less."""


# Opening.


@one_transaction
def open(
    session: Session,
    *,
    calls: Sequence[Call] = (),
    unbegun: Collection[str] = (),
    messages: Sequence[str] = (),
    finals: Sequence[str] = (),
    pending_responses: int | None = None,
    standalone: bool = False,
    encode_marks: NotificationEncoder | None = None,
    nonce: str = "",
    is_retry: bool = False,
) -> Stream:
    """Create a stream with its calls and first events: ``messages``, then responses (``finals``).

    The stream waits for one response to each call, or for ``pending_responses`` if that is given,
    and is closed with the last one. A call that the client cancelled before is marked as
    ``cancelled``, and gets no response.

    A ``standalone`` stream becomes the session's current one. It begins with the events of earlier
    streams that may not have been sent, and with ``encode_marks(marks)``, the notifications for
    what changed while there was no stream.

    ``unbegun`` are the request ids of calls that have not begun: no other call may have them. Use
    ``is_retry=True`` with the same ``nonce`` to repeat it after an unknown commit: there will be
    one stream. Raise ``SessionEnded``, ``Busy``, or a ``RequestRefused``.
    """
    if is_retry:
        lock(session.pk)  # the first attempt may not have been committed yet
        if opened := _opened(session, calls, nonce):
            return opened
    _count_stream(session.pk)  # it locks the session: of two workers one sees the other's calls
    if randrange(SIZE_CHECKED_ONE_IN) < max(1, len(calls)):  # a batch brings as many responses
        _delete_oldest_events(session.pk)
    if missed := _missed(session.pk, encode_marks) if standalone else ():
        _note_repeated(session.pk, closed=True)
    stream = Stream(session_id=session.pk, standalone=standalone, nonce=nonce)
    expected = len(calls) if pending_responses is None else pending_responses
    stream.pending_responses = expected - apply_early_cancels(session.pk, calls, unbegun)
    if not standalone and stream.pending_responses <= 0:
        stream.closed, stream.ended = True, databases.now()
    begin(stream, [*missed, *messages], finals)
    insert_calls(session.pk, stream.pk, calls)
    if standalone:
        _make_current(session, stream)
    return stream


def _opened(session: Session, calls: Sequence[Call], nonce: str) -> Stream | None:
    """Return the stream of a first attempt that was committed, and update ``calls`` from its rows.

    Return None if it was not committed.
    """
    stream = rows(Stream).filter(session=session.pk, nonce=nonce).first()
    if stream is None:
        return None
    stored = {call.request_id: call for call in rows(Call).filter(stream=stream)}
    for call in calls:
        update_from_row(call, stored[call.request_id])
    return stream


def update_from_row(call: Call, row: Call) -> None:
    """Update ``call`` from its row. Mark it as done if another process has taken it over."""
    call.pk, call.stream_id, call.session_id = row.pk, row.stream_id, row.session_id
    call.request_digest, call.cancelled = row.request_digest, row.cancelled
    call.state = row.state if row.fence == call.fence else DONE


def _count_stream(session_id: int) -> None:
    """Count one more stream of a session, and delete old ones if there are too many.

    Raise ``Busy`` if none is old enough, and ``SessionEnded`` if the session was deleted.
    """
    few = rows(Session).filter(pk=session_id, streams__lt=MAX_STREAMS_PER_SESSION)
    if few.update(streams=F("streams") + 1):
        return
    lock(session_id)
    expired = list(_expired(session_id)[:STREAMS_PER_DELETE])
    if not expired:
        raise Busy(
            f"A session has at most {MAX_STREAMS_PER_SESSION:,} streams in an hour. "
            "Begin another session."
        )
    erase_streams(expired)
    rows(Session).filter(pk=session_id).update(streams=F("streams") - len(expired) + 1)


def _expired(session_id: int) -> QuerySet[Stream, int]:
    """Return the closed streams that clients can no longer resume, the oldest first.

    ``ended`` is None for those whose events were deleted.
    """
    old = Q(ended=None) | Q(ended__lt=databases.now() - REPLAY_TIME)
    found = rows(Stream).filter(old, session=session_id, closed=True)
    return found.order_by("pk").values_list("pk", flat=True)


def max_closed_bytes() -> int:
    """Return how many bytes of events all closed streams of a session may hold."""
    return 2 * most_bytes()


def _delete_oldest_events(session_id: int) -> None:
    """Delete the events of the oldest closed streams of a session beyond the limit of bytes.

    The caller holds the lock of the session.
    """
    ended = rows(Stream).filter(session=session_id, closed=True, size__gt=0)
    excess = (ended.aggregate(size=Sum("size"))["size"] or 0) - max_closed_bytes()
    oldest = []
    for pk, size in ended.order_by("pk").values_list("pk", "size")[:STREAMS_PER_CHECK]:
        if excess <= 0:
            break
        oldest.append(pk)
        excess -= size
    if oldest:
        # ``first`` moves before the events are deleted. So a client that resumes such a stream gets
        # an error, and never a part of the events.
        rows(Stream).filter(pk__in=oldest).update(first=F("last") + 1, size=0, ended=None)
        erase(rows(Event).filter(stream__in=oldest))


def erase_streams(ids: Sequence[int]) -> None:
    """Delete closed streams with their events, calls and questions."""
    erase(rows(Ask).filter(call__stream__in=ids))
    erase(rows(Call).filter(stream__in=ids))
    erase(rows(Event).filter(stream__in=ids))
    erase(rows(Stream).filter(pk__in=ids))


def cancel_lifetime() -> timedelta:
    """Return how long a cancel is stored whose call has no row yet.

    Another process may be storing the call. It does so ``JSON_GRACE`` seconds after it received the
    request at the latest, and needs some time to do it.
    """
    return timedelta(seconds=max(2.0, settings.JSON_GRACE + 1.5))


def apply_early_cancels(session_id: int, calls: Sequence[Call], unbegun: Collection[str]) -> int:
    """Mark the calls whose cancel was stored before them. Return how many these are.

    A call is ``created`` when its request was received, by the clock of the database. Raise
    ``DuplicateRequest`` if a call of the session has or had a request id of ``unbegun``: a client
    that sent a request twice must not make it run twice. Raise ``RequestTooLarge`` if the database
    does not take one. The caller holds the lock of the session: if two workers store the same
    request, the second sees the call of the first.
    """
    _check_sizes(calls, unbegun)
    for call in calls:
        call.request_digest = digest_of(call.request_id)
    wanted = {call.request_digest for call in calls}
    if not wanted:
        return 0
    theirs = rows(Call).filter(session=session_id, request_digest__in=wanted)
    early = theirs.filter(stream=None)
    columns = ("request_digest", "request_id", "created", "stream")
    # Only for calls of ``unbegun`` it matters which calls had the same request id.
    earlier = list((theirs if unbegun else early).values_list(*columns))
    if known := {id for _, id, _, stream in earlier if stream is not None}.intersection(unbegun):
        raise DuplicateRequest(known)
    cancel_times = {digest: created for digest, _, created, stream in earlier if stream is None}
    if cancel_times:
        erase(early)
    oldest = databases.now() - cancel_lifetime()
    for call in calls:
        # Clients may reuse request ids. A cancel that is older than this request was for another.
        cancelled_at = cancel_times.get(call.request_digest)
        call.cancelled = cancelled_at is not None and cancelled_at > max(call.created, oldest)
        if call.cancelled:
            call.state, call.params, call.meta = DONE, {}, {}
    return sum(call.cancelled for call in calls)


def _check_sizes(calls: Sequence[Call], unbegun: Collection[str]) -> None:
    """Refuse calls whose INSERT MariaDB would not accept.

    It closes the connection then. That would look like an outage, and be retried for a minute.
    """
    most = packet_size()
    if most is None:
        return
    large = {call.request_id for call in calls if _statement_size(call) > most}
    if refused := large.intersection(unbegun):
        raise RequestTooLarge(refused)
    if large:  # they have begun, and are answered without being stored
        raise Busy("The request is too large to be stored.")


def _statement_size(call: Call) -> int:
    """Return how many bytes the INSERT of a call needs. Escaping at most doubles a text."""
    texts = json.dumps([call.request_id, call.params, call.meta, call.scopes])
    return 2 * len(texts) + STATEMENT_SIZE + 4 * ROW_SIZE


def insert_calls(session_id: int, stream_id: int, calls: Sequence[Call]) -> None:
    for call in calls:
        call.pk, call.session_id, call.stream_id = None, session_id, stream_id
        call.save(force_insert=True, using=settings.DATABASE)


# Standalone streams.


def _make_current(session: Session, stream: Stream) -> None:
    """Make a stream the session's current one. If four others are open, close one of them.

    Close one without a connection if there is one, else the oldest.
    """
    theirs = rows(Stream).filter(session=session.pk, standalone=True, closed=False)
    others = theirs.exclude(pk=stream.pk).order_by("pk").values_list("pk", "reader", "released")
    if len(open_streams := list(others)) >= MAX_STANDALONE_STREAMS:
        unread = (pk for pk, reader, released in open_streams if released >= reader)
        close(next(unread, open_streams[0][0]))
    rows(Session).filter(pk=session.pk).update(current=stream.pk, pending_changes=[])
    session.current, session.pending_changes = stream.pk, []


def _missed(session_id: int, encode_marks: NotificationEncoder | None, **which: Any) -> list[str]:
    """Return the latest ``MAX_NOTIFICATIONS`` that the client may have missed.

    These are the events of streams on which nothing was sent, and notifications for the marks.
    """
    if encode_marks is None:
        return []
    streams = _unsent(session_id).filter(**which)
    found = rows(Event).filter(stream__in=list(streams.values_list("pk", flat=True)))
    events = list(found.order_by("pk").values_list("data", flat=True))
    marks = list(rows(Session).values_list("pending_changes", flat=True).get(pk=session_id))
    notifications = encode_marks(marks) if marks else ()
    # Of equal notifications the last one stays.
    latest_first = list(dict.fromkeys(reversed([*events, *notifications])))
    return latest_first[:MAX_NOTIFICATIONS][::-1]


def _note_repeated(session_id: int, **which: Any) -> None:
    """Note that missed notifications are on another stream, so that they are not repeated again."""
    _unsent(session_id).filter(**which).update(reader=F("reader") + 1)
    rows(Session).filter(pk=session_id).update(pending_changes=[])


def _unsent(session_id: int) -> QuerySet[Stream]:
    """Return the standalone streams on which nothing was sent (``note_sent`` clears the nonce)."""
    theirs = rows(Stream).filter(session=session_id, standalone=True, reader=1)
    return theirs.exclude(nonce="")


def note_sent(stream_id: int) -> None:
    """Note that something was sent on a stream, so that its events are not repeated on another."""
    rows(Stream).filter(pk=stream_id, reader=1).update(nonce="")


def current(session: Session) -> int | None:
    """Return the id of the stream for the session's notifications, or None."""
    return rows(Session).filter(pk=session.pk).values_list("current", flat=True).first()


def announce_in_transaction(notifications: Mapping[int, Sequence[tuple[str, str]]]) -> list[int]:
    """Append notifications to the current streams of sessions, within the caller's transaction.

    ``notifications`` has messages and their marks by session. If a session's stream does not accept
    its messages, their marks are stored in the session. Return the streams to wake.
    """
    found = rows(Session).filter(pk__in=list(notifications))
    found.update(streams=F("streams"))  # lock the sessions, before their streams are locked
    stored = {
        pk: (current, marks)
        for pk, current, marks in found.values_list("pk", "current", "pending_changes")
    }
    addresses = {pk: EventAddress(current) for pk, (current, _) in stored.items() if current}
    outcomes = append_in_transaction(
        {to: [text for text, _ in notifications[pk]] for pk, to in addresses.items()}
    )
    for pk, (current, marks) in stored.items():
        outcome = outcomes[addresses[pk]] if current else None
        if not outcome:
            new = [mark for _, mark in notifications[pk]]
            _store_marks(pk, current, marks, new, is_full=outcome == FULL)
    return [to.stream for to in addresses.values() if outcomes[to]]


def _store_marks(
    session_id: int,
    current: int | None,
    stored: Sequence[str],
    new: Sequence[str],
    *,
    is_full: bool,
) -> None:
    """Store marks for the session's next stream, because the current one did not accept them.

    A full stream is closed, except the only stream of an HTTP+SSE session, which owes responses.
    """
    kept_stream = current if is_full and not close(current or 0, pending_responses=0) else None
    # Most sessions without a stream have the marks already: then nothing is written.
    if current or not set(new) <= set(stored):
        # A repeated mark moves to the end: beyond the limit the oldest are dropped.
        marks = [*(mark for mark in stored if mark not in new), *dict.fromkeys(new)]
        rows(Session).filter(pk=session_id).update(
            current=kept_stream, pending_changes=marks[-MAX_NOTIFICATIONS:]
        )


# Connections.


def take(
    session: Session, stream_id: int, encode_marks: NotificationEncoder | None = None
) -> StreamState | None:
    """Begin to read a stream on another connection. Return its state: ``reader`` is the connection.

    The connection before it ends, because it has a lower number. Return None if the session has no
    such stream. An open standalone stream becomes the session's current one, and
    ``encode_marks(marks)`` are appended to it for what changed meanwhile.
    """
    if not 0 < stream_id < 2**63:
        return None
    theirs = rows(Stream).filter(pk=stream_id, session=session.pk)
    kind = theirs.values_list("standalone", "closed").first()
    if kind is None:
        return None
    try:
        return _take(session, stream_id, encode_marks, is_open_standalone=kind == (True, False))
    except SessionEnded:
        return None


@one_transaction
def _take(
    session: Session,
    stream_id: int,
    encode_marks: NotificationEncoder | None,
    *,
    is_open_standalone: bool,
) -> StreamState | None:
    if is_open_standalone:
        lock(session.pk, current=stream_id)
        session.current = stream_id
        missed, to = _missed(session.pk, encode_marks, **CLOSED_UNSENT), EventAddress(stream_id)
        if missed and append_in_transaction({to: missed})[to]:
            _note_repeated(session.pk, **CLOSED_UNSENT)
    if not rows(Stream).filter(pk=stream_id).update(reader=F("reader") + 1):
        return None
    return states([stream_id]).get(stream_id)


@one_transaction
def leave(session_id: int, stream_id: int, number: int, *, unread: bool = False) -> None:
    """Note that connection ``number`` of a standalone stream ended, unless a later one took over.

    Notifications go to another connected stream of the session from now on, or are kept as marks,
    because a client that reconnects without a cursor never reads this stream again. A stream that
    is ``unread`` is closed: its client has no event id to resume it with.
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
    """Have the connection that reads the stream end, so that its client reconnects."""
    rows(Stream).filter(pk=stream_id).update(released=F("reader"))


def close(stream_id: int, **which: Any) -> bool:
    """Close a stream if it is open and matches ``which``. Return whether it was closed now."""
    found = rows(Stream).filter(pk=stream_id, closed=False, **which)
    return bool(found.update(closed=True, ended=databases.now()))


def note_pong(session: Session, stream_id: int, ping: str) -> None:
    """Store that the client has answered the ping of that id on a stream of its session."""
    rows(Stream).filter(pk=stream_id, session=session.pk).update(pong=ping)


def pong(stream_id: int) -> str | None:
    """Return the id of the ping that was answered last on a stream."""
    return rows(Stream).filter(pk=stream_id).values_list("pong", flat=True).first()


def states(ids: Collection[int]) -> dict[int, StreamState]:
    """Return the states of streams by id, in one query, without those that were deleted."""
    return {row[0]: StreamState(*row) for row in state_rows(ids)}


def state_rows(ids: Collection[int]) -> Sequence[tuple[int, ...]]:
    """Return the states of streams as tuples. Called often for thousands of streams: be fast."""
    connection = connections[settings.DATABASE]
    columns = ", ".join(map(connection.ops.quote_name, StreamState._fields))
    return _selected(columns, ids)


def totals(ids: Collection[int]) -> tuple[Any, ...]:
    """Return sums over streams that are equal to the last ones only if no stream has changed.

    None of the columns ever decreases, so two changes cannot cancel each other out.
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


# Sessions of the HTTP+SSE transport.


def begin_only_stream(id: str, *, is_retry: bool = False, **owner: Any) -> Session:
    """Create an HTTP+SSE session before its ``initialize`` request, and its stream.

    Use ``is_retry=True`` to repeat it after an unknown commit. Raise ``Busy``.
    """
    session = sessions.find(id) if is_retry else None
    if session is None:
        unknown: dict[str, Any] = {"revision": "", "client_info": {}, "capabilities": {}}
        _, session = sessions.create(id=id, transport="sse", **unknown, **owner)
    if session.current is None:
        open(session, standalone=True, pending_responses=ENDLESS)
    return session


@one_transaction
def introduce(
    session: Session, response: str, columns: dict[str, Any], nonce: str, *, is_retry: bool = False
) -> bool:
    """Store ``columns``, what the client sent in ``initialize``, once, and append the response.

    Return False if the session was initialized before. After an unknown commit repeat it with
    ``is_retry=True`` and the same ``nonce``: if the first attempt was committed, return True.
    """
    uninitialized = rows(Session).filter(pk=session.pk, revision="")
    if uninitialized.update(**columns):
        _append_responses(session, [response], nonce)
        return True
    return is_retry and rows(Event).filter(stream=_stream(session), nonce=nonce).exists()


@one_transaction
def enter_only_stream(
    session: Session, calls: Sequence[Call] = (), responses: Sequence[str] = (), nonce: str = "",
    *, is_retry: bool = False,
) -> int:  # fmt: skip
    """Store calls of an HTTP+SSE session and append ``responses``. Return the session's stream.

    A call that was cancelled before is marked as ``cancelled``. Use ``is_retry=True`` to repeat it
    after an unknown commit. Raise ``SessionEnded``, a ``RequestRefused``, or ``Busy`` if there is
    no room.
    """
    lock(session.pk)  # the first attempt may not have been committed yet
    stream = _stream(session)
    if is_retry and _was_stored(calls, stream, nonce):
        return stream
    cancelled = apply_early_cancels(session.pk, calls, [call.request_id for call in calls])
    running = len(calls) - cancelled
    _append_responses(session, responses, nonce, cancelled=cancelled, running=running)
    insert_calls(session.pk, stream, calls)
    return stream


def _was_stored(calls: Sequence[Call], stream: int, nonce: str) -> bool:
    """Whether the first attempt was committed. Its calls are recognized by ``created``.

    Their ``process`` does not identify them: another one may have taken them over, or this one may
    have a new id by now.
    """
    events = rows(Event).filter(stream=stream, nonce=nonce) if nonce else rows(Event).none()
    if not calls:
        return events.exists()
    times = {call.created for call in calls}
    found = rows(Call).filter(stream=stream, created__in=times)
    stored = {call.request_id: call for call in found}
    if not all(call.request_id in stored for call in calls):
        return False
    for call in calls:
        update_from_row(call, stored[call.request_id])
    return True


def _append_responses(
    session: Session, messages: Sequence[str], nonce: str, *, cancelled: int = 0, running: int = 0
) -> None:
    """Append responses within the caller's transaction. Raise ``Busy`` if there is no room.

    There must be room for the responses of ``running`` calls too. ``cancelled`` is the number of
    calls that get no response.
    """
    stream, size = _stream(session), sum(map(size_of, messages))
    room = rows(Stream).filter(
        pk=stream,
        closed=False,
        pending_responses__gt=ENDLESS - settings.EVENTS,
        last__lte=F("first") - 1 + settings.EVENTS - len(messages) - running,
        size__lte=most_bytes() - size,
    )
    grown = {"last": F("last") + len(messages), "size": F("size") + size}
    if not room.update(pending_responses=F("pending_responses") - cancelled, **grown):
        raise Busy("Too much was said to this session. Try again later, or begin another.")
    last = rows(Stream).values_list("last", flat=True).get(pk=stream)
    numbered = enumerate(messages, last - len(messages) + 1)
    insert([entry(stream, seq, text, final=True) for seq, text in numbered], nonce)


def _stream(session: Session) -> int:
    if session.current is None:
        raise SessionEnded(SessionEnded.__doc__)
    return session.current
