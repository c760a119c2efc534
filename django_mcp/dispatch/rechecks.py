"""
Whether what runs may still run: looked at when somebody's rights are others, in every process.

Rule: a call that its caller may no longer make is ended by the error it would have had, had it
begun now; so is one whose caller is nobody any more. Rights are read afresh, of a user loaded
afresh, in the surroundings of a call. A call is followed once it has lasted a while: what is
shorter ends before anybody could act on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import threads
from ..declare.requests import Silence
from ..declare.servers import servers
from ..delivery import changes, interests
from ..delivery.changes import Tip
from ..delivery.interests import ANYTHING, SAID_AGAIN
from ..delivery.jobs import BROKEN, PerLoop, reconnecting
from ..delivery.watch import Tips, watch
from ..exceptions import Busy
from ..principal import Principal
from ..protocol.jsonrpc import InvalidParams
from .active import Stop
from .announcements import listen, stop_listening
from .bulletins import Bulletin, bulletin, everything
from .listening import BUSY_PAUSE
from .members import resolved
from .revocations import renewed, revocations
from .running import surrounded

if TYPE_CHECKING:
    from ..declare.requests import Request
    from .active import Active
    from .runs import Run

logger = logging.getLogger("django_mcp")
LASTING = 0.25  # seconds, once or twice, until a call is followed
WRONG_PAUSE = 1.0  # seconds until it is looked at again what could not be
AT_ONCE = 4  # that are looked at, so that others' calls go on
TURN = "rechecks"  # whose jobs these are, among those who share the threads
ENDED = "The call was ended: its caller may not make it any more."


class Rechecks:
    """Of one loop. It follows changes while something lasts."""

    is_eager = True

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._holder = uuid.uuid4().hex
        self._running: dict[Run, tuple[Active, bool]] = {}  # and whether a beat has passed since
        self._timer: asyncio.TimerHandle | None = None
        self._cursors: dict[str, int] = {}  # how far each database was read
        self._said_at: float | None = None
        self._news = Bulletin()
        self._task: asyncio.Task[None] | None = None

    # What runs.

    @contextmanager
    def over(self, run: Run, active: Active) -> Iterator[None]:
        """While a call runs. What is for everybody may be switched off."""
        self._running[run] = active, False
        if self._timer is None:
            listen(self)
            self._timer = self._loop.call_later(LASTING, self._beat)
        try:
            yield
        finally:
            self._running.pop(run, None)

    def _beat(self) -> None:
        self._timer = None
        for run, (active, lasts) in list(self._running.items()):
            if lasts:
                self.attend()
            self._running[run] = active, True
        if self._running:
            self._timer = self._loop.call_later(LASTING, self._beat)
        else:
            stop_listening(self)

    # What changed.

    def attend(self) -> None:
        """Follow changes, as long as anything lasts."""
        if not threads.is_adopted():
            watch().begin(self)

    @property
    def is_wanted(self) -> bool:
        return bool(self._running) or any(revocations().held())

    def hear(self, server: str, news: Bulletin) -> None:
        """What is announced in this process alone; from any thread."""
        if news.users or news.standing:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._take, news)

    async def follow(self, tips: Tips) -> bool:
        """Read on in every database; what was passed over may have been anything."""
        self._take(await self._interest())
        for alias, tip in tips.items():
            news = await self._read(alias, tip)
            self._cursors[alias] = tip.last
            self._take(news)
        return False

    async def _interest(self) -> Bulletin:
        """Say that changes of rights are to be written down; until they are, anything may be."""
        now = time.monotonic()
        if self._said_at is not None and now < self._said_at + SAID_AGAIN:
            return Bulletin()
        wait = await threads.log.run(reconnecting, interests.declare, self._holder, {ANYTHING})
        interests.watched.forget()
        self._said_at = now
        self._loop.call_later(wait, self._take, everything())
        return everything()

    async def _read(self, alias: str, tip: Tip) -> Bulletin:
        cursor = self._cursors.get(alias)
        if cursor == tip.last:
            return Bulletin()
        if cursor is None or cursor > tip.last:
            return everything()
        page = await threads.changes.run(reconnecting, changes.after, alias, cursor, tip.last)
        if not page.is_whole or page.until < tip.last:
            return everything()
        found = Bulletin()
        for server in servers()[:1]:  # whose rights are others is the same on each
            found.add(bulletin(server, page.changes))
        return found

    # Whether it may run.

    def _take(self, news: Bulletin) -> None:
        """Keep it until it is looked at, once."""
        for name in ("users", "groups", "standing", "everything"):
            getattr(self._news, name).update(getattr(news, name))
        if self._news and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._look())

    async def _look(self) -> None:
        while self._news:
            news, self._news = self._news, Bulletin()
            try:
                await self._look_at(news)
            except (Busy, *BROKEN) as error:
                logger.log(
                    logging.DEBUG if isinstance(error, Busy) else logging.WARNING,
                    "Whether calls may go on is looked at later: %s", error,
                )  # fmt: skip
                self._news.add(news)
                await asyncio.sleep(BUSY_PAUSE)
            except Exception:
                logger.exception("Nobody knows whether calls may go on: it is looked at again")
                self._news.add(news)
                await asyncio.sleep(WRONG_PAUSE)

    async def _look_at(self, news: Bulletin) -> None:
        """First whose right is taken back at all, then what each call needs."""
        await revocations().look()
        running = {run: active for run, (active, _) in self._running.items()}
        news = await resolved(news, (str(run.principal.user.pk) for run in running))
        concerned = {run: one for run, one in running.items() if _is_concerned(run, news)}
        if not concerned:
            return
        principals = {run: run.principal for run in concerned}
        fresh, _ = await threads.lookups.run(reconnecting, renewed, principals)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(run: Run, active: Active) -> None:
            async with turns:
                await _check(run, active, fresh)

        await asyncio.gather(*(one(*each) for each in concerned.items()))


rechecks = PerLoop(Rechecks)


def _is_concerned(run: Run, news: Bulletin) -> bool:
    if news.everything or news.permits(user := str(run.principal.user.pk)):
        return True
    return "" in news.standing or user in news.standing


async def _check(run: Run, active: Active, fresh: Mapping[Run, Principal]) -> None:
    work, now = run.work, fresh.get(run)
    if now is None:
        active.refuse(InvalidParams(ENDED) if work is None else work.unknown)
    elif work is not None and not await _admits(run, now):
        logger.info("%s was ended: its caller may not make it any more", run.subject)
        active.refuse(work.unknown)


def _afresh(run: Run, principal: Principal) -> Request:
    """The request of a run, which nobody stops: a call that was cancelled may be looked at."""
    return replace(run, principal=principal, say=Silence(), stop=Stop()).request


async def _admits(run: Run, principal: Principal) -> bool:
    """As the call would be asked now. What cannot tell admits nobody."""
    work, request = run.work, _afresh(run, principal)
    assert work is not None

    def job() -> bool:
        with surrounded(request):
            return work.thing.admits(request)

    try:
        return await threads.tools.run_for(TURN, job)
    except (Busy, *BROKEN):
        raise
    except Exception:
        logger.exception("%s is ended: nobody knows whether its caller may make it", run.subject)
        return False
