"""
POST, GET and DELETE in Streamable HTTP of the revisions with sessions, and the shutdown of calls.

Messages are committed to the log before they are sent, except a response that is ready at once,
which is sent as JSON. A connection reads a stream and owns no state of it: when it breaks, another
connection resumes from the cursor. An event id that the session never sent gets 400. A stream that
the client has read to its end gets 405. 404 means that the session no longer exists.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...calls.call_state import ActiveCall, NoSession
from ...calls.callers import SessionCaller
from ...calls.interaction import connection_of
from ...calls.runner import CallRunner
from ...calls.session_calls import SessionCallManager, call_manager
from ...changes import broadcaster
from ...exceptions import Busy
from ...protocol import http_rules
from ...protocol.connection import Answered, Cancelled, ClientCall, Connection, Event, Notice
from ...protocol.jsonrpc import JSON, UnsupportedVersion, encode, is_id
from ...protocol.revisions import REVISIONS
from ...storage import sessions
from ...storage.jobs import run_with_retries
from ...storage.wakeups import StreamWakeup, wake_readers
from .request import Pairs, RequestRejected
from .security import check_names, check_scopes
from .shutdown import draining, retry_after_headers
from .streams import (
    EventIdEncoding,
    StreamPosition,
    follow,
    is_pong,
    note_pong,
    open_stream,
    record_disconnect,
    resume_stream,
)

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from ...calls.session_output import PostResponse
    from ...models import Session
    from .request import Exchange

# The JSON of clientInfo and capabilities is ASCII. Every request of a session loads it.
MAX_CLIENT_INFO_BYTES = 65_536
GONE = "There is no such session: initialize a new one."


async def post(exchange: Exchange, message: object) -> None:
    """Answer a POST: ``initialize`` without a session, or any message of a session.

    Raise ``RequestRejected``.
    """
    session = exchange.session
    if session is None:
        await _initialize(exchange, message)
        return
    _check_revision(exchange, message)
    manager = start_session_services(exchange)
    connection = connection_of(session)
    received = connection.receive(message, exchange.revision_header)
    asked = await handle_events(exchange, session, received.events)
    if not asked:
        await _acknowledge(exchange, received.replies, received.batch)
        return
    exchange.at_work = True
    post_response = manager.start(
        exchange.server, session, connection, exchange.principal, asked, received.replies,
        host=exchange.host, received=exchange.received,
    )  # fmt: skip
    await _answer(exchange, post_response, batch=received.batch)


async def get(exchange: Exchange) -> None:
    """Open the session's stream, or resume a stream after ``Last-Event-ID``.

    Raise ``RequestRejected``.
    """
    session = _session(exchange)
    _check_revision(exchange)
    start_session_services(exchange)
    at = await _find_position_or_clean_up(exchange, session)
    pk, encoding = session.pk, EventIdEncoding(primed=connection_of(session).revision.priming)
    del session  # frees the row's memory: a connection may stay open for days
    await follow(exchange, pk, encoding, at, may_return=True)


async def _find_position_or_clean_up(exchange: Exchange, session: Session) -> StreamPosition:
    """Return the position to start from, and clean up if the client disconnects meanwhile.

    The database job goes on when this task is cancelled. Its stream is then marked as left, so that
    notifications do not go to a stream without a reader. Raise ``RequestRejected``.
    """
    position = asyncio.ensure_future(_find_position(exchange, session))
    try:
        return await asyncio.shield(position)
    except asyncio.CancelledError:
        call_manager().spawn(_record_disconnect_when_found(session.pk, position))
        raise


async def _record_disconnect_when_found(
    session: int, position: asyncio.Future[StreamPosition]
) -> None:
    with suppress(RequestRejected, Busy):
        at = await position
        if at.is_session_stream:
            await record_disconnect(session, at.stream, at.number, unread=True)


async def _find_position(exchange: Exchange, session: Session) -> StreamPosition:
    """Return the position to start from. Raise ``RequestRejected``."""
    cursor = exchange.headers.get(http_rules.LAST_EVENT_ID)
    server, principal, nonce = exchange.server, exchange.principal, uuid.uuid4().hex
    try:
        if cursor is None:
            return await run_with_retries(
                open_stream, server, session, principal, nonce, is_retry=False
            )
        at = await run_with_retries(
            resume_stream, server, session, principal, cursor, nonce, is_retry=False
        )
    except sessions.SessionEnded:
        raise RequestRejected(404, GONE) from None
    if at is None:
        raise RequestRejected(400, "This session has no such event id for this token.")
    if at.is_over:
        raise RequestRejected(
            405, "The stream has ended, and nothing follows.", ((b"allow", b"POST"),)
        )
    # Wake the connection that has read this stream until now: it must end.
    wake_readers(StreamWakeup(at.stream, reader=at.number))
    return at


async def delete(exchange: Exchange) -> None:
    """Delete the session and end its calls and streams. Raise ``RequestRejected``."""
    session = _session(exchange)
    _check_revision(exchange)
    start_session_services(exchange)
    await call_manager().end(session)
    await exchange.json(204)


def start_session_services(exchange: Exchange) -> SessionCallManager:
    """Let this process deliver change notifications and take over calls of dead processes.

    Return the manager of the calls. A process that is shutting down only finishes the calls that it
    has begun.
    """
    manager, process = call_manager(), exchange.open_requests
    manager.is_ending |= process.is_shutting_down
    process.at_start.add(finish_calls)
    broadcaster.start()
    return manager


def _session(exchange: Exchange) -> Session:
    if exchange.session is None:
        raise RequestRejected(400, "The header Mcp-Session-Id is needed.")
    return exchange.session


def _check_revision(exchange: Exchange, message: object = None) -> None:
    """Raise ``RequestRejected`` for an invalid or unsupported MCP-Protocol-Version."""
    header = exchange.revision_header
    if header is not None and header not in REVISIONS:
        id = message.get("id") if isinstance(message, dict) and "method" in message else None
        raise RequestRejected(
            400, UnsupportedVersion(header[:100], about=id if is_id(id) else None)
        )


# Messages of clients.


async def handle_events(
    exchange: Exchange, session: Session, events: Sequence[Event]
) -> list[ClientCall]:
    """Return the calls among the events of a message, and act on all other events.

    Raise ``RequestRejected`` before any effect if one of the calls must not be made.
    """
    asked = [event for event in events if isinstance(event, ClientCall)]
    for call in asked:
        await check_names(exchange, call)
        exchange.check_shutdown(call.id)
    await check_scopes(exchange, asked)
    for event in events:
        if not isinstance(event, ClientCall):
            await _handle_event(session, exchange.principal, event)
    return asked


async def _handle_event(session: Session, principal: Principal, event: Event) -> None:
    match event:
        case Answered(id=str(id)) if is_pong(id):
            await note_pong(session, id)
        case Answered() | Cancelled():
            await call_manager().receive(session, principal, event)
        case Notice(method="notifications/initialized"):
            await run_with_retries(sessions.initialize, session)


async def _acknowledge(
    exchange: Exchange, replies: Sequence[JSON], batch: bool, *, handshake: bool = True
) -> None:
    """Answer a message without calls: 202, or the errors that it caused."""
    if not replies:
        await exchange.json(202)
        return
    status = max(http_rules.status(reply, handshake=handshake, called=False) for reply in replies)
    await exchange.json(status, list(replies) if batch else replies[0])


async def _answer(exchange: Exchange, post_response: PostResponse, *, batch: bool) -> None:
    if await post_response.answered:
        assert post_response.stream is not None
        session, returns = post_response.session.pk, post_response.connection.revision.priming
        # Clients of revisions without priming cannot resume the stream.
        at, encoding = StreamPosition(post_response.stream), EventIdEncoding(primed=returns)
        await follow(
            exchange,
            session,
            encoding,
            at,
            may_return=returns,
            opened=post_response.take_first_events(),
        )
    elif post_response.has_session_ended:
        raise RequestRejected(404, GONE)
    elif responses := post_response.responses:
        await _answer_with_json(exchange, post_response, responses, batch=batch)
        # The calls refer to the response. Without this, the reference cycle would keep all of it in
        # memory until the garbage collector runs.
        post_response.calls.clear()
    else:  # every call was cancelled: "SHOULD NOT send a response"
        await exchange.start_sse()
        await exchange.end()


async def _answer_with_json(
    exchange: Exchange, post_response: PostResponse, responses: Sequence[JSON], *, batch: bool
) -> None:
    texts = post_response.texts
    if batch:
        await exchange.text(200, f"[{','.join(texts)}]")
    elif "error" not in responses[0]:
        await exchange.text(200, texts[0])
    elif overload := retry_after_headers(responses[0]):
        await exchange.text(503, texts[0], overload)
    else:
        called = bool(post_response.calls)
        status = http_rules.status(responses[0], handshake=True, called=called)
        await exchange.text(status, texts[0])


# The handshake.


async def _initialize(exchange: Exchange, message: object) -> None:
    """Answer ``initialize`` and create a session.

    Raise ``RequestRejected`` for all other messages.
    """
    connection = Connection(transport="http")
    received = connection.receive(message, exchange.revision_header)
    if received.replies:
        # A message without a session that does not open one may be of a revision without a
        # handshake. So its HTTP status is the one of those revisions.
        opens = isinstance(message, dict) and message.get("method") == "initialize"
        await _acknowledge(exchange, received.replies, received.batch, handshake=opens)
        return
    call = next(iter(received.events), None)
    if not isinstance(call, ClientCall) or call.method != "initialize":
        raise RequestRejected(400, "The header Mcp-Session-Id is needed.")
    if connection.revision.version_header:  # older revisions do not define the header
        _check_revision(exchange, message)
    response = await run_initialize(exchange, connection, call)
    headers = await _create_session(exchange, connection) if "result" in response else ()
    await exchange.json(200, response, headers)


async def run_initialize(exchange: Exchange, connection: Connection, call: ClientCall) -> JSON:
    """Return the response to ``initialize``.

    Raise ``RequestRejected`` if its parameters are too large.
    """
    state, caller = connection.state, SessionCaller.from_principal(exchange.principal)
    if len(encode([state.client_info, state.capabilities])) > MAX_CLIENT_INFO_BYTES:
        raise RequestRejected(413, "clientInfo and capabilities are too large.")
    runner = CallRunner(exchange.server, connection, caller, NoSession(), host=exchange.host)
    response = await runner.response(ActiveCall(call))
    assert response is not None
    return response


async def _create_session(exchange: Exchange, connection: Connection) -> Pairs:
    """Create a session. Return the response header ``Mcp-Session-Id``."""
    state, caller = connection.state, SessionCaller.from_principal(exchange.principal)
    id, _ = await run_with_retries(
        sessions.create, server=exchange.server.name, owner=exchange.principal.key,
        user=caller.user, scopes=caller.scopes, revision=state.revision,
        client_info=state.client_info,
        capabilities=state.capabilities, host=exchange.host, remote=exchange.remote,
    )  # fmt: skip
    return ((http_rules.SESSION_ID.encode(), id.encode()),)


# The end of the process.


def finish_calls() -> None:
    """Start to wait for the running calls of sessions, because the process is shutting down."""
    remaining = RunningSessionCalls()
    # Registered at once: the shutdown ends when nothing is open, and the last connection may close
    # before the task below runs.
    draining().open.add(remaining)
    remaining.task = asyncio.get_running_loop().create_task(remaining.wait())


class RunningSessionCalls:
    """The running calls of sessions, as one entry in what a shutdown waits for."""

    owner = ""
    task: asyncio.Task[None]

    async def wait(self) -> None:
        with draining().track(self):
            await call_manager().finish()

    def shut_down(self) -> None:
        """Do nothing: the calls may use the grace period."""

    def respond_or_stop(self) -> None:
        """Do nothing: each connection answers its own calls."""

    def revoke(self) -> None:
        """Do nothing: each call is revoked by its own owner."""

    def cancel(self) -> None:
        """Stop waiting: other processes take over the calls that have not finished."""
        self.task.cancel()
