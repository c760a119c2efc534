"""HTTP+SSE clients: several calls on one stream, which is resumed at any worker."""

from __future__ import annotations

import asyncio

from ..calls import ExpectedCall
from ..legacy_sse import LegacySseClient
from ..virtual_client import VirtualClient

ROUNDS, AT_ONCE = 3, 3
SPEAKING, ACTING = ("recite", "dictate", "fail"), ("act", "put", "transact")


async def calls(person: VirtualClient) -> None:
    """Make calls in several rounds, with cut connections."""
    session = LegacySseClient(person.context, f"{person.seed()} older", person.secret)
    try:
        await session.open()
        for _ in range(ROUNDS):
            wanted = [drawn(person) for _ in range(person.rng.randint(1, AT_ONCE))]
            await asyncio.gather(*map(session.perform, wanted))
    finally:
        await session.close()
    went_on = len([one for one in session.line.readings if one.began_at and one.count])
    person.context.findings.count_fault("sse", injected=1, observed=int(went_on > 0))


def drawn(person: VirtualClient) -> ExpectedCall:
    """Make one call: a tool with progress, or one with an effect."""
    rng = person.rng
    tool = rng.choice(SPEAKING + ACTING)
    count, seconds = rng.choice((0, 3, 12, 40)), rng.choice((0.0, 0.3, 1.0))
    wanted = ExpectedCall(tool, person.seed(), {"count": count, "seconds": seconds}, count)
    wanted.effects = ("",) if tool in ACTING else ()
    wanted.is_error = tool == "fail"
    return wanted
