"""SSE responses that send a session's stream from the log: event ids, resumption and pings.

A connection reads the stream from a cursor and owns no state of it. ``open_stream`` and
``resume_stream`` find the ``StreamPosition`` in the database, in a thread. ``follow`` sends the
events, in the event loop. The connection ends when the stream is closed, another connection takes
the stream over, the token expires or is revoked, or the process shuts down.

An event id is ``<stream>-<sequence number>``. An empty event, which only carries a cursor, adds a
number of its own, because no id may be sent twice. The stream part is the stream's primary key,
encrypted and authenticated with SECRET_KEY. Clients therefore cannot guess ids or see how many
streams the site has opened, and every worker can read the ids.

A cursor is valid only within the session that sent it. If events after it have been trimmed, each
request without a response gets an error, and a session stream resends every change notification
that the client may have missed.

Pings follow basic/utilities/ping of the revisions with a handshake. Only session streams are
pinged, because messages on the stream of a request should relate to that request
(basic/transports). A ping has no event id and is never replayed. Any worker may receive its
response, and notes it in the stream's row.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from django.conf import settings as django_settings
from django.utils.crypto import salted_hmac

from ...auth.principal import anonymous
from ...calls.callers import covers
from ...calls.interaction import connection_of
from ...calls.session_calls import call_manager
from ...changes import broadcaster
from ...conf import settings
from ...protocol import sse
from ...protocol.jsonrpc import Id, InternalError, encode
from ...protocol.sse import MAX_NUMBER
from ...runtime.runtime import Service, SharedTimer
from ...storage import calls, event_log, sessions, streams
from ...storage.jobs import run_with_retries
from ...storage.stream_reader import StreamEnd, StreamReader
from ...storage.streams import StreamState
from ...storage.wakeups import Event, StreamWakeup, stream_wakeups
from .authentication import expiry_of, until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...auth.principal import Principal
    from ...declarations.server import Server
    from ...models import Session
    from .request import Exchange

KEY_BYTES = 8  # bytes of a primary key, and of what authenticates it
_ID = re.compile(r"([0-9a-f]{32})-(0|[1-9][0-9]{0,18})(-[1-9][0-9]{0,19})?\Z")


def event_id(stream: int, seq: int, empty: int = 0) -> str:
    """Return the id of an SSE event of a stream.

    ``empty`` numbers the empty events of a stream. It is 0 for the event with that sequence number.
    """
    suffix = f"-{empty}" if empty else ""
    return f"{_encrypted(stream, django_settings.SECRET_KEY)}-{seq}{suffix}"


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Return the stream's primary key and the sequence number; None if the id is not authentic."""
    if (found := _ID.match(text)) is None or (seq := int(found[2])) > MAX_NUMBER:
        return None
    # With the fallbacks, ids that were sent before a rotation of SECRET_KEY stay valid.
    for secret in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS):
        if (stream := _decrypted(found[1], secret)) is not None:
            return stream, seq
    return None


# As in SIV mode (RFC 5297), a digest of the plain text is both the authentication tag and the
# nonce. So all ids of one stream have the same stream part, and nothing shows how two streams
# relate.


@lru_cache(maxsize=1024)
def _encrypted(stream: int, secret: str | bytes) -> str:
    plain = stream.to_bytes(KEY_BYTES)
    tag = _digest("tag", plain, secret)
    return (tag + _xor(plain, _digest("key", tag, secret))).hex()


def _decrypted(text: str, secret: str | bytes) -> int | None:
    data = bytes.fromhex(text)
    tag, plain = data[:KEY_BYTES], _xor(data[KEY_BYTES:], _digest("key", data[:KEY_BYTES], secret))
    if not hmac.compare_digest(tag, _digest("tag", plain, secret)):
        return None
    return int.from_bytes(plain)


def _digest(purpose: str, value: bytes, secret: str | bytes) -> bytes:
    salt = f"django_mcp.event_id.{purpose}"
    return salted_hmac(salt, value, secret=secret, algorithm="sha256").digest()[:KEY_BYTES]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


