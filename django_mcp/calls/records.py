"""
Records of calls: what was called, by whom and with which outcome.

``CallRunner`` makes one record per call, however often the call runs. It runs the call inside all
``wrappers`` (``enter_wrappers``). ``report_start`` sends the signal ``call_started``.
``report_end`` calls ``observers``, writes one log line and sends ``call_finished``. Requests that
do not reach the project's code, such as ``tools/list``, only have wrappers.

The record of a call that is parked as a row ends with the outcome ``INPUT_REQUIRED``. The worker
that continues the call makes a new record.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from .. import signals
from ..declarations.redaction import MASK
from ..exceptions import (
    ApprovalRequired,
    Busy,
    InsufficientScope,
    RunEnded,
    Stopped,
    Throttled,
    TimeLimitExceeded,
    UnknownModel,
)
from ..models import IMPERSONATOR_PREFIX
from ..protocol.jsonrpc import InternalError, InvalidParams, ResourceNotFound
from ..runtime import threads
from ..runtime.async_orm import orm_in_pool

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.declaration import Declaration
    from ..declarations.request import Request
    from ..declarations.server import Server
    from ..protocol.connection import ClientCall
    from .call_state import CallRun, Invocation

logger = logging.getLogger("django_mcp.calls")
# The methods that run the project's declarations. Only these are logged and sent as signals.
RECORDED_METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
MAX_NAME_LENGTH = 200  # characters of a name or URI that the client has chosen
# The trace id in the header of W3C Trace Context, which clients send as ``_meta.traceparent``.
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")


class CallOutcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    # The tool reported an error that the model can handle, or the arguments were invalid.
    ERROR = "error"
    # A bug, an outage of a database, no free thread, or more time than the time limit.
    FAILED = "failed"
    # No declaration has this name, the caller may not use it, or the token lacks a scope.
    DENIED = "denied"
    THROTTLED = "throttled"  # a limit of calls was reached
    # The response asks the client a question, and the client calls again with the answer.
    INPUT_REQUIRED = "input_required"
    # Nobody has approved the call yet. The client calls again later.
    APPROVAL_PENDING = "approval_pending"
    CANCELLED = "cancelled"


class CallRecord:
    """One call of a client, from its arrival to its response.

    ``server``, ``method``, ``principal``, ``revision``, ``transport`` ("http", "sse", "stdio" or
    "inspector") and ``session`` (the key of the session's row, or None) are known from the start.
    ``request`` is the ``Request`` of the latest run, and None before the first. ``declaration`` is
    what the call runs, or None if there is nothing of this name.

    ``outcome`` (a ``CallOutcome``), ``error`` (an exception, or None), ``duration`` (seconds),
    ``queries`` and ``rows_written`` have their values when the call has finished. The two numbers
    count what the project's code did in threads, also in runs that were rolled back. ``error`` is
    deleted when all receivers of ``call_finished`` have returned.
    ``approval`` is the key of the ``Approval`` that the call has, waits for or was refused by, or
    None.
    ``is_activity`` says that the call returned a result, or may have written before it failed or
    asked a question.
    """

    __slots__ = (
        "_began", "_has_begun", "_timestamp", "approval", "call", "declaration", "duration",
        "error", "is_activity", "is_audited", "method", "outcome", "principal", "queries",
        "request", "rows_written", "server", "session", "trace_id", "transport",
    )  # fmt: skip

    def __init__(
        self,
        call: ClientCall,
        server: Server,
        principal: Principal,
        *,
        session: int | None = None,
        transport: str = "http",
    ) -> None:
        self.call, self.server, self.principal = call, server, principal
        self.method, self.session, self.transport = call.method, session, transport
        self.declaration: Declaration | None = None
        self.request: Request | None = None
        self.approval: int | None = None
        self.outcome: CallOutcome | None = None
        self.error: BaseException | None = None
        self.duration, self.queries, self.rows_written = 0.0, 0, 0
        self._began, self._timestamp = time.perf_counter(), time.time()
        self._has_begun = False  # whether the declaration's function was called
        self.is_activity = False
        self.is_audited = False  # whether the transaction of the call has stored its audit entry
        self.trace_id = ""
        if call.meta and isinstance(parent := call.meta.get("traceparent"), str):
            found = TRACEPARENT.match(parent)
            self.trace_id = found[1] if found else ""

    @property
    def revision(self) -> str:
        """The protocol revision of the call, such as "2025-11-25"."""
        return self.call.revision.name

    @property
    def started(self) -> datetime:
        """The time at which the call arrived, in UTC."""
        return datetime.fromtimestamp(self._timestamp, UTC)

    @property
    def name(self) -> str:
        """The name of the tool or prompt, or the URI template of the resource.

        If there is nothing of that name, it is what the client sent, cut to 200 characters. Parts
        of a URI that may be secret are masked.
        """
        if self.declaration is not None:
            declared: Any = self.declaration
            return str(declared.uri if self.method == "resources/read" else declared.name)
        is_read = self.method == "resources/read"
        sent = self.call.params.get("uri" if is_read else "name")
        if not isinstance(sent, str):
            return ""
        if is_read:
            sent = _unknown_uri(sent, self.server)
        return sent[:MAX_NAME_LENGTH]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as the client sent them, not validated; ``uri`` of a resource.

        They may contain secrets.
        """
        params = self.call.params
        if self.method == "resources/read":
            return {"uri": params.get("uri")}
        sent = params.get("arguments")
        return sent if isinstance(sent, dict) else {}

    @property
    def user(self) -> Any:
        """The user that the call acts as, or an ``AnonymousUser``."""
        return self.principal.user

    @property
    def client(self) -> str:
        """The client id of the OAuth application, or the key of a token, or "" without a token.

        Of a call in the inspector as another user it is ``impersonator:`` and the primary key of
        the member of staff. It was verified. The name that the client gave itself is
        ``client_info``.
        """
        if self.principal.impersonator:
            return f"{IMPERSONATOR_PREFIX}{self.principal.impersonator}"
        auth = self.principal.auth
        if auth is None:
            return ""
        return str(getattr(auth.application, "client_id", "") or auth.key)

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The name and version that the client gave itself, for display."""
        return self.call.client_info

    def elapsed(self) -> float:
        """Return the seconds since the call arrived."""
        return time.perf_counter() - self._began

    # Filled in by the runner.

    def add_run(self, run: CallRun, error: BaseException | None = None) -> None:
        """Add what a run did. ``error`` is what it raised."""
        # The error is moved, not copied. Its traceback has frames that refer to the run, so a run
        # that keeps its error is a reference cycle.
        self.request, self.error, run.error = run.request, run.error, None
        self.approval = run.approval_pk or self.approval
        self.queries += run.request._queries
        self.rows_written += run.request._rows_written
        if (work := run.work) is not None:
            self.declaration = work.declaration
            self._has_begun = self._has_begun or work.is_begun
            failure = self.error or error
            if failure is None or _may_have_written(run, work, failure):
                self.is_activity = True
        if self.error or error:  # the transaction was rolled back
            self.is_audited = False

    def end(
        self, result: Mapping[str, Any] | None = None, error: BaseException | None = None
    ) -> None:
        """Note that the call has a result, or that it ended with an error."""
        self.duration = time.perf_counter() - self._began
        # ``self.error`` is what the project's code raised, before it became an error response.
        failure = self.error or error
        if failure is not None:
            self.outcome = self._outcome_of(failure)
            self.error = failure if isinstance(failure, Exception) else None
        elif result is not None and result.get("resultType") == "input_required":
            self.outcome = CallOutcome.INPUT_REQUIRED
        else:
            is_error = result is not None and result.get("isError")
            self.outcome = CallOutcome.ERROR if is_error else CallOutcome.OK

    def _outcome_of(self, error: BaseException) -> CallOutcome:
        if isinstance(error, Stopped | asyncio.CancelledError):
            return CallOutcome.CANCELLED
        if isinstance(error, ApprovalRequired):
            return CallOutcome.APPROVAL_PENDING
        if isinstance(error, RunEnded):  # ``CallParked`` among them
            return CallOutcome.INPUT_REQUIRED
        if isinstance(error, InsufficientScope | UnknownModel):
            return CallOutcome.DENIED
        if isinstance(error, Throttled):
            return CallOutcome.THROTTLED
        # A call of something unknown or forbidden, or without a name, ends with one of these errors
        # before the function is called. Later, the function itself has raised the error.
        if isinstance(error, InvalidParams | ResourceNotFound) and not self._has_begun:
            return CallOutcome.DENIED
        is_failure = isinstance(error, Busy | InternalError | TimeLimitExceeded)
        if is_failure or not isinstance(error, Exception):
            return CallOutcome.FAILED
        # Not at the start of the module: every command of a project with the authorization server
        # imports this module, and errors import pydantic.
        from .errors import is_bug

        return CallOutcome.FAILED if is_bug(error) else CallOutcome.ERROR


def _unknown_uri(uri: str, server: Server) -> str:
    """Return the URI of no resource, without parts that may be secret.

    The client may have misspelled a URI whose template has a secret variable.
    """
    scheme = uri.partition(":")[0].strip().lower()
    for resource in server._catalog.templates.values():
        if resource._has_secret_variable and resource.uri.lower().startswith(f"{scheme}:"):
            return f"{scheme}:{MASK}"
    without_query = re.split(r"[?#]", uri, maxsplit=1)[0]
    return re.sub(r"//[^/]*@", f"//{MASK}@", without_query)


def _may_have_written(run: CallRun, work: Invocation, error: BaseException) -> bool:
    """Whether a run that failed or asked a question counts as having written.

    A failed run of a function that writes does, even if its writes were rolled back. A run that
    asked a question does only if writes remain, outside of a transaction or in a step: the call
    runs again after the answer, which may never come.
    """
    if not (work.is_begun and work.write):
        return False
    writes_remain = work.atomic is False or bool(run.answers.remembered)
    return writes_remain or not isinstance(error, RunEnded)


Observer = Callable[[CallRecord], None]
Wrapper = Callable[[CallRecord], AbstractContextManager[Any]]
# Functions that are called in the event loop when a call has finished. They must not block. Apps
# add theirs in ``AppConfig.ready()``.
observers: list[Observer] = []
# Context managers around a call of any method, entered and left in the event loop. The code that
# the call runs sees context variables that they set.
wrappers: list[Wrapper] = []


def enter_wrappers(record: CallRecord) -> ExitStack:
    """Enter all wrappers. If one of them raises, log the error and leave it out."""
    stack = ExitStack()
    for wrapper in wrappers:
        try:
            stack.enter_context(wrapper(record))
        except Exception:
            logger.exception("Wrapper of a call failed: %r", wrapper)
    return stack


async def report_start(record: CallRecord) -> None:
    """Send ``call_started``, if the method is one of ``RECORDED_METHODS``."""
    if record.method in RECORDED_METHODS:
        await _send(signals.call_started, record)


async def report_end(record: CallRecord) -> None:
    """Report that a call has finished: to observers, the log and receivers of ``call_finished``."""
    if record.method not in RECORDED_METHODS:
        return
    for observe in observers:
        try:
            observe(record)
        except Exception:
            logger.exception("Observer of calls failed: %r", observe)
    if logger.isEnabledFor(logging.INFO):
        _log(record)
    if signals.call_finished.receivers:
        await _send(signals.call_finished, record)


async def _send(signal: Signal, record: CallRecord) -> None:
    async with orm_in_pool(threads.receivers):  # for receivers that query the database
        await signal.asend_robust(sender=record.server, record=record)  # it logs errors


def _log(record: CallRecord) -> None:
    """Write the log line of a call: identifiers, and never an argument or a result."""
    milliseconds = round(record.duration * 1000, 1)
    user = record.user.pk if record.principal.is_authenticated else None
    # A client may send a secret as the name of something that does not exist.
    name = record.name if record.declaration is not None else ""
    details = {
        "mcp_server": record.server.name,
        "mcp_method": record.method,
        "mcp_name": name,
        "mcp_outcome": str(record.outcome),
        "mcp_duration_ms": milliseconds,
        "mcp_queries": record.queries,
        "mcp_user": user,
        "mcp_client": record.client,
        "mcp_session": record.session,
        "mcp_revision": record.revision,
        "mcp_transport": record.transport,
        "mcp_trace_id": record.trace_id,
    }
    # ``repr`` escapes line breaks, which would forge log lines.
    logger.info(
        "Call finished: server=%s method=%s name=%r outcome=%s duration=%sms queries=%s user=%s "
        "client=%r session=%s",
        record.server.name, record.method, name, record.outcome, milliseconds,
        record.queries, user, record.client, record.session, extra=details,
    )  # fmt: skip
