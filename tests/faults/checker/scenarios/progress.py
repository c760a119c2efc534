"""Tools that only report progress, read by several connections with cuts; they always finish."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ..calls import Attempt, ExpectedCall, judge, made, perform
from ..client import Broken
from ..reading import Cut, Ending, Plan, Reader
from ..sessions import NEWEST, Session
from ..virtual_client import VirtualClient

BURST = 10_000


async def recite(person: VirtualClient) -> None:
    """Read the progress of a sync or async tool, slow or in a burst."""
    rng, session = person.rng, await person.current()
    count, seconds = rng.choice((0, 3, 12, 40, 120)), rng.choice((0.0, 0.5, 1.0, 2.5))
    tool = rng.choice(("recite", "dictate"))
    wanted = ExpectedCall(tool, person.seed(), {"count": count, "seconds": seconds}, count)
    await perform(session, wanted, Plan.drawn(rng, size=200 + 120 * count))


async def live(person: VirtualClient) -> None:
    """Resume a stream in the middle, while further events are stored."""
    rng, session, count = person.rng, await person.current(), 150
    tool = rng.choice(("recite", "dictate"))
    wanted = ExpectedCall(tool, person.seed(), {"count": count, "seconds": 3}, count)
    cut = Cut(120 * rng.randrange(5, 50), rng.random() < 0.5, rng.uniform(0.2, 0.6))
    await perform(session, wanted, Plan([cut]))


async def fail(person: VirtualClient) -> None:
    """The final event is an error. A client that resumes is told that nothing follows."""
    session, count = await person.current(), person.rng.choice((1, 5))
    wanted = ExpectedCall("fail", person.seed(), {"count": count, "seconds": 0.2}, count)
    wanted.is_error = True
    ending, issued = await perform(session, wanted, Plan.drawn(person.rng, most=1))
    if ending is Ending.ANSWERED and issued.reader is not None:
        again = await issued.reader.read(None)
        is_error = "error" in issued.stream.messages()[-1]
        seen = again is Ending.ANSWERED and issued.reader.is_refused and is_error
        person.context.findings.count_fault("w", injected=1, observed=int(seen))


async def burst(person: VirtualClient) -> None:
    """Read a burst of ten thousand messages, with a cut in the middle."""
    rng, session = person.rng, await person.session(NEWEST)
    tool = rng.choice(("recite", "dictate"))
    wanted = ExpectedCall(tool, person.seed(), {"count": BURST, "seconds": 0}, BURST)
    plan = Plan([Cut(BURST * rng.randrange(60, 130), rng.random() < 0.5, 0.1)])
    ending, issued = await perform(session, wanted, plan)
    cut = issued.reader is not None and len(issued.reader.readings) > 1
    whole = ending is Ending.ANSWERED and len(issued.stream.texts) > BURST
    person.context.findings.count_fault("s", injected=1, observed=int(cut and whole))


async def slow(person: VirtualClient) -> None:
    """Read one byte per second, and the rest over another connection."""
    session = await person.session(NEWEST)
    rng, count = person.rng, 1_500
    wanted = ExpectedCall("recite", person.seed(), {"count": count, "seconds": 2}, count)
    plan = Plan([Cut(60, False, 0)])  # the priming event, and then slowly
    plan.crawl = rng.choice((4, 8))
    ending, issued = await perform(session, wanted, plan)
    # Most of it was there when the slow one gave up, and came to the next.
    reader = issued.reader
    crawled = reader is not None and reader.crawled >= 3
    kept = reader is not None and sum(one.count for one in reader.readings[2:]) > count / 2
    seen = ending is Ending.ANSWERED and crawled and kept
    person.context.findings.count_fault("r", injected=1, observed=int(seen))


async def twins(person: VirtualClient) -> None:
    """Resume one stream over two connections. The older one is closed, and nothing is lost."""
    session = await person.session(NEWEST)
    issued = made(session, ExpectedCall("recite", person.seed(), {"count": 60, "seconds": 2.5}, 60))
    try:
        answer = await session.post(issued.message(), session.somewhere())
    except Broken:
        return
    if answer.status != 200 or not answer.is_stream:
        return answer.cut(reset=True)
    reader = Reader(session, issued.stream, [issued.id], Plan(leave=lambda: bool(issued.stream.id)))
    issued.reader = reader
    if await reader.read(answer) is not Ending.LEFT:
        return
    first, second = (_twin(session, issued, reader.at) for _ in range(2))
    older = asyncio.create_task(first.read(None))
    in_turn = person.rng.random() < 0.7
    if in_turn:  # it has begun to read by then
        await asyncio.sleep(0.5)
    in_turn &= bool(first.readings) and not older.done()
    newer = await second.read(None)
    endings = (await older, newer)
    await _judge_twins(person, session, issued, (first, second), endings, in_turn)


def _twin(session: Session, issued: Attempt, at: int) -> Reader:
    reader = Reader(session, issued.stream, [issued.id], Plan(yields=True))
    reader.at = at
    return reader


async def _judge_twins(
    person: VirtualClient, session: Session, issued: Attempt, twins: tuple[Reader, ...],
    endings: Collection[Ending], in_turn: bool,
) -> None:  # fmt: skip
    """``in_turn``: the first connection was open before the second, and must be closed."""
    if Ending.HANGING in endings:
        return
    # An attempt that was given up may be heard late, and is then the latest: both gave way to it.
    ending = Ending.ANSWERED
    if ending not in endings:
        issued.reader = rest = Reader(session, issued.stream, [issued.id])
        rest.at = max(twin.at for twin in twins)
        ending = await rest.read(None)
    judge(session, issued, ending)
    first, second = twins
    once = len(first.readings) == len(second.readings) == 1  # neither had to come back
    gave_way = tuple(endings) == (Ending.TAKEN, Ending.ANSWERED)
    if in_turn and once and not gave_way and not person.context.was_faulty(issued.began):
        person.context.findings.add("wrong", f"{issued.label}: the older of two stays: {endings}")
    person.context.findings.count_fault(
        "l", injected=1, observed=int(in_turn and once and gave_way)
    )