PING_ID_PREFIX = "ping-"
logger = logging.getLogger("django_mcp.sessions")
ping_timer = Service(lambda: SharedTimer(lambda: float(settings.PING_INTERVAL or 0)))


class ClientPinger:
    """Ping the client of one connection, and close the connection if it does not respond.

    ``tick`` is called once per ``PING_INTERVAL``. At most one ping is unanswered at a time.
    """

    def __init__(self, exchange: Exchange, reader: StreamReader) -> None:
        self._exchange, self._reader = exchange, reader
        self._count = self._writes = 0
        self._is_due = self._is_over = self._is_writing = False
        self._blocked = 0  # the number of the write that was not done at the last tick
        self._is_checking = self._is_check_late = False
        self._sent = ""  # the id of the last ping

    def tick(self) -> None:
        """Send the next ping if the last one was answered, else close the connection."""
        # A client that reads nothing blocks the write before its ping could be sent. So no ping is
        # unanswered, and without this check the connection would stay open for ever.
        if self._is_writing and self._blocked == self._writes:
            self._close("Client did not read for a whole ping interval")
            return
        self._blocked = self._writes if self._is_writing else 0
        # While the database is slow or down, the last check may still run. A second one would
        # compare its result with the ping that the first one has sent.
        if self._is_checking:
            self._is_check_late = True
            return
        self._is_checking = True
        call_manager().spawn(self._check())

    async def _check(self) -> None:
        sent, self._is_check_late = self._sent, False
        try:
            is_answered = (
                not sent or await run_with_retries(streams.pong, self._reader.stream) == sent
            )
        finally:
            self._is_checking = False
        if self._is_over:
            return
        if is_answered:
            self._is_due = True
            self._reader.send_keepalive()
        # If the check had to wait for the database, the storing of the answer may wait too. The
        # next tick checks again.
        elif not self._is_check_late:
            self._close("Client did not answer a ping")

    def _close(self, reason: str) -> None:
        logger.warning(
            "%s, its connection is closed: timeout=%ss session=%s stream=%s",
            reason, settings.PING_INTERVAL, self._reader.session, self._reader.stream,
        )  # fmt: skip
        # The task may be blocked in a write to a client that reads nothing. Only a cancellation
        # ends that. Then the end of the response must not be written, because it would block too.
        self._exchange.gone = self._exchange.gone or self._is_writing
        self._exchange.cancel()

    async def write(self, data: bytes) -> None:
        """Write to the client, and note while it lasts that the client does not read."""
        self._writes, self._is_writing = self._writes + 1, True
        try:
            await self._exchange.write(data)
        finally:
            self._is_writing = False

    def take(self) -> bytes:
        """Return the ping to write now, encoded as an SSE event, or ``b""`` if none is due."""
        if not self._is_due:
            return b""
        self._is_due, self._count = False, self._count + 1
        self._sent = PING_ID_PREFIX + event_id(
            self._reader.stream, self._reader.number, self._count
        )
        return sse.event(encode({"jsonrpc": "2.0", "id": self._sent, "method": "ping"}))

    def end(self) -> None:
        """Stop pinging, because the connection is over."""
        self._is_over = True
        ping_timer().leave(self)


def is_pong(id: Id) -> bool:
    """Whether a response with that id answers a ping, so that no call waits for it."""
    return isinstance(id, str) and id.startswith(PING_ID_PREFIX)


async def note_pong(session: Session, id: str) -> None:
    """Record the response to a ping on a stream of this session; ignore ids that are no ping's."""
    if parsed := parse_event_id(id.removeprefix(PING_ID_PREFIX)):
        await run_with_retries(streams.note_pong, session, parsed[0], id)


RETRY_MILLISECONDS = 500  # milliseconds after which a client reconnects (the SSE field "retry")
# A comment without a blank line after it: some clients take an empty block for an event.
ALIVE = b":\n"
# Replaces the principal of a connection that only reads, so that its user can be freed.
NOBODY = anonymous()
# Seconds after the expiry of its token in which a call may still be answered, if the client cannot
# reconnect for the response.
MAX_OVERTIME_SECONDS = 60.0
# The endings after which the client should reconnect for the rest of the stream.
CLIENT_RECONNECTS = (StreamEnd.RELEASED, StreamEnd.EXPIRED)
IDLE_CHECK_SECONDS = 0.1  # seconds between two checks whether calls still run


