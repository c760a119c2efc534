"""The state of a running call, and of one run of it.

``ActiveCall`` is a call from its arrival to its response. Its messages precede the response, and a
cancelled call sends nothing more, from whatever thread.

``CallOutput`` takes the messages and the result of a call. Each transport has its own.

``RunningCalls`` has the runs of one event loop.

``Invocation`` is the declaration that a run calls, with its arguments.

``TimeGuard`` prevents a run from beginning or committing after its time limit.

``CallRun`` has everything that a method needs for one run. Each run has a new request, checks
permissions and binds objects again. Only the answers of the client are kept from earlier runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from django.db import DEFAULT_DB_ALIAS

from ..declarations.request import CallNotifier, KnownAnswers, Request, StopFlag
from ..exceptions import Stopped
from ..protocol.capabilities import offered
from ..protocol.connection import ClientCall
from ..protocol.http_rules import Mirrored
from ..protocol.jsonrpc import MethodNotFound, ProtocolError
from ..runtime import threads
from ..runtime.runtime import Service, environment
from ..storage import change_log, sessions
from ..storage.change_log import ANYTHING
from ..storage.jobs import run_or_disconnect, run_with_retries
from .visibility import label_in

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.arguments import Arguments
    from ..declarations.declaration import Declaration
    from ..declarations.server import Server
    from ..models import Session
    from ..protocol.jsonrpc import JSON, Id
    from ..storage.approvals import ApprovalUse
    from .callers import SessionCaller


class CallOutput:
    """Where calls send their messages, and where sessions store their results.

    Pipes and stateless HTTP override only ``send``. ``SessionCall`` also stores the result and the
    steps of its call. The methods here are those of a call that is only in memory and sends
    nothing.
    """

    stores_result = False

    def send(self, message: JSON) -> None:
        """Send a message that precedes the response. Called from any thread.

        It must not wait for the client. Raise ``ToolError`` if the call sends too much.
        """

    def release(self) -> None:
        """End the HTTP response, if the client can reconnect to fetch the rest. In any thread."""

    def is_behind(self) -> bool:
        """Whether the call should pause before it sends more. Called from any thread."""
        return False

    def take_pause(self) -> float:
        """Return, once, for how many seconds the call should sleep after what it has sent."""
        return 0.0

    def has_run_before(self) -> bool:
        """Whether the call has run before. Then it waits for a thread and is never rejected."""
        return False

    async def prepare_step(self) -> None:
        """Make it possible to store steps of ``request.once``. Raise ``Busy`` if it is not."""

    def store_result(self, response: JSON) -> None:
        """Store the response in the tool's transaction, at its end and in its thread.

        Called only if ``stores_result``. Raise ``Stopped`` to roll back.
        """

    async def was_rolled_back(self, run: CallRun) -> bool:
        """Whether the run's transaction was rolled back when its database connection broke.

        If the connection broke during the commit, that is unknown, and the result is False.
        """
        work = run.work
        return work is not None and work.is_atomic and not work.is_ending


NO_OUTPUT = CallOutput()


def _nothing() -> None: ...


@dataclass(eq=False)
class Batch:
    """Calls of a JSON-RPC batch: how many are open, and the responses so far."""

    open: int
    messages: list[JSON]


@dataclass(eq=False)
class ActiveCall:
    """A running call. ``stop`` is set when it is cancelled.

    ``_lock`` makes ``end`` wait for a ``send`` in another thread. Without it a message could follow
    the response, which the protocol forbids.
    """

    call: ClientCall
    output: CallOutput = NO_OUTPUT
    batch: Batch | None = None
    stop: StopFlag = field(default_factory=StopFlag)
    over: bool = False
    task: asyncio.Task[JSON | None] | None = None
    interrupt: Callable[[], object] | None = None  # stops it, if ``cancel`` alone is not enough
    refusal: ProtocolError | None = None  # the response to a call that ``refuse`` stopped
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: JSON) -> None:
        """Send a message before the response. Do nothing if the call is over or cancelled."""
        with self._lock:
            if not (self.over or self.stop.is_set):
                self.output.send(message)

    def release(self) -> None:
        """End the HTTP response, if the client can reconnect to fetch the rest."""
        with self._lock:
            if not (self.over or self.stop.is_set):
                self.output.release()

    def end(self) -> None:
        """Reject further messages, because the response comes next."""
        with self._lock:
            self.over = True
            # The output often refers back to this object. Break the cycle: it would keep both in
            # memory until the garbage collector runs.
            self.output, self.interrupt = NO_OUTPUT, _nothing

    def refuse(self, error: ProtocolError) -> None:
        """Stop the call and respond with ``error``, unless it is over or cancelled already.

        Call it in the event loop, like ``cancel``: a task is not safe for threads.
        """
        if not (self.over or self.stop.is_set):
            self.refusal = error
            (self.interrupt or self.cancel)()

    def cancel(self) -> None:
        """Cancel the call's task, once: a second cancel would interrupt its cleanup."""
        if self.stop.is_set:
            return
        self.stop.set()
        if self.task is not None:
            self.task.cancel()


