"""The faults: how each is injected, and how its effect is observed.

"Injected" counts what was ordered; "observed" counts the effects that the worker, the proxy or a
look from outside has confirmed. Effects on clients are counted by the checker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from . import fork_server
from .schedule import Fault, suspended_at
from .workers import Worker

if TYPE_CHECKING:
    from .campaign import Campaign
    from .services import WakeupService

PATIENCE = 15.0  # seconds for a point to be reached
LATE, TURN = 0.1, 0.5  # seconds
MISSED = re.compile(
    r"OperationalError|InterfaceError|cannot be re|could not be stored|cannot be polled|is busy"
)
STOPPED, SLOW = 25.0, 13.0  # seconds for a worker to end by itself, and when it is asked why not
LOOKS = 6  # attempts
BACK = 20.0  # seconds
# Seconds by which a clock is wrong.
CLOCKS = (-240.0, -60.0, -5.0, -0.9, 0.9, 5.0, 60.0, 240.0, 0.0)
# More than any question or session has. Not with SQLite: there is no clock beside the workers'.
FAR_OFF = (-2400.0, 2400.0, -1200.0, 1200.0)
AWAKE = 6.0  # seconds in which a worker that goes on must have seen what time it is
DOUBTS = re.compile(r"Lease lost|Lease may have expired")
QUICK, WORDS = 12.0, 10  # seconds in which the layer must be used again, by so many commands
NO_LAYER = re.compile(
    "Wake-ups do not arrive.* by=(?:channel layer|LISTEN connection to PostgreSQL) "
)


async def kill_at(campaign: Campaign, fault: Fault) -> None:
    """Kill the first process that reaches the point."""
    tally = campaign.tally
    tally.injected("k")
    if fault.at == "outcome-committed":
        tally.injected("f")
    pid = await campaign.wait_until_hit(fault, "kill", PATIENCE)
    if pid is None:
        return
    tally.observed("k")
    tally.points[fault.at] += 1
    if fault.at == "outcome-committed":
        tally.observed("f")


async def hold(campaign: Campaign, fault: Fault) -> None:
    """Delay the commit of a transaction that has numbered its events, while others commit.

    SQLite has one writer, so others only read meanwhile.
    """
    campaign.tally.injected("h")
    pid = await campaign.wait_until_hit(fault, "pause", PATIENCE, fault.seconds)
    if pid is None:
        return
    has_one_writer = campaign.options.database == "sqlite"
    meanwhile = "session-found" if has_one_writer else "events-inserted"
    if await campaign.passed(fault, meanwhile, fault.seconds - LATE, but=pid):
        campaign.tally.observed("h")


async def kill(campaign: Campaign, fault: Fault) -> None:
    """Kill a running worker."""
    campaign.tally.injected("k")
    worker = await campaign.living(fault.victim)
    if worker is not None:
        life = worker.life
        assert life is not None
        campaign.expect(worker, "kill")
        campaign.has_struck(fault, worker)
        worker.send(signal.SIGKILL)
        await asyncio.wait([life], timeout=PATIENCE)
        if life.done() and life.result() == -signal.SIGKILL:
            campaign.tally.observed("k")
            campaign.tally.points["anywhere"] += 1


async def suspend(campaign: Campaign, fault: Fault) -> None:
    """Suspend a worker for longer than a lease, then resume it."""
    async with campaign.alone("suspend"):
        at = suspended_at(campaign.options.database, fault.choice)
        found = await _stand_still(campaign, fault._replace(at=at))
        if found is None:
            return
        worker, pid = found
        began, before = time.monotonic(), worker.log.stat().st_size
        stands = fault.seconds * campaign.options.lease
        worker.spared = began + stands
        try:
            await asyncio.sleep(stands)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT) if at else worker.send(signal.SIGCONT)
            campaign.has_struck(fault, worker, "resumed")
        campaign.tally.suspended[at] += 1
    if await _has_outlived(campaign, worker, began, before):
        campaign.tally.outlived += 1
        campaign.tally.observed("suspended")


async def _stand_still(campaign: Campaign, fault: Fault) -> tuple[Worker, int] | None:
    if fault.at:
        pid = await campaign.wait_until_hit(fault, "suspend", PATIENCE)
        return None if pid is None else (campaign.armed.worker_of(pid), pid)
    worker = await campaign.living(fault.victim)
    if worker is None:
        return None
    campaign.note(f"{worker.name} ({worker.kind}): suspend")
    campaign.has_struck(fault, worker)
    worker.send(signal.SIGSTOP)
    return worker, worker.pid


async def _has_outlived(campaign: Campaign, worker: Worker, began: float, before: int) -> bool:
    """Return whether others took over meanwhile, and the worker has noticed that."""
    until = time.monotonic() + AWAKE
    while time.monotonic() < until:
        taken = [by for by, at in campaign.armed.takeovers if by != worker.name and at > began]
        said = worker.log.read_bytes()[before:].decode(errors="replace")
        if taken and DOUBTS.search(said):
            return True
        await asyncio.sleep(LATE)
    return False


async def stop(campaign: Campaign, fault: Fault) -> None:
    """Send SIGTERM to a busy worker, which must end by itself."""
    worker = await campaign.living(fault.victim)
    if worker is None or worker.life is None:
        return
    campaign.tally.injected("v")
    campaign.expect(worker, "stop")
    life, kind = worker.life, worker.kind
    if fault.choice % 2:  # otherwise it may be killed while it ends
        worker.hear(spare=STOPPED)
    busy = await _at_work(campaign, worker, fault)
    if life.done():  # it was killed meanwhile and replaced
        return
    campaign.has_struck(fault, worker)
    worker.send(signal.SIGTERM)
    if await _has_ended(worker, life):
        if life.result() != -signal.SIGKILL:
            campaign.tally.stopped[kind] += 1
            campaign.armed.hear()
            campaign.tally.counts["v"]["observed"] += busy in campaign.armed.left
        return
    campaign.tally.wrong.append(f"{fault}: {worker.name} ({kind}) did not end within {STOPPED} s")
    worker.send(signal.SIGKILL)


async def _has_ended(worker: Worker, life: asyncio.Future[int]) -> bool:
    """Return whether the worker ended in time; before that have it dump its stacks."""
    done, _ = await asyncio.wait([life], timeout=SLOW)
    if not done and worker.kind != "granian":
        worker.send(fork_server.TELL)
    return bool(done or (await asyncio.wait([life], timeout=STOPPED - SLOW))[0])


async def _at_work(campaign: Campaign, worker: Worker, fault: Fault) -> int:
    """Return a worker's process once it handles requests, or 0 after several attempts."""
    for look in range(LOOKS):
        if await campaign.armed.open_in(worker, f"{fault.id}-{look}"):
            return campaign.armed.pids[worker.name]
        await asyncio.sleep(LATE)
    return 0


