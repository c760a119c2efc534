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
from collections import Counter, deque
from collections.abc import Awaitable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..declare.requests import Silence
from ..declare.servers import Server
from ..delivery import calls, sessions
from ..delivery.calls import Overdue
from ..delivery.doorbell import Ring, doorbell, ring
from ..delivery.jobs import PerLoop, surely
from ..delivery.leases import lease
from ..delivery.poller import poller
from ..delivery.switches import switches_known
from ..delivery.writer import writer
from ..exceptions import Busy, Parked
from ..models import Call as Row
from ..models import Session
from ..principal import anonymous
from ..protocol.events import Answered, Call, Cancelled, Event
from ..protocol.jsonrpc import (
    JSON,
    Id,
    InternalError,
    InvalidRequest,
    ProtocolError,
)
from .active import Active
from .asking import understood
from .callers import Caller, covers
from .conversations import UNCOUNTED
from .kept import Kept
from .parking import KeptServing, KeptSteps, Parking
from .recalled import call_of, connection_of, rounds_of, withdrawals
from .replies import Reply
from .revocations import revocations, revoked
from .running import surrounded_job
from .runs import Run
from .seats import Seat
from .serving import overloaded
from .takeovers import Decision, server_of, verdict

if TYPE_CHECKING:
    from ..principal import Principal

logger = logging.getLogger("django_mcp")


