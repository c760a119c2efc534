"""
Report finished calls to ``observers``, which record what clients did.

A call is reported if it returned a result, or if it may have written before it failed or asked a
question. Rejected calls are not reported. A report names the declaration, and contains nothing that
the client sent. An exception in an observer is logged and does not fail the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..exceptions import RunEnded

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from .call_state import CallRun
    from .execution import Invocation

logger = logging.getLogger("django_mcp")


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call of a tool or prompt, with its name, or a read of a resource, with its template."""

    principal: Principal
    server: str
    method: str
    name: str


# Called in the event loop, so they must not block. Apps add theirs in ``AppConfig.ready()``.
observers: list[Callable[[CallRecord], None]] = []


def report(run: CallRun, work: Invocation, error: BaseException | None = None) -> None:
    """Report that a run of ``work`` ended, with ``error`` or with a result."""
    if not observers or not (error is None or _may_have_written(run, work, error)):
        return
    thing: Any = work.thing
    name = thing.uri if run.call.method == "resources/read" else thing.name
    record = CallRecord(run.principal, run.server.name, run.call.method, name)
    for observe in observers:
        try:
            observe(record)
        except Exception:
            logger.exception("Activity of a client could not be recorded")


def _may_have_written(run: CallRun, work: Invocation, error: BaseException) -> bool:
    """Whether writes of a failed run may remain in the database.

    A run that asks a question is rolled back, runs again and is reported then. Writes outside of a
    transaction or in a step remain, so it is reported at once: it may never run again.
    """
    if not (work.is_begun and work.write):
        return False
    stays = work.atomic is False or bool(run.answers.remembered)
    return stays or not isinstance(error, RunEnded)