class StreamEncoding(Protocol):
    """How a stream is encoded as SSE: its opening, its events and its last event."""

    # Whether the responses to other requests are on this stream too (HTTP+SSE). On shutdown such
    # a connection stays open while their calls run.
    is_shared: bool

    def opening(self, at: StreamPosition) -> bytes: ...

    def events(self, stream: int, events: Iterable[Event]) -> bytes: ...

    def parting(self, at: StreamPosition, after: int) -> bytes: ...


class EventIdEncoding:
    """The encoding of Streamable HTTP, with event ids.

    If ``primed``, the stream opens and ends with an empty event that carries a cursor.
    """

    is_shared = False

    def __init__(self, *, primed: bool) -> None:
        self._primed = primed

    def opening(self, at: StreamPosition) -> bytes:
        # Also when the client resumes: the TypeScript SDK drops its cursor with its connection, so
        # without this a second break before the next event would lose the place in the stream.
        # Openings of connections get even numbers, endings odd ones, so no id repeats.
        return self._primes(at.stream, at.after, 2 * (at.number - 1))

    def events(self, stream: int, events: Iterable[Event]) -> bytes:
        return b"".join(sse.event(data, event_id(stream, seq)) for seq, data in events)

    def parting(self, at: StreamPosition, after: int) -> bytes:
        return self._primes(at.stream, after, 2 * at.number - 1)

    def _primes(self, stream: int, after: int, empty: int) -> bytes:
        return (
            sse.priming(event_id(stream, after, empty), RETRY_MILLISECONDS) if self._primed else b""
        )


async def follow(
    exchange: Exchange,
    session: int,
    encoding: StreamEncoding,
    at: StreamPosition,
    *,
    may_return: bool,
    opened: StreamWakeup | None = None,
) -> None:
    """Send a stream to the client, from a position, until this connection has to end.

    ``session`` is the primary key. ``may_return`` says whether the client can reconnect for the
    rest. ``opened`` is for a stream that this request has opened, as in ``StreamReader``. Raise
    ``ClientDisconnected`` if the client disconnects.
    """
    expires, later = expiry_of(exchange.principal), 0 if may_return else MAX_OVERTIME_SECONDS
    _forget_request(exchange)
    if at.given is not None:
        await _begin(exchange, session, encoding, at)
        await exchange.write(encoding.events(at.stream, at.given))
        await exchange.end()
        return
    reader = StreamReader(
        session, at.stream, at.number, at.after, may_return=may_return, opened=opened
    )
    del opened  # frees its messages: a connection may stay open for days
    # Wake-ups arrive from here on, so that none is missed while the response begins.
    with reader:
        await _begin(exchange, session, encoding, at)
        _watch_ends(exchange, reader, encoding)
        pinging = ClientPinger(exchange, reader)
        if at.is_session_stream or encoding.is_shared:
            ping_timer().join(pinging)
        try:
            with until(expires, partial(reader.end, StreamEnd.EXPIRED), later=later):
                ending = await _send_events(exchange, reader, at, encoding, pinging)
        finally:
            pinging.end()
    if ending in CLIENT_RECONNECTS:
        await _ask_to_reconnect(exchange, reader, at, encoding)
    elif ending is StreamEnd.GONE and at.is_session_stream:
        # The client may return to its session with another token and without an event id. Then
        # notifications must not go to this stream. In a task, so that the response ends at once.
        call_manager().spawn(record_disconnect(session, at.stream, at.number))
    await exchange.end()


async def _begin(
    exchange: Exchange, session: int, encoding: StreamEncoding, at: StreamPosition
) -> None:
    try:
        await exchange.start_sse()
        if data := encoding.opening(at):
            await exchange.write(data)
    except BaseException:  # a disconnect, a cancellation or an error: the connection ends
        # A client that reconnects without an event id does not read this stream again. So
        # notifications must go to another stream, and a new stream that sent nothing is closed.
        if at.is_session_stream:
            call_manager().spawn(record_disconnect(session, at.stream, at.number, unread=True))
        raise


