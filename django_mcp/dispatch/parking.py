"""
A call of a session that asks: its questions become rows, and so does the call.

Rule: nobody waits in memory for an answer. The questions, all that the call
knows so far and the messages that ask are written in one transaction; from then
on the call belongs to whoever brings the last answer, in whichever process.
None is sent before the client has said that it is ready (basic/lifecycle).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..delivery import calls, sessions, steps
from ..delivery.doorbell import Ring, ring
from ..delivery.jobs import surely
from ..delivery.rows import one_transaction
from ..delivery.writer import writer
from ..exceptions import OnceNeeded, Parked, Stopped, Unwound
from ..models import Ask
from ..protocol.events import Call
from ..protocol.jsonrpc import JSON, encode
from ..protocol.revisions import Revision
from . import outcomes, pages
from .asking import Written, written
from .rounds import Asking, Rounds
from .runs import Conclusion, Run
from .serving import Serving
from .steps import StepRows

if TYPE_CHECKING:
    from .kept import Kept

PAUSE = 0.2  # seconds between two looks whether the client is ready


class Parking:
    """How the client of one call is asked (``serving.Asker``)."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def ask(
        self, revision: Revision, asking: Sequence[Asking], rounds: Rounds
    ) -> dict[str, JSON]:
        """Raises ``Parked``. Answers at once only if the client never becomes ready."""
        questions = {digest: (key, written(revision, question)) for key, digest, question in asking}
        await self._kept.reply.opened()
        timed_out = {digest: {"timeout": one.seconds} for digest, (_, one) in questions.items()}
        if not await self._is_ready(min(one.seconds for _, one in questions.values())):
            return timed_out
        await self._park(questions, rounds)
        raise Parked()

    async def _is_ready(self, seconds: float) -> bool:
        """Whether the client has said so, before the first question would be overdue."""
        session, loop = self._kept.reply.session, asyncio.get_running_loop()
        end = loop.time() + seconds
        while not (session.initialized or await surely(sessions.is_initialized, session)):
            if loop.time() >= end:
                return False
            await asyncio.sleep(PAUSE)
        return True

    async def _park(self, questions: dict[str, tuple[str, Written]], rounds: Rounds) -> None:
        kept, to = self._kept, self._kept.address
        await writer().flush(to)
        asked = [one for _, one in questions.values()]
        if sent := [one.id for one in asked if one.is_page]:
            await surely(pages.expect, kept.reply.session, sent)
        parked = await surely(
            calls.park, to.call, to.fence,
            [_row(key, digest, one) for digest, (key, one) in questions.items()],
            [encode(one.message) for one in asked],
            known=rounds.known, high_water=rounds.high_water, rounds=rounds.count, again=False,
        )  # fmt: skip
        if not parked:
            raise Stopped()
        ring(Ring(to.stream, changed=True))

    def expect(self, *elicitations: str) -> None:
        self._kept.pages.extend(elicitations)


def _row(key: str, digest: str, asked: Written) -> Ask:
    """Its deadline is counted from when it is written down."""
    return Ask(id=asked.id, key=key, digest=digest, wire=asked.wire, seconds=asked.seconds)


class KeptSteps(StepRows):
    """The steps of a call that is a row are forgotten with its outcome, and not before."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def begin(self, call: str, key: str) -> bool:
        """Raises ``Stopped`` if the call is another's by now, or over, before the step is done."""
        return super().begin(call, key) if self.is_beside() else self._begin(call, key)

    @one_transaction
    def _begin(self, call: str, key: str) -> bool:
        """Whoever takes the call over comes before this, or finds that the step was begun."""
        self._check()
        return super().begin(call, key)

    def keep(self, call: str, key: str, value: Any) -> None:
        """Raises ``Stopped``, which undoes the step, where it is in the same transaction."""
        super().keep(call, key, value)
        if self.is_beside():
            self._check()

    def _check(self) -> None:
        row = self._kept.row
        assert row is not None  # it is written down before it does a step
        if not calls.is_mine(row.pk, row.fence):
            raise Stopped()

    async def recall(self, call: str) -> dict[str, Any]:
        return await surely(steps.of, call)

    async def aforget(self, call: str) -> None:
        """It may run again."""


@dataclass
class KeptServing(Serving):
    """Has a call written down before it does what must happen once, and with what it did."""

    kept: Kept | None = None

    def _conclusion(self, call: Call) -> Conclusion | None:
        kept = self.kept
        if kept is None:
            return None
        return lambda result: outcomes.conclude(kept, self._result(call, result))

    def _goes_on(self) -> bool:
        return self.kept is not None and self.kept.row is not None and self.kept.row.fence > 0

    async def _unwound(self, unwound: Unwound, run: Run, rounds: Rounds) -> JSON | None:
        if isinstance(unwound, OnceNeeded) and self.kept is not None:
            await self.kept.reply.opened()
        return await super()._unwound(unwound, run, rounds)
