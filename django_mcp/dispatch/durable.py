"""
The calls of sessions that this process works on.

Rule: a call is worked on in a task of the process, never of a connection, so
that a break cancels nothing. Whoever holds a call's fence works on it: this
process because it was asked, because the last answer came here, or because
another died. What a client says about a call is heeded wherever the call is.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..declare.requests import Silence
from ..declare.servers import server_named
from ..delivery import calls, events, sessions
from ..delivery.calls import Overdue
from ..delivery.doorbell import Ring, doorbell, ring
from ..delivery.jobs import PerLoop, surely
from ..delivery.leases import lease
from ..delivery.poller import poller
from ..delivery.writer import writer
from ..exceptions import Busy, Parked
from ..models import Call as Row
from ..models import Session
from ..protocol.connection import Connection, Phase, State
from ..protocol.envelope import progress_token
from ..protocol.events import Answered, Call, Cancelled, Event
from ..protocol.jsonrpc import (
    JSON,
    Id,
    InternalError,
    InvalidRequest,
    Overloaded,
    ProtocolError,
    encode,
)
from .active import Active
from .asking import understood, withdrawal
from .callers import Caller, covers
from .conversations import UNCOUNTED
from .parking import KeptServing, KeptSteps, Parking
from .replies import Kept, Reply
from .results import error_result
from .rounds import Rounds
from .running import surrounded_job
from .runs import Run
from .seats import Seat

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

logger = logging.getLogger("django_mcp")
MOST_RUNS = 2  # of a call whose process died, where it may run again
LOST = (
    "The server process that worked on this ended before it had an outcome. "
    "It may or may not have taken effect."
)


def connection_of(session: Session) -> Connection:
    """The protocol's side of a session, as its row has it."""
    phase = Phase.OPEN if session.initialized else Phase.OPENING
    state = State(session.revision, phase, session.client_info, session.capabilities)
    return Connection(state, transport="http")