class Docket:
    """What one event loop works on (``delivery.runner.Runner``)."""

    def __init__(self) -> None:
        self.is_ending = False  # what comes from now on is begun by others
        self.writer = writer()
        self._requests: dict[tuple[int, Id], Kept] = {}
        self._rows: dict[int, Kept] = {}
        self._claimed: set[int] = set()  # and not yet begun
        self._streams: Counter[int] = Counter()  # of the rows
        self._left: deque[tuple[int, int]] = deque(maxlen=1_000)  # without a response
        self._tasks: set[asyncio.Task[Any]] = set()
        poller().runner = self
        revocations().sources.append(self.kept)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            logger.error("Work for a session failed", exc_info=task.exception())

    def kept(self) -> list[Kept]:
        """The calls that are worked on."""
        return list(self._requests.values())

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
            return overloaded("Too many requests at once.")
        return None

    def _kept(self, reply: Reply, call: Call) -> Kept:
        kept = Kept(Active(call, lambda message: None), reply)
        kept.active.send, kept.active.interrupt = kept.send, kept.cancel
        if call.revision.priming:  # a client of an older one does not come back by itself
            kept.active.let_go = partial(reply.let_go, kept)
        reply.kept.append(kept)
        self._requests[reply.session.pk, call.id] = kept
        return kept

    def _begin(self, kept: Kept, server: Server, host: str | None) -> None:
        kept.server = server
        task = self.spawn(self._work(kept, server, host))
        kept.active.task = task
        task.add_done_callback(partial(self._ended, kept))

    async def _work(self, kept: Kept, server: Server, host: str | None) -> JSON | None:
        reply, seat = kept.reply, Seat(kept.reply.session, kept.reply.who.scopes)
        serving = KeptServing(
            server, reply.connection, reply.who, seat, Parking(kept), seat.log_level,
            memory=KeptSteps(kept), host=host, kept=kept,
        )  # fmt: skip
        if kept.is_durable and reply.stream is None:
            try:
                if reply.is_single or await self._is_admitted(kept, server, host):
                    await reply.opened()
            except Busy as error:
                return reply.connection.error(kept.active.call, overloaded(str(error)))
        return await serving.response(kept.active, kept.rounds)

    async def _is_admitted(self, kept: Kept, server: Server, host: str | None) -> bool:
        """Whether the caller may use the tool: to all others it does not exist, in no way."""
        call, who = kept.active.call, await kept.reply.who.upcoming()
        tool = server.catalog.tools[call.params["name"]]
        request = Run(call, server, who, Seat(kept.reply.session), Silence(), host=host).request
        if tool.is_free:
            await switches_known()
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
            kept.reply.take(kept, kept.last_word)
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
        if kept.row.pk not in self._rows:  # it may be there, parked, when its answer comes
            self._streams[kept.address.stream] += 1
        self._rows[kept.row.pk] = kept
        poller().wake()
        revocations().attend()

    def leave(self, kept: Kept) -> None:
        """It is no longer worked on here."""
        request = (kept.reply.session.pk, kept.active.call.id)
        if self._requests.get(request) is kept:
            del self._requests[request]
        if kept.row is not None and self._rows.get(kept.row.pk) is kept:
            del self._rows[kept.row.pk]
            self._streams -= Counter([kept.address.stream])
            if kept.response is None:
                self._left.append((kept.row.pk, kept.row.fence))
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
        here = self._goes_on_here(session)
        async with poller().claiming():
            row = await surely(self._claimed_by, session, principal, reply, here, again=False)
            if row is None or not here or _is_held(row):
                return
            self._claimed.add(row.pk)
        await self._resume(row)

    def _goes_on_here(self, session: Session) -> bool:
        """Whether a call is begun by who has its last answer.

        A process that is about to end leaves it to others, except for who reads here and would
        not come back.
        """
        if not self.is_ending:
            return True
        comes_back = connection_of(session).revision.priming
        reads = any(tail.session == session.pk for tail in doorbell())
        return reads and not comes_back and poller().runner is self

    def _claimed_by(
        self, session: Session, principal: Principal, reply: Answered, here: bool, *, again: bool
    ) -> Row | None:
        """In a thread of the log: the call, if this was the last answer it waited for."""
        process = lease.hold() if here else ""
        ask = calls.asked(session, str(reply.id))
        found = None
        if ask is not None and covers(principal, ask.call.scopes):
            answer = understood(connection_of(session).revision, ask.wire, reply)
            found = calls.answer(session, ask.pk, answer, process=process)
        elif not again:
            logger.debug("Ignored an answer to nothing that was asked: %.80r", reply.id)
        if found is None and again:
            found = calls.answered(session, str(reply.id), process=process)
        return found

    async def _cancelled(self, session: Session, principal: Principal, event: Cancelled) -> None:
        kept = self._requests.get((session.pk, event.id))
        if kept is not None:
            if not covers(principal, kept.reply.who.scopes):
                return
            logger.info("%s was cancelled: %.200r", kept.active.call.method, event.reason)
            kept.cancel()
            if kept.is_plain:  # it was answered before, and is no row
                return
        id, may = json.dumps(event.id), lambda row: covers(principal, row.scopes)
        async with poller().claiming():  # what was let go of here must not come back before that
            row = await surely(calls.cancel, session, id, may)
        if row is not None and row.stream_id is not None:
            ring(Ring(row.stream_id, changed=True))

    def revoke(self, kept: Kept) -> None:
        """Its owner may not go on: for everybody it is as if it had been cancelled."""
        event = Cancelled(kept.active.call.id, "its owner may not go on")
        self.spawn(self._cancelled(kept.reply.session, anonymous(), event))

    async def end(self, session: Session) -> None:
        """The session is over: its calls stop, its streams end."""
        for kept in [k for (pk, _), k in self._requests.items() if pk == session.pk]:
            kept.reply.is_gone = True
            kept.cancel()
        async with poller().claiming():
            await surely(sessions.end, session)
        theirs = [tail.stream for tail in doorbell() if tail.session == session.pk]
        ring(*(Ring(stream, changed=True) for stream in theirs))

    # The end of the process.

    async def finish(self) -> None:
        """Let what is worked on come to its end; what does not is left to others."""
        self.is_ending = True
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await poller().end()

    # What the poller finds.

    def held(self) -> Collection[int]:
        return self._rows.keys() | self._claimed

    def streams(self) -> Collection[int]:
        """Those of the calls that are worked on."""
        return self._streams.keys()

    def stop(self, ids: Collection[int]) -> None:
        for id in ids:
            if kept := self._rows.get(id):
                kept.cancel()

    def recheck(self, ids: Collection[int]) -> None:
        """These were not to be worked on any more; but an answer may have brought one since."""
        suspects = {id: self._rows[id] for id in ids if id in self._rows}
        if suspects:
            self.spawn(self._rechecked(suspects))

    async def _rechecked(self, suspects: Mapping[int, Kept]) -> None:
        fences = {id: kept.address.fence for id, kept in suspects.items()}
        mine = await surely(calls.running, fences)
        for id in suspects.keys() - mine:
            suspects[id].cancel()

    def expired(self, overdue: Overdue) -> None:
        if overdue.stream is not None:
            ring(Ring(overdue.stream, changed=True))
        if overdue.call is not None:
            self._claimed.add(overdue.call.pk)
            self.spawn(self._resume(overdue.call))

    withdrawals = staticmethod(withdrawals)

    def take_over(self, call: Row) -> None:
        """One that nobody had begun since its last answer just goes on."""
        self._claimed.add(call.pk)
        self.spawn(self._taken_over(call) if call.runs else self._resume(call))

    def resume(self, call: Row) -> None:
        """Go on with a call that was claimed here when the connection broke.

        It has not begun if it was an answer that brought it here; else it is taken over.
        """
        begun = call.runs or not call.fence or (call.pk, call.fence) in self._left
        self._claimed.add(call.pk)
        self.spawn(self._begun_in_vain(call) if begun else self._resume(call))

    async def _begun_in_vain(self, row: Row) -> None:
        """Who is still at it writes nothing more, and it is not begun for ever."""
        try:
            taken = await surely(calls.take_over, row, row.process)
        finally:
            self._claimed.discard(row.pk)
        if taken is not None:
            self.take_over(taken)

    async def _taken_over(self, row: Row) -> None:
        logger.warning("%s is taken over from a process that died", row)
        await self._go_on(row, verdict)

    async def _resume(self, row: Row) -> None:
        await self._go_on(row, server_of)

    async def _go_on(self, row: Row, decide: Decision) -> None:
        """With a call that is a row; whatever goes wrong, it is answered."""
        kept = await self._revived(row)
        if kept is None:
            return
        try:
            if kept.owner and bool(await surely(revoked, [kept.owner])):
                self.revoke(kept)
                kept.reply.take(kept, None)
                return
            found = await decide(kept, row)
        except Exception:
            logger.exception("%s cannot go on", row)
            found = kept.reply.connection.error(kept.active.call, InternalError())
        if isinstance(found, Server):
            self._begin(kept, found, kept.reply.session.host or None)
        else:
            kept.reply.take(kept, found)

    async def _revived(self, row: Row) -> Kept | None:
        """A call to work on, made from its row; None if its session has ended."""
        try:
            session = await surely(sessions.of_stream, row.stream_id)
            if session is None:
                return None
            connection = connection_of(session)
            reply = Reply.resumed(self, session, row, connection)
            kept = self._kept(reply, call_of(row, connection))
            kept.row, kept.rounds = row, rounds_of(row)
            self.enter(kept)
            return kept
        finally:
            self._claimed.discard(row.pk)


def _is_held(row: Row) -> bool:
    """Whether any loop of this process knows of it."""
    return any(row.pk in one.held() for _, one in docket.items())


docket = PerLoop(Docket)
