"""
Where a connection to a stream begins: anew, or where another one broke off.

Rule: nothing that was lost is passed over in silence. A cursor is looked up
within its session; one that this session never gave out is nobody's. What was
trimmed is told by an error to the request it belonged to, or, where it was
news, by all that may have changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...delivery import calls, events, streams
from ...delivery.streams import StreamState
from ...dispatch import news
from ...dispatch.callers import covers
from ...dispatch.durable import connection_of
from ...protocol import sse
from ...protocol.jsonrpc import InternalError, encode

if TYPE_CHECKING:
    from ...declare.servers import Server
    from ...models import Session
    from ...principal import Principal

LOST = "Part of what was said about this request is no longer kept, and so is its answer."


class Position(NamedTuple):
    """A place in a stream, for its connection ``number``; ``given`` is all that is left of it."""

    stream: int
    number: int = 1
    after: int = 0
    is_over: bool = False
    given: Sequence[tuple[int, str]] | None = None
    has_news: bool = False  # it is the session's own, and no request's


def anew(server: Server, session: Session, *, missed: bool = False) -> Position:
    """A new stream for the session's news. Raises ``Gone`` or ``Busy``."""
    told = news.everything(server, session) if missed else []
    stream = streams.open(session, standalone=True, messages=told, words=news.speaking(session))
    return Position(stream.pk, has_news=True)


def resumed(
    server: Server, session: Session, principal: Principal, event_id: str
) -> Position | None:
    """The place after that event; None if this session never gave it out. Raises ``Gone``.

    To a token that is narrower than those of the stream's calls it was not.
    """
    cursor = sse.cursor(event_id)
    if cursor is None:
        return None
    stream, after = cursor
    before = streams.states([stream]).get(stream)
    if before is None or after > before.last:
        return None
    if not all(covers(principal, scopes) for scopes in calls.scopes(stream)):
        return None
    state = streams.take(session, stream, news.speaking(session))
    if state is None:
        return None
    is_over = bool(state.closed and after >= state.last)
    is_trimmed = after + 1 < state.first
    if state.standalone and (is_over or is_trimmed):
        return anew(server, session, missed=is_trimmed)
    given = _left(session, state, after) if is_trimmed and not is_over else None
    return Position(stream, state.reader, after, is_over, given, bool(state.standalone))


def _left(session: Session, state: StreamState, after: int) -> list[tuple[int, str]] | None:
    """What follows a cursor in a trimmed stream: if not all of it is there, errors say so."""
    kept = events.finals(state.id, after)
    if len(kept) == state.last - after:
        return kept
    connection = connection_of(session)
    lost = [json.loads(request) for request in calls.requests(state.id)]
    errors = [encode(connection.error(request, InternalError(LOST))) for request in lost]
    return [(state.last, error) for error in errors]
