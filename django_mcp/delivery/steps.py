"""
Steps that happen once in a call, remembered as rows: in every process, over a restart.

Rule: a step is entered before it is done, so that no two do it. One whose process
died while it was at it was rolled back with its entry, where both are in one
transaction; elsewhere it is never done again, for nobody knows how far it came.
What cannot be remembered is refused before it happens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max, Min

from ..conf import settings
from ..exceptions import ToolError
from ..models import DONE, Call, Step
from . import clock
from .rows import digest_of, erase, rows

MAX_KEYS = 100  # of one call
MAX_STEPS = 1_000_000  # of all
CHUNK = 500  # calls whose steps are forgotten at once
KEPT = re.compile(r"c([0-9]{1,18})\Z")  # the name of a call that is a row


def of(call: str) -> dict[str, Any]:
    """What is remembered of a call."""
    done = rows(Step).filter(call=call, doing=False)
    return dict(done.values_list("key", "value"))


def are_there(call: str) -> bool:
    """Whether a call has done a step, or is at one."""
    return rows(Step).filter(call=call).exists()


def begin(call: str, key: str) -> bool:
    """Whether the step is still to be done, by whoever asked. Raises ``ToolError``."""
    steps = rows(Step).filter(call=call)
    known = steps.filter(digest=digest_of(key)).values_list("doing", flat=True).first()
    if known is None:
        _refuse_too_many(steps.count())
        return _entered(call, key)
    if known:
        raise ToolError("This is being done already, or was cut off: nobody knows how far it came.")
    return False


def _refuse_too_many(count: int) -> None:
    if count >= MAX_KEYS:
        raise ToolError(f"A call remembers at most {MAX_KEYS} steps.")
    # Told by the ends of the table, which are at hand: there may be fewer, never more.
    ends = rows(Step).aggregate(first=Min("pk"), last=Max("pk"))
    if (ends["last"] or 0) - (ends["first"] or 0) < MAX_STEPS:
        return
    expire()
    if rows(Step).count() >= MAX_STEPS:
        raise ToolError("Too many calls are under way. Try again later.")


def _entered(call: str, key: str) -> bool:
    try:
        with transaction.atomic(using=settings.DATABASE):
            rows(Step).create(call=call, digest=digest_of(key), key=key, at=clock.now())
    except IntegrityError:  # another was at it, and is done with it where this had to wait
        if rows(Step).filter(call=call, digest=digest_of(key), doing=False).exists():
            return False
        raise ToolError("This is being done already.") from None
    return True


def keep(call: str, key: str, value: Any) -> None:
    """The step is done."""
    step = rows(Step).filter(call=call, digest=digest_of(key))
    step.update(value=value, doing=False, at=clock.now())


def fail(call: str, key: str) -> None:
    """The step came to nothing, and may be tried again."""
    erase(rows(Step).filter(call=call, digest=digest_of(key), doing=True))


def forget(call: str) -> None:
    """The call is over and cannot come back."""
    erase(rows(Step).filter(call=call))


def expire() -> int:
    """Forget the steps of calls that can no longer come back; how many there were."""
    oldest = max(2 * settings.STATE_LIFETIME, settings.SESSION_LIFETIME)
    old = rows(Step).filter(at__lt=clock.now() - timedelta(seconds=oldest))
    names = list(old.order_by("call").values_list("call", flat=True).distinct())
    count = 0
    for start in range(0, len(names), CHUNK):
        some = names[start : start + CHUNK]
        count += erase(old.filter(call__in=set(some) - _living(some)))
    return count


def _living(names: Sequence[str]) -> set[str]:
    """Those of the calls that are rows, and not over: a question may wait for days."""
    ids = [int(found[1]) for name in names if (found := KEPT.match(name))]
    open_still = rows(Call).filter(pk__in=ids).exclude(state=DONE)
    return {f"c{pk}" for pk in open_still.values_list("pk", flat=True)}
