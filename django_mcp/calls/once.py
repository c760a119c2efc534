"""
Steps of ``request.once``: they are executed once in a call, however often it runs.

If both are in the same database, a step and its value are committed in one transaction. Otherwise
the value is stored after the step is committed, so a stored step has happened. ``InMemorySteps``
keeps the values for as long as the ``requestState`` of the call is valid, for all connections of
this process ("Servers ... MUST enforce that invariant server-side", basic/patterns/mrtr). If the
limits do not allow another step, it is rejected before it is executed. Values are JSON, limited in
size, and belong to one call.
"""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import async_to_sync
from django.db import transaction

from ..conf import settings
from ..exceptions import OnceNeeded, ToolError
from ..runtime import threads
from ..storage import calls
from ..storage.jobs import run_here_with_retries
from .execution import beside, with_database

if TYPE_CHECKING:
    from .call_state import CallRun

MAX_CALLS, MAX_VALUE, MAX_KEYS = 10_000, 100_000, 100


@dataclass(slots=True)
class OnceSteps:
    """The steps of one call: values by key, the keys in progress, and when it last ran."""

    at: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)
    doing: set[str] = field(default_factory=set)


class StepStore(Protocol):
    """Storage of the steps of calls: in memory or as rows. ``call`` is ``Interaction.id``."""

    def is_beside(self) -> bool:
        """Whether the value can be stored in the transaction of the step."""
        ...

    async def recall(self, call: str) -> dict[str, Any]:
        """Return the values of the finished steps, by key."""
        ...

    def begin(self, call: str, key: str) -> bool:
        """Mark a step as begun. Return False if it is done.

        Raise ``ToolError`` if it is in progress, or if there are too many steps.
        """
        ...

    def keep(self, call: str, key: str, value: Any) -> None:
        """Store the value of a step, which is done."""
        ...

    def fail(self, call: str, key: str) -> None:
        """Remove a step that failed, so that it can be tried again."""
        ...

    async def aforget(self, call: str) -> None:
        """Delete the steps of a call that cannot run again."""
        ...


class InMemorySteps:
    """The steps of calls without a row, in the memory of this process."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, OnceSteps] = OrderedDict()  # the least recently used first
        # Steps run in threads. Without the lock two retries of a call could begin the same step.
        self._lock = threading.Lock()

    def is_beside(self) -> bool:
        return False

    async def recall(self, call: str) -> dict[str, Any]:
        return self.of(call)

    def of(self, call: str) -> dict[str, Any]:
        """Return the values of a call's finished steps, and mark the call as used now."""
        with self._lock:
            return dict(self._touched(call).values) if call in self._calls else {}

    def begin(self, call: str, key: str) -> bool:
        """Return whether the caller must execute the step. Raise ``ToolError``."""
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
        """Store the value of a step, which is done."""
        with self._lock:
            steps = self._touched(call)
            steps.values[key] = value
            steps.doing.discard(key)

    def fail(self, call: str, key: str) -> None:
        """Remove a step that failed, so that it can be tried again."""
        with self._lock:
            steps = self._calls.get(call, OnceSteps())
            steps.doing.discard(key)
            if not (steps.values or steps.doing):
                self._calls.pop(call, None)

    async def aforget(self, call: str) -> None:
        self.forget(call)

    def forget(self, call: str) -> None:
        """Delete the steps of a call that cannot run again."""
        with self._lock:
            self._calls.pop(call, None)

    def _touched(self, call: str) -> OnceSteps:
        steps = self._calls.setdefault(call, OnceSteps())
        steps.at = time.monotonic()
        self._calls.move_to_end(call)
        return steps

    def _expire(self) -> None:
        """Delete calls that no valid state can resume: a state is sealed when its call runs."""
        oldest = time.monotonic() - 2 * settings.STATE_LIFETIME
        while self._calls and (first := next(iter(self._calls.items())))[1].at < oldest:
            del self._calls[first[0]]


remembered = InMemorySteps()


async def done_once(memory: StepStore, call: str, step: OnceNeeded, run: CallRun) -> None:
    """Execute a step in a transaction of its own and store its value. Raise ``ToolError``."""

    # One job does all of it. If the call is cancelled, its task stops waiting, and the value of a
    # step that was executed must be stored all the same.
    def job() -> None:
        run.request.asks = False  # a question would end the step half way, and it would run again
        (_together if memory.is_beside() else _apart)(memory, call, step)

    await with_database(run, job)


def _together(memory: StepStore, call: str, step: OnceNeeded) -> None:
    """Execute the step and store its value in one transaction, so that a crash undoes both."""
    with transaction.atomic():
        if memory.begin(call, step.key):
            memory.keep(call, step.key, _value(step))


def _apart(memory: StepStore, call: str, step: OnceNeeded) -> None:
    """Mark the step as begun, execute it, and store its value after its commit.

    If the process dies between, the step stays begun and is not repeated (with ``StepRows``).
    """
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


class StepRows:
    """A ``StepStore`` in the database.

    ``recall`` and ``aforget`` use a thread of the pool ``log``. The other methods run in the thread
    that executes the step.
    """

    def is_beside(self) -> bool:
        return beside(True)

    async def recall(self, call: str) -> dict[str, Any]:
        return await threads.log.run(calls.of, call)

    async def aforget(self, call: str) -> None:
        await threads.log.run(calls.forget, call)

    def begin(self, call: str, key: str) -> bool:
        return calls.begin(call, key)

    def keep(self, call: str, key: str, value: Any) -> None:
        self._write(calls.keep, call, key, value)

    def fail(self, call: str, key: str) -> None:
        self._write(calls.fail, call, key)

    def _write(self, write: Callable[..., None], *args: Any) -> None:
        """Write the outcome of a step, and retry if it is not in the step's transaction.

        Without the retry, a short outage after the step would lose the outcome of what happened. In
        the step's transaction there is no retry: the failure rolls both back.
        """
        if self.is_beside():
            write(*args)
        else:
            run_here_with_retries(write, *args)
