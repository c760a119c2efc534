"""The calls of sessions that this worker process runs.

``SessionCallManager`` runs each call in a task of its own, so that a broken connection cancels no
call. Each event loop has one. The worker process that holds the fencing token of a call runs it: it
received the request, it received the last answer, or it took the call over from a dead worker. A
cancel or an answer takes effect in whichever process the call is.

``SessionAsker`` asks the client. It stores the questions, the answers so far and the outgoing
messages in one transaction, and parks the call. No process waits in memory for an answer. The
worker that receives the last answer continues the call. No question is sent before the client has
sent ``notifications/initialized`` (basic/lifecycle).

``SessionCallSteps`` stores the steps of ``request.once`` as rows, so that another
process can continue the call. A step's row is written in the transaction of the step if both are in
the same database.

On shutdown, calls may finish until the deadline. Other workers take over the rest. If a client
cannot reconnect to fetch its response, ``answer_stream`` responds with an error before the process
ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

from ..auth import kill_switches
from ..auth.principal import anonymous
from ..conf import settings
from ..declarations.server import Server
from ..exceptions import Busy, CallParked, Stopped
from ..models import Ask, Session
from ..models import Call as Row
from ..protocol.connection import Answered, Cancelled, ClientCall, Connection, Event
from ..protocol.jsonrpc import (
    JSON,
    Id,
    InternalError,
    InvalidRequest,
    ProtocolError,
    encode,
)
from ..protocol.revisions import Revision
from ..runtime.runtime import Service, current
from ..storage import calls, sessions
from ..storage.calls import Overdue, WithdrawalEncoder, no_withdrawals
from ..storage.databases import one_transaction
from ..storage.event_log import EventAddress
from ..storage.event_writer import writer
from ..storage.jobs import run_with_retries
from ..storage.leases import lease
from ..storage.poller import poller
from ..storage.wakeups import StreamWakeup, stream_wakeups, wake_readers
from . import elicitation_completion
from .call_state import ActiveCall, CallRun, SessionState
from .callers import SessionCaller, covers, revocations, revoked
from .execution import surrounded_job
from .interaction import Asking, Interaction, WrittenQuestion, understood, written
from .once import StepRows
from .rate_limits import UNCOUNTED
from .recovery import Decision, server_of, shutdown_error, verdict
from .runner import CallRunner, overloaded
from .session_output import (
    DUPLICATE,
    PostResponse,
    SessionCall,
    call_of,
    connection_of,
    interaction_of,
    withdrawal_messages,
)

if TYPE_CHECKING:
    from ..auth.principal import Principal


logger = logging.getLogger("django_mcp")
READY_POLL_INTERVAL_SECONDS = 0.2  # between two checks whether the client is initialized


class SessionAsker:
    """Asks the client of one call by parking the call (``runner.ClientAsker``)."""

    def __init__(self, session_call: SessionCall) -> None:
        self._session_call = session_call

    async def ask(
        self, revision: Revision, asking: Sequence[Asking], interaction: Interaction
    ) -> dict[str, JSON]:
        """Store the questions and raise ``CallParked``.

        Return timeouts as answers if the client does not become ready before the first deadline.
        """
        questions = {digest: (key, written(revision, question)) for key, digest, question in asking}
        await self._session_call.post.opened(self._session_call)
        timed_out = {digest: {"timeout": one.seconds} for digest, (_, one) in questions.items()}
        if not await self._is_ready(min(one.seconds for _, one in questions.values())):
            return timed_out
        await self._park(questions, interaction)
        raise CallParked()

    async def _is_ready(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for ``notifications/initialized``. Return whether it came.

        This polls the row, because the notification may reach another process.
        """
        session, loop = self._session_call.post.session, asyncio.get_running_loop()
        end = loop.time() + seconds
        while not (session.initialized or await run_with_retries(sessions.is_initialized, session)):
            if loop.time() >= end:
                return False
            await asyncio.sleep(READY_POLL_INTERVAL_SECONDS)
        return True

    async def _park(
        self, questions: dict[str, tuple[str, WrittenQuestion]], interaction: Interaction
    ) -> None:
        session_call, to = self._session_call, self._session_call.address
        # What the call sent before comes first in the stream. Once it is parked, another process
        # may append to the stream.
        await session_call.post.manager.writer.flush(to)
        asked = [one for _, one in questions.values()]
        if sent := [one.id for one in asked if one.is_url_elicitation]:
            await run_with_retries(
                elicitation_completion.subscribe, session_call.post.session, sent
            )
        parked = await run_with_retries(
            calls.park, to.call, to.fence,
            [_row(key, digest, one) for digest, (key, one) in questions.items()],
            [encode(one.message) for one in asked],
            known=interaction.known, high_water=interaction.high_water,
            rounds=interaction.count,
            # ``run_with_retries`` sets it on later attempts: the first commit may have succeeded.
            is_retry=False,
        )  # fmt: skip
        if not parked:  # cancelled or taken over: this process may write nothing more
            raise Stopped()
        wake_readers(StreamWakeup(to.stream, changed=True))

    def expect(self, *elicitations: str) -> None:
        self._session_call.elicitations.extend(elicitations)


