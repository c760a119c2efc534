"""Tools with effects, which must not happen twice and must be reported correctly."""

from __future__ import annotations

from ..calls import ExpectedCall, perform
from ..reading import Plan
from ..virtual_client import VirtualClient

# In a transaction; in one that is all there is of it; what may be done twice.
TOOLS = ("act", "act", "transact", "put")


async def act(person: VirtualClient) -> None:
    """Call a tool that writes in its transaction, between two progress messages."""
    rng, session = person.rng, await person.current()
    count, seconds = rng.choice((0, 2, 8, 20)), rng.choice((0.0, 0.3, 1.0))
    arguments = {"count": count, "seconds": seconds}
    tool = rng.choice(TOOLS)
    wanted = ExpectedCall(tool, person.seed(), arguments, count, effects=("",))
    await perform(session, wanted, Plan.drawn(rng, size=200 + 120 * count))


async def each(person: VirtualClient) -> None:
    """Call each tool with effects once, with few progress messages."""
    for tool in sorted(set(TOOLS)):
        wanted = ExpectedCall(tool, person.seed(), {"count": 4, "seconds": 0.2}, 4, effects=("",))
        await perform(await person.current(), wanted, Plan.drawn(person.rng, most=1, size=600))
