"""Questions, answered at another worker, twice, late or with an error; steps that run once."""

from __future__ import annotations

import time

from ..calls import ASKING as ASKED
from ..calls import Attempt, ExpectedCall, perform
from ..expectation import JSON
from ..questions import STYLES, Answerer
from ..reading import Ending, Plan
from ..sessions import NEWEST, Session
from ..virtual_client import VirtualClient
from ..words import TRIMMED

ASKING = "2025-06-18"  # the first revision whose clients can be asked
DEADLINE, LATE = 2.0, 6.0  # seconds: of a question, and beyond it and a lease


def answerer(person: VirtualClient, session: Session, style: str | None = None) -> Answerer:
    rng = person.rng
    return Answerer(session, rng, style or rng.choice(STYLES), slow=rng.choice((0.0, 0.3, 1.0)))


async def _asked(
    person: VirtualClient, session: Session, wanted: ExpectedCall, answers: Answerer
) -> None:
    """Make a call at one worker, and send its answers to others."""
    context, rng = person.context, person.rng
    here = rng.choice(context.workers)
    answers.place = lambda: context.another_worker(rng, here)
    plan = Plan.drawn(rng, most=2, size=1_500)
    if not plan.cuts:
        plan.place = lambda: here
    ending, issued = await perform(session, wanted, plan, hear=answers.hear, to=here)
    await answers.done()
    if ending is Ending.ANSWERED and answers.answered:
        moved = issued.place == here and len(context.workers) > 1
        context.findings.count_fault("j", injected=1, observed=int(moved))
    if answers.style == "late":
        await answers.again(issued)


async def ask(person: VirtualClient) -> None:
    """The tool asks one question after another. The last may be refused."""
    rng, session = person.rng, await person.current(ASKING)
    count = rng.choice((1, 1, 2, 3))
    answers = answerer(person, session)
    refused = rng.choice((None, None, None, "decline", "cancel", "error"))
    wanted = ExpectedCall("ask", person.seed(), {"count": count}, count, effects=("",))
    if refused is not None:
        answers.refuses, answers.style = {count - 1: refused}, "plain"
        said = "error" if refused == "error" else "declined"
        wanted.final, wanted.count = f"{said} {count - 1}", count - 1
        wanted.effects, wanted.never = (), ("",)
    await _asked(person, session, wanted, answers)


async def survey(person: VirtualClient) -> None:
    """The tool asks several questions at once. The worker that gets the last answer continues."""
    session = await person.current(ASKING)
    count = person.rng.choice((2, 3, 5))
    wanted = ExpectedCall("survey", person.seed(), {"count": count}, 2, effects=("",))
    await _asked(person, session, wanted, answerer(person, session, person.rng.choice(STYLES[:4])))


async def inquire(person: VirtualClient) -> None:
    """An async tool without effects asks. Its call must always end."""
    session, count = await person.current(ASKING), person.rng.choice((1, 2, 4))
    wanted = ExpectedCall("inquire", person.seed(), {"count": count}, count)
    await _asked(person, session, wanted, answerer(person, session))


async def steps(person: VirtualClient) -> None:
    """Each step must happen once, however often the call runs."""
    session, count = await person.current(ASKING), person.rng.choice((0, 1, 2))
    effects = ("/first", "/second", "")
    wanted = ExpectedCall("steps", person.seed(), {"count": count}, 3, effects=effects)
    await _asked(person, session, wanted, answerer(person, session))


async def doubted(person: VirtualClient) -> None:
    """Do not answer in time. The question is withdrawn once, and the tool continues."""
    context, session = person.context, await person.session(NEWEST)
    if not context.is_strict:  # the machine's time of day says when it is over
        session.places = list(context.workers_with_correct_clocks)
    final = "timed out"
    wanted = ExpectedCall("doubt", person.seed(), {"seconds": DEADLINE}, final=final)
    answers = Answerer(session, person.rng, answers=False)
    here = person.rng.choice(context.workers_with_correct_clocks)
    plan = Plan.drawn(person.rng, most=1, size=500)
    ending, issued = await perform(session, wanted, plan, hear=answers.hear, to=here)
    if ending is Ending.ANSWERED and answers.asked:
        _judge_doubt(person, issued, time.monotonic() - issued.began)
        await answers.again(issued)
    await session.close()


def _judge_doubt(person: VirtualClient, issued: Attempt, took: float) -> None:
    context, messages = person.context, issued.stream.messages()
    if any(TRIMMED in str(one.get("error")) for one in messages):
        return  # of what was said about it nothing more is told
    for asked in (one for one in messages if one.get("method") == ASKED):
        said = [one.get("params", {}).get("requestId") for one in messages if _withdraws(one)]
        if (count := said.count(asked["id"])) != 1:
            kind = "duplicated" if count else "lost"
            context.findings.add(kind, f"{issued.label}: its question was withdrawn {count} times")
    # The time of day of a worker is not what counts, but of a machine with one file.
    if took < DEADLINE and (context.is_strict or not context.skewed):
        context.findings.add("wrong", f"{issued.label}: out of time after {took:.1f} s")
    if took > DEADLINE + context.lease + LATE and not context.was_faulty(issued.began):
        context.findings.add("wrong", f"{issued.label}: out of time only after {took:.1f} s")
    context.findings.counts["questions out of time"] += 1


def _withdraws(message: JSON) -> bool:
    return message.get("method") == "notifications/cancelled"
