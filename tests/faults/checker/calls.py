"""One call: sent until a server accepts it, read to its end, and checked.

Each attempt has its own seed. If its connection broke before the stream had an event id, the call
may have run once, but never twice. After the first event id there must be exactly one response.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .client import Address, Answer, Broken
from .context import CampaignContext, pause
from .expectation import JSON, RequestMessages, Stream, compare
from .faults import AFTER, COMMON, EXCUSING
from .findings import Findings
from .reading import Ending, Plan, Reader
from .sessions import Session
from .words import (
    AWAY,
    BROKE,
    CUT_OFF,
    INTERNAL,
    LOST,
    MASKED,
    NOT_BEGUN,
    ROLLED_BACK,
    TRIMMED,
    spoken,
    word,
)  # fmt: skip

ASKING, ENDED = "elicitation/create", ("lost its process", "rolled back")
WORDS = "2025-03-26"  # the first revision whose progress has words
HELD = ("act", "transact")  # tools that are all in one transaction
AGAIN = (
    "recite",
    "brood",
    "dictate",
    "fail",
    "inquire",
    "stick",
    "announce",
    "put",
    "jot",
)  # tools run again
MOST_RUNS = 2  # of a call that may run again when its worker died, beside its first


@dataclass
class ExpectedCall:
    """The arguments of a call, and the response and effects that its client must get."""

    tool: str
    seed: str
    arguments: JSON = field(default_factory=dict)
    count: int = 0  # messages of progress
    effects: tuple[str, ...] = ()  # that it has, by the end of their names
    final: str | Callable[[str], str] = "final"  # the word it ends with
    is_error: bool = False  # whether its response is a JSON-RPC error
    never: tuple[str, ...] = ()  # effects that it must not have, whatever comes

    def answer(self, seed: str) -> str:
        return word(seed, self.final) if isinstance(self.final, str) else self.final(seed)


@dataclass
class Attempt:
    """One attempt to make a call, and what was received for it."""

    wanted: ExpectedCall
    id: int
    seed: str
    stream: Stream
    began: float = field(default_factory=time.monotonic)
    plain: list[JSON] = field(default_factory=list)  # what was answered at once
    reader: Reader | None = None
    place: Address | None = None
    kind: str = ""  # of its outcome
    is_cancelled: bool = False
    cancelled: float | None = None  # when a server had taken that

    @property
    def worker(self) -> Address | None:
        """The worker that runs the call. None after a question: any worker may continue it."""
        asks = any(one.get("method") == ASKING for one in self.stream.messages())
        return None if asks else self.place

    @property
    def label(self) -> str:
        return f"{self.wanted.tool} {self.seed}"

    def message(self) -> JSON:
        arguments = {"seed": self.seed} | self.wanted.arguments
        params = {
            "name": self.wanted.tool, "arguments": arguments,
            "_meta": {"progressToken": f"t{self.id}"},
        }  # fmt: skip
        return {"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params}

    def expect(self, session: Session, least: int, most: int, why: str) -> None:
        for effect in self.wanted.never:
            session.context.findings.expect(f"{self.seed}{effect}", 0, 0, why)
        for effect in self.wanted.effects:
            session.context.findings.expect(f"{self.seed}{effect}", least, most, why)


def made(session: Session, wanted: ExpectedCall, attempt: int = 0) -> Attempt:
    seed = f"{wanted.seed}.{attempt}"
    findings = session.context.findings
    return Attempt(wanted, session.next_id(), seed, Stream(findings, f"{wanted.tool} {seed}"))


async def perform(
    session: Session,
    wanted: ExpectedCall,
    plan: Plan | None = None,
    *,
    hear: Callable[[Attempt, JSON], None] = lambda issued, message: None,
    begun: Callable[[Attempt], Any] = lambda issued: None,
    to: Address | None = None,
) -> tuple[Ending, Attempt]:
    """Make the call until it has an outcome, and judge it. ``begun`` runs before each try."""
    findings, deadline = session.context.findings, session.context.new_deadline()
    plan = plan or Plan()
    for attempt in range(1_000):
        issued = made(session, wanted, attempt)
        issued.place = to if to is not None and attempt < 3 else session.somewhere()
        begun(issued)
        findings.counts["calls"] += 1
        ending = await attempted(session, issued, plan, hear)
        if ending is not None and ending is not Ending.NAMELESS:
            judge(session, issued, ending)
            return ending, issued
        if ending is Ending.NAMELESS:
            issued.expect(session, 0, 1, "a connection that broke before it had an id")
        else:
            issued.expect(session, 0, 0, "a refusal, or a connection that never was")
        deadline.count_failure()
        if deadline.is_over:
            break
        await pause(session.rng, attempt)
    findings.add("hanging", f"{wanted.tool} {wanted.seed}: nobody takes it")
    return Ending.HANGING, issued


async def attempted(
    session: Session, issued: Attempt, plan: Plan, hear: Callable[[Attempt, JSON], None]
) -> Ending | None:
    """Make one attempt. Return its ending, or None if it had no effect and can be repeated."""
    try:
        answer = await session.post(issued.message(), issued.place)
    except Broken as broken:
        return Ending.NAMELESS if broken.sent else None
    if answer.status == 200 and answer.is_stream:
        reader = Reader(
            session, issued.stream, [issued.id], plan, hear=lambda message: hear(issued, message)
        )
        issued.reader = reader
        return await reader.read(answer)
    return await _at_once(session, issued, answer)


async def _at_once(session: Session, issued: Attempt, answer: Answer) -> Ending | None:
    """Handle an answer that is not a stream: the response itself, or a refusal."""
    try:
        said = await answer.json()
    except Broken:
        return Ending.NAMELESS
    if answer.status == 200 and isinstance(said, dict) and said.get("id") == issued.id:
        issued.plain = [said]
        return Ending.ANSWERED
    await session.check(answer.status, said, f"POST of {issued.label}")
    refused = answer.status in (429, 503) and isinstance(said, dict)
    return None if refused else Ending.NAMELESS


# Judging.


def judge(session: Session, issued: Attempt, ending: Ending) -> str:
    """Compare what was received with what was expected. Return the kind of outcome."""
    messages = [*issued.stream.messages(), *issued.plain]
    told = RequestMessages(messages, issued.id, f"t{issued.id}")
    kind = _outcome(session, issued, told, ending)
    _judge_words(session, issued, told, kind)
    issued.kind = kind
    session.context.findings.outcomes[kind] += 1
    if told.responses and not (issued.is_cancelled or session.is_ended):
        is_quiet = session.context.is_quiet
        session.context.findings.count_outcome(issued.wanted.tool, kind, is_quiet=is_quiet)
    _judge_effects(session, issued, kind)
    return kind


def _outcome(session: Session, issued: Attempt, told: RequestMessages, ending: Ending) -> str:
    findings = session.context.findings
    if not told.responses:
        if ending is Ending.HANGING:
            return "hanging"
        if ending is Ending.OVER and not issued.is_cancelled:
            findings.add("lost", f"{issued.label}: the stream is over without a response")
        return "gone" if ending is Ending.GONE else "silence"
    if len(told.responses) > 1:
        findings.add("duplicated", f"{issued.label}: {len(told.responses)} responses")
    if told.after:
        findings.add("disordered", f"{issued.label}: {told.after} messages after the response")
    return classified(session, issued, told.responses[0])


KNOWN = {  # the first that fits
    BROKE: "masked", NOT_BEGUN: "away",
    LOST: "lost its process", ROLLED_BACK: "rolled back", AWAY: "away", MASKED: "masked",
    CUT_OFF: "cut off", TRIMMED: "trimmed",
}  # fmt: skip


def _note_recovery(context: CampaignContext, issued: Attempt) -> None:
    """Record the wait for a response after an outage, if no other fault concerned the call."""
    seconds = context.faults.seconds_since_outage(issued.began, context.worker(issued.worker))
    if seconds is not None:
        context.findings.recoveries.append(seconds)


def classified(session: Session, issued: Attempt, response: JSON) -> str:
    """Return the kind of a response. Report it if no fault excuses it."""
    text, context, findings = _text(response), session.context, session.context.findings
    _note_recovery(context, issued)
    if text == issued.wanted.answer(issued.seed) and issued.wanted.is_error == (
        "error" in response
    ):
        findings.count_fault("c", observed=int(issued.stream.is_trimmed))
        return "success"
    kind = next((kind for part, kind in KNOWN.items() if part in text), "wrong")
    if kind == "trimmed" and issued.stream.is_trimmed:
        findings.count_fault("c", observed=1)
    elif is_excused(context, issued, kind):
        findings.excused[f"{issued.wanted.tool}: {kind}"] += 1
        _note_takeover(context, issued, kind)
    else:
        runs = issued.reader.runs if issued.reader else []
        what = f"{issued.label}: answered by {text[:200]!r}, runs {runs}"
        _add_unless_silent(context, issued, kind, what)
    return kind


def _add_unless_silent(context: CampaignContext, issued: Attempt, kind: str, what: str) -> None:
    """Report the response at the end, unless its worker reports missed heartbeats until then.

    The worker lost its lease then, or gave it up, because the machine did not let it work.
    """
    findings, now = context.findings, time.monotonic()
    if context.is_quiet or kind not in ENDED:
        findings.add("wrong", what)
        return

    def is_silent() -> bool:
        found = is_excused(context, issued, kind, now)
        findings.excused[f"{issued.wanted.tool}: {kind}, without heartbeats"] += found
        return found

    findings.doubtful.append((what, is_silent))


def is_excused(
    context: CampaignContext, issued: Attempt, kind: str, until: float | None = None
) -> bool:
    """Whether the faults up to ``until``, or up to now, explain this outcome."""
    tool, since, place = issued.wanted.tool, issued.began, issued.worker
    if kind in ("wrong", "trimmed"):
        return False
    if kind == "away" and not context.is_strict:
        return True  # it has one writer, and who waits too long for another is told so
    if context.is_quiet and until is None:
        return False
    faults, place = context.faults, context.worker(place)
    if tool in AGAIN or (tool == "transact" and context.is_strict):
        often = len(faults.deaths(since, place, until)) > MOST_RUNS
        return often if kind in ENDED else faults.affected(since, kinds=COMMON, until=until)
    if kind == "lost its process" and tool in HELD and context.is_strict:
        return False  # what is told as unknown is known
    return faults.affected(since, place, AFTER if kind in ENDED else EXCUSING, until)


def _note_takeover(context: CampaignContext, issued: Attempt, kind: str) -> None:
    """Record the duration of a takeover, if one killed worker is the only possible cause."""
    killed = context.faults.killed_at(issued.began, context.worker(issued.worker))
    if kind in ENDED and killed is not None and killed > issued.began:
        context.findings.takeovers.append(time.monotonic() - killed)


def outcome_of(
    findings: Findings, label: str, response: JSON, final: str, *, acts: bool, struck: bool,
    is_strict: bool,
) -> str:  # fmt: skip
    """Return the kind of outcome of a call without a session. A fault excuses any failure."""
    text = _text(response)
    if text == final and "error" not in response:
        return "success"
    kind = next((kind for part, kind in KNOWN.items() if part in text), "wrong")
    if kind == "wrong" and text == INTERNAL:
        kind = "internal error"
    honest = kind == "internal error" or (acts and kind not in ("wrong", "trimmed"))
    if honest and (struck or (kind == "away" and not is_strict)):
        findings.excused[f"without a session: {kind}"] += 1
    else:
        findings.add("wrong", f"{label}: answered by {text[:200]!r}")
    return kind


def _text(response: JSON) -> str:
    result = response.get("result")
    if not isinstance(result, dict):
        return str((response.get("error") or {}).get("message"))
    blocks = result.get("content") or [{}]
    return str(blocks[0].get("text"))


def _judge_words(session: Session, issued: Attempt, told: RequestMessages, kind: str) -> None:
    findings, wanted = session.context.findings, spoken(issued.seed, issued.wanted.count)
    if session.revision < WORDS:  # there progress is numbers alone
        told.said = [word(issued.seed, int(number) - 1) for number in told.progress]
    if not told.rises:
        findings.add("disordered", f"{issued.label}: progress does not rise")
    if kind != "success" or issued.stream.is_trimmed:
        wanted = wanted[: len(told.said)]
    compare(findings, f"{issued.label} ({kind})", wanted, told.said)


# How often an effect may have happened, by what the client was told.
EFFECTS = {
    "success": (1, 1), "rolled back": (0, 0), "away": (0, 0), "lost its process": (0, 1),
    "masked": (0, 1), "cut off": (0, 1), "trimmed": (0, 1), "silence": (0, 1), "gone": (0, 1),
    "hanging": (0, 1), "wrong": (0, 1),
}  # fmt: skip


def _judge_effects(session: Session, issued: Attempt, kind: str) -> None:
    least, most = EFFECTS[kind]
    if kind == "silence" and session.context.is_strict and issued.wanted.tool in HELD:
        most = 0  # the cancel came before the commit of the outcome, and so of what was done
    if issued.wanted.tool == "put":
        most = max(most, 2)  # it says of itself that this does no harm
    if issued.wanted.tool == "steps":
        most = 1  # what was done by a step stays done
    issued.expect(session, least, most, f"{kind} ({issued.label})")
