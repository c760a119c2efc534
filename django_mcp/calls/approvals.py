"""Calls of tools that a second person must approve (``Tool.approval``).

``perform_approved`` runs such a call. It checks the permission and the arguments first, so that no
approver is asked about a call that would fail. Then it looks for the approval of a call with the
same server, tool, caller and arguments. If there is one, the function runs. Otherwise it stores a
request for approval and raises ``ApprovalRequired``.

``CallRunner`` then awaits ``wait_for_decision``, for at most ``WAIT`` seconds and without a thread.
As soon as an approver has decided, the call runs again: with a reloaded principal, whose permission
is checked again. Without a decision, the call ends with a tool error that tells the model to call
again later. That call finds the same request, over every transport and after any crash.

``DecisionWaiter`` polls the requests of all waiting calls of an event loop, by one query a second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..exceptions import ApprovalRequired, Busy, OnceNeeded, ToolError
from ..models import Approval, ApprovalStatus
from ..runtime import threads
from ..runtime.runtime import Service, environment
from ..storage import approvals
from ..storage.approvals import ApprovalUse
from ..storage.jobs import BROKEN
from .approval_mail import send_approval_mail
from .audit import as_column
from .execution import admitted, perform, run_in_thread, with_database

if TYPE_CHECKING:
    from ..declarations.tools import Tool
    from ..protocol.jsonrpc import JSON
    from .call_state import CallRun, Invocation

logger = logging.getLogger("django_mcp.calls")
# The keys of ``DJANGO_MCP["APPROVALS"]``, with their defaults.
DEFAULTS: dict[str, Any] = {
    "LIFETIME": 86_400,  # seconds for which a request is valid, and then a decision
    "WAIT": 45,  # seconds for which a call waits for a decision
    "MAIL": False,  # whether the server sends a mail to approvers
    "QUERYSET": None,  # dotted path of a function: see ``Approval.visible_to``
}
POLL_INTERVAL_SECONDS = 1.0
# An approver must be able to read all arguments, and the admin shows them in full.
MAX_ARGUMENT_CHARACTERS = 20_000
MAX_CLIENT_CHARACTERS = 20_000  # of the client's description of itself; a longer one is not stored
USED_BY_ANOTHER = "Another call has used this approval. Call again to request a new one."
NOT_VALID_ANY_MORE = (
    "The approval of this call is not valid any more: another call has used it, it has expired, or "
    "the person who gave it may not approve any more. Call again to request a new one."
)


def setting(name: str) -> Any:
    """Return a value of ``DJANGO_MCP["APPROVALS"]``."""
    return settings.APPROVALS.get(name, DEFAULTS[name])


async def perform_approved(run: CallRun, work: Invocation, arguments: JSON) -> JSON:
    """Run a call if an approver has approved it.

    Raise ``ApprovalRequired`` before there is a decision, and ``ToolError`` if it was refused.
    """
    await with_database(run, partial(_check, run, work))
    run.has_run_before = True  # ``_check`` has counted it: ``perform`` must not count it again
    # Outside of ``AROUND``: a context manager there may open a transaction, which would roll back
    # the request, or the use of the approval, with the call.
    approval, is_new = await run_in_thread(run, partial(_find_or_create, run, work, arguments))
    run.approval_pk = approval.pk
    if approval.status == ApprovalStatus.PENDING:
        raise ApprovalRequired(approval.pk, approval.permission, is_new=is_new)
    if approval.status == ApprovalStatus.REFUSED:
        raise ToolError(
            f"Somebody with the permission {approval.permission} refused this call "
            f"(request {approval.pk})" + (f": {approval.reason}" if approval.reason else ".")
        )
    rolls_back = work.transaction_alias == approvals.database()
    use = ApprovalUse(approval.pk, secrets.token_hex(16), approval.holder, rolls_back)
    run.approval = use
    if use.rolls_back:
        work.before_function = partial(_begin, use)
        return await perform(run, work)
    # No transaction of the tool can contain the use, so it is committed before the function is
    # called. A crash after that loses the approval, and the function never runs twice.
    try:
        await run_in_thread(run, partial(_begin, use))
        return await perform(run, work)
    finally:
        if not work.is_begun:
            # Also if the call is cancelled, and also during ``_begin``, which then has committed
            # the use: otherwise nobody could use the approval any more.
            await asyncio.shield(run_in_thread(run, use.undo))


def _check(run: CallRun, work: Invocation) -> None:
    """Count the call, and raise the error with which it would end before its function is called."""
    values = admitted(run, work)
    work.arguments.bind(values, run.request, write=False)


def _begin(use: ApprovalUse) -> None:
    if not use.begin():
        raise ToolError(NOT_VALID_ANY_MORE)


async def keep_approval(run: CallRun, ended: BaseException, interaction_id: str) -> None:
    """Keep the approval of a run that ends without a result for the next run of its call.

    Raise ``ToolError`` if another call uses it.
    """
    use = run.approval
    if use is None or (use.rolls_back and not isinstance(ended, OnceNeeded)):
        # The use and all writes of the run were rolled back. So any call with these arguments may
        # use the approval.
        return
    # A step is committed on its own. If the approval stayed free, another call with the same
    # arguments could execute the step a second time.
    if not await run_in_thread(run, partial(use.keep_for, interaction_id)):
        raise ToolError(USED_BY_ANOTHER)


# Requests.


def _find_or_create(run: CallRun, work: Invocation, arguments: JSON) -> tuple[Approval, bool]:
    """Return the open request of this call, and whether it is new. Raise ``ToolError``."""
    tool: Any = work.declaration
    principal = run.principal
    if not principal.is_authenticated:  # anonymous clients cannot be told apart
        raise ToolError("Sign in to use this tool: somebody has to approve its calls.")
    digest = approvals.digest(
        run.server.name, tool.name, tool._approval, str(principal.user.pk), principal.key,
        principal.impersonator, arguments,
    )  # fmt: skip
    existing = approvals.find_or_close(digest, run.interaction_id)
    if existing is not None:
        return existing, False
    new = _request(run, tool, arguments, digest)
    stored = approvals.create(new, setting("LIFETIME"))
    return stored, stored is new  # False if another process has inserted the same request first


def _request(run: CallRun, tool: Tool, arguments: JSON, digest: str) -> Approval:
    shown = tool._arguments.redaction.whole(arguments)
    if len(json.dumps(shown, ensure_ascii=False)) > MAX_ARGUMENT_CHARACTERS:
        raise ToolError(
            "The arguments are too long for somebody to read and approve: at most "
            f"{MAX_ARGUMENT_CHARACTERS} characters."
        )
    principal, call, auth = run.principal, run.call, run.principal.auth
    info = call.client_info or {}
    client = f"{info.get('name', '')} {info.get('version', '')}".strip()
    client_details = {"client_info": info, "capabilities": call.capabilities or {}}
    if len(json.dumps(client_details)) > MAX_CLIENT_CHARACTERS:
        client_details = {}
    return Approval(
        server=run.server.name, tool=tool.name, permission=tool._approval, digest=digest,
        user_id=principal.user.pk, arguments=shown, has_secrets=shown != arguments,
        application=as_column(str(getattr(auth, "application", None) or "")),
        client=as_column(client),
        caller={
            "owner": principal.key, "impersonator": principal.impersonator,
            "issued_by": approvals.issuer(auth.key) if auth else "",
            "scopes": sorted(auth.scopes) if auth else None,
            "revision": call.revision.name, "host": run.request._host, **client_details,
        },
    )  # fmt: skip


# Waiting.


async def wait_for_decision(required: ApprovalRequired, run: CallRun) -> JSON | None:
    """Wait at most ``WAIT`` seconds for an approver to decide.

    Return None if one has decided: the call runs again. Otherwise return the result that ends it.
    """
    from .results import error_result  # imports pydantic

    if required.is_new:
        notify_approvers(required.approval)
    message = (
        f"This call must be approved by somebody with the permission {required.permission} "
        f"(request {required.approval})."
    )
    run.request.progress(0, message=message)
    if await decisions().wait(required.approval, setting("WAIT")):
        return None
    return error_result(
        f"{message} Call it again with the same arguments after it has been approved."
    )


def notify_approvers(approval: int) -> None:
    """Send mail to the approvers in the background, if ``MAIL`` is on."""
    if not setting("MAIL"):
        return
    try:
        threads.mail.run_in_background(partial(send_approval_mail, approval))
    except Busy:
        logger.warning("Approval mail not sent, because the queue is full: approval=%s", approval)


class DecisionWaiter:
    """Waits for decisions about the requests of one event loop's calls."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False

    async def wait(self, approval: int, seconds: float) -> bool:
        """Return True when somebody has decided, or False after ``seconds``."""
        # If jobs run one at a time, as in a test, nobody can decide meanwhile.
        if self._is_ending or not (seconds and environment().runs_jobs_in_parallel):
            return False
        event = asyncio.Event()
        self._waiting.setdefault(approval, set()).add(event)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting[approval].discard(event)
            if not self._waiting[approval]:
                del self._waiting[approval]
        return not self._is_ending

    def release(self) -> None:
        """End all waits, because the process shuts down. The calls can be made again elsewhere."""
        self._is_ending = True
        self._wake(self._waiting)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(POLL_INTERVAL_SECONDS)
                await self._poll()
        finally:
            self._task = None

    async def _poll(self) -> None:
        try:
            self._wake(await threads.lookups.run(approvals.decided_among, [*self._waiting]))
        # Every error is retried at the next interval. If the task ended, no call would learn of a
        # decision.
        except Busy:
            logger.debug("Approvals are read later: all threads are busy")
        except BROKEN as error:
            logger.warning("Approvals cannot be read: %s", error)
        except Exception:
            logger.exception("Approvals cannot be read")

    def _wake(self, pks: Any) -> None:
        for pk in pks:
            for event in self._waiting.get(pk, ()):
                event.set()


decisions = Service(DecisionWaiter)
