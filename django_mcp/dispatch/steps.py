"""
Steps remembered as rows, for calls that may come back to another process.

Rule: the memory of ``once``, elsewhere: what is asked before a run waits in
the log's threads, what is noted around a step is noted in the thread that does
the step, and in its transaction if that is in the same database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import threads
from ..delivery import steps
from ..delivery.jobs import insistently
from .outcomes import beside


class StepRows:
    """A ``Memory`` in the database."""

    def is_beside(self) -> bool:
        return beside(True)

    async def recall(self, call: str) -> dict[str, Any]:
        return await threads.log.run(steps.of, call)

    async def aforget(self, call: str) -> None:
        await threads.log.run(steps.forget, call)

    def begin(self, call: str, key: str) -> bool:
        return steps.begin(call, key)

    def keep(self, call: str, key: str, value: Any) -> None:
        self._write(steps.keep, call, key, value)

    def fail(self, call: str, key: str) -> None:
        self._write(steps.fail, call, key)

    def _write(self, write: Callable[..., None], *args: Any) -> None:
        """What a step has come to is not lost by a log that is busy, or away for a while."""
        if self.is_beside():
            write(*args)
        else:
            insistently(write, *args)
