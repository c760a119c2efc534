"""
Sessions to which all is said on one stream: HTTP+SSE.

Rule: a request is written down before it is accepted, for nothing but the stream can
answer it. The stream is never closed; what would be too much for it is refused before
it is written, and what it said long ago is forgotten, from its beginning on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import F

from ..conf import settings
from ..exceptions import Busy
from ..models import ENDLESS, Call, Event, Session, Stream
from . import sessions, streams
from .entries import entry, insert, size_of
from .events import most_bytes
from .rows import one_transaction, rows
from .sessions import Gone, lock


def begin(id: str, *, again: bool = False, **owner: Any) -> Session:
    """A session whose client has not said yet who it is, and its stream. Raises ``Busy``.

    ``again`` asks after an unknown commit.
    """
    session = sessions.find(id) if again else None
    if session is None:
        untold: dict[str, Any] = {"revision": "", "client_info": {}, "capabilities": {}}
        _, session = sessions.create(id=id, transport="sse", **untold, **owner)
    if session.current is None:
        streams.open(session, standalone=True, owed=ENDLESS)
    return session


@one_transaction
def introduce(
    session: Session, response: str, told: dict[str, Any], nonce: str, *, again: bool = False
) -> bool:
    """Settle a session by what its client has ``told``, once, and answer it; False if it was.

    ``again``, with the same ``nonce``, asks after an unknown commit: True as well if that was us.
    """
    fresh = rows(Session).filter(pk=session.pk, revision="")
    if fresh.update(**told):
        _say(session, [response], nonce)
        return True
    return again and rows(Event).filter(stream=_stream(session), nonce=nonce).exists()


@one_transaction
def enter(
    session: Session, calls: Sequence[Call] = (), responses: Sequence[str] = (), nonce: str = "",
    *, again: bool = False,
) -> int:  # fmt: skip
    """Calls to be answered on the session's stream, and responses that are ready; the stream.

    A call that was cancelled before comes back ``cancelled``. ``again`` asks after an unknown
    commit. Raises ``Gone``, or ``Busy`` where there is no room.
    """
    lock(session.pk)  # another attempt may still be at it
    stream = _stream(session)
    if again and _entered(session, calls, stream, nonce):
        return stream
    over = streams.bury(session.pk, calls)
    _say(session, responses, nonce, over=over, coming=len(calls) - over)
    streams.enter(session.pk, stream, calls)
    return stream


def _entered(session: Session, calls: Sequence[Call], stream: int, nonce: str) -> bool:
    """Whether an attempt came through after all: its calls are those of its moment.

    Not of its process: others may have taken them over since, or it has another name by now.
    """
    said = rows(Event).filter(stream=stream, nonce=nonce) if nonce else rows(Event).none()
    if not calls:
        return said.exists()
    begun = {call.created for call in calls}
    theirs = rows(Call).filter(stream=stream, created__in=begun)
    stored = {call.request_id: call for call in theirs}
    if not all(call.request_id in stored for call in calls):
        return False
    for call in calls:
        streams.recall(call, stored[call.request_id])
    return True


def _say(
    session: Session, messages: Sequence[str], nonce: str, *, over: int = 0, coming: int = 0
) -> None:
    """Append within the caller's transaction, where there is room for what is ``coming`` too.

    ``over`` are calls that will not be answered. Raises ``Busy``.
    """
    stream, size = _stream(session), sum(map(size_of, messages))
    room = rows(Stream).filter(
        pk=stream,
        closed=False,
        owed__gt=ENDLESS - settings.EVENTS,
        last__lte=F("first") - 1 + settings.EVENTS - len(messages) - coming,
        size__lte=most_bytes() - size,
    )
    grown = {"last": F("last") + len(messages), "size": F("size") + size}
    if not room.update(owed=F("owed") - over, **grown):
        raise Busy("Too much was said to this session. Try again later, or begin another.")
    last = rows(Stream).values_list("last", flat=True).get(pk=stream)
    numbered = enumerate(messages, last - len(messages) + 1)
    insert([entry(stream, seq, text, final=True) for seq, text in numbered], nonce)


def _stream(session: Session) -> int:
    if session.current is None:
        raise Gone(Gone.__doc__)
    return session.current