def _forget_request(exchange: Exchange) -> None:
    """Free the headers, session and user: a connection may stay open for days."""
    exchange.kept_owner = exchange.principal.key
    exchange.headers, exchange.session, exchange.principal = {}, None, NOBODY
    exchange.revision_header = exchange.session_id = None


def _watch_ends(exchange: Exchange, reader: StreamReader, encoding: StreamEncoding) -> None:
    exchange.when_revoked = partial(reader.end, StreamEnd.GONE)
    if encoding.is_shared:
        exchange.when_ending, exchange.when_late = partial(_release_soon, reader), reader.release
    elif reader.may_return:
        exchange.when_ending = reader.release
    else:
        exchange.when_late = partial(_end_late_calls, reader)
    # A shutdown may have called the callbacks of this request before they were set.
    process = exchange.open_requests
    if process.is_shutting_down and exchange.when_ending is not None:
        exchange.when_ending()
    if process.is_late and exchange.when_late is not None:
        exchange.when_late()


def _release_soon(reader: StreamReader) -> None:
    call_manager().spawn(_release_idle(reader))


async def _release_idle(reader: StreamReader) -> None:
    """Release the reader once no call of its stream runs and it has sent all their responses."""
    while reader in stream_wakeups().at(reader.stream):
        if not await run_with_retries(calls.are_running, reader.stream):
            reader.wake(StreamWakeup(reader.stream, changed=True))
            reader.release()
            return
        await asyncio.sleep(IDLE_CHECK_SECONDS)


def _end_late_calls(reader: StreamReader) -> None:
    """End a connection whose calls have used up the grace period.

    If the client has received an event id, it can reconnect for the response. Otherwise its calls
    are answered with an error now.
    """
    if reader.after:
        reader.end(StreamEnd.RELEASED)
    else:
        call_manager().answer_stream(reader.stream)


async def _send_events(
    exchange: Exchange,
    reader: StreamReader,
    at: StreamPosition,
    encoding: StreamEncoding,
    pinging: ClientPinger,
) -> StreamEnd:
    is_unread = at.is_session_stream and at.number == 1
    try:
        while not isinstance(found := await reader.events(), StreamEnd):
            await pinging.write(encoding.events(reader.stream, found) or pinging.take() or ALIVE)
            if is_unread and found:
                await run_with_retries(streams.note_sent, reader.stream)
                is_unread = False
    except BaseException:  # a disconnect, a cancellation or an error: the connection ends
        if at.is_session_stream:
            call_manager().spawn(record_disconnect(reader.session, reader.stream, reader.number))
        raise
    return found


async def _ask_to_reconnect(
    exchange: Exchange, reader: StreamReader, at: StreamPosition, encoding: StreamEncoding
) -> None:
    """Tell the client to reconnect.

    A client without an event id reconnects without a cursor, and so reads another stream. Record
    the disconnect of its session stream, so that notifications go to a stream that is read.
    """
    if data := encoding.parting(at, reader.after):
        await exchange.write(data)
    elif at.is_session_stream:
        await record_disconnect(reader.session, reader.stream, reader.number)


async def record_disconnect(
    session: int, stream: int, number: int, *, unread: bool = False
) -> None:
    """Record that a connection to a session stream has ended.

    ``unread`` means that the client disconnected before the response began. If that was the
    stream's first connection, the stream is closed.
    """
    with suppress(sessions.SessionEnded):
        await run_with_retries(streams.leave, session, stream, number, unread=unread)


RESPONSE_LOST = (
    "The response to this request is no longer available, because messages of its stream were "
    "deleted."
)


class StreamPosition(NamedTuple):
    """Where a connection starts to read a stream.

    ``number`` counts the connections of the stream. ``after`` is the sequence number of the last
    event that the client has. ``given`` lists all events that are left, if older ones were trimmed.
    """

    stream: int
    number: int = 1
    after: int = 0
    is_over: bool = False
    given: Sequence[tuple[int, str]] | None = None
    is_session_stream: bool = False  # the session's own stream, not that of a request