class Docket:
    """What one event loop works on (``delivery.poller.Runner``)."""

    def __init__(self) -> None:
        self.writer = writer()
        self._requests: dict[tuple[int, Id], Kept] = {}
        self._rows: dict[int, Kept] = {}
        self._claimed: set[int] = set()  # and not yet begun
        self._tasks: set[asyncio.Task[Any]] = set()
        poller().runner = self

    def spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            logger.error("Work for a session failed", exc_info=task.exception())

    # Calls that come.

    def start(
        self,
        server: Server,
        session: Session,
        principal: Principal,
        asked: Collection[Call],
        ready: Collection[JSON] = (),
        *,
        host: str | None = None,
    ) -> Reply:
        """Begin to work on the calls of one POST; ``ready`` answers what became no call."""
        connection = connection_of(session)
        reply = Reply(self, session, Caller.of(principal), connection)
        reply.ready = list(ready)
        for call in asked:
            refused = self._refusal(session, call)
            if refused is not None:
                reply.ready.append(connection.error(call, refused))
            else:
                self._begin(self._kept(reply, call), server, host)
        reply.wait()
        return reply

    def _refusal(self, session: Session, call: Call) -> ProtocolError | None:
        if (session.pk, call.id) in self._requests:
            return InvalidRequest("A request of this id is being worked on.")
        if call.method in UNCOUNTED or len(self._requests) < settings.CONCURRENT_CALLS:
            return None
        theirs = sum(pk == session.pk for pk, _ in self._requests)
        if theirs >= settings.CONCURRENT_CALLS:
            return _overloaded("Too many requests at once.")
        return None

    def _kept(self, reply: Reply, call: Call) -> Kept:
        kept = Kept(Active(call, lambda message: None), reply)
        kept.active.send = kept.send
        if call.revision.priming:  # a client of an older one does not come back by itself
            kept.active.let_go = partial(reply.let_go, kept)
        reply.kept.append(kept)
        self._requests[reply.session.pk, call.id] = kept
        return kept

    def _begin(self, kept: Kept, server: Server, host: str | None) -> None:
        task = self.spawn(self._work(kept, server, host))
        kept.active.task = task
        task.add_done_callback(partial(self._ended, kept))

    async def _work(self, kept: Kept, server: Server, host: str | None) -> JSON | None:
        reply, seat = kept.reply, Seat(kept.reply.session)
        serving = KeptServing(
            server, reply.connection, reply.who, seat, Parking(kept), seat.log_level,
            memory=KeptSteps(), host=host, kept=kept,
        )  # fmt: skip
        if _is_durable(server, kept.active.call) and reply.stream is None:
            try:
                if await self._is_admitted(kept, server, host):
                    await reply.opened()
            except Busy as error:
                return reply.connection.error(kept.active.call, _overloaded(str(error)))
        return await serving.response(kept.active, kept.rounds)

    async def _is_admitted(self, kept: Kept, server: Server, host: str | None) -> bool:
        """Whether the caller may use the tool: to all others it does not exist, in no way."""
        call, who = kept.active.call, await kept.reply.who.upcoming()
        tool = server.catalog.tools[call.params["name"]]
        request = Run(call, server, who, Seat(kept.reply.session), Silence(), host=host).request
        if tool.is_free:
            return tool.admits(request)
        try:
            return await surrounded_job(request, lambda: tool.admits(request))
        except Busy:
            raise
        except Exception:
            return False  # as the call will find, and say

    def _ended(self, kept: Kept, task: asyncio.Task[JSON | None]) -> None:
        """Also for a call that was cancelled before it began."""
        if task.cancelled() or kept.active.stop.is_set():
            kept.reply.take(kept, None)
        elif isinstance(task.exception(), Parked):
            self.leave(kept)
        elif error := task.exception():
            logger.error("%s failed", kept.active.call.method, exc_info=error)
            refused = kept.reply.connection.error(kept.active.call, InternalError())
            kept.reply.take(kept, refused)
        else:
            kept.reply.take(kept, task.result())

    def enter(self, kept: Kept) -> None:
        """It is a row now."""
        assert kept.row is not None
        self._rows[kept.row.pk] = kept
        poller().wake()

    def leave(self, kept: Kept) -> None:
        """It is no longer worked on here."""
        request = (kept.reply.session.pk, kept.active.call.id)
        if self._requests.get(request) is kept:
            del self._requests[request]
        if kept.row is not None and self._rows.get(kept.row.pk) is kept:
            del self._rows[kept.row.pk]
        poller().rest()

    # What clients say about calls.

    async def told(self, session: Session, principal: Principal, event: Event) -> None:
        """Heed an answer or a cancel, also if who said it does not wait."""
        match event:
            case Answered():
                await asyncio.shield(self.spawn(self._answered(session, principal, event)))
            case Cancelled():
                await asyncio.shield(self.spawn(self._cancelled(session, principal, event)))

    async def _answered(self, session: Session, principal: Principal, reply: Answered) -> None:
        async with poller().claiming():
            row = await surely(self._claimed_by, session, principal, reply)
            if row is not None:
                self._claimed.add(row.pk)
        if row is not None:
            await self._resume(row)

    def _claimed_by(self, session: Session, principal: Principal, reply: Answered) -> Row | None:
        """In a thread of the log: the call, if this was the last answer it waited for."""
        ask = calls.asked(session, str(reply.id))
        if ask is None or not covers(principal, ask.call.scopes):
            logger.debug("Ignored an answer to nothing that was asked: %.80r", reply.id)
            return None
        answer = understood(connection_of(session).revision, ask.wire, reply)
        return calls.answer(session, ask.pk, answer, process=lease.hold())

    async def _cancelled(self, session: Session, principal: Principal, event: Cancelled) -> None:
        kept = self._requests.get((session.pk, event.id))
        if kept is not None:
            if not covers(principal, kept.reply.who.scopes):
                return
            logger.info("%s was cancelled: %.200r", kept.active.call.method, event.reason)
            kept.active.cancel()
            if not kept.reply.is_opening:
                return
        may = partial(_may_stop, principal)
        row = await surely(calls.cancel, session, json.dumps(event.id), may)
        if row is not None and row.stream_id is not None:
            ring(Ring(row.stream_id, changed=True))

    async def end(self, session: Session) -> None:
        """The session is over: its calls stop, its streams end."""
        for kept in [k for (pk, _), k in self._requests.items() if pk == session.pk]:
            kept.reply.is_gone = True
            kept.active.cancel()
        await surely(sessions.end, session)
        theirs = [tail.stream for tail in doorbell() if tail.session == session.pk]
        ring(*(Ring(stream, changed=True) for stream in theirs))

    # The end of the process.

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks or self._rows)

    async def finish(self) -> None:
        """Let what is worked on come to its end; what does not is left to others."""
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            poller().runner = None
            await surely(partial(lease.end, holding=bool(self.held())))

    # What the poller finds.

    def held(self) -> Collection[int]:
        return self._rows.keys() | self._claimed

    def stop(self, ids: Collection[int]) -> None:
        for id in ids:
            if kept := self._rows.get(id):
                kept.active.cancel()

    def expired(self, overdue: Overdue) -> None:
        if overdue.call is not None:
            self._claimed.add(overdue.call.pk)
        self.spawn(self._expired(overdue))

    async def _expired(self, overdue: Overdue) -> None:
        if overdue.stream is not None:
            await surely(_withdraw, overdue.stream, overdue.asks)
            ring(Ring(overdue.stream, changed=True))
        if overdue.call is not None:
            await self._resume(overdue.call)

    def take_over(self, call: Row) -> None:
        self._claimed.add(call.pk)
        self.spawn(self._taken_over(call))

    async def _taken_over(self, row: Row) -> None:
        logger.warning("%s is taken over from a process that died", row)
        kept = await self._revived(row)
        if kept is None:
            return
        server = server_named(kept.reply.session.server)
        if row.runs <= MOST_RUNS and _may_run_again(server, kept.active.call):
            self._begin(kept, server, None)
        else:
            kept.reply.take(kept, _lost(kept))

    async def _resume(self, row: Row) -> None:
        kept = await self._revived(row)
        if kept is not None:
            self._begin(kept, server_named(kept.reply.session.server), None)

    async def _revived(self, row: Row) -> Kept | None:
        """A call to work on, made from its row; None if its session has ended."""
        try:
            session = await surely(sessions.of_stream, row.stream_id)
            if session is None:
                return None
            connection = connection_of(session)
            reply = Reply.resumed(self, session, row, connection)
            kept = self._kept(reply, _call(row, connection))
            kept.row = row
            kept.rounds = Rounds(
                f"c{row.pk}", known=row.known, high_water=row.high_water, count=row.rounds,
                has_steps=True,
            )  # fmt: skip
            self.enter(kept)
            return kept
        finally:
            self._claimed.discard(row.pk)


