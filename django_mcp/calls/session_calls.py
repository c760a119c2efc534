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
import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

from ..auth import kill_switches
from ..conf import settings
from ..declarations.server import Server
from ..exceptions import Busy, CallParked, Stopped
from ..models import Ask, Session
from ..models import Call as Row
from ..protocol.connection import Answered, Cancelled, ClientCall, Connection, Event
from ..protocol.jsonrpc import (
    JSON,
    InternalError,
    InvalidRequest,
    ProtocolError,
    encode,
)
from ..protocol.revisions import Revision
from ..runtime.runtime import Service, current
from ..storage import calls, sessions
from ..storage.calls import TimedOutQuestions
from ..storage.databases import one_transaction
from ..storage.jobs import run_with_retries
from ..storage.leases import lease
from ..storage.wakeups import StreamWakeup, stream_wakeups, wake_readers
from .call_state import ActiveCall, CallRun, SessionState
from .callers import SessionCaller, covers, find_revoked
from .execution import surrounded_job
from .interaction import (
    Asking,
    Interaction,
    WrittenQuestion,
    call_of,
    connection_of,
    interaction_of,
    subscribe_to_completion,
    understood,
    withdrawal_messages,
    written,
)
from .once import StepRows
from .recovery import Decision, server_of, shutdown_error, verdict
from .runner import CallRunner, overloaded
from .session_output import (
    DUPLICATE,
    PostResponse,
    SessionCall,
    SessionCallRegistry,
)
from .throttling import UNCOUNTED

if TYPE_CHECKING:
    from ..auth.principal import Principal


logger = logging.getLogger("django_mcp.calls")
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
        await self._session_call.post.wait_for_row(self._session_call)
        timeouts = {digest: asked.seconds for digest, (_, asked) in questions.items()}
        if not await self._is_ready(min(timeouts.values())):
            return {digest: {"timeout": seconds} for digest, seconds in timeouts.items()}
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
        await session_call.post.registry.writer.flush(to)
        asked = [question for _, question in questions.values()]
        if pages := [question.id for question in asked if question.is_url_elicitation]:
            await run_with_retries(subscribe_to_completion, session_call.post.session, pages)
        parked = await run_with_retries(
            calls.park, to.call, to.fence,
            [_row(key, digest, question) for digest, (key, question) in questions.items()],
            [encode(question.message) for question in asked],
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
        if not calls.is_owned(row.pk, row.fence):
            raise Stopped()

    async def recall(self, call: str) -> dict[str, Any]:
        return await run_with_retries(calls.step_values, call)

    async def aforget(self, call: str) -> None:
        """Do nothing. The call may run again in another process, which needs the steps.

        They are deleted in the transaction that stores the outcome, or right after it.
        """


class SessionCallManager(SessionCallRegistry):
    """Starts and continues the calls of sessions in one event loop.

    It is the ``storage.calls.CallManager`` of the loop's poller.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_ending = False  # shutting down: other workers continue calls that become ready
        self.poller.call_manager = self

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
        post = PostResponse(
            self, session, SessionCaller.from_principal(principal), connection, received
        )
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
        state = SessionState(post.session, post.caller)
        runner = CallRunner(
            server, post.connection, post.caller, state, SessionAsker(session_call),
            memory=SessionCallSteps(session_call), host=host, transport=post.session.transport,
            session_pk=post.session.pk,
        )  # fmt: skip
        if session_call.is_durable and post.stream is None:
            # Store the call before it runs, so that another worker can continue it. Check the
            # permission first: rows are not written for callers who may not use the tool. The call
            # of a POST with no other is stored only when it asks or takes long, after the check.
            try:
                if post.is_single or await self._is_admitted(session_call, server, host):
                    await post.wait_for_row(session_call)
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
        call, caller = session_call.active.call, session_call.post.caller
        principal = await caller.peek()
        tool = server._catalog.called_tool(call.params)
        if tool is None:
            return False
        state = SessionState(session_call.post.session, caller)
        request = CallRun(call, server, principal, state, host=host).request
        if tool._decides_without_database:
            try:
                await kill_switches.arefresh()
            except DatabaseError:  # the database is down, as at the start of a process
                await run_with_retries(kill_switches.refresh)
            if not kill_switches.may_query(server.name):
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
                self._store_answer, session, principal, answered, here, is_retry=False
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
        reads = any(reader.session == session.pk for reader in stream_wakeups())
        return reads and not comes_back and self.poller.call_manager is self

    def _store_answer(
        self,
        session: Session,
        principal: Principal,
        answered: Answered,
        here: bool,
        *,
        is_retry: bool,
    ) -> Row | None:
        """Store an answer. If its call waits for no other, claim the call and return it.

        Runs in a thread of the pool ``log``. Answers are ignored if the token has fewer scopes than
        the call began with.
        """
        process = lease.hold() if here else ""
        ask = calls.open_question(session, str(answered.id))
        call = None
        if ask is not None and covers(principal, ask.call.scopes):
            answer = understood(connection_of(session).revision, ask.wire, answered)
            call = calls.answer(session, ask.pk, answer, process=process)
        elif not is_retry:
            logger.debug("Response without a request ignored: id=%.80r", answered.id)
        if call is None and is_retry:
            call = calls.answered(session, str(answered.id), process=process)
        return call

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

    def handle_timeout(self, timed_out: TimedOutQuestions) -> None:
        """Continue a call whose question has timed out."""
        if timed_out.stream is not None:
            wake_readers(StreamWakeup(timed_out.stream, changed=True))
        if timed_out.call is not None:
            self._claimed.add(timed_out.call.pk)
            self.spawn(self._resume(timed_out.call))

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
        may_have_run = call.runs or not call.fence or (call.pk, call.fence) in self._left
        may_have_run = may_have_run or call.process in lease.former
        self._claimed.add(call.pk)
        self.spawn(self._take_over_again(call) if may_have_run else self._resume(call))

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
            if session_call.owner and bool(
                await run_with_retries(find_revoked, [session_call.owner])
            ):
                self.revoke(session_call)
                session_call.post.set_outcome(session_call, None)
                return
            decision = await decide(session_call, row)
        except Exception:
            logger.exception("Call cannot continue: call=%s", row)
            decision = session_call.post.connection.error(session_call.active.call, InternalError())
        if isinstance(decision, Server):
            self._begin(session_call, decision, session_call.post.session.host or None)
        else:
            session_call.post.set_outcome(session_call, decision)

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
    return any(row.pk in manager.running_ids() for _, manager in call_manager.instances())


call_manager = Service(SessionCallManager)