async def database(campaign: Campaign, fault: Fault) -> None:
    """Stop the database, and start it again."""
    async with campaign.alone("database"):
        campaign.tally.injected("o")
        before = campaign.words()
        campaign.has_struck(fault)
        await asyncio.to_thread(campaign.database.fail)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(campaign.database.recover)
        await asyncio.sleep(1.0)
    if campaign.has_said(MISSED, before):
        campaign.tally.outages["database"] += 1
        campaign.tally.observed("o")


async def commit(campaign: Campaign, fault: Fault) -> None:
    """Cut a database connection just before a commit, or before its reply arrives."""
    campaign.tally.injected("o")
    if await campaign.cut(fault, happens=fault.choice % 3 > 0, patience=PATIENCE):
        campaign.tally.observed("o")
        campaign.tally.outages["commit"] += 1


async def redis(campaign: Campaign, fault: Fault) -> None:
    """Kill or freeze the channel layer; workers must notice, continue, and use it again."""
    service = campaign.redis
    assert service is not None
    async with campaign.alone("redis"):
        campaign.tally.injected("p")
        killed, before = fault.choice % 2 == 0, campaign.words()
        await asyncio.to_thread(service.kill if killed else service.freeze)
        went_on = await asyncio.gather(
            campaign.passed(fault, "events-inserted", fault.seconds), asyncio.sleep(fault.seconds)
        )
        await asyncio.to_thread(service.start if killed else service.thaw)
        is_used = await _is_used(service)
    if campaign.has_said(NO_LAYER, before):
        campaign.tally.outages["redis"] += 1
        if went_on[0] and is_used:
            campaign.tally.observed("p")


async def _is_used(service: WakeupService) -> bool:
    """Return whether workers use the service again."""
    first, until = await asyncio.to_thread(service.commands), time.monotonic() + QUICK
    while time.monotonic() < until:
        await asyncio.sleep(TURN)
        if await asyncio.to_thread(service.commands) - first > WORDS:
            return True
    return False


async def clock(campaign: Campaign, fault: Fault) -> None:
    """Change the offset of a worker's clock."""
    wrong = [worker for worker in campaign.workers if worker.clock is not None]
    worker = wrong[fault.victim % len(wrong)]
    assert worker.clock is not None
    before = campaign.clocks.get(worker.name, 0.0)
    by = offset(fault, before, campaign.options.database)
    campaign.tally.injected("q")
    if by < before:
        campaign.tally.injected("e")
    campaign.clocks[worker.name] = by
    worker.clock.write_text(f"{by:+}\n")
    for _ in range(LOOKS):  # the worker may be down just now
        await asyncio.sleep(1.2)
        told = await asyncio.to_thread(clock_of, worker)
        if told is not None and abs(told - by) < 0.6:
            campaign.tally.observed("q")
            return


def offset(fault: Fault, before: float, database: str) -> float:
    """Return the new offset of a clock, which differs from the present one."""
    if fault.at == "back":
        return before - BACK
    clocks = [one for one in CLOCKS + (() if database == "sqlite" else FAR_OFF) if one != before]
    return clocks[fault.choice % len(clocks)]


async def prune(campaign: Campaign, fault: Fault) -> None:
    """Age ended streams by SQL, and prune them."""
    campaign.tally.injected("c")
    async with campaign.alone("prune"):
        for _ in range(LOOKS):  # the database may be down just now
            if await campaign.prune() == 0:
                campaign.tally.outages["prune"] += 1
                return
            await asyncio.sleep(1.0)


KINDS: dict[str, Callable[[Campaign, Fault], Awaitable[None]]] = {
    "kill-at": kill_at,
    "kill": kill,
    "suspend": suspend,
    "stop": stop,
    "hold": hold,
    "database": database,
    "commit": commit,
    "redis": redis,
    "clock": clock,
    "prune": prune,
}


# Observations from outside.


def clock_of(worker: Worker) -> float | None:
    """Return the offset of a worker's clock."""
    with contextlib.suppress(OSError, ValueError):
        address = f"http://127.0.0.1:{worker.port}/clock"
        with urllib.request.urlopen(address, timeout=3) as answer:
            return float(json.load(answer)["now"]) - time.time()
    return None
