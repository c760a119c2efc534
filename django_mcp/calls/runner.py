"""
Run a call, again if needed, until it has a response or the client must answer a question.

``CallRunner.response`` turns every error of the project's code into an error response. It returns
None for a cancelled call. It raises ``CallParked`` if the call waits for answers as rows. The
transports supply where messages go (``CallOutput``), how a client is asked (``ClientAsker``) and
where steps are stored (``StepStore``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..declarations.request import KnownAnswers
from ..exceptions import (
    ApprovalRequired,
    Busy,
    CallParked,
    InputRequired,
    OnceNeeded,
    RunEnded,
    Stopped,
    ToolError,
)
from ..protocol.connection import SERVER_INFO, ClientCall, Connection
from ..protocol.http_rules import Mirrored
from ..protocol.jsonrpc import (
    JSON,
    InternalError,
    Overloaded,
    ProtocolError,
    UrlElicitationRequired,
)
from ..protocol.revisions import Revision
from ..runtime.outages import note_break
from ..signals import call_started
from ..storage.jobs import break_behind
from . import audit
from .approvals import keep_approval, wait_for_decision
from .call_state import ActiveCall, CallOutput, CallRun, ClientSession, running_calls
from .errors import failure, is_bug
from .execution import UNKNOWN, DatabaseBroke, Retries
from .interaction import Asking, Interaction, purpose, resumed, sealed
from .methods import dispatch, server_name
from .once import StepStore, execute_once, in_memory_steps
from .output import ClientNotifier
from .records import (
    RECORDED_METHODS,
    CallRecord,
    enter_wrappers,
    report_end,
    report_start,
    wrappers,
)

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.calls")
NO_WRAPPERS = nullcontext()


class ClientAsker(Protocol):
    """Sends questions as requests to a client of a revision with the ``initialize`` handshake."""

    async def ask(
        self, revision: Revision, asking: Sequence[Asking], interaction: Interaction
    ) -> dict[str, JSON]:
        """Return the answers, by digest. Raise ``CallParked`` if the call waits as rows."""
        ...

    def expect(self, *elicitations: str) -> None:
        """Remember that an error sent the client to these pages, by their elicitation ids.

        The client is notified when a page is completed.
        """
        ...


@dataclass
class CallRunner:
    """Turns calls of one client to ``server`` into responses.

    ``get_principal`` is awaited before every run and returns the current principal. The first run
    has the ``principal`` instead, if there is one. ``asker`` sends questions as requests, which
    revisions with the ``initialize`` handshake need. Newer revisions ask by an ``input_required``
    result and do not use it. ``memory`` stores the values of steps. ``mirrored`` are the request
    headers that must equal the arguments. ``transport`` and ``session_pk``
    are for records of calls. Messages and results go to the ``output`` of a call.
    """

    server: Server
    connection: Connection
    get_principal: Callable[[], Awaitable[Principal]]
    session: ClientSession
    asker: ClientAsker | None = None
    memory: StepStore = in_memory_steps
    host: str | None = None
    mirrored: Mirrored | None = None
    principal: Principal | None = None
    transport: str = "http"
    session_pk: int | None = None

    async def response(
        self, active: ActiveCall, interaction: Interaction | None = None
    ) -> JSON | None:
        """Return the response to a call, or None if it was cancelled. Raise ``CallParked``.

        ``interaction`` is the stored state of a call that has run before.
        """
        call = active.call
        try:
            return self._result(call, await self._outcome(active, interaction))
        except ProtocolError as error:
            return self._error(call, error)
        except Stopped:
            return None
        except CallParked:
            raise
        except Busy as error:
            return self.connection.error(call, overloaded(str(error)))
        except (Exception, RunEnded, asyncio.CancelledError) as error:
            # The project's code may raise CancelledError itself. Only a cancellation of this task
            # propagates. Anything else must become a response, or the client waits for ever.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            logger.exception("Call failed: method=%s", call.method)
            return self.connection.error(call, InternalError())

    def _result(self, call: ClientCall, result: JSON) -> JSON:
        meta = {SERVER_INFO: server_name(self.server)} | result.get("_meta", {})
        return self.connection.result(call, result | {"_meta": meta})

    def _error(self, call: ClientCall, error: ProtocolError) -> JSON:
        if self.asker is not None and isinstance(error, UrlElicitationRequired):
            self.asker.expect(*(page["elicitationId"] for page in error.elicitations))
        return self.connection.error(call, error)

    async def _outcome(self, active: ActiveCall, interaction: Interaction | None) -> JSON:
        """Return the result of the call, or the ``input_required`` result with its questions."""
        principal = self.principal or await self.get_principal()
        record = CallRecord(
            active.call, self.server, principal, session=self.session_pk, transport=self.transport
        )  # fmt: skip
        run = partial(self._run, active, interaction, record)
        return await recorded(record, run, is_new=not active.output.has_run_before())

    async def _run(
        self,
        active: ActiveCall,
        interaction: Interaction | None,
        record: CallRecord,
    ) -> JSON:
        """Return the result of the call.

        Run the call again after answers, steps and outages. Most calls run once, and never have an
        ``Interaction``.
        """
        # Kept here, because ``ActiveCall.end`` resets ``active.output`` and the run may fail later.
        call, output, principal = active.call, active.output, record.principal
        if interaction is None and (call.input_responses or call.request_state is not None):
            interaction = resumed(call, purpose(call, self.server, principal))
        answers = KnownAnswers() if interaction is None else interaction.answers(call)
        named, retries = dict(answers.named), None
        level = self.session.log_level if call.revision.handshake else lambda: call.log_level
        owner = (*principal.limit_keys, self.server.name)
        high_water = None if interaction is None else interaction.high_water
        notifier = ClientNotifier(active, owner, level, high_water)
        store_result: Callable[[JSON], None] | None = None
        if output.stores_result:
            store_result = lambda result: output.store_result(self._result(call, result))  # noqa: E731
        has_run_before, running = output.has_run_before(), running_calls()
        before_commit = (
            partial(audit.store_in_transaction, record) if self.server._may_audit else None
        )
        resumes = "" if interaction is None or has_run_before else interaction.resumes
        try:
            while True:
                if interaction is not None and (interaction.may_return or interaction.has_steps):
                    answers.remembered = await self.memory.recall(interaction.id)
                    interaction.has_steps = bool(answers.remembered)
                run = CallRun(
                    call, self.server, principal, self.session, notifier, answers, active.stop,
                    self.host, self.mirrored, store_result, has_run_before, resumes,
                )  # fmt: skip
                run.before_commit = before_commit
                run.interaction_id = "" if interaction is None else interaction.id
                try:
                    running.add(run, active)
                    try:
                        result = await dispatch(run)
                    except BaseException as error:
                        record.add_run(run, error)
                        raise
                    finally:
                        running.discard(run)
                    record.add_run(run)
                    return result
                except ApprovalRequired as required:
                    # The function was not called, so the answers of the client are not used up.
                    interaction, has_run_before = interaction or Interaction(), True
                    final = await wait_for_decision(required, run)
                    record.error = required if final is not None else None
                except RunEnded as ended:
                    interaction = interaction or Interaction()
                    # A run that ended has moved the client's named answers to ``known``. A run that
                    # broke has not, so the next one needs them again.
                    interaction.high_water, has_run_before, named = notifier.high_water, True, {}
                    final = await self._prepare_rerun(ended, run, interaction, output)
                except DatabaseBroke as broke:
                    interaction, has_run_before = interaction or Interaction(), True
                    retries = retries or Retries(output.was_rolled_back)
                    final = await retries.wait(run, broke.error, has_steps=interaction.has_steps)
                    if final is None:
                        await keep_approval(run, broke, interaction.id)
                if final is not None:  # the result that ends the call, instead of another run
                    return final
                answers = KnownAnswers(known=dict(interaction.known), named=dict(named))
                # Answers and retries take time. The user may have been deactivated meanwhile.
                principal = await self.get_principal()
        finally:
            # Keep the steps while the client has a ``requestState``: with it the client may resume
            # the call, and the steps must not be executed twice. For a session ``aforget`` does
            # nothing: the steps are deleted when the outcome is stored.
            if interaction is not None and interaction.has_steps:
                holds_state = call.revision.input_required and interaction.may_return
                if not holds_state:
                    await self.memory.aforget(interaction.id)

    async def _prepare_rerun(
        self, ended: RunEnded, run: CallRun, interaction: Interaction, output: CallOutput
    ) -> JSON | None:
        """Get the step or the answers that the run needs, and return None to run it again.

        Return a result instead if the client must retry with its answers, or if this fails.
        """
        if isinstance(ended, OnceNeeded):
            # Outside of ``try``: nothing of the step has happened, so ``Busy`` becomes an overload
            # error, after which the client may retry, and not the result of the tool.
            await output.prepare_step()
        try:
            if run.approval is not None and isinstance(ended, OnceNeeded | InputRequired):
                # A call of a session gets the id of its row when it is stored.
                await output.prepare_step()
                await keep_approval(run, ended, interaction.id)
            if isinstance(ended, OnceNeeded):
                interaction.known, interaction.has_steps = dict(run.answers.known), True
                await execute_once(self.memory, interaction.id, ended, run)
                return None
            if isinstance(ended, InputRequired):
                return await self._asked(ended, run, interaction)
        except Exception as error:
            if is_bug(error) and (broke := break_behind(error)) is not None:
                note_break(broke)
                # A step may have effects that no database rolls back. It must not be retried.
                error = ToolError(UNKNOWN)
            return failure(error, run)
        raise ended

    async def _asked(
        self, asked: InputRequired, run: CallRun, interaction: Interaction
    ) -> JSON | None:
        revision = run.call.revision
        if revision.input_required:
            asking = interaction.ask(run.call, asked.questions, run.answers)
            bound = purpose(run.call, run.server, run.principal)
            return asking | {"requestState": sealed(interaction, bound)}
        assert self.asker is not None, "A revision with the initialize handshake needs an asker."
        interaction.next(run.answers)
        questions = list(asked.questions.values())
        interaction.known.update(await self.asker.ask(revision, questions, interaction))
        return None


async def recorded(
    record: CallRecord, run: Callable[[], Awaitable[JSON]], *, is_new: bool = True
) -> JSON:
    """Await ``run()`` and return its result. Report the call, and store its audit entry.

    A call that is not new has run in another process. Its start was reported there.
    """
    with enter_wrappers(record) if wrappers else NO_WRAPPERS:
        if is_new and call_started.receivers:
            await report_start(record)
        raised: BaseException | None = None
        try:
            try:
                result = await run()
                record.end(result)
            except BaseException as error:
                record.end(error=error)
                raised = error
            # Report the call outside of the ``except`` block. Inside it, ``sync_to_async`` raises
            # the error again in a thread, and the frame of that thread keeps the error in memory.
            if record.server._may_audit:
                await audit.store(record)
            await report_end(record)
            if raised is not None:
                raise raised
        finally:
            # The traceback of the error refers to this frame. If this frame also referred to the
            # error, the request would stay in memory until the garbage collector runs.
            record.error = raised = None
    return result


async def record_denied_call(record: CallRecord, error: Exception) -> None:
    """Record and report a call that HTTP answers with 401 or 403, which reaches no runner."""

    async def deny() -> JSON:
        raise error

    if record.method in RECORDED_METHODS:
        with suppress(type(error)):
            await recorded(record, deny)
        error.__traceback__ = None  # its frames have the error: see ``recorded``


def overloaded(why: str) -> Overloaded:
    """Return the error for a request that is rejected before any effect and may be retried."""
    return Overloaded(why, data={"retryAfter": 1})


def _is_cancelled() -> bool:
    """Whether the current task was cancelled, and not only its code raised ``CancelledError``."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
