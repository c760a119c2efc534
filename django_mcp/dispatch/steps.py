"""
Steps remembered as rows, for calls that may come back to another process.

Rule: the memory of ``once``, elsewhere: what is asked before a run waits in
the log's threads, what is noted around a step is noted in the thread that does
the step.
"""

from __future__ import annotations

from typing import Any

from .. import threads
from ..delivery import steps


class StepRows:
    """A ``Memory`` in the database."""

    async def recall(self, call: str) -> dict[str, Any]:
        return await threads.log.run(steps.of, call)

    async def aforget(self, call: str) -> None:
        await threads.log.run(steps.forget, call)

    def begin(self, call: str, key: str) -> bool:
        return steps.begin(call, key)

    def keep(self, call: str, key: str, value: Any) -> None:
        steps.keep(call, key, value)

    def fail(self, call: str, key: str) -> None:
        steps.fail(call, key)
