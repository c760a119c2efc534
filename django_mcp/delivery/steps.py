"""
Steps that happen once in a call, remembered as rows: in every process, over a restart.

Rule: a step is entered before it is done, so that no two do it; and one whose
process died while it was at it is never done again, for nobody knows how far it
came. What cannot be remembered is refused before it happens.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max, Min
from django.utils import timezone

from ..conf import settings
from ..exceptions import ToolError
from ..models import Step
from .rows import digest_of, erase, rows

MAX_KEYS = 100  # of one call
MAX_STEPS = 1_000_000  # of all


def of(call: str) -> dict[str, Any]:
    """What is remembered of a call."""
    done = rows(Step).filter(call=call, doing=False)
    return dict(done.values_list("key", "value"))


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
            rows(Step).create(call=call, digest=digest_of(key), key=key)
    except IntegrityError:
        raise ToolError("This is being done already.") from None
    return True


def keep(call: str, key: str, value: Any) -> None:
    """The step is done."""
    step = rows(Step).filter(call=call, digest=digest_of(key))
    step.update(value=value, doing=False, at=timezone.now())


def fail(call: str, key: str) -> None:
    """The step came to nothing, and may be tried again."""
    erase(rows(Step).filter(call=call, digest=digest_of(key), doing=True))


def forget(call: str) -> None:
    """The call is over and cannot come back."""
    erase(rows(Step).filter(call=call))


def expire() -> int:
    """Forget the steps of calls that can no longer come back."""
    oldest = max(2 * settings.STATE_LIFETIME, settings.SESSION_LIFETIME)
    return erase(rows(Step).filter(at__lt=timezone.now() - timedelta(seconds=oldest)))