def _row(key: str, digest: str, asked: WrittenQuestion) -> Ask:
    """Return the row of a question. Its timeout starts when ``calls.park`` inserts the row."""
    return Ask(id=asked.id, key=key, digest=digest, wire=asked.wire, seconds=asked.seconds)


class SessionCallSteps(StepRows):
    """The steps of a call that is a row. They are deleted when its outcome is stored."""

    def __init__(self, session_call: SessionCall) -> None:
        self._session_call = session_call

    def begin(self, call: str, key: str) -> bool:
        """Return whether the step must be executed.

        Raise ``Stopped`` before the step if the call was taken over or is done.
        """
        return super().begin(call, key) if self.shares_transaction() else self._begin(call, key)

    @one_transaction
    def _begin(self, call: str, key: str) -> bool:
        """Check the fence and insert the step in one transaction, which locks the call.

        A takeover commits either before it, and the check fails, or after it, and then finds the
        begun step. Without the lock two processes could execute the step.
        """
        self._check()
        return super().begin(call, key)

    def keep(self, call: str, key: str, value: Any) -> None:
        """Store the value. In the step's transaction, check the fence too.

        Raise ``Stopped`` if the call was taken over. That rolls the step back.
        """
        super().keep(call, key, value)
        if self.shares_transaction():
            self._check()

    def _check(self) -> None:
        row = self._session_call.row
        assert row is not None  # ``SessionCall.prepare_step`` stores the call before a step
        if not calls.is_mine(row.pk, row.fence):
            raise Stopped()

    async def recall(self, call: str) -> dict[str, Any]:
        return await run_with_retries(calls.step_values, call)

    async def aforget(self, call: str) -> None:
        """Do nothing. The call may run again in another process, which needs the steps.

        They are deleted in the transaction that stores the outcome, or right after it.
        """


