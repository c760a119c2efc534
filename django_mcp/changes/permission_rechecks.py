"""
Check the permissions of running calls again when permissions change, in every process.

A call that its caller may no longer make ends with the error that a new call would get. So does a
call whose token was revoked or whose user was deactivated. The check uses a reloaded user and runs
inside ``AROUND``, as a call does. Only calls that run longer than ``LONG_CALL_SECONDS`` of
``call_state`` are checked, because shorter ones end before a check could.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..auth.principal import Principal
from ..calls.call_state import StopFlag, running_calls
from ..calls.callers import renewed, revocations
from ..calls.execution import surrounded
from ..declarations.request import NoNotifier
from ..exceptions import Busy
from ..protocol.jsonrpc import InvalidParams
from ..runtime import threads
from ..runtime.runtime import Service, environment
from ..storage.change_log import ANYTHING
from ..storage.jobs import BROKEN, reconnecting
from .change_set import ChangeSet, everything, resolved
from .feed import change_feed
from .subscriptions import BUSY_RETRY_SECONDS

if TYPE_CHECKING:
    from ..calls.call_state import ActiveCall, CallRun
    from ..declarations.request import Request

logger = logging.getLogger("django_mcp")
ERROR_RETRY_SECONDS = 1.0  # until a check that failed is repeated
JOIN_RETRY_SECONDS = 5.0  # until an interest that could not be stored is stored again
RECHECK_CONCURRENCY = 4  # checks at once, so that calls get threads meanwhile
TURN = "rechecks"  # the owner of these jobs, which gets a share of the threads as a client does
ENDED = "The call was ended: its caller may not make it any more."


class PermissionRechecker:
    """Checks the calls of one event loop. It follows the change feed while calls run long."""

    is_eager = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = running_calls()
        self._running.observer = self
        self._has_joined = False  # whether all processes record changes of permissions
        self._joining: asyncio.Task[None] | None = None
        self._news = ChangeSet()
        self._task: asyncio.Task[None] | None = None

    # Running calls (``call_state.RunObserver``).

    def begin(self) -> None:
        """Take changes that only this process knows of."""
        change_feed().follow_local(self)

    def rest(self) -> None:
        change_feed().leave_local(self)

    def attend(self) -> None:
        """Start to follow changes of permissions, until no call or connection is open."""
        if environment().has_background_services and change_feed().follow(self):
            self._has_joined = False
            self._take(everything())
            self._joining = self._loop.create_task(self._join())

    async def _join(self) -> None:
        """Have all processes record changes of permissions, and then check everything again.

        What changed until then may be missing in the logs.
        """
        while self.is_wanted:
            try:
                await change_feed().declare((ANYTHING,))
            except Busy:
                logger.debug("Changes of permissions are followed later: all threads are busy")
            except Exception as error:
                logger.warning("Changes of permissions cannot be followed yet: %s", error)
            else:
                self._has_joined = True
                self._take(everything())
                return
            await asyncio.sleep(JOIN_RETRY_SECONDS)

    # Changes.

    @property
    def is_wanted(self) -> bool:
        return bool(self._running) or any(revocations().held())

    @property
    def models(self) -> Iterable[str]:
        # The interest counts as stored by ``_join`` only, which waits until it is effective.
        return (ANYTHING,) if self._has_joined else ()

    async def receive(self, server: str, changes: ChangeSet) -> None:
        """Take changes of permissions. They are the same for every server."""
        self._take(changes)

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        self._take(changes)

    # Checks.

    def _take(self, news: ChangeSet) -> None:
        """Add changes to those that wait for a check, and start the check if none is running."""
        for name in ("users", "groups", "credentials", "everything"):
            getattr(self._news, name).update(getattr(news, name))
        if self._news and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._check())

    async def _check(self) -> None:
        while self._news:
            news, self._news = self._news, ChangeSet()
            try:
                await self._look_at(news)
            except (Busy, *BROKEN) as error:
                logger.log(
                    logging.DEBUG if isinstance(error, Busy) else logging.WARNING,
                    "Permission checks of running calls postponed: %s", error,
                )  # fmt: skip
                self._news.add(news)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Permission checks of running calls failed, and are retried")
                self._news.add(news)
                await asyncio.sleep(ERROR_RETRY_SECONDS)

    async def _look_at(self, news: ChangeSet) -> None:
        """End what belongs to revoked tokens, then check the calls of concerned users."""
        await revocations().look()
        running = self._running.runs()
        news = await resolved(news, (str(run.principal.user.pk) for run in running))
        concerned = {run: one for run, one in running.items() if _is_concerned(run, news)}
        if not concerned:
            return
        # Reload the users: Django caches the permissions of a user on the instance.
        principals = {run: run.principal for run in concerned}
        fresh, _ = await threads.lookups.run(reconnecting, renewed, principals)
        turns = asyncio.Semaphore(RECHECK_CONCURRENCY)

        async def one(run: CallRun, active: ActiveCall) -> None:
            async with turns:
                await _check(run, active, fresh)

        await asyncio.gather(*(one(*each) for each in concerned.items()))


rechecks = Service(PermissionRechecker)


def _is_concerned(run: CallRun, news: ChangeSet) -> bool:
    if news.everything or news.permits(user := str(run.principal.user.pk)):
        return True
    return "" in news.credentials or user in news.credentials


async def _check(run: CallRun, active: ActiveCall, fresh: Mapping[CallRun, Principal]) -> None:
    work, now = run.work, fresh.get(run)
    if now is None:
        active.refuse(InvalidParams(ENDED) if work is None else work.unknown)
    elif work is not None and not await _admits(run, now):
        logger.info("%s was ended: its caller lost the permission", run.subject)
        active.refuse(work.unknown)


def _afresh(run: CallRun, principal: Principal) -> Request:
    """Return a new request of a run, for a permission check.

    It has a stop flag of its own, because the check must not stop if the call is cancelled.
    """
    return replace(run, principal=principal, say=NoNotifier(), stop=StopFlag()).request


async def _admits(run: CallRun, principal: Principal) -> bool:
    """Whether a new call would have the permission. False if the project's code fails.

    A caller whose permission is unknown must not continue.
    """
    work, request = run.work, _afresh(run, principal)
    assert work is not None

    def job() -> bool:
        with surrounded(request):
            return work.thing._is_allowed(request)

    try:
        return await threads.tools.run_for(TURN, job)
    except (Busy, *BROKEN):
        raise
    except Exception:
        logger.exception(
            "%s was ended: the permission of its caller cannot be checked", run.subject
        )
        return False
