"""
The revisions with sessions: a POST and its answer, streams to listen on, and the end.

Rule: nothing is written to a socket that is not committed, except an answer
that comes at once, as plain JSON. A connection reads a stream and owns nothing
of it: when it breaks, another goes on from the cursor. What a client asks that
this session never gave out is 400, what it has had all of is 405, and 404 means
that the session is no more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...delivery import sessions
from ...delivery.doorbell import Ring, ring
from ...delivery.jobs import surely
from ...delivery.poller import poller
from ...dispatch import news
from ...dispatch.active import Active
from ...dispatch.callers import Caller
from ...dispatch.durable import docket
from ...dispatch.recalled import connection_of
from ...dispatch.seats import Nobody
from ...dispatch.serving import Serving
from ...exceptions import Busy
from ...protocol import http
from ...protocol.connection import Connection
from ...protocol.events import Answered, Call, Cancelled, Event, Notice
from ...protocol.jsonrpc import JSON, UnsupportedVersion, encode, is_id
from ...protocol.revisions import REVISIONS
from .draining import RETRY_AFTER, draining
from .exchanges import Pairs, Refused
from .following import Numbered, follow, left
from .naming import check_names
from .resuming import Position, begun, resumed
from .scopes import check_scopes

if TYPE_CHECKING:
    from ...dispatch.replies import Reply
    from ...models import Session
    from ...principal import Principal
    from .exchanges import Exchange

MOST_TOLD = 65_536  # characters that a client says of itself: they are read with every request
GONE = "There is no such session: initialize a new one."


async def post(exchange: Exchange, message: object) -> None:
    """Answer what a client sends."""
    session = exchange.session
    if session is None:
        await _initialize(exchange, message)
        return
    _check_revision(exchange, message)
    attend()
    connection = connection_of(session)
    received = connection.receive(message, exchange.revision_header)
    asked = await heard(exchange, session, received.events)
    if not asked:
        await _acknowledge(exchange, received.replies, received.batch)
        return
    exchange.at_work = True
    reply = docket().start(
        exchange.server, session, exchange.principal, asked, received.replies, host=exchange.host
    )
    await _answer(exchange, reply, batch=received.batch)


async def get(exchange: Exchange) -> None:
    """Open a stream, or go on with one."""
    session = _session(exchange)
    _check_revision(exchange)
    attend()
    at = await _placed(exchange, session)
    pk, wording = session.pk, Numbered(primed=connection_of(session).revision.priming)
    del session  # a connection may wait for days: it keeps what it needs
    await follow(exchange, pk, wording, at, may_return=True)


async def _placed(exchange: Exchange, session: Session) -> Position:
    """The same, for a client that may leave before it is known. Raises ``Refused``."""
    place = asyncio.ensure_future(_place(exchange, session))
    try:
        return await asyncio.shield(place)
    except asyncio.CancelledError:
        docket().spawn(_left_behind(session.pk, place))
        raise


async def _left_behind(session: int, place: asyncio.Future[Position]) -> None:
    with suppress(Refused, Busy):
        at = await place
        if at.has_news:
            await left(session, at.stream, at.number, unread=True)


async def _place(exchange: Exchange, session: Session) -> Position:
    """Where to begin. Raises ``Refused``."""
    cursor = exchange.headers.get(http.LAST_EVENT_ID)
    server, who, nonce = exchange.server, exchange.principal, uuid.uuid4().hex
    try:
        if cursor is None:
            return await surely(begun, server, session, who, nonce, again=False)
        at = await surely(resumed, server, session, who, cursor, nonce, again=False)
    except sessions.Gone:
        raise Refused(404, GONE) from None
    if at is None:
        raise Refused(400, "This session never gave out that event id.")
    if at.is_over:
        raise Refused(405, "The stream has ended, and nothing follows.", ((b"allow", b"POST"),))
    ring(Ring(at.stream, reader=at.number))  # whoever read it here until now is done
    return at


async def delete(exchange: Exchange) -> None:
    """End the session."""
    session = _session(exchange)
    _check_revision(exchange)
    await docket().end(session)
    await exchange.json(204)


def attend() -> None:
    """From now on this process looks after sessions, and after calls that others leave behind.

    Unless it is about to end: then it finishes what it has begun.
    """
    docket().is_ending |= draining().ending
    news.follow()


def _session(exchange: Exchange) -> Session:
    if exchange.session is None:
        raise Refused(400, "The header Mcp-Session-Id is needed.")
    return exchange.session


def _check_revision(exchange: Exchange, message: object = None) -> None:
    """Raises ``Refused`` for an "invalid or unsupported MCP-Protocol-Version" (transports)."""
    header = exchange.revision_header
    if header is not None and header not in REVISIONS:
        id = message.get("id") if isinstance(message, dict) and "method" in message else None
        raise Refused(400, UnsupportedVersion(header[:100], about=id if is_id(id) else None))


# What a client sends.


async def heard(exchange: Exchange, session: Session, events: Sequence[Event]) -> list[Call]:
    """What of it is to be answered; the rest is acted on, but for nothing of what is refused."""
    asked = [event for event in events if isinstance(event, Call)]
    for call in asked:
        check_names(exchange, call)
        draining().check(call.id)
    await check_scopes(exchange, asked)
    for event in events:
        await _told(session, exchange.principal, event)
    return asked


async def _told(session: Session, principal: Principal, event: Event) -> None:
    match event:
        case Answered() | Cancelled():
            await docket().told(session, principal, event)
        case Notice(method="notifications/initialized"):
            await surely(sessions.initialize, session)


async def _acknowledge(
    exchange: Exchange, replies: Sequence[JSON], batch: bool, *, handshake: bool = True
) -> None:
    """What asks for nothing is accepted, or refused by what is wrong with it."""
    if not replies:
        await exchange.json(202)
        return
    status = max(http.status(reply, handshake=handshake, called=False) for reply in replies)
    await exchange.json(status, list(replies) if batch else replies[0])


async def _answer(exchange: Exchange, reply: Reply, *, batch: bool) -> None:
    if await reply.answered:
        assert reply.stream is not None
        session, returns = reply.session.pk, reply.connection.revision.priming
        at = Position(reply.stream)  # an older client does not come back for an answer
        await follow(exchange, session, Numbered(primed=returns), at, may_return=returns)
    elif reply.is_gone:
        raise Refused(404, GONE)
    elif reply.responses:
        await _at_once(exchange, reply, batch=batch)
        reply.kept.clear()  # they know the reply: a circle would keep all of it in memory
    else:  # every call was cancelled: "SHOULD NOT send a response"
        await exchange.start_sse()
        await exchange.end()


async def _at_once(exchange: Exchange, reply: Reply, *, batch: bool) -> None:
    texts = reply.texts
    if batch:
        await exchange.text(200, f"[{','.join(texts)}]")
    elif reply.is_overloaded:
        await exchange.text(503, texts[0], RETRY_AFTER)
    else:
        called, response = bool(reply.kept), reply.responses[0]
        await exchange.text(http.status(response, handshake=True, called=called), texts[0])


# The handshake.


async def _initialize(exchange: Exchange, message: object) -> None:
    """Answer ``initialize``, by which a session begins. Raises ``Refused`` for all else."""
    connection = Connection(transport="http")
    received = connection.receive(message, exchange.revision_header)
    if received.replies:
        # Whoever has no session and opens none does not speak a revision with sessions.
        opens = isinstance(message, dict) and message.get("method") == "initialize"
        await _acknowledge(exchange, received.replies, received.batch, handshake=opens)
        return
    call = next(iter(received.events), None)
    if not isinstance(call, Call) or call.method != "initialize":
        raise Refused(400, "The header Mcp-Session-Id is needed.")
    response = await greeted(exchange, connection, call)
    headers = await _begun(exchange, connection) if "result" in response else ()
    await exchange.json(200, response, headers)


async def greeted(exchange: Exchange, connection: Connection, call: Call) -> JSON:
    """The response to ``initialize``."""
    state, who = connection.state, Caller.of(exchange.principal)
    if len(encode([state.client_info, state.capabilities])) > MOST_TOLD:
        raise Refused(413, "clientInfo and capabilities are too large.")
    serving = Serving(exchange.server, connection, who, Nobody(), host=exchange.host)
    response = await serving.response(Active(call, lambda said: None))
    assert response is not None
    return response


async def _begun(exchange: Exchange, connection: Connection) -> Pairs:
    """A session, as the header that names it."""
    state, who = connection.state, Caller.of(exchange.principal)
    id, _ = await surely(
        sessions.create, server=exchange.server.name, owner=exchange.principal.key,
        user=who.user, scopes=who.scopes, revision=state.revision, client_info=state.client_info,
        capabilities=state.capabilities, host=exchange.host,
    )  # fmt: skip
    return ((http.SESSION_ID.encode(), id.encode()),)


# The end of the process.


def drain() -> None:
    """Wait for the calls, which may go on for a while; and look after sessions no more."""
    if poller().runner is None:  # nobody has had a session here
        return
    remaining = Remaining()
    draining().open.add(remaining)  # before the last connection ends
    remaining.task = asyncio.get_running_loop().create_task(remaining.wait())


class Remaining:
    """The calls that are worked on when the process is about to end."""

    owner = ""
    task: asyncio.Task[None]

    async def wait(self) -> None:
        with draining().working(self):
            await docket().finish()

    def end(self) -> None:
        """They have their time."""

    def late(self) -> None:
        """They are answered, if any, each to its connection."""

    def revoke(self) -> None:
        """Each has an owner of its own."""

    def cut(self) -> None:
        """What is not done is left to others."""
        self.task.cancel()