class SessionCallManager:
    """The calls of sessions that one event loop runs (``storage.calls.CallManager``).

    ``_requests`` has all of them, by session and request id. ``_rows`` has those that are stored,
    by primary key. Only the event loop changes these, so there is no lock.
    """

    def __init__(self) -> None:
        self.is_ending = False  # shutting down: other workers continue calls that become ready
        self.writer, self.poller, self._revocations = writer(), poller(), revocations()
        self._requests: dict[tuple[int, Id], SessionCall] = {}
        self._rows: dict[int, SessionCall] = {}
        self._claimed: set[int] = set()  # claimed in the database, and not yet in ``_rows``
        self._streams: Counter[int] = Counter()  # number of calls in ``_rows`` by stream
        # Ids and fences of calls that ended here without a response. See ``resume``.
        self._left: deque[tuple[int, int]] = deque(maxlen=1_000)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.poller.call_manager = self
        self._revocations.sources.append(self.running)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        # The event loop keeps only weak references to tasks. Without this set the garbage collector
        # could delete a running one. ``finish`` waits for them.
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._log_failure)
        return task

    def _log_failure(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            logger.error("Work for a session failed", exc_info=task.exception())

    def running(self) -> list[SessionCall]:
        """Return the calls that run here."""
        return list(self._requests.values())

    # Calls that come.

    def start(
        self,
        server: Server,
        session: Session,
        connection: Connection,
        principal: Principal,
        asked: Collection[ClientCall],
        ready: Collection[JSON] = (),
        *,
        host: str | None = None,
        received: float | None = None,
    ) -> PostResponse:
        """Start the calls of one POST, and return the object that collects its responses.

        ``connection`` has received the POST. ``ready`` are responses to messages that became no
        call. ``received`` is the time of the POST by the monotonic clock.
        """
        post = PostResponse(self, session, SessionCaller.of(principal), connection, received)
        post.ready = list(ready)
        for call in asked:
            refused = self._refusal(session, call)
            if refused is not None:
                post.ready.append(connection.error(call, refused))
            else:
                self._begin(self._register(post, call), server, host)
        post.wait()
        return post

    def _refusal(self, session: Session, call: ClientCall) -> ProtocolError | None:
        if (session.pk, call.id) in self._requests:
            return InvalidRequest(DUPLICATE)
        # The limit is one of each session. If this event loop runs fewer calls in all, they need
        # not be counted.
        if call.method in UNCOUNTED or len(self._requests) < settings.CONCURRENT_CALLS:
            return None
        theirs = sum(pk == session.pk for pk, _ in self._requests)
        if theirs >= settings.CONCURRENT_CALLS:
            return overloaded("Too many requests at once.")
        return None

    def _register(self, post: PostResponse, call: ClientCall) -> SessionCall:
        session_call = SessionCall(ActiveCall(call), post)
        session_call.open()
        post.calls.append(session_call)
        self._requests[post.session.pk, call.id] = session_call
        return session_call

    def _begin(self, session_call: SessionCall, server: Server, host: str | None) -> None:
        session_call.server = server
        task = asyncio.ensure_future(self._work(session_call, server, host))
        self._tasks.add(task)  # as in ``spawn``
        session_call.active.task = task
        task.add_done_callback(partial(self._task_ended, session_call))

    async def _work(
        self, session_call: SessionCall, server: Server, host: str | None
    ) -> JSON | None:
        post = session_call.post
        state = SessionState(post.session, post.who.scopes)
        runner = CallRunner(
            server, post.connection, post.who, state, SessionAsker(session_call),
            memory=SessionCallSteps(session_call), host=host,
        )  # fmt: skip
        if session_call.is_durable and post.stream is None:
            # Store the call before it runs, so that another worker can continue it. Check the
            # permission first: rows are not written for callers who may not use the tool. The call
            # of a POST with no other is stored only when it asks or takes long, after the check.
            try:
                if post.is_single or await self._is_admitted(session_call, server, host):
                    await post.opened(session_call)
            except Busy as error:
                if session_call.is_rejected:
                    return session_call.response
                return post.connection.error(session_call.active.call, overloaded(str(error)))
            if session_call.is_rejected:
                return session_call.response
        return await runner.response(session_call.active, session_call.interaction)

    async def _is_admitted(
        self, session_call: SessionCall, server: Server, host: str | None
    ) -> bool:
        """Whether the caller may use the tool of a durable call.

        For other callers the tool must look as if it did not exist. Storing their call would tell
        them by the stream that it does.
        """
        call, who = session_call.active.call, await session_call.post.who.upcoming()
        tool = server._catalog.tools[call.params["name"]]
        state = SessionState(session_call.post.session)
        request = CallRun(call, server, who, state, host=host).request
        if tool._is_free:
            try:
                await kill_switches.arefresh()
            except DatabaseError:  # the database is down, as at the start of a process
                await run_with_retries(kill_switches.refresh)
            return tool._is_allowed(request)
        try:
            return await surrounded_job(request, lambda: tool._is_allowed(request))
        except Busy:
            raise
        except Exception:
            return False  # the project's permission code failed: the run fails with it and logs it

    def _task_ended(self, session_call: SessionCall, task: asyncio.Task[JSON | None]) -> None:
        """Take the outcome of the task. It runs also if the task was cancelled before it started.

        A ``finally`` in the task would not suffice: the code of such a task is never executed.
        """
        self._tasks.discard(task)
        if task.cancelled() or session_call.active.stop.is_set:
            session_call.post.set_outcome(session_call, session_call.stop_response)
        elif isinstance(task.exception(), CallParked):
            self.leave(session_call)
        elif error := task.exception():
            logger.error("Call failed: method=%s", session_call.active.call.method, exc_info=error)
            refused = session_call.post.connection.error(session_call.active.call, InternalError())
            session_call.post.set_outcome(session_call, refused)
        else:
            session_call.post.set_outcome(session_call, task.result())

    def enter(self, session_call: SessionCall, row: Row) -> None:
        """Register a call that has become a row."""
        assert row.stream_id is not None
        session_call.row = row
        session_call.address = EventAddress(row.stream_id, row.pk, row.fence)
        if row.pk not in self._rows:  # a parked call may still be here when its answer comes
            self._streams[row.stream_id] += 1
        self._rows[row.pk] = session_call
        self.poller.poll_often()
        self._revocations.attend()

    def leave(self, session_call: SessionCall) -> None:
        """Remove a call that does not run here any more."""
        request = (session_call.post.session.pk, session_call.active.call.id)
        if self._requests.get(request) is session_call:
            del self._requests[request]
        if session_call.row is not None and self._rows.get(session_call.row.pk) is session_call:
            del self._rows[session_call.row.pk]
            self._streams -= Counter([session_call.address.stream])
            if session_call.response is None:
                self._left.append((session_call.row.pk, session_call.row.fence))
            self.poller.stop_if_idle()

    # Answers and cancels from clients.

    async def receive(self, session: Session, principal: Principal, event: Event) -> None:
        """Handle an answer or a cancel of the client.

        The work is shielded in a task of its own: it completes even if the client disconnects.
        """
        match event:
            case Answered():
                await asyncio.shield(self.spawn(self._answered(session, principal, event)))
            case Cancelled():
                cancelled = self._cancelled(session, principal, event, withdrawal_messages)
                await asyncio.shield(self.spawn(cancelled))

    async def _answered(self, session: Session, principal: Principal, answered: Answered) -> None:
        here = self._continues_here(session)
        async with self.poller.claiming():
            row = await run_with_retries(
                self._claimed_by, session, principal, answered, here, is_retry=False
            )
            if row is None or not here or _is_held(row):
                return
            # Before ``claiming`` ends. Otherwise the poller could compare the rows of this process
            # with the calls that run here, miss this one, and run it a second time.
            self._claimed.add(row.pk)
        await self._resume(row)

    def _continues_here(self, session: Session) -> bool:
        """Whether this process continues a call whose last answer it receives.

        A process that shuts down leaves the call to others. The exception is a session whose client
        reads its stream here and would not reconnect, because its revision has no priming events.
        """
        if not self.is_ending:
            return True
        comes_back = connection_of(session).revision.priming
        reads = any(tail.session == session.pk for tail in stream_wakeups())
        return reads and not comes_back and self.poller.call_manager is self

    def _claimed_by(
        self,
        session: Session,
        principal: Principal,
        answered: Answered,
        here: bool,
        *,
        is_retry: bool,
    ) -> Row | None:
        """Store an answer. Return the call if it was the last one that the call waited for.

        Runs in a thread of the pool ``log``. Answers are ignored if the token has fewer scopes than
        the call began with.
        """
        process = lease.hold() if here else ""
        ask = calls.asked(session, str(answered.id))
        found = None
        if ask is not None and covers(principal, ask.call.scopes):
            answer = understood(connection_of(session).revision, ask.wire, answered)
            found = calls.answer(session, ask.pk, answer, process=process)
        elif not is_retry:
            logger.debug("Response without a request ignored: id=%.80r", answered.id)
        if found is None and is_retry:
            found = calls.answered(session, str(answered.id), process=process)
        return found

    async def _cancelled(
        self,
        session: Session,
        principal: Principal,
        event: Cancelled,
        encode_withdrawals: WithdrawalEncoder,
    ) -> None:
        session_call = self._requests.get((session.pk, event.id))
        if session_call is not None:
            # A token with fewer scopes must not stop a call that a broader token began.
            if not covers(principal, session_call.post.who.scopes):
                return
            method = session_call.active.call.method
            logger.info("Call cancelled: method=%s reason=%.200r", method, event.reason)
            session_call.cancel()
            if session_call.is_plain:  # its response is plain JSON, so it never becomes a row
                return
        id, may = json.dumps(event.id), lambda row: covers(principal, row.scopes)
        # Until the cancel is committed, the row says that the call runs, but it is no longer in
        # ``_rows``. ``claiming`` makes the poller wait, which would start such a call again.
        async with self.poller.claiming():
            row = await run_with_retries(
                calls.cancel, session, id, may, encode_withdrawals=encode_withdrawals
            )
        if row is not None and row.stream_id is not None:
            wake_readers(StreamWakeup(row.stream_id, changed=True))

    def revoke(self, session_call: SessionCall) -> None:
        """Stop a call whose token was revoked or whose user is inactive, as a cancel does."""
        event = Cancelled(session_call.active.call.id, "its owner may not go on")
        # ``no_withdrawals``: write nothing more to a client whose access was revoked.
        # This is no request of a client, so scopes are not compared: ``anonymous()`` has no token.
        self.spawn(self._cancelled(session_call.post.session, anonymous(), event, no_withdrawals))

    async def end(self, session: Session) -> None:
        """End a session: cancel its calls, end its row, and wake the readers of its streams."""
        for session_call in [k for (pk, _), k in self._requests.items() if pk == session.pk]:
            session_call.post.is_gone = True
            session_call.cancel()
        # As in ``_cancelled``: before the commit the poller would start the calls again.
        async with self.poller.claiming():
            await run_with_retries(sessions.end, session)
        theirs = [tail.stream for tail in stream_wakeups() if tail.session == session.pk]
        wake_readers(*(StreamWakeup(stream, changed=True) for stream in theirs))

    # Shutdown.

    def answer_stream(self, stream: int) -> None:
        """End the running calls of a stream with error responses, and cancel them.

        For shutdown, where the client of the stream cannot reconnect to fetch the responses.
        """
        for session_call in self.running():
            if session_call.row is not None and session_call.row.stream_id == stream:
                session_call.post.set_outcome(
                    session_call, shutdown_error(session_call, session_call.row)
                )
                session_call.cancel()

    async def finish(self) -> None:
        """Wait for the running calls, then close the runtime, which releases the lease.

        The caller sets the time limit. Other workers take over the calls that are not done by then.
        """
        self.is_ending = True
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await current().close()

    # Called by the poller.

    def running_ids(self) -> Collection[int]:
        """Return the primary keys of the stored calls that run here or were claimed."""
        return self._rows.keys() | self._claimed

    def streams(self) -> Collection[int]:
        """Return the streams of the stored calls that run here."""
        return self._streams.keys()

    def stop(self, ids: Collection[int]) -> None:
        """Cancel these calls, because the lease of this process may have expired."""
        for id in ids:
            if session_call := self._rows.get(id):
                session_call.cancel()

    def stop_if_lost(self, ids: Collection[int]) -> None:
        """Cancel those of these calls that another process cancelled or took over.

        The rows are read again, because an answer may have restarted a call since the poll.
        """
        possibly_lost = {id: self._rows[id] for id in ids if id in self._rows}
        if possibly_lost:
            self.spawn(self._stop_lost(possibly_lost))

    async def _stop_lost(self, possibly_lost: Mapping[int, SessionCall]) -> None:
        fences = {id: session_call.address.fence for id, session_call in possibly_lost.items()}
        still_mine = await run_with_retries(calls.running, fences)
        for id in possibly_lost.keys() - still_mine:
            possibly_lost[id].cancel()

    def handle_timeout(self, overdue: Overdue) -> None:
        """Continue a call whose question has timed out."""
        if overdue.stream is not None:
            wake_readers(StreamWakeup(overdue.stream, changed=True))
        if overdue.call is not None:
            self._claimed.add(overdue.call.pk)
            self.spawn(self._resume(overdue.call))

    withdrawal_messages = staticmethod(withdrawal_messages)

    def take_over(self, call: Row) -> None:
        """Continue a call that this process took over.

        ``call.runs`` is the number of runs begun since the last answer. With 0 nothing of the call
        was executed, so it begins. Otherwise ``recovery`` decides whether it may run again.
        """
        self._claimed.add(call.pk)
        self.spawn(self._continue_taken_over(call) if call.runs else self._resume(call))

    def resume(self, call: Row) -> None:
        """Continue a call that this process claimed, and that runs in none of its event loops.

        If the database connection broke while an answer was claimed, the call has not begun.
        Otherwise it may have run, and is taken over with a new fence. So is a call of a former id
        of this process.
        """
        begun = call.runs or not call.fence or (call.pk, call.fence) in self._left
        begun = begun or call.process in lease.former
        self._claimed.add(call.pk)
        self.spawn(self._take_over_again(call) if begun else self._resume(call))

    async def _take_over_again(self, row: Row) -> None:
        """Take over a call from an earlier run in this process.

        The new fence rejects writes of a run that has not ended. The takeover counts as one of the
        call's runs, so that the call is not repeated for ever.
        """
        try:
            # Call ``hold`` in the job: this process may have got a new id since the claim.
            taken = await run_with_retries(lambda: calls.take_over(row, lease.hold()))
        finally:
            self._claimed.discard(row.pk)
        if taken is not None:
            self.take_over(taken)

    async def _continue_taken_over(self, row: Row) -> None:
        logger.warning("Call continues after a takeover: call=%s", row)
        await self._continue(row, verdict)

    async def _resume(self, row: Row) -> None:
        await self._continue(row, server_of)

    async def _continue(self, row: Row, decide: Decision) -> None:
        """Continue a stored call as ``decide`` says. An error of ``decide`` becomes a response."""
        session_call = await self._load(row)
        if session_call is None:
            return
        try:
            # Days may have passed since the request was authenticated. A call must not continue
            # with a token that was revoked while it was parked.
            if session_call.owner and bool(await run_with_retries(revoked, [session_call.owner])):
                self.revoke(session_call)
                session_call.post.set_outcome(session_call, None)
                return
            found = await decide(session_call, row)
        except Exception:
            logger.exception("Call cannot continue: call=%s", row)
            found = session_call.post.connection.error(session_call.active.call, InternalError())
        if isinstance(found, Server):
            self._begin(session_call, found, session_call.post.session.host or None)
        else:
            session_call.post.set_outcome(session_call, found)

    async def _load(self, row: Row) -> SessionCall | None:
        """Create and register a call from its row. Return None if its session has ended."""
        try:
            session = await run_with_retries(sessions.of_stream, row.stream_id)
            if session is None:
                return None
            connection = connection_of(session)
            post = PostResponse.resumed(self, session, row, connection)
            session_call = self._register(post, call_of(row, connection))
            session_call.interaction = interaction_of(row)
            self.enter(session_call, row)
            return session_call
        finally:
            self._claimed.discard(row.pk)


def _is_held(row: Row) -> bool:
    """Whether an event loop of this process runs the call or has claimed it."""
    return any(row.pk in one.running_ids() for _, one in call_manager.instances())


call_manager = Service(SessionCallManager)
