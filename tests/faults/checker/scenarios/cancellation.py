"""Cancelled calls: before they start, while they run or wait, at their end and after it.

A cancel before the commit of the response wins, otherwise the response does. Without a response, a
tool whose transaction holds its response has had no effects.
"""

from __future__ import annotations

import asyncio
import time

from ..calls import Attempt, ExpectedCall, perform
from ..expectation import JSON
from ..questions import Answerer
from ..reading import Ending, Plan, Reader
from ..sessions import Ended, Session
from ..virtual_client import VirtualClient

EARLY = 0.2  # seconds before the end of the work; later may be too late
OVERTAKES = 0.05  # seconds after a request in which its cancel may still be received before it
RACE = 0.1  # seconds between a cancel's acceptance and the end of its call


class DelayedCancel:
    """Cancels a call after some seconds, or at its last message if ``after`` is negative."""

    def __init__(self, person: VirtualClient, session: Session, after: float) -> None:
        self.person, self.session, self.after = person, session, after
        self.heard: float | None = None
        self.before_any = False  # whether nothing of the call had come by then
        self.task: asyncio.Task[None] | None = None

    def begun(self, issued: Attempt) -> None:
        if self.after >= 0:
            self._begin(issued, self.after)

    def hear(self, issued: Attempt, message: JSON) -> None:
        """Without a time, cancel at the last message before the response."""
        params = message.get("params", {})
        if self.after < 0 and params.get("progress") == params.get("total", 0):
            self._begin(issued, 0)

    def _begin(self, issued: Attempt, after: float) -> None:
        if self.task is not None:
            self.task.cancel()
        self.task = asyncio.create_task(self._cancel(issued, after))

    async def _cancel(self, issued: Attempt, after: float) -> None:
        await asyncio.sleep(after)
        issued.is_cancelled = True
        self.before_any = not issued.stream.texts
        context = self.session.context
        elsewhere = context.another_worker(self.person.rng, issued.place or context.front)
        to = self.person.rng.choice((elsewhere, issued.place))
        try:
            await self.session.notify("notifications/cancelled", to=to, requestId=issued.id)
        except Ended:
            return
        self.heard = issued.cancelled = time.monotonic()

    async def done(self) -> None:
        if self.task is not None:
            await asyncio.wait([self.task])


async def working(person: VirtualClient) -> None:
    """Cancel a call while it runs, before it is stored, or close to its end."""
    rng, session = person.rng, await person.current()
    seconds = rng.choice((0.1, 0.6, 1.2))
    after = rng.choice((0.0, 0.01, 0.1, seconds / 2, seconds + rng.uniform(-0.05, 0.05), -1, -1))
    tool = rng.choice(("act", "act", "recite", "dictate", "brood"))
    effects = ("",) if tool == "act" else ()
    count = 0 if tool == "brood" else rng.choice((1, 6))
    arguments = {"count": count, "seconds": seconds}
    wanted = ExpectedCall(tool, person.seed(), arguments, count, effects=effects)
    canceller = DelayedCancel(person, session, after)
    ending, issued = await perform(
        session, wanted, Plan.drawn(rng, most=1), hear=canceller.hear, begun=canceller.begun,
        to=session.somewhere(),
    )  # fmt: skip
    ended = time.monotonic()
    await canceller.done()
    if not (canceller.before_any and after < OVERTAKES):  # of an unknown request it does nothing
        _judge_cancel(person, issued, ending, seconds / 2 if tool == "act" else seconds)
    if canceller.heard is not None:
        raced = abs(ended - canceller.heard) < RACE and ending is Ending.ANSWERED
        tombstone = canceller.before_any and ending is Ending.OVER
        person.context.findings.count_fault("n", injected=1, observed=int(raced or tombstone))
        person.context.findings.counts["cancels raced"] += raced
        person.context.findings.counts["cancels before a row"] += tombstone


def _judge_cancel(person: VirtualClient, issued: Attempt, ending: Ending, work: float) -> None:
    """Require that a cancel that was accepted while the tool still had to sleep was effective."""
    if issued.cancelled is None or ending is not Ending.ANSWERED:
        return
    if issued.cancelled < issued.began + work - EARLY:
        early = issued.began + work - issued.cancelled
        what = f"answered, though its cancel was taken {early:.2f} s before it could end"
        person.context.findings.add("wrong", f"{issued.label}: {what}")
    person.context.findings.counts["cancels late"] += 1


async def parked(person: VirtualClient) -> None:
    """Cancel a call that waits for an answer, and send the answer all the same."""
    session = await person.current("2025-06-18")
    wanted = ExpectedCall("ask", person.seed(), {"count": 1}, 1, never=("",))
    answers = Answerer(session, person.rng, answers=False)
    issues: list[Attempt] = []
    task = asyncio.create_task(
        perform(session, wanted, Plan.drawn(person.rng, most=1), hear=answers.hear,
                begun=issues.append)
    )  # fmt: skip
    asked = asyncio.create_task(answers.is_open.wait())
    await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if answers.is_open.is_set():
        issued = issues[-1]
        issued.is_cancelled = True
        await session.notify("notifications/cancelled", requestId=issued.id)
        await answers.again(issued)
    ending, issued = await task
    if ending is Ending.ANSWERED and answers.is_open.is_set():
        said = issued.stream.messages()[-1]
        if not is_error(said):
            person.context.findings.add(
                "wrong", f"{issued.label}: answered after its cancel: {said}"
            )


def is_error(response: JSON) -> bool:
    return "error" in response or bool(response.get("result", {}).get("isError"))


async def over(person: VirtualClient) -> None:
    """Cancel a call after its response. That must have no effect."""
    session = await person.current()
    wanted = ExpectedCall("act", person.seed(), {"count": 2, "seconds": 0.1}, 2, effects=("",))
    ending, issued = await perform(session, wanted)
    await session.notify("notifications/cancelled", requestId=issued.id)
    if ending is not Ending.ANSWERED or issued.reader is None:
        return
    if issued.reader.is_refused or await issued.reader.read(None) is Ending.ANSWERED:
        await _is_kept(session, issued)
    else:
        person.context.findings.add("wrong", f"{issued.label}: its stream was begun again")


async def _is_kept(session: Session, issued: Attempt) -> None:
    """Check that the response can still be fetched."""
    again = Reader(session, issued.stream, [issued.id])
    again.at = issued.stream.last - 1
    ending = await again.read(None)
    if ending in (Ending.OVER, Ending.ANSWERED) and not any(r.count for r in again.readings):
        session.context.findings.add(
            "lost", f"{issued.label}: its answer, by a cancel that was late"
        )
