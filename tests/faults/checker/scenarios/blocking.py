"""Tools that block a whole worker: sleeps within a transaction, and stuck threads.

Meanwhile everything else must continue: authentication, messages, questions and cancellation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from .. import control
from ..calls import Attempt, ExpectedCall, perform
from ..client import Address
from ..questions import Answerer
from ..reading import Ending, Plan
from ..sessions import NEWEST, Session
from ..virtual_client import VirtualClient

SLEEP = 10.0  # seconds
# Seconds in which whatever else is asked must be done: who waits for a sleeper takes longer.
MEANWHILE = 0.8 * SLEEP
STUCK, HELD = 8, 5.0  # calls, more than there are threads, and seconds for which they are held


async def _timely(person: VirtualClient, what: str, here: Address, work: Awaitable[object]) -> bool:
    """Whether a call ends soon, unless a fault concerns it."""
    context, began = person.context, time.monotonic()
    await work
    took = time.monotonic() - began
    if took > MEANWHILE and not (context.faults.is_crowded or context.was_faulty(began, here)):
        context.findings.add("wrong", f"{what} took {took:.1f} s while others stood still")
    return took <= MEANWHILE


async def _cancelled(session: Session, person: VirtualClient, to: Address) -> None:
    """Cancel a call at a worker whose threads are all stuck."""
    wanted = ExpectedCall("recite", person.seed(), {"count": 40, "seconds": 30}, 40)

    async def cancel(id: int) -> None:
        await asyncio.sleep(0.3)
        await session.notify("notifications/cancelled", to=to, requestId=id)

    tasks: list[asyncio.Task[None]] = []

    def begun(issued: Attempt) -> None:
        issued.is_cancelled = True
        tasks.append(asyncio.create_task(cancel(issued.id)))

    await perform(session, wanted, begun=begun, to=to)
    await asyncio.gather(*tasks)


async def sleep(person: VirtualClient) -> None:
    """Call a tool that writes, then sleeps for ten seconds in its transaction."""
    context, here = person.context, person.rng.choice(person.context.workers)
    session, other = await person.session(NEWEST), await person.session(NEWEST)
    await control.spare(context, here, SLEEP + 6)
    arguments = {"count": 2, "seconds": SLEEP}
    wanted = ExpectedCall("sleep", person.seed(), arguments, 2, effects=("",))
    began = time.monotonic()
    sleeping = asyncio.create_task(perform(session, wanted, Plan(), to=here))
    await asyncio.sleep(1)
    done = 0
    while not sleeping.done() and time.monotonic() < began + SLEEP:
        recited = ExpectedCall("recite", person.seed(), {"count": 5, "seconds": 0.2}, 5)
        await _timely(person, "recite", here, perform(other, recited, Plan(), to=here))
        asked = ExpectedCall("inquire", person.seed(), {"count": 1}, 1)
        answers = Answerer(other, person.rng, slow=0.0)
        inquired = perform(other, asked, Plan(), hear=answers.hear, to=here)
        await _timely(person, "inquire", here, inquired)
        await answers.done()
        done += 1
        await asyncio.sleep(0.5)
    ending, _ = await sleeping
    slept = time.monotonic() - began
    seen = done > 2 and slept >= SLEEP and ending is Ending.ANSWERED
    context.findings.count_fault("y", injected=1, observed=int(seen))
    await session.close()
    await other.close()


async def stuck(person: VirtualClient) -> None:
    """Block every tool thread of one worker. Other requests must still be answered."""
    context, here = person.context, person.rng.choice(person.context.workers)
    gate, began = person.seed(), time.monotonic()
    crowd = [await _stranger(person, name) for name in ("one", "another")]
    secret = await _token(person)  # made before: on SQLite that waits for a sleeper's transaction
    sticking = [
        asyncio.create_task(perform(crowd[n % 2], _sticking(person, gate), Plan(), to=here))
        for n in range(STUCK)
    ]
    await control.spare(context, here, HELD + 7)
    await asyncio.sleep(1)
    fine = await _timely(person, "log-in", here, _logged_in(person, here, secret))
    other = await person.session(NEWEST)
    # A third one's tool that needs a thread finds none: they are all stuck.
    dictated = ExpectedCall("dictate", person.seed(), {"count": 1, "seconds": 0}, 1)
    waiting = asyncio.create_task(perform(other, dictated, Plan(), to=here))
    recited = ExpectedCall("recite", person.seed(), {"count": 10, "seconds": 0.5}, 10)
    plan = Plan.drawn(person.rng, most=1, size=500)
    plan.place = lambda: here
    fine &= await _timely(person, "recite", here, perform(other, recited, plan, to=here))
    fine &= await _timely(person, "a cancel", here, _cancelled(other, person, here))
    await asyncio.sleep(max(0.0, began + HELD - time.monotonic()))
    were_stuck = not any(task.done() for task in (*sticking, waiting))
    await control.ask(context, "release", gate=gate)
    await asyncio.gather(*sticking, waiting)
    context.findings.count_fault("z", injected=1, observed=int(fine and were_stuck))
    for session in (*crowd, other):
        await session.close()


async def _stranger(person: VirtualClient, name: str) -> Session:
    """Open a session of another user: one user must not be able to occupy all threads."""
    secret = await _token(person, name)
    session = Session(person.context, f"{person.seed()}.{name}", NEWEST, secret=secret)
    await session.open()
    return session


def _sticking(person: VirtualClient, gate: str) -> ExpectedCall:
    return ExpectedCall("stick", person.seed(), {"gate": gate, "seconds": 15})


async def _token(person: VirtualClient, name: str = "person") -> str:
    given = await control.ask(person.context, "token", user=f"{name}-{person.number}")
    return str(given["secret"])


async def _logged_in(person: VirtualClient, to: Address, secret: str) -> None:
    session = Session(person.context, f"{person.seed()}.z", NEWEST, secret=secret)
    await session.open(to)
    await session.close()