def open_stream(
    server: Server, session: Session, principal: Principal, nonce: str, *, is_retry: bool = False
) -> StreamPosition:
    """Open a new stream for the session's notifications. Runs in a thread.

    Raise ``SessionEnded`` if the session was deleted, or if the token has fewer scopes than those
    that the session was used with. Raise ``Busy`` if there are too many streams. ``is_retry``,
    with the same ``nonce``, repeats an attempt whose commit is unknown.
    """
    if not may_read_notifications(session, principal):
        raise sessions.SessionEnded
    return _open_new_stream(server, session, nonce, is_retry=is_retry)


def may_read_notifications(session: Session, principal: Principal) -> bool:
    """Whether the token has all scopes of the tokens that opened the session and subscribed."""
    return principal.auth is None or all(
        covers(principal, scopes) for scopes in sessions.token_scopes(session)
    )


def _open_new_stream(
    server: Server, session: Session, nonce: str, *, missed: bool = False, is_retry: bool = False
) -> StreamPosition:
    messages = broadcaster.all_notifications(server, session) if missed else []
    stream = streams.open(
        session, standalone=True, messages=messages,
        encode_marks=partial(broadcaster.encode_marks, session.revision),
        nonce=nonce, is_retry=is_retry,
    )  # fmt: skip
    return StreamPosition(stream.pk, is_session_stream=True)


def resume_stream(
    server: Server,
    session: Session,
    principal: Principal,
    event_id: str,
    nonce: str = "",
    *,
    is_retry: bool = False,
) -> StreamPosition | None:
    """Return the position after that event; None if this session never sent it. Runs in a thread.

    None also if the token has fewer scopes than the stream's calls were made with. Raise
    ``SessionEnded`` or ``Busy`` as ``open_stream`` does.
    """
    position = _position_after(session, principal, event_id)
    # The session may have been deleted since its row was read: the client must get 404, not 400.
    if position is None and not sessions.exists(session):
        raise sessions.SessionEnded
    if position is not None and position.is_session_stream and position.is_over:
        return _open_new_stream(
            server, session, nonce, missed=position.given is not None, is_retry=is_retry
        )
    return position


def _position_after(session: Session, principal: Principal, event_id: str) -> StreamPosition | None:
    cursor = parse_event_id(event_id)
    if cursor is None:
        return None
    stream, after = cursor
    before = streams.states([stream]).get(stream)
    if before is None or after > before.last:
        return None
    if not all(covers(principal, scopes) for scopes in calls.scopes(stream)):
        return None
    if before.standalone and not may_read_notifications(session, principal):
        raise sessions.SessionEnded
    state = streams.take(session, stream, partial(broadcaster.encode_marks, session.revision))
    if state is None:
        return None
    is_over = bool(state.closed and after >= state.last)
    is_trimmed = after + 1 < state.first
    given = _remaining_messages(session, state, after) if is_trimmed and not is_over else None
    is_over = is_over or given == []  # every response was sent; only other events were trimmed
    return StreamPosition(stream, state.reader, after, is_over, given, bool(state.standalone))


def _remaining_messages(session: Session, state: StreamState, after: int) -> list[tuple[int, str]]:
    """Return what to send after a cursor in a trimmed stream, as (sequence number, message) pairs.

    These are the responses, if no other event followed the cursor. A replay is never partial: if
    any other event was trimmed, each request without a response gets an error instead.
    """
    responses = event_log.final_messages(state.id)
    left = [(seq, response) for seq, response in responses if seq > after]
    if len(left) == state.last - after:
        return left
    answered = {
        encode(json.loads(response).get("id")) for seq, response in responses if seq <= after
    }
    all_requests = map(json.loads, calls.requests(state.id))
    requests = [request for request in all_requests if encode(request) not in answered]
    return [(state.last, error) for error in _lost_errors(session, requests)]


def _lost_errors(session: Session, requests: Sequence[Id]) -> list[str]:
    """Return the error responses to these requests; several are one batch message."""
    connection = connection_of(session)
    errors = [connection.error(request, InternalError(RESPONSE_LOST)) for request in requests]
    return [encode(errors if len(errors) > 1 else errors[0])] if errors else []
