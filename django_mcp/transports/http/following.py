"""
A connection that reads a stream: what it is told, and why it ends.

Rule: a connection owns nothing of what it reads. It ends with the stream, or
before: when another connection has taken the stream over, when its token
expires, when its owner may not go on, or with the process. A client that can
come back is told when to; one that cannot is not let go without an answer, as
long as there is one to be had.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...delivery import calls, sessions, streams
from ...delivery.doorbell import Event, Ring, doorbell
from ...delivery.jobs import surely
from ...delivery.tails import Ending, Tail
from ...dispatch.durable import docket
from ...dispatch.leaving import answer
from ...principal import anonymous
from ...protocol import sse
from .draining import draining
from .exchanges import Left
from .expiry import expiry_of, until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .exchanges import Exchange
    from .resuming import Position

RETRY = 500  # milliseconds until a client comes back for the rest
# A comment alone in its line: some clients take an empty block for an event.
ALIVE = b":\n"
NOBODY = anonymous()  # in whose name a connection that only reads is kept
# Seconds after its token has expired in which a call may still be answered to a client that does
# not come back for the answer.
OVERTIME = 60.0
COMES_BACK = (Ending.RELEASED, Ending.EXPIRED)
IDLE = 0.1  # seconds between two looks whether calls still run


class Wording(Protocol):
    """How a stream is written."""

    is_shared: bool  # it answers other requests: a connection is not let go while they run

    def opening(self, stream: int, after: int) -> bytes: ...

    def events(self, stream: int, events: Iterable[Event]) -> bytes: ...

    def parting(self, stream: int, after: int) -> bytes: ...


class Numbered:
    """By the numbers of stream and event; ``primed`` if the client is given one at once."""

    is_shared = False

    def __init__(self, *, primed: bool) -> None:
        self._primed = primed

    def opening(self, stream: int, after: int) -> bytes:
        return sse.priming(sse.event_id(stream, after), RETRY) if self._primed else b""

    def events(self, stream: int, events: Iterable[Event]) -> bytes:
        return b"".join(sse.event(data, sse.event_id(stream, seq)) for seq, data in events)

    parting = opening


async def follow(
    exchange: Exchange, session: int, wording: Wording, at: Position, *, may_return: bool
) -> None:
    """Pass a stream on, from a place in it, until there is no more for this connection."""
    expires, later = expiry_of(exchange.principal), 0 if may_return else OVERTIME
    _forget_request(exchange)
    await _begin(exchange, session, wording, at)
    if at.given is not None:
        await exchange.write(wording.events(at.stream, at.given))
    else:
        with Tail(session, at.stream, at.number, at.after, may_return=may_return) as tail:
            _hear_of_ends(exchange, tail, wording)
            with until(expires, partial(tail.end, Ending.EXPIRED), later=later):
                ending = await _passed_on(exchange, tail, at, wording)
        if ending in COMES_BACK:
            await _let_go(exchange, tail, at, wording)
    await exchange.end()


async def _begin(exchange: Exchange, session: int, wording: Wording, at: Position) -> None:
    try:
        await exchange.start_sse()
        if words := wording.opening(at.stream, at.after):
            await exchange.write(words)
    except (Left, asyncio.CancelledError):
        if at.has_news:
            docket().spawn(left(session, at.stream, at.number, unread=True))
        raise


def _forget_request(exchange: Exchange) -> None:
    """A connection may wait for days: it keeps what it needs."""
    exchange.owner = exchange.principal.key
    exchange.headers, exchange.session, exchange.principal = {}, None, NOBODY


def _hear_of_ends(exchange: Exchange, tail: Tail, wording: Wording) -> None:
    exchange.when_revoked = partial(tail.end, Ending.GONE)
    if wording.is_shared:
        exchange.when_ending, exchange.when_late = partial(_release_soon, tail), tail.release
    elif tail.may_return:
        exchange.when_ending = tail.release
    else:
        exchange.when_late = partial(_late, tail)
    if draining().ending and exchange.when_ending is not None:
        exchange.when_ending()
    if draining().is_late and exchange.when_late is not None:
        exchange.when_late()


def _release_soon(tail: Tail) -> None:
    docket().spawn(_release_idle(tail))


async def _release_idle(tail: Tail) -> None:
    """Release it once nothing is worked on that is answered there, and all of that is read."""
    while tail in doorbell().at(tail.stream):
        if not await surely(calls.are_running, tail.stream):
            tail.hear(Ring(tail.stream, changed=True))
            tail.release()
            return
        await asyncio.sleep(IDLE)


def _late(tail: Tail) -> None:
    """The calls have had their time. With an id of an event the client can come back."""
    if tail.after:
        tail.end(Ending.RELEASED)
    else:
        answer(tail.stream)


async def _passed_on(exchange: Exchange, tail: Tail, at: Position, wording: Wording) -> Ending:
    is_unread = at.has_news and at.number == 1
    try:
        while not isinstance(found := await tail.events(), Ending):
            await exchange.write(wording.events(tail.stream, found) or ALIVE)
            if is_unread and found:
                await surely(streams.begun, tail.stream)
                is_unread = False
    except (Left, asyncio.CancelledError):
        if at.has_news:
            docket().spawn(left(tail.session, tail.stream, tail.number))
        raise
    return found


async def _let_go(exchange: Exchange, tail: Tail, at: Position, wording: Wording) -> None:
    """Say when to come back; who was given no id comes back without one, and reads elsewhere."""
    if words := wording.parting(at.stream, tail.after):
        await exchange.write(words)
    elif at.has_news:
        await left(tail.session, tail.stream, tail.number)


async def left(session: int, stream: int, number: int, *, unread: bool = False) -> None:
    """A connection to a stream of news is over, or was none: ``unread``."""
    with suppress(sessions.Gone):
        await surely(streams.leave, session, stream, number, unread=unread)