class ClientSession(Protocol):
    """The state of a client's session or connection that protocol methods read and change."""

    def log_level(self) -> str | None:
        """Return the minimum level of log messages that the client has set; None for none."""
        ...

    async def set_log_level(self, level: str) -> None: ...

    async def subscribe(self, uri: str, row_ref: str) -> None: ...

    async def unsubscribe(self, uri: str) -> None: ...

    async def listen(self, id: Id, wanted: dict[str, Any], row_refs: Mapping[str, str]) -> None:
        """Acknowledge the subscription, then send the notifications that are ``wanted``.

        Return when the client or the server ends it. ``row_refs`` has the database row that each
        URI shows, as ``visibility`` writes it, or "".
        """
        ...


class SessionState:
    """A session that methods can change. ``caller`` is the one of the request.

    A change is committed, and so valid in every process, before the method returns.
    """

    def __init__(self, session: Session, caller: SessionCaller) -> None:
        self.session, self._caller = session, caller

    def log_level(self) -> str | None:
        return self.session.log_level

    async def set_log_level(self, level: str) -> None:
        await run_with_retries(sessions.set_log_level, self.session, level)

    async def subscribe(self, uri: str, row_ref: str) -> None:
        scopes = self._caller.scopes
        await run_with_retries(sessions.subscribe, self.session, uri, row_ref, scopes)
        if row_ref:
            await follow_model(row_ref)

    async def unsubscribe(self, uri: str) -> None:
        await run_with_retries(sessions.unsubscribe, self.session, uri)

    async def listen(self, id: Id, wanted: dict[str, Any], row_refs: Mapping[str, str]) -> None:
        raise MethodNotFound("Sessions do not support subscriptions/listen.")


class NoSession:
    """The session of a request that has none. Every change raises an error."""

    def log_level(self) -> str | None:
        return None

    async def set_log_level(self, level: str) -> None:
        raise MethodNotFound("There is no session yet.")

    async def subscribe(self, uri: str, row_ref: str) -> None:
        raise MethodNotFound("There is no session yet.")

    async def listen(self, id: Id, wanted: dict[str, Any], row_refs: Mapping[str, str]) -> None:
        raise MethodNotFound("There is no session yet.")

    async def unsubscribe(self, uri: str) -> None:
        raise MethodNotFound("There is no session yet.")


async def follow_model(row_ref: str) -> None:
    """Record that sessions subscribe to this row's model, so that processes log its changes.

    When this returns, no later change of the row is missed: it waits until all processes that save
    have read the interest.
    """
    if not environment().is_shared():
        return
    # Cursors first: a change that is recorded after the interest must come after the cursor.
    await threads.changes.run(run_or_disconnect, change_log.create_cursors)
    models = {ANYTHING, label_in(row_ref)}
    wait = await run_with_retries(change_log.store_interests, change_log.SESSIONS_HOLDER, models)
    change_log.watched.forget()
    # Processes that save cache the interests. Until their caches expire they record nothing.
    await asyncio.sleep(wait)


@dataclass(slots=True, repr=False)  # the repr of ``read`` would show arguments in error reports
class Invocation:
    """A run of a declaration.

    ``read`` validates the arguments without the database and returns them. ``finish`` makes the
    result from the function's return value. ``unknown`` makes the error for a caller who may not
    use the declaration: the same as for a name that does not exist. If ``denied`` is given, it
    makes the error for such a caller instead, and may query the database.
    """

    declaration: Declaration
    read: Callable[[], dict[str, Any]]
    finish: Callable[[Any], dict[str, Any]]
    unknown: Callable[[], ProtocolError]
    arguments: Arguments
    atomic: bool | str = False
    write: bool = False
    denied: Callable[[], Exception] | None = None
    # Called in the function's transaction, right before the function.
    before_function: Callable[[], None] | None = None
    is_begun: bool = False  # the function was called, so the caller had the permission
    is_ending: bool = False  # the transaction is being committed

    @property
    def is_atomic(self) -> bool:
        """Whether the function runs in a transaction."""
        return self.atomic is not False and not self.declaration._is_async

    @property
    def transaction_alias(self) -> str | None:
        """The alias of the database whose transaction the function runs in, or None."""
        if not self.is_atomic:
            return None
        return self.atomic if isinstance(self.atomic, str) else DEFAULT_DB_ALIAS


