"""Answers to questions of the server: in time, late, twice, or after a cancel.

The first answer that arrives counts. Later ones are accepted with 202 and have no effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .calls import Attempt
from .client import Address
from .expectation import JSON
from .sessions import Ended, Session
from .words import word

Style = str
STYLES: Sequence[Style] = ("plain", "twice", "together", "late", "wrong first")


@dataclass
class Answerer:
    """Answers the questions of one call, in a given style."""

    session: Session
    rng: random.Random
    style: Style = "plain"
    slow: float = 0.3  # seconds to think, at most
    place: Callable[[], Address] | None = None
    refuses: dict[int, str] = field(default_factory=dict)  # question: "decline" or "error"
    asked: list[JSON] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    answered: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    answers: bool = True

    def hear(self, issued: Attempt, message: JSON) -> None:
        """Answer a message of the call if it is a question."""
        if message.get("method") == "elicitation/create":
            self.asked.append(message)
            self.is_open.set()
            if self.answers:
                self.tasks.append(asyncio.create_task(self._answer(issued, message)))

    async def done(self) -> None:
        await asyncio.gather(*self.tasks, return_exceptions=False)

    async def _answer(self, issued: Attempt, message: JSON) -> None:
        await asyncio.sleep(self.rng.uniform(0, self.slow))
        try:
            await self._said(issued, message)
        except Ended:
            return

    async def _said(self, issued: Attempt, message: JSON) -> None:
        answer = self.answer(issued, message)
        if self.style == "wrong first" and not self.answered and "result" in answer:
            self.answered += 1
            wrong = {"action": "accept", "content": {"answer": 17}}
            await self.say({"jsonrpc": "2.0", "id": message["id"], "result": wrong})
            return  # it is asked anew, under another id
        self.answered += 1
        if self.style == "together":
            await asyncio.gather(self.say(answer), self.say(answer))
            self.session.context.findings.count_fault("m", injected=1, observed=1)
            return
        await self.say(answer)
        if self.style == "twice":
            await self.say(answer)
            self.session.context.findings.count_fault("m", injected=1, observed=1)

    async def say(self, answer: JSON) -> None:
        await self.session.say(answer, to=self.place() if self.place else None)

    async def again(self, issued: Attempt) -> None:
        """Answer all questions again, after the call has ended."""
        for message in self.asked:
            await self.say(self.answer(issued, message))
            self.session.context.findings.count_fault("m", injected=1, observed=1)

    def answer(self, issued: Attempt, message: JSON) -> JSON:
        """Return the answer that follows from the seed of the question, or a refusal."""
        text, reply = message["params"]["message"], {"jsonrpc": "2.0", "id": message["id"]}
        number = next((n for n in range(20) if word(issued.seed, f"question {n}") in text), None)
        if number is None:
            self.session.context.findings.add("wrong", f"{issued.label}: asks {text!r}")
        how = self.refuses.get(number if number is not None else -1)
        if how == "error":
            return reply | {"error": {"code": -1, "message": "No."}}
        if how is not None:
            return reply | {"result": {"action": how}}
        content = {"answer": word(issued.seed, f"answer {number}")}
        return reply | {"result": {"action": "accept", "content": content}}
