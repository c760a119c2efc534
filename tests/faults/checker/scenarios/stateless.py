"""
Stateless calls: repeated after a broken connection, and continued after an input_required result.
"""

from __future__ import annotations

from ..calls import outcome_of
from ..expectation import JSON, compare
from ..reading import Plan
from ..stateless import StatelessClient, questions_of
from ..virtual_client import VirtualClient
from ..words import spoken, word


async def call(person: VirtualClient) -> None:
    """Call a tool without or with effects. Each attempt has its own seed."""
    context, rng = person.context, person.rng
    tool, count = rng.choice(("recite", "dictate", "act")), rng.choice((0, 3, 20))
    seconds = rng.choice((0.0, 0.5, 1.0))
    cuts = Plan.drawn(rng, most=2, size=200 + 120 * count).cuts
    base = person.seed()
    for attempt in range(1_000):
        seed = f"{base}.{attempt}"
        requester = StatelessClient(context, rng, person.secret)
        arguments = {"seed": seed, "count": count, "seconds": seconds}
        params = {"name": tool, "arguments": arguments}
        response = await requester.attempt(f"{tool} {seed}", params, cuts.pop(0) if cuts else None)
        if response is not None or context.seconds_left < -context.timeout:
            break
        if tool == "act":
            context.findings.expect(seed, 0, requester.attempts, "a call that broke (2026-07-28)")
    if response is not None:
        _judge(person, tool, seed, requester, response, count, {"": 1} if tool == "act" else {})


async def rounds(person: VirtualClient) -> None:
    """The result is a question. Send the answer with the state to any worker."""
    context, rng = person.context, person.rng
    tool = rng.choice(("ask", "survey", "steps"))
    count = rng.choice((1, 2, 3))
    seed, requester = f"{person.seed()}.0", StatelessClient(context, rng, person.secret)
    params: JSON = {"name": tool, "arguments": {"seed": seed, "count": count}}
    attempts, response = list[int](), JSON()
    for _ in range(count + 2):
        cuts = Plan.drawn(rng, most=1, size=300).cuts
        found = await requester.call(f"{tool} {seed}", params, cuts)
        attempts.append(requester.attempts)
        if found is None:
            return
        response, asked = found, questions_of(found)
        if asked is None:
            break
        params = params | _answered(seed, asked, response)
    most = {"": attempts[-1]}
    if tool == "steps":
        # With the state there is a name by which a step is remembered; before, there is none.
        most |= {"/first": attempts[0], "/second": 1}
    words = {"ask": count, "survey": 2, "steps": 3}[tool]
    _judge(person, tool, seed, requester, response, words, most)


def _answered(seed: str, asked: JSON, response: JSON) -> JSON:
    given = {
        key: {"action": "accept", "content": {"answer": _answer(seed, one)}}
        for key, one in asked.items()
    }
    return {"inputResponses": given, "requestState": response["result"]["requestState"]}


def _answer(seed: str, asked: JSON) -> str:
    text = asked["params"]["message"]
    numbers = (n for n in range(20) if word(seed, f"question {n}") in text)
    return word(seed, f"answer {next(numbers, None)}")


def _judge(
    person: VirtualClient, tool: str, seed: str, requester: StatelessClient, response: JSON,
    count: int, most: dict[str, int],
) -> None:  # fmt: skip
    findings, label = person.context.findings, f"{tool} {seed} (2026-07-28)"
    context = person.context
    struck = context.was_faulty(requester.began, requester.place)
    final = word(seed, "final")
    kind = outcome_of(findings, label, response, final, acts=bool(most), struck=struck,
                      is_strict=context.is_strict)  # fmt: skip
    findings.outcomes[f"{kind}, without a session"] += 1
    findings.count_outcome(f"{tool}, without a session", kind, is_quiet=context.is_quiet)
    wanted = spoken(seed, count)
    compare(findings, label, wanted if kind == "success" else wanted[: len(requester.said)],
            requester.said)  # fmt: skip
    if sorted(set(requester.progress)) != requester.progress:
        findings.add("disordered", f"{label}: progress does not rise")
    for effect, times in most.items():
        least = 1 if kind == "success" else 0
        findings.expect(f"{seed}{effect}", least, times, f"{kind} ({label})")
