"""
Where a connection to a stream begins: anew, or where another one broke off.

Rule: nothing that was lost is passed over in silence. A cursor is looked up
within its session; one that this session never gave out is nobody's. What was
trimmed is told by an error to the request it belonged to, if its response is
no longer there, or, where it was news, by all that may have changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...delivery import calls, events, sessions, streams
from ...delivery.streams import StreamState
from ...dispatch import news
from ...dispatch.callers import covers
from ...dispatch.recalled import connection_of
from ...protocol import sse
from ...protocol.jsonrpc import Id, InternalError, encode

if TYPE_CHECKING:
    from ...declare.servers import Server
    from ...models import Session
    from ...principal import Principal

LOST = "Part of what was said about this request is no longer kept, and with it its answer."


class Position(NamedTuple):
    """A place in a stream, for its connection ``number``; ``given`` is all that is left of it."""

    stream: int
    number: int = 1
    after: int = 0
    is_over: bool = False
    given: Sequence[tuple[int, str]] | None = None
    has_news: bool = False  # it is the session's own, and no request's


def begun(
    server: Server, session: Session, principal: Principal, nonce: str, *, again: bool = False
) -> Position:
    """A new stream for the session's news. Raises ``Gone`` or ``Busy``.

    To a token that is narrower than those that the news are of, the session is gone.
    """
    if not may_hear(session, principal):
        raise sessions.Gone
    return _anew(server, session, nonce, again=again)


def may_hear(session: Session, principal: Principal) -> bool:
    """Whether it may read the news of a session, which its broadest token asked for."""
    return principal.auth is None or all(
        covers(principal, scopes) for scopes in sessions.scopes(session)
    )


def _anew(
    server: Server, session: Session, nonce: str, *, missed: bool = False, again: bool = False
) -> Position:
    told = news.everything(server, session) if missed else []
    stream = streams.open(
        session, standalone=True, messages=told, words=news.speaking(session), nonce=nonce,
        again=again,
    )  # fmt: skip
    return Position(stream.pk, has_news=True)


def resumed(
    server: Server,
    session: Session,
    principal: Principal,
    event_id: str,
    nonce: str = "",
    *,
    again: bool = False,
) -> Position | None:
    """The place after that event; None if this session never gave it out.

    To a token that is narrower than those of the stream's calls it was not. Raises as ``begun``.
    """
    found = _found(session, principal, event_id)
    if found is None and not sessions.is_there(session):  # it was ended while we looked
        raise sessions.Gone
    if found is not None and found.has_news and found.is_over:
        return _anew(server, session, nonce, missed=found.given is not None, again=again)
    return found


def _found(session: Session, principal: Principal, event_id: str) -> Position | None:
    cursor = sse.cursor(event_id)
    if cursor is None:
        return None
    stream, after = cursor
    before = streams.states([stream]).get(stream)
    if before is None or after > before.last:
        return None
    if not all(covers(principal, scopes) for scopes in calls.scopes(stream)):
        return None
    if before.standalone and not may_hear(session, principal):
        raise sessions.Gone
    state = streams.take(session, stream, news.speaking(session))
    if state is None:
        return None
    is_over = bool(state.closed and after >= state.last)
    is_trimmed = after + 1 < state.first
    given = _left(session, state, after) if is_trimmed and not is_over else None
    is_over = is_over or given == []  # and what is lost was no response
    return Position(stream, state.reader, after, is_over, given, bool(state.standalone))


def _left(session: Session, state: StreamState, after: int) -> list[tuple[int, str]]:
    """What there is after a cursor in a trimmed stream: its responses, if nothing else followed.

    A replay is never partial: where anything is lost, those requests are told so whose response
    the client has not had.
    """
    kept = events.finals(state.id)
    left = [(seq, response) for seq, response in kept if seq > after]
    if len(left) == state.last - after:
        return left
    had = {encode(json.loads(response).get("id")) for seq, response in kept if seq <= after}
    asked = map(json.loads, calls.requests(state.id))
    requests = [request for request in asked if encode(request) not in had]
    return [(state.last, error) for error in _lost(session, requests)]


def _lost(session: Session, requests: Sequence[Id]) -> list[str]:
    """The errors to these requests; those of a batch are one message."""
    connection = connection_of(session)
    errors = [connection.error(request, InternalError(LOST)) for request in requests]
    return [encode(errors if len(errors) > 1 else errors[0])] if errors else []
