"""
What clients did, told to those who keep account of it.

Rule: what was answered was done, and so was what may have written before it failed or asked; what
was refused was not. A deed has the names of what is declared, and nothing that a client sent. Who
is told of it neither delays a call nor fails one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..exceptions import Unwound

if TYPE_CHECKING:
    from ..principal import Principal
    from .running import Work
    from .runs import Run

logger = logging.getLogger("django_mcp")


@dataclass(frozen=True, slots=True)
class Deed:
    """One call of a tool or a prompt by its name, one reading of a resource by its template."""

    principal: Principal
    server: str
    method: str
    name: str


# Called in the loop, and not to wait there; filled when an app is ready that keeps account.
accounts: list[Callable[[Deed], None]] = []


def tell(run: Run, work: Work, error: BaseException | None = None) -> None:
    """That a run of ``work`` ended, by ``error`` or by an answer."""
    if not accounts or not (error is None or _may_have_written(run, work, error)):
        return
    thing: Any = work.thing
    name = thing.uri if run.call.method == "resources/read" else thing.name
    deed = Deed(run.principal, run.server.name, run.call.method, name)
    for account in accounts:
        try:
            account(deed)
        except Exception:
            logger.exception("What a client did could not be noted")


def _may_have_written(run: Run, work: Work, error: BaseException) -> bool:
    """A run that asks goes on later, and is told of then; what it wrote was rolled back.

    But not what it wrote without a transaction, or in a step of its own: it may never go on.
    """
    if not (work.is_begun and work.write):
        return False
    stays = work.atomic is False or bool(run.answers.remembered)
    return stays or not isinstance(error, Unwound)
