"""
HTTP+SSE, the transport of the first revision: a session is one stream, and an address to post to.

Rule: a GET opens the session. Its stream names the address; everything that is posted there is
written down before it is accepted, at whichever process, and is answered on the stream. "All
subsequent client messages MUST be sent as HTTP POST requests to this endpoint." The ids of events
bring the client back to the same stream and address. They hold a key of which the address knows
no more than a digest, so that whoever reads an address in a log cannot read the stream.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, quote

from ..conf import project
from ..delivery import calls, sessions, single, streams
from ..delivery.doorbell import Event, Ring, ring
from ..delivery.jobs import surely
from ..dispatch import news
from ..dispatch.callers import Caller, covers
from ..dispatch.durable import docket
from ..dispatch.recalled import connection_of
from ..protocol import http
from ..protocol import sse as events
from ..protocol.events import Call
from ..protocol.jsonrpc import JSON, InvalidRequest, encode
from ..protocol.sse import MAX_NUMBER
from .http.draining import RETRY_AFTER, draining
from .http.exchanges import Refused
from .http.following import RETRY, follow
from .http.resuming import Position, may_hear
from .http.sessions import GONE, attend, greeted, heard

if TYPE_CHECKING:
    from ..dispatch.replies import Reply
    from ..models import Session
    from ..principal import Principal
    from ..protocol.connection import Connection
    from .http.exchanges import Exchange

NAME = "sse"  # of the transport
LONGEST = 200  # characters of a query in which there may be a session
# The id of an event: the session's key, and the number of the event.
EVENT_ID = re.compile(r"([A-Za-z0-9_-]{43})\.(0|[1-9][0-9]{0,18})\Z")
AGAIN = "This connection is initialized already"


# Which requests are meant.


def addressed(exchange: Exchange) -> str | None:
    """The id of the session that a POST is addressed to, in this transport."""
    query: bytes = exchange.scope.get("query_string", b"")
    if not exchange.server.sse or not query:
        return None
    if len(query) > LONGEST:
        return None
    found = parse_qs(query.decode("latin-1")).get(http.SESSION_PARAM)
    return None if found is None else found[0]


def is_meant(exchange: Exchange) -> bool:
    """Whether a GET opens a session or goes on with one: it names none of the other transport."""
    return bool(exchange.server.sse) and http.SESSION_ID not in exchange.headers


def takes_anything(exchange: Exchange) -> bool:
    """Whether a client does not say what it takes: the first revision asks for no such header."""
    return "accept" not in exchange.headers


class Cursor(NamedTuple):
    """Where a client goes on: the key of its session, and the last event that it has."""

    key: str
    after: int = 0


def _cursor(exchange: Exchange) -> Cursor | None:
    """What ``Last-Event-ID`` says, if there is one. Raises ``Refused``."""
    given = exchange.headers.get(http.LAST_EVENT_ID)
    if not given:
        return None
    found = EVENT_ID.match(given)
    if found is None or int(found[2]) > MAX_NUMBER:
        raise Refused(400, "No session ever gave out that event id.")
    return Cursor(found[1], int(found[2]))


def resumed_id(exchange: Exchange) -> str | None:
    """The id of the session that a GET goes on with. Raises ``Refused``."""
    cursor = _cursor(exchange)
    return None if cursor is None else id_of(cursor.key)


def id_of(key: str) -> str:
    """The id of a session, from which its key cannot be found."""
    digest = hashlib.sha256(key.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


# The stream.


class Addressed:
    """A stream that begins with the address to post to, and whose events bear the key."""

    is_shared = True

    def __init__(self, key: str, address: str) -> None:
        self._key, self._address = key, address

    def opening(self, stream: int, after: int) -> bytes:
        return events.event(self._address, self._id(after), RETRY, "endpoint")

    def events(self, stream: int, found: Iterable[Event]) -> bytes:
        written = (events.event(data, self._id(seq), event="message") for seq, data in found)
        return b"".join(written)

    def parting(self, stream: int, after: int) -> bytes:
        return b""

    def _id(self, seq: int) -> str:
        return f"{self._key}.{seq}"


async def get(exchange: Exchange) -> None:
    """Open a session, or go on with its stream."""
    attend()
    cursor, session = _cursor(exchange), exchange.session
    if cursor is None or session is None:
        draining().check()
        cursor = Cursor(sessions.new_id())
        session = await _begun(exchange, cursor.key)
        at = Position(session.current or 0)
    else:
        at = await _placed(exchange, session, cursor.after)
    pk, wording = session.pk, Addressed(cursor.key, address(exchange, id_of(cursor.key)))
    del session  # a connection may wait for days: it keeps what it needs
    await follow(exchange, pk, wording, at, may_return=True)


async def _begun(exchange: Exchange, key: str) -> Session:
    who = Caller.of(exchange.principal)
    return await surely(
        single.begin, id_of(key), server=exchange.server.name, owner=exchange.principal.key,
        user=who.user, scopes=who.scopes, host=exchange.host, again=False,
    )  # fmt: skip


async def _placed(exchange: Exchange, session: Session, after: int) -> Position:
    """Where to go on. Raises ``Refused``.

    Where anything that follows is no longer kept, nobody can tell what the client has missed of
    so many requests: the session ends, and it begins another.
    """
    try:
        at = await surely(_taken, session, exchange.principal, after)
    except sessions.Gone:
        raise Refused(404, GONE) from None
    if at is None:
        raise Refused(400, "This session never gave out that event id.")
    if at.is_over:
        await docket().end(session)
        raise Refused(404, GONE)
    ring(Ring(at.stream, reader=at.number))  # whoever read it here until now is done
    return at


def _taken(session: Session, principal: Principal, after: int) -> Position | None:
    """In a thread of the log: the place after that event, ``is_over`` where it is not kept.

    None if it was never given out; to a token that is narrower than those of the calls it was not.
    """
    stream = session.current or 0
    before = streams.states([stream]).get(stream)
    if before is None or not may_hear(session, principal):
        raise sessions.Gone
    if after > before.last or not all(covers(principal, one) for one in calls.scopes(stream)):
        return None
    state = streams.take(session, stream, news.speaking(session))
    if state is None:
        raise sessions.Gone
    return Position(stream, state.reader, after, is_over=after + 1 < state.first)


def address(exchange: Exchange, id: str) -> str:
    """Where to post to: the path of this request as the client knows it, and at no other host."""
    path: str = exchange.scope["path"]
    root = str(project.FORCE_SCRIPT_NAME or exchange.scope.get("root_path", "")).rstrip("/")
    if root and not (path == root or path.startswith(root + "/")):
        path = root + path
    return f"/{quote(path.lstrip('/'))}?{http.SESSION_PARAM}={id}"


# What is posted.


async def post(exchange: Exchange, message: object) -> None:
    """Take what a client sends; what there is to answer is answered on its stream."""
    session = exchange.session
    assert session is not None
    attend()
    connection = connection_of(session)
    received = connection.receive(message)
    refused = [reply for reply in received.replies if reply.get("id") is None]
    if refused:
        await exchange.json(400, refused[0])
        return
    asked = await heard(exchange, session, received.events)
    if asked and asked[0].method == "initialize":
        await _introduced(exchange, session, connection, asked[0])
    else:
        await _answered(exchange, session, asked, received.replies)
    if not exchange.begun:
        await exchange.json(202)


async def _introduced(
    exchange: Exchange, session: Session, connection: Connection, call: Call
) -> None:
    """Settle the session. Its response is written down with that, and so is what refuses it."""
    response = await greeted(exchange, connection, call)
    state, nonce = connection.state, uuid.uuid4().hex
    settled = {
        "revision": state.revision, "client_info": state.client_info,
        "capabilities": state.capabilities,
    }  # fmt: skip
    if "error" in response:
        await _say(session, [response])
    elif await surely(single.introduce, session, encode(response), settled, nonce, again=False):
        ring(Ring(session.current or 0, changed=True))
    else:
        await _say(session, [connection.error(call, InvalidRequest(AGAIN))])


async def _answered(
    exchange: Exchange, session: Session, asked: Sequence[Call], ready: Sequence[JSON]
) -> None:
    """Have the calls written down, and begun; ``ready`` answers what became none."""
    if not asked:
        if ready:
            await _say(session, ready)
        return
    exchange.at_work = True
    reply = docket().start(
        exchange.server, session, exchange.principal, asked, ready, host=exchange.host
    )
    if await reply.answered:
        ring(Ring(session.current or 0, changed=True))
    else:
        await _refuse(exchange, reply)


async def _refuse(exchange: Exchange, reply: Reply) -> None:
    """Nothing was written down, and nothing was begun."""
    if reply.is_gone:
        raise Refused(404, GONE)
    texts = reply.texts
    reply.kept.clear()  # they know the reply: a circle would keep all of it in memory
    await exchange.text(503, texts[0] if texts else "", RETRY_AFTER)


async def _say(session: Session, messages: Sequence[JSON]) -> None:
    """Write responses to the session's stream. Raises ``Refused`` or ``Busy``."""
    texts, nonce = [encode(message) for message in messages], uuid.uuid4().hex
    try:
        stream = await surely(single.enter, session, (), texts, nonce, again=False)
    except sessions.Gone:
        raise Refused(404, GONE) from None
    ring(Ring(stream, changed=True))
