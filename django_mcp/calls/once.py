"""
Steps of ``request.once``: they are executed once in a call, however often it runs.

The value of a step is stored, and the next runs of the call get it without executing the step. If
the session database is also the database of the step, both are committed in one transaction.
Otherwise the value is stored after the step is committed, so a stored step has happened.
``InMemorySteps`` keeps the values for as long as the ``requestState`` of the call is valid, for all
connections of this process ("Servers ... MUST enforce that invariant server-side",
basic/patterns/mrtr). If the limits do not allow another step, it is rejected before it is executed.
Values are JSON, limited in size, and belong to one call.
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
from .execution import shares_transaction, with_database

if TYPE_CHECKING:
    from .call_state import CallRun

MAX_CALLS_WITH_STEPS = 10_000  # in the memory of one process
MAX_VALUE_CHARACTERS = 100_000  # of one value, as JSON


@dataclass(slots=True)
class OnceSteps:
    """The steps of one call."""

    last_used_at: float = 0.0  # monotonic clock
    values: dict[str, Any] = field(default_factory=dict)  # of finished steps, by key
    running: set[str] = field(default_factory=set)  # keys of steps that are being executed


class StepStore(Protocol):
    """Storage of the steps of calls: in memory or as rows. ``call`` is ``Interaction.id``."""

    def shares_transaction(self) -> bool:
        """Whether the value can be stored in the transaction of the step."""
        ...

    async def recall(self, call: str) -> dict[str, Any]:
        """Return the values of the finished steps, by key."""
        ...

    def begin(self, call: str, key: str) -> bool:
        """Mark a step as begun. Return True if the caller must execute it, False if it is done.

        Raise ``ToolError`` if it is running, or if there are too many steps.
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

    def shares_transaction(self) -> bool:
        return False

    async def recall(self, call: str) -> dict[str, Any]:
        return self.values_of(call)

    def values_of(self, call: str) -> dict[str, Any]:
        """Return the values of a call's finished steps, and mark the call as used now."""
        with self._lock:
            return dict(self._touch(call).values) if call in self._calls else {}

    def begin(self, call: str, key: str) -> bool:
        with self._lock:
            self._delete_expired()
            if call not in self._calls and len(self._calls) >= MAX_CALLS_WITH_STEPS:
                raise ToolError(calls.TOO_MANY_STEPS)
            steps = self._touch(call)
            # Before the limit is checked: when two retries of a call both begin the last allowed
            # step, the first may have finished it before the second gets here.
            if key in steps.values:
                return False
            if key in steps.running:
                raise ToolError(f"The step {key!r} is already running.")
            if len(steps.values) >= calls.MAX_STEPS_PER_CALL:
                raise ToolError(f"A call remembers at most {calls.MAX_STEPS_PER_CALL} steps.")
            steps.running.add(key)
            return True

    def keep(self, call: str, key: str, value: Any) -> None:
        """Store the value of a step, which is done."""
        with self._lock:
            steps = self._touch(call)
            steps.values[key] = value
            steps.running.discard(key)

    def fail(self, call: str, key: str) -> None:
        """Remove a step that failed, so that it can be tried again."""
        with self._lock:
            steps = self._calls.get(call, OnceSteps())
            steps.running.discard(key)
            if not (steps.values or steps.running):
                self._calls.pop(call, None)

    async def aforget(self, call: str) -> None:
        self.forget(call)

    def forget(self, call: str) -> None:
        """Delete the steps of a call that cannot run again."""
        with self._lock:
            self._calls.pop(call, None)

    def _touch(self, call: str) -> OnceSteps:
        steps = self._calls.setdefault(call, OnceSteps())
        steps.last_used_at = time.monotonic()
        self._calls.move_to_end(call)
        return steps

    def _delete_expired(self) -> None:
        """Delete the steps of calls that can no longer be resumed.

        A ``requestState`` is made when a call runs, and is valid for ``STATE_LIFETIME``. Twice that
        time leaves a margin.
        """
        oldest = time.monotonic() - 2 * settings.STATE_LIFETIME
        while self._calls and (first := next(iter(self._calls.items())))[1].last_used_at < oldest:
            del self._calls[first[0]]


in_memory_steps = InMemorySteps()


async def execute_once(store: StepStore, call: str, step: OnceNeeded, run: CallRun) -> None:
    """Execute a step in a transaction of its own and store its value. Raise ``ToolError``."""

    # One job does all of it. If the call is cancelled, its task stops waiting, and the value of a
    # step that was executed must be stored all the same.
    def job() -> None:
        # A question would end the step half way, and the step would run again.
        run.request._may_ask = False
        if store.shares_transaction():
            _execute_and_store_atomically(store, call, step)
        else:
            _execute_then_store(store, call, step)

    await with_database(run, job)


def _execute_and_store_atomically(store: StepStore, call: str, step: OnceNeeded) -> None:
    """Execute the step and store its value in one transaction, so that a crash undoes both."""
    with transaction.atomic():
        if store.begin(call, step.key):
            store.keep(call, step.key, _execute_step(step))


def _execute_then_store(store: StepStore, call: str, step: OnceNeeded) -> None:
    """Mark the step as begun, execute it, and store its value after its commit.

    If the process dies between, the step stays begun and is not repeated (with ``StepRows``).
    """
    if not store.begin(call, step.key):
        return
    try:
        with transaction.atomic():
            value = _execute_step(step)
    except BaseException:
        store.fail(call, step.key)
        raise
    store.keep(call, step.key, value)


def _execute_step(step: OnceNeeded) -> Any:
    value = step.function()
    if inspect.iscoroutine(value):
        value = async_to_sync(_await)(value)
    return _json_value(step.key, value)


async def _await(value: Any) -> Any:
    return await value


def _json_value(key: str, value: Any) -> Any:
    """Return the value as the next runs of the call get it. Raise ``ValueError``, ``TypeError``."""
    text = json.dumps(value)
    if len(text) > MAX_VALUE_CHARACTERS:
        raise ValueError(
            f"The value of once({key!r}) has more than {MAX_VALUE_CHARACTERS} characters."
        )
    return json.loads(text)


class StepRows:
    """A ``StepStore`` in the database.

    ``recall`` and ``aforget`` use a thread of the pool ``log``. The other methods run in the thread
    that executes the step.
    """

    def shares_transaction(self) -> bool:
        return shares_transaction(True)

    async def recall(self, call: str) -> dict[str, Any]:
        return await threads.log.run(calls.step_values, call)

    async def aforget(self, call: str) -> None:
        await threads.log.run(calls.delete_steps, call)

    def begin(self, call: str, key: str) -> bool:
        return calls.begin_step(call, key)

    def keep(self, call: str, key: str, value: Any) -> None:
        self._write(calls.store_step_value, call, key, value)

    def fail(self, call: str, key: str) -> None:
        self._write(calls.discard_step, call, key)

    def _write(self, write: Callable[..., None], *args: Any) -> None:
        """Write the outcome of a step, and retry if it is not in the step's transaction.

        Without the retry, a short outage after the step would lose the outcome of what happened. In
        the step's transaction there is no retry: the failure rolls both back.
        """
        if self.shares_transaction():
            write(*args)
        else:
            run_here_with_retries(write, *args)
