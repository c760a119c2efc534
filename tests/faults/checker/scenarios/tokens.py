"""Tokens that end while a stream is read: by expiry, revocation, or with their user.

An expired token closes connections, and the stream is resumed with a renewed one. A revoked token,
or an inactive user, ends the calls: nothing more is read and nothing more is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from .. import control
from ..calls import Attempt, ExpectedCall, judge, made
from ..client import Answer, Broken
from ..context import CampaignContext, pause
from ..reading import Ending, Plan, Reader
from ..sessions import LATER, NEWEST, Session
from ..virtual_client import VirtualClient

LIFE = 3  # seconds of a token that expires
HEEDED = 12.0  # seconds in which an end must have been heeded: two looks, and some load


async def _begun(
    person: VirtualClient, session: Session, wanted: ExpectedCall
) -> tuple[Attempt, Answer] | None:
    issued = made(session, wanted)
    issued.place = person.rng.choice(person.context.workers_with_correct_clocks)
    try:
        answer = await session.post(issued.message(), issued.place)
    except Broken:
        issued.expect(session, 0, 1, "a connection that broke before it had an id")
        return None
    if answer.status != 200 or not answer.is_stream:
        issued.expect(session, 0, 1, f"status {answer.status}")
        answer.cut(reset=True)
        return None
    return issued, answer


async def expired(person: VirtualClient) -> None:
    """Use a token that expires soon, and renew it when it is rejected."""
    context, rng = person.context, person.rng
    made_after = time.monotonic()
    given = await control.ask(context, "token", user=f"person-{person.number}", seconds=LIFE)
    session = Session(context, f"{person.number}.u{person.seed()}", NEWEST, secret=given["secret"])
    session.places = list(context.workers_with_correct_clocks)
    session.renew = _renewing(context, given["id"], made_after)
    person.sessions.append(session)
    await session.open(rng.choice(context.workers_with_correct_clocks))
    wanted = ExpectedCall("recite", person.seed(), {"count": 70, "seconds": LIFE + 4}, 70)
    found = await _begun(person, session, wanted)
    if found is None:
        return
    issued, answer = found
    plan = Plan(place=lambda: rng.choice(context.workers_with_correct_clocks))
    issued.reader = reader = Reader(session, issued.stream, [issued.id], plan)
    ending = await reader.read(answer)
    if ending is not Ending.NAMELESS:
        judge(session, issued, ending)
    seen = ending is Ending.ANSWERED and session.refusals > 0 and len(reader.readings) > 1
    context.findings.count_fault("u", injected=1, observed=int(seen))
    context.findings.counts["tokens expired"] += seen


def _renewing(
    context: CampaignContext, id: int, made_after: float
) -> Callable[[], Awaitable[None]]:
    async def renew() -> None:
        if time.monotonic() < made_after + LIFE - 0.1 and not context.skewed:
            context.findings.add("wrong", "a token was refused before it expired")
        await control.ask(context, "extend", id=id)

    return renew


async def revoked(person: VirtualClient) -> None:
    await _ended(person, "revoke")


async def deactivated(person: VirtualClient) -> None:
    await _ended(person, "deactivate")


async def _ended(person: VirtualClient, how: str) -> None:
    """Revoke access while a tool runs. It must be stopped before it has its effect."""
    context, rng = person.context, person.rng
    user = f"guest-{person.seed()}"
    given = await control.ask(context, "token", user=user)
    session = Session(context, user, NEWEST, secret=given["secret"])
    await session.open()
    arguments = {"count": 300, "seconds": 2 * HEEDED + 6}  # it acts halfway
    wanted = ExpectedCall("act", person.seed(), arguments, 300, effects=("",))
    found = await _begun(person, session, wanted)
    if found is None:
        return
    issued, answer = found
    session.is_ended = True  # from now on it may be refused
    issued.reader = reader = Reader(session, issued.stream, [issued.id])
    reading = asyncio.create_task(reader.read(answer))
    await asyncio.sleep(rng.uniform(0.2, 1.5))
    was_open = answer.is_open and bool(issued.stream.texts)
    await control.ask(context, how, **({"id": given["id"]} if how == "revoke" else {"user": user}))
    at, is_over = time.monotonic(), reading.done()
    ending = await reading
    waited, struck = time.monotonic() - at, context.was_faulty(at)
    kind = judge(session, issued, ending)
    if not was_open or is_over or ending is Ending.NAMELESS:
        return
    # An answer that was on its way, as of a worker that died, may still come; no success may.
    if kind == "success" or (waited > HEEDED and not struck):
        what = f"{issued.label}: {ending.value}: {kind}, {waited:.1f} s after {how}"
        context.findings.add("wrong", what)
    elif ending is not Ending.ANSWERED:
        # Read to the last, it was stopped before it acted.
        issued.expect(session, 0, 0, f"{how}, and {ending.value}")
    refused = await _refused(session)
    seen = refused and ending in (Ending.GONE, Ending.OVER)
    context.findings.count_fault("u", injected=1, observed=int(seen))
    context.findings.counts[f"tokens {how}d"] += seen


async def _refused(session: Session) -> bool:
    """Return whether all workers reject the token."""
    for attempt in range(20):
        try:
            answer = await session.post({"jsonrpc": "2.0", "id": 99, "method": "ping"})
            answer.cut(reset=False)
        except Broken:
            pass
        else:
            if answer.status not in LATER:
                return answer.status == 401
        await pause(session.rng, attempt)
    return False
