"""Batches (2025-03-26): several requests in one POST, answered on one stream."""

from __future__ import annotations

from ..calls import Attempt, ExpectedCall, judge, made
from ..client import Broken
from ..context import pause
from ..reading import Ending, Plan, Reader
from ..sessions import Session
from ..virtual_client import VirtualClient


async def batch(person: VirtualClient) -> None:
    rng, session = person.rng, await person.session("2025-03-26")
    deadline = person.context.new_deadline()
    calls = [_wanted(person) for _ in range(rng.choice((2, 3, 4)))]
    attempt = 0
    while not deadline.is_over and not await _attempted(session, calls, attempt):
        attempt += 1
        deadline.count_failure()
        await pause(rng, attempt)
    await session.close()


def _wanted(person: VirtualClient) -> ExpectedCall:
    rng = person.rng
    tool, count = rng.choice(("recite", "dictate", "act")), rng.choice((0, 4, 15))
    arguments = {"count": count, "seconds": rng.choice((0.0, 0.5, 1.0))}
    effects = ("",) if tool == "act" else ()
    return ExpectedCall(tool, person.seed(), arguments, count, effects)


async def _attempted(session: Session, calls: list[ExpectedCall], attempt: int) -> bool:
    """Return whether all requests ended."""
    issued = [made(session, wanted, attempt) for wanted in calls]
    for other in issued[1:]:
        other.stream = issued[0].stream
    session.context.findings.counts["calls"] += len(issued)
    try:
        answer = await session.post([one.message() for one in issued])
        if answer.status == 200 and not answer.is_stream:
            return _judge_plain(session, issued, await answer.json())
        if answer.status != 200:
            await session.check(answer.status, await answer.json(), f"batch {issued[0].label}")
            return _unknown(session, issued)
    except Broken:
        return _unknown(session, issued)
    plan = Plan.drawn(session.rng, most=2)
    reader = Reader(session, issued[0].stream, [one.id for one in issued], plan)
    ending = await reader.read(answer)
    if ending is Ending.NAMELESS:
        return _unknown(session, issued)
    for one in issued:
        one.reader = reader
        judge(session, one, ending)
    return True


def _judge_plain(session: Session, issued: list[Attempt], said: object) -> bool:
    responses = said if isinstance(said, list) else []
    for one in issued:
        one.plain = [response for response in responses if response.get("id") == one.id]
        judge(session, one, Ending.OVER)
    return True


def _unknown(session: Session, issued: list[Attempt]) -> bool:
    for one in issued:
        one.expect(session, 0, 1, "a batch whose connection broke")
    return False
