"""
HTTP+SSE, the transport of the first revision: a session is one stream and a URL for POST requests.

A GET opens the session and its stream, whose first event is the URL. "All subsequent client
messages MUST be sent as HTTP POST requests to this endpoint." Any process may receive a POST. It
commits the calls before it answers 202, and the responses go to the stream.

Event ids let the client resume the same stream and URL. They contain the session's secret key. The
URL contains only a digest of the key (the session id), so that a URL in an access log does not
allow anyone to read the stream.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, quote

from ...calls.callers import SessionCaller, covers
from ...calls.interaction import connection_of
from ...calls.session_calls import call_manager
from ...changes import broadcaster
from ...conf import project
from ...protocol import http_rules
from ...protocol import sse as events
from ...protocol.connection import ClientCall
from ...protocol.jsonrpc import JSON, InvalidRequest, encode
from ...protocol.sse import MAX_NUMBER
from ...storage import calls, sessions, streams
from ...storage.jobs import run_with_retries
from ...storage.wakeups import Event, StreamWakeup, wake_readers
from .request import RequestRejected
from .sessions import GONE, handle_events, run_initialize, start_session_services
from .shutdown import RETRY_AFTER_HEADERS
from .streams import RETRY_MILLISECONDS, StreamPosition, follow, may_read_notifications

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from ...calls.session_output import PostResponse
    from ...models import Session
    from ...protocol.connection import Connection
    from .request import Exchange

NAME = "sse"  # the name of this transport in a session's row
MAX_QUERY_BYTES = 200  # bytes of a query string that is searched for a session id
# An event id is the session's key and the event's number. A resumed connection starts with the
# event of the URL again; its id adds the number of the connection, as no id may be sent twice.
EVENT_ID = re.compile(r"([A-Za-z0-9_-]{43})\.(0|[1-9][0-9]{0,18})(\.[1-9][0-9]{0,18})?\Z")
AGAIN = "This connection is initialized already"


# Requests of this transport.


def addressed(exchange: Exchange) -> str | None:
    """Return the session id in the URL of a POST or DELETE; None if it is not of HTTP+SSE."""
    query: bytes = exchange.scope.get("query_string", b"")
    if not exchange.server.sse or not query:
        return None
    if len(query) > MAX_QUERY_BYTES:
        return None
    found = parse_qs(query.decode("latin-1")).get(http_rules.SESSION_PARAM)
    return None if found is None else found[0]


def is_meant(exchange: Exchange) -> bool:
    """Whether a GET is of HTTP+SSE: it has no session id of Streamable HTTP."""
    return bool(exchange.server.sse) and http_rules.SESSION_ID not in exchange.headers


class ResumePosition(NamedTuple):
    """A position to resume from: the session's key and the number of the last event received."""

    key: str
    after: int = 0


def _cursor(exchange: Exchange) -> ResumePosition | None:
    """Return the parsed ``Last-Event-ID``; None if there is none. Raise ``RequestRejected``."""
    given = exchange.headers.get(http_rules.LAST_EVENT_ID)
    if not given:
        return None
    found = EVENT_ID.match(given)
    if found is None or int(found[2]) > MAX_NUMBER:
        raise RequestRejected(400, "No session ever gave out that event id.")
    return ResumePosition(found[1], int(found[2]))


def resumed_id(exchange: Exchange) -> str | None:
    """Return the id of the session that a GET resumes, or None if it opens a new one.

    Raise ``RequestRejected``.
    """
    cursor = _cursor(exchange)
    return None if cursor is None else id_of(cursor.key)