class TimeGuard:
    """Ensures that a run either commits or is stopped by its time limit, never both.

    After the limit, the run can neither begin its function nor commit. After the run has begun to
    commit, the limit no longer applies.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._is_committing = request, False
        # The thread begins and commits, and the event loop watches the time. Without the lock the
        # caller could be told that nothing was changed before the function begins, or that the
        # writes were rolled back while they are committed.
        self._lock = threading.Lock()

    def begin_function(self, work: Invocation) -> None:
        """Note that the function begins. Raise ``Stopped`` if the time is over."""
        with self._lock:
            if self._request._is_out_of_time:
                raise Stopped()
            work.is_begun = True

    def begin_commit(self) -> bool:
        """Return whether the run may commit. Called in its thread."""
        with self._lock:
            self._is_committing = not self._request._is_out_of_time
            return self._is_committing

    def expire(self) -> bool:
        """Stop the run and return True, unless it is committing. Called in the event loop."""
        with self._lock:
            self._request._is_out_of_time = not self._is_committing
            return self._request._is_out_of_time


class CallRun:
    """One run of ``call``, on ``server``, as ``principal``.

    ``mirrored`` are request headers that must equal the arguments. ``store_result`` is called with
    the result at the end of the tool's transaction. A call that ``has_run_before`` waits for a
    thread and is never rejected. ``resumes`` names the state that the client carried, and is "" for
    a new call.
    """

    work: Invocation | None = None  # the declaration that is run, once it has been found
    # Called with the result at the end of the tool's transaction, in its thread.
    before_commit: Callable[[CallRun, dict[str, Any]], None] | None = None
    error: Exception | None = None  # which became an error response or the result of a tool
    is_counted = False  # whether the throttles of the server have counted it
    interaction_id: str = ""  # ``Interaction.id``, if the call has run before or has a row
    approval: ApprovalUse | None = None  # with which it calls its function
    approval_pk: int | None = None  # of the request for approval, also without a decision
    time_guard: TimeGuard | None = None  # if the function has a time limit

    def __init__(
        self,
        call: ClientCall,
        server: Server,
        principal: Principal,
        session: ClientSession,
        notifier: CallNotifier | None = None,
        answers: KnownAnswers | None = None,
        stop: StopFlag | None = None,
        host: str | None = None,
        mirrored: Mirrored | None = None,
        store_result: Callable[[dict[str, Any]], None] | None = None,
        has_run_before: bool = False,
        resumes: str = "",
    ) -> None:
        self.resumes = resumes
        self.call, self.params, self.server, self.principal = call, call.params, server, principal
        self.session, self.answers = session, answers or KnownAnswers()
        self.stop = stop or StopFlag()
        self.mirrored, self.store_result, self.has_run_before = (
            mirrored,
            store_result,
            has_run_before,
        )
        target = call.params.get("uri" if call.method.startswith("resources/") else "name")
        self.request = Request(
            principal,
            server,
            host=host,
            method=call.method,
            name=target if isinstance(target, str) else "",
            revision=call.revision.name,
            client_info=call.client_info,
            offered=partial(offered, call.revision, call.capabilities),
            meta=call.meta,
            answers=self.answers,
            notifier=notifier,
            stop=self.stop,
        )

    @property
    def subject(self) -> str:
        """Return the method and the name or URI as ``key=value``, for log messages."""
        key = "name" if self.params.get("name") else "uri"
        # The client chooses the name. ``repr`` escapes line breaks, which would forge log lines.
        target = f" {key}={str(self.params[key])[:200]!r}" if self.params.get(key) else ""
        return f"method={self.call.method}{target}"


LONG_CALL_SECONDS = 0.25  # a call counts as long after one to two of these intervals


class RunObserver(Protocol):
    """Ends running calls whose caller has lost a permission."""

    def on_first_call(self) -> None:
        """Handle that a call runs, and none did before."""
        ...

    def on_long_call(self) -> None:
        """Handle that a call runs for longer than ``LONG_CALL_SECONDS``."""
        ...

    def on_idle(self) -> None:
        """Handle that no call runs any more. This comes up to ``LONG_CALL_SECONDS`` late."""
        ...


class RunningCalls:
    """The calls that run in one event loop.

    Most calls are short. Each costs only two dict operations: one timer finds the long ones.
    """

    def __init__(self) -> None:
        self.observer: RunObserver | None = None
        # The value says whether the timer has fired since the run began.
        self._runs: dict[CallRun, tuple[ActiveCall, bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._runs)

    def runs(self) -> dict[CallRun, ActiveCall]:
        return {run: active for run, (active, _) in self._runs.items()}

    def add(self, run: CallRun, active: ActiveCall) -> None:
        """Register a run. Also of a public declaration: an administrator may switch it off."""
        self._runs[run] = active, False
        if self._timer is None and self.observer is not None:
            self.observer.on_first_call()
            self._start_timer()

    def discard(self, run: CallRun) -> None:
        self._runs.pop(run, None)

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LONG_CALL_SECONDS, self._find_long)

    def _find_long(self) -> None:
        self._timer, observer = None, self.observer
        assert observer is not None  # ``add`` starts the timer only for an observer
        for run, (active, is_long) in list(self._runs.items()):
            if is_long:
                observer.on_long_call()
            self._runs[run] = active, True
        if self._runs:
            self._start_timer()
        else:
            observer.on_idle()


running_calls = Service(RunningCalls)
