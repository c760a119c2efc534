"""
Check the permissions of running calls again when permissions change.

A call that its caller may no longer make ends with the error that a new call would get. So does a
call whose token was revoked or whose user was deactivated. The check uses a reloaded user and runs
inside ``AROUND``, as a call does.

Changes in any process reach it through the change log, which it follows only while a call runs
longer than ``LONG_CALL_SECONDS`` of ``call_state`` or a connection is open. A check includes all
running calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..auth.principal import Principal
from ..calls.call_state import CallRun, running_calls
from ..calls.callers import reload_valid_principals, revocation_checker
from ..calls.execution import surrounded
from ..exceptions import Busy
from ..protocol.jsonrpc import InvalidParams
from ..runtime import threads
from ..runtime.runtime import Service, environment
from ..storage.change_log import ALL_USERS, ANYTHING
from ..storage.jobs import BROKEN, run_or_disconnect
from .change_set import ChangeSet, everything, replace_groups_by_members
from .feed import change_feed
from .subscriptions import BUSY_RETRY_SECONDS

if TYPE_CHECKING:
    from ..calls.call_state import ActiveCall
    from ..declarations.request import Request

logger = logging.getLogger("django_mcp.storage")
ERROR_RETRY_SECONDS = 1.0  # until a check that failed is repeated
INTEREST_RETRY_SECONDS = 5.0  # until an interest that could not be stored is stored again
RECHECK_CONCURRENCY = 4  # checks at once, so that calls get threads meanwhile
# Checks count as the jobs of one client, so they never take all threads from calls.
CHECKS_OWNER = "permission_rechecks"
ENDED = "The call was ended: its caller may not make it any more."


class PermissionRechecker:
    """Checks the calls of one event loop. It follows the change feed while calls run long."""

    is_eager = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = running_calls()
        self._running.observer = self
        # Whether all processes record changes of permissions.
        self._is_interest_stored = False
        self._storing_interest: asyncio.Task[None] | None = None
        self._pending = ChangeSet()
        self._task: asyncio.Task[None] | None = None

    # Running calls (``call_state.RunObserver``).

    def on_first_call(self) -> None:
        """Take changes that only this process knows of."""
        change_feed().follow_local(self)

    def on_idle(self) -> None:
        """Take no more changes that only this process knows of."""
        change_feed().leave_local(self)

    def on_long_call(self) -> None:
        self.start_if_needed()

    def start_if_needed(self) -> None:
        """Start to follow changes of permissions, until no call or connection is open."""
        environment().start_background(self._follow)

    def _follow(self) -> None:
        if change_feed().follow(self):
            self._is_interest_stored = False
            self._check_soon(everything())
            self._storing_interest = self._loop.create_task(self._store_interest())

    async def _store_interest(self) -> None:
        """Have all processes record changes of permissions, and then check everything again.

        What changed until then may be missing in the logs.
        """
        while self.is_following:
            try:
                await change_feed().store_interests((ANYTHING,))
            except Busy:
                logger.debug("Changes of permissions are followed later: all threads are busy")
            except Exception as error:
                logger.warning("Changes of permissions cannot be followed yet: %s", error)
            else:
                self._is_interest_stored = True
                self._check_soon(everything())
                return
            await asyncio.sleep(INTEREST_RETRY_SECONDS)

    # Changes.

    @property
    def is_following(self) -> bool:
        return bool(self._running) or any(revocation_checker().open_holders())

    @property
    def models(self) -> Iterable[str]:
        # Only ``_store_interest`` stores it at first, because it waits until it is effective.
        return (ANYTHING,) if self._is_interest_stored else ()

    async def receive(self, server: str, changes: ChangeSet) -> None:
        """Take changes of permissions. They are the same for every server."""
        self._check_soon(changes)

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        self._check_soon(changes)

    # Checks.

    def _check_soon(self, changes: ChangeSet) -> None:
        """Add changes to those that wait for a check, and start the check if none is running."""
        self._pending.add(
            ChangeSet(
                users=changes.users, groups=changes.groups, credentials=changes.credentials,
                everything=changes.everything,
            )
        )  # fmt: skip
        if self._pending and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._check())

    async def _check(self) -> None:
        while self._pending:
            changes, self._pending = self._pending, ChangeSet()
            try:
                await self._check_calls(changes)
            except (Busy, *BROKEN) as error:
                logger.log(
                    logging.DEBUG if isinstance(error, Busy) else logging.WARNING,
                    "Permission checks of running calls postponed: %s", error,
                )  # fmt: skip
                self._pending.add(changes)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Permission checks of running calls failed, and are retried")
                self._pending.add(changes)
                await asyncio.sleep(ERROR_RETRY_SECONDS)

    async def _check_calls(self, changes: ChangeSet) -> None:
        """End the calls and connections of revoked tokens, then check the calls of other users."""
        await revocation_checker().check()
        running = self._running.runs()
        changes = await replace_groups_by_members(
            changes, (str(run.principal.user.pk) for run in running)
        )
        concerned = {run: one for run, one in running.items() if _is_concerned(run, changes)}
        if not concerned:
            return
        # Reload the users: Django caches the permissions of a user on the instance.
        principals = {run: run.principal for run in concerned}
        fresh, _ = await threads.lookups.run(run_or_disconnect, reload_valid_principals, principals)
        slots = asyncio.Semaphore(RECHECK_CONCURRENCY)

        async def check(run: CallRun, active: ActiveCall) -> None:
            async with slots:
                await _end_if_not_permitted(run, active, fresh)

        await asyncio.gather(*(check(*each) for each in concerned.items()))


permission_rechecker = Service(PermissionRechecker)


def _is_concerned(run: CallRun, changes: ChangeSet) -> bool:
    user = str(run.principal.user.pk)
    if changes.everything or changes.affects_permissions_of(user):
        return True
    return ALL_USERS in changes.credentials or user in changes.credentials


async def _end_if_not_permitted(
    run: CallRun, active: ActiveCall, fresh: Mapping[CallRun, Principal]
) -> None:
    work, principal = run.work, fresh.get(run)
    if principal is None:
        active.refuse(InvalidParams(ENDED) if work is None else work.unknown())
    elif work is not None and not await _is_permitted(run, principal):
        logger.info("Call ended, its caller lost the permission: %s", run.subject)
        active.refuse(work.unknown())


def _new_request(run: CallRun, principal: Principal) -> Request:
    """Return a new request of a run, for a permission check.

    It has a stop flag of its own, because the check must not stop if the call is cancelled.
    """
    again = CallRun(
        run.call, run.server, principal, run.session, answers=run.answers, host=run.request._host
    )
    return again.request


async def _is_permitted(run: CallRun, principal: Principal) -> bool:
    """Whether a new call would have the permission and its token the scopes.

    False if the project's code fails: a caller whose permission is unknown must not continue.
    """
    work, request = run.work, _new_request(run, principal)
    assert work is not None

    def job() -> bool:
        with surrounded(request):
            return work.declaration._is_allowed(request)

    try:
        return await threads.tools.run_for(CHECKS_OWNER, job)
    except (Busy, *BROKEN):
        raise
    except Exception:
        logger.exception(
            "Call ended, the permission of its caller cannot be checked: %s", run.subject
        )
        return False
