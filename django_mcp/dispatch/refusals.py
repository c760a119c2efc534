"""
What a caller is told who may not use a thing, and what the developer, under DEBUG.

Rule: why is in the log alone. To the caller what may not be used does not exist, and
no word or query more tells it from what does not - but that a scope is lacking, which
the client could be given, is said.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.conf import settings as django_settings

from ..declare.effective import effective
from ..exceptions import InsufficientScope

if TYPE_CHECKING:
    from ..declare.declarations import Declaration
    from ..declare.requests import Request

logger = logging.getLogger("django_mcp")


def check(thing: Declaration, request: Request, unknown: Exception) -> None:
    """Raises ``unknown``, or ``InsufficientScope``, where the caller may not use ``thing``."""
    found = effective(thing, request)
    if found.may_use:
        return
    if found.needed:
        raise InsufficientScope(found.needed)
    tell_why(thing, request)
    raise unknown


def tell_why(thing: Declaration, request: Request) -> None:
    """Log which rule refuses ``thing`` to ``request``'s user. May ask the database."""
    if not django_settings.DEBUG:
        return
    try:
        words = thing.reason(request).words
    except Exception as error:  # the project's code, and it has answered once
        words = f"asked again, it fails: {type(error).__name__}: {error}"
    who = request.user if request.principal.is_authenticated else "nobody"
    logger.warning("%s is not there for %s: %s", thing, who, words)