def id_of(key: str) -> str:
    """Return the session id for a key: its SHA-256 digest, from which the key cannot be found."""
    digest = hashlib.sha256(key.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


# The stream.


class LegacyEncoding:
    """The encoding of HTTP+SSE: first an ``endpoint`` event, and event ids that contain the key."""

    is_shared = True

    def __init__(self, key: str, address: str) -> None:
        self._key, self._address = key, address

    def opening(self, at: StreamPosition) -> bytes:
        suffix = f".{at.number}" if at.number > 1 else ""
        return events.event(
            self._address, self._id(at.after) + suffix, RETRY_MILLISECONDS, "endpoint"
        )

    def events(self, stream: int, found: Iterable[Event]) -> bytes:
        written = (events.event(data, self._id(seq), event="message") for seq, data in found)
        return b"".join(written)

    def parting(self, at: StreamPosition, after: int) -> bytes:
        return b""

    def _id(self, seq: int) -> str:
        return f"{self._key}.{seq}"


async def get(exchange: Exchange) -> None:
    """Open a session and its stream, or resume the stream. Raise ``RequestRejected``."""
    start_session_services(exchange)
    cursor, session = _cursor(exchange), exchange.session
    if cursor is None or session is None:
        exchange.check_shutdown()
        cursor = ResumePosition(sessions.new_id())
        session = await _create_session(exchange, cursor.key)
        at = StreamPosition(session.current or 0)
    else:
        at = await _get_position(exchange, session, cursor.after)
    pk, encoding = session.pk, LegacyEncoding(cursor.key, address(exchange, id_of(cursor.key)))
    del session  # frees the row's memory: a connection may stay open for days
    await follow(exchange, pk, encoding, at, may_return=True)


async def _create_session(exchange: Exchange, key: str) -> Session:
    caller = SessionCaller.from_principal(exchange.principal)
    return await run_with_retries(
        streams.begin_only_stream, id_of(key),
        server=exchange.server.name, owner=exchange.principal.key,
        user=caller.user, scopes=caller.scopes, host=exchange.host, remote=exchange.remote,
        is_retry=False,
    )  # fmt: skip


async def _get_position(exchange: Exchange, session: Session, after: int) -> StreamPosition:
    """Return the position to resume from. Raise ``RequestRejected``.

    If events after the cursor were trimmed, end the session and raise 404, so that the client opens
    a new one. The stream answers many requests, and it is unknown which responses are lost.
    """
    try:
        at = await run_with_retries(_take_stream, session, exchange.principal, after)
    except sessions.SessionEnded:
        raise RequestRejected(404, GONE) from None
    if at is None:
        raise RequestRejected(400, "This session never gave out that event id.")
    if at.is_over:
        await call_manager().end(session)
        raise RequestRejected(404, GONE)
    # Wake the connection that has read this stream until now: it must end.
    wake_readers(StreamWakeup(at.stream, reader=at.number))
    return at


def _take_stream(session: Session, principal: Principal, after: int) -> StreamPosition | None:
    """Return the position after that event; ``is_over`` if later events were trimmed.

    None if the session never sent that event, or if the token has fewer scopes than the calls on
    the stream were made with. Raise ``SessionEnded`` if the session was deleted. Runs in a
    thread.
    """
    stream = session.current or 0
    before = streams.states([stream]).get(stream)
    if before is None or not may_read_notifications(session, principal):
        raise sessions.SessionEnded
    if after > before.last or not all(covers(principal, one) for one in calls.scopes(stream)):
        return None
    state = streams.take(session, stream, partial(broadcaster.encode_marks, session.revision))
    if state is None:
        raise sessions.SessionEnded
    return StreamPosition(stream, state.reader, after, is_over=after + 1 < state.first)


def address(exchange: Exchange, id: str) -> str:
    """Return the URL for POST requests: this request's path, with the prefix of a proxy.

    It has no host, so the client sends its messages to the host where it opened the stream.
    """
    path: str = exchange.scope["path"]
    root = str(project.FORCE_SCRIPT_NAME or exchange.scope.get("root_path", "")).rstrip("/")
    if root and not (path == root or path.startswith(root + "/")):
        path = root + path
    return f"/{quote(path.lstrip('/'))}?{http_rules.SESSION_PARAM}={id}"


# POST requests.


async def post(exchange: Exchange, message: object) -> None:
    """Accept a message with 202, and answer it on the session's stream.

    Raise ``RequestRejected``.
    """
    session = exchange.session
    assert session is not None
    start_session_services(exchange)
    connection = connection_of(session)
    received = connection.receive(message)
    refused = [reply for reply in received.replies if reply.get("id") is None]
    if refused:
        await exchange.json(400, refused[0])
        return
    asked = await handle_events(exchange, session, received.events)
    if asked and asked[0].method == "initialize":
        await _initialize(exchange, session, connection, asked[0])
    else:
        await _start_calls(exchange, session, connection, asked, received.replies)
    if not exchange.begun:
        await exchange.json(202)


async def _initialize(
    exchange: Exchange, session: Session, connection: Connection, call: ClientCall
) -> None:
    """Answer ``initialize``, and store the revision and the client's info in the same transaction.

    An error, also that of a second ``initialize``, is written to the stream.
    """
    response = await run_initialize(exchange, connection, call)
    state, nonce = connection.state, uuid.uuid4().hex
    columns = {
        "revision": state.revision, "client_info": state.client_info,
        "capabilities": state.capabilities,
    }  # fmt: skip
    if "error" in response:
        await _append_to_stream(session, [response])
    elif await run_with_retries(
        streams.introduce, session, encode(response), columns, nonce, is_retry=False
    ):
        wake_readers(StreamWakeup(session.current or 0, changed=True))
    else:
        await _append_to_stream(session, [connection.error(call, InvalidRequest(AGAIN))])


async def _start_calls(
    exchange: Exchange,
    session: Session,
    connection: Connection,
    asked: Sequence[ClientCall],
    ready: Sequence[JSON],
) -> None:
    """Commit and start the calls. ``ready`` are responses to requests that became no calls."""
    if not asked:
        if ready:
            await _append_to_stream(session, ready)
        return
    exchange.at_work = True
    post_response = call_manager().start(
        exchange.server, session, connection, exchange.principal, asked, ready,
        host=exchange.host, received=exchange.received,
    )  # fmt: skip
    if await post_response.answered:
        wake_readers(StreamWakeup(session.current or 0, changed=True))
    else:
        await _refuse(exchange, post_response)


async def _refuse(exchange: Exchange, post_response: PostResponse) -> None:
    """Answer 404 or 503: nothing was committed and no call was started."""
    if post_response.has_session_ended:
        raise RequestRejected(404, GONE)
    texts = post_response.texts
    # The calls refer to the response. Without this, the reference cycle would keep all of it in
    # memory until the garbage collector runs.
    post_response.calls.clear()
    await exchange.text(503, texts[0] if texts else "", RETRY_AFTER_HEADERS)


async def _append_to_stream(session: Session, messages: Sequence[JSON]) -> None:
    """Write responses to the session's stream. Raise ``RequestRejected`` or ``Busy``."""
    texts, nonce = [encode(message) for message in messages], uuid.uuid4().hex
    try:
        stream = await run_with_retries(
            streams.enter_only_stream, session, (), texts, nonce, is_retry=False
        )
    except sessions.SessionEnded:
        raise RequestRejected(404, GONE) from None
    wake_readers(StreamWakeup(stream, changed=True))