def _overloaded(why: str) -> Overloaded:
    return Overloaded(why, data={"retryAfter": 1})


def _call(row: Row, connection: Connection) -> Call:
    """The call that a row keeps."""
    state = connection.state
    return Call(
        json.loads(row.request_id), row.method, row.params, connection.revision,
        client_info=state.client_info, capabilities=state.capabilities,
        progress_token=progress_token(row.meta), meta=row.meta,
    )  # fmt: skip


def _may_stop(principal: Principal, row: Row) -> bool:
    return covers(principal, row.scopes)


def _is_durable(server: Server, call: Call) -> bool:
    if call.method != "tools/call":
        return False
    tool = server.catalog.tools.get(str(call.params.get("name")))
    return tool is not None and (server.durable or tool.durable)


def _may_run_again(server: Server, call: Call) -> bool:
    """Whether it does no harm that part of it may have been done."""
    if call.method != "tools/call":
        return True
    tool = server.catalog.tools.get(str(call.params.get("name")))
    return tool is None or bool(tool.read_only or tool.idempotent)


def _lost(kept: Kept) -> JSON:
    """The response to a call of which nobody knows how far it came."""
    call, connection = kept.active.call, kept.reply.connection
    if call.method == "tools/call":
        return connection.result(call, error_result(LOST))
    return connection.error(call, InternalError(LOST))


def _withdraw(stream: int, asks: Collection[str]) -> None:
    """Tell the client that nobody waits for these answers any more."""
    session = sessions.of_stream(stream)
    if session is None:
        return
    revision = connection_of(session).revision
    told = (withdrawal(revision, ask) for ask in asks)
    events.append(stream, [encode(message) for message in told if message is not None])


docket = PerLoop(Docket)
