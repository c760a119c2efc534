"""
Steps that happen once in a call, however often it runs.

Rule: a step and its value are committed together, where they are in the same
database; elsewhere the step is over before its value is remembered, so that
what is remembered has happened. It is remembered for as long as the
state of its call may come back, on whatever connection of this process
("Servers ... MUST enforce that invariant server-side", basic/patterns/mrtr).
What cannot be remembered is refused before it happens. Values are JSON,
bounded, and belong to one call.
"""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import async_to_sync
from django.db import transaction

from ..conf import settings
from ..exceptions import OnceNeeded, ToolError
from .running import with_database

if TYPE_CHECKING:
    from .runs import Run

MAX_CALLS, MAX_VALUE, MAX_KEYS = 10_000, 100_000, 100


@dataclass(slots=True)
class Steps:
    """What one call has done, by key, what it is doing, and when it last ran."""

    at: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)
    doing: set[str] = field(default_factory=set)


class Memory(Protocol):
    """Where the steps of calls are remembered; in this process, or as rows."""

    def is_beside(self) -> bool:
        """Whether the transaction of a step can hold what is remembered of it."""
        ...

    async def recall(self, call: str) -> dict[str, Any]: ...

    def begin(self, call: str, key: str) -> bool: ...

    def keep(self, call: str, key: str, value: Any) -> None: ...

    def fail(self, call: str, key: str) -> None: ...

    async def aforget(self, call: str) -> None: ...


class Remembered:
    """The steps of the calls whose state may still come back."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Steps] = OrderedDict()
        self._lock = threading.Lock()

    def is_beside(self) -> bool:
        return False

    async def recall(self, call: str) -> dict[str, Any]:
        return self.of(call)

    def of(self, call: str) -> dict[str, Any]:
        """What is remembered of a call, which runs now."""
        with self._lock:
            return dict(self._touched(call).values) if call in self._calls else {}

    def begin(self, call: str, key: str) -> bool:
        """Whether the step is still to be done, by whoever asked. Raises ``ToolError``."""
        with self._lock:
            self._expire()
            if call not in self._calls and len(self._calls) >= MAX_CALLS:
                raise ToolError("Too many calls are under way. Try again later.")
            steps = self._touched(call)
            if key in steps.doing:
                raise ToolError("This is being done already.")
            if len(steps.values) >= MAX_KEYS:
                raise ToolError(f"A call remembers at most {MAX_KEYS} steps.")
            steps.doing |= {key} - steps.values.keys()
            return key in steps.doing

    def keep(self, call: str, key: str, value: Any) -> None:
        """The step is done."""
        with self._lock:
            steps = self._touched(call)
            steps.values[key] = value
            steps.doing.discard(key)

    def fail(self, call: str, key: str) -> None:
        """The step came to nothing, and may be tried again."""
        with self._lock:
            steps = self._calls.get(call, Steps())
            steps.doing.discard(key)
            if not (steps.values or steps.doing):
                self._calls.pop(call, None)

    async def aforget(self, call: str) -> None:
        self.forget(call)

    def forget(self, call: str) -> None:
        """The call is over and cannot come back."""
        with self._lock:
            self._calls.pop(call, None)

    def _touched(self, call: str) -> Steps:
        steps = self._calls.setdefault(call, Steps())
        steps.at = time.monotonic()
        self._calls.move_to_end(call)
        return steps

    def _expire(self) -> None:
        """Forget what no state can bring back: it was sealed when its call last ran."""
        oldest = time.monotonic() - 2 * settings.STATE_LIFETIME
        while self._calls and (first := next(iter(self._calls.items())))[1].at < oldest:
            del self._calls[first[0]]


remembered = Remembered()


async def done_once(memory: Memory, call: str, step: OnceNeeded, run: Run) -> None:
    """Do the step in a transaction of its own and remember its value. Raises ``ToolError``."""

    # All in the thread: a cancelled call no longer waits for what its step comes to.
    def job() -> None:
        run.request.asks = False  # the step is no place to ask
        (_together if memory.is_beside() else _apart)(memory, call, step)

    await with_database(run, job)


def _together(memory: Memory, call: str, step: OnceNeeded) -> None:
    """Both or neither, also if the process dies in the midst of it."""
    with transaction.atomic():
        if memory.begin(call, step.key):
            memory.keep(call, step.key, _value(step))


def _apart(memory: Memory, call: str, step: OnceNeeded) -> None:
    if not memory.begin(call, step.key):
        return
    try:
        with transaction.atomic():
            value = _value(step)
    except BaseException:
        memory.fail(call, step.key)
        raise
    memory.keep(call, step.key, value)


def _value(step: OnceNeeded) -> Any:
    value = step.function()
    if inspect.iscoroutine(value):
        value = async_to_sync(_awaited)(value)
    return _bounded(step.key, value)


async def _awaited(value: Any) -> Any:
    return await value


def _bounded(key: str, value: Any) -> Any:
    text = json.dumps(value)
    if len(text) > MAX_VALUE:
        raise ValueError(f"The value of once({key!r}) has more than {MAX_VALUE} characters.")
    return json.loads(text)
