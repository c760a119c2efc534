"""
Which account elsewhere a code, and then a family of tokens, is bound to, and whether it stands.

Rule: where the project has an ``Upstream``, nothing that a person consented to is good without a
row here. What is known of an account is as of when it was last asked for. Where that is too long
ago it is asked for again, and whoever comes waits for it; where nobody can tell, what is known is
good for the grace, and after that nobody is let in until it is told. For what is open it is asked
before that: what stands is not to end because it was not known in time.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.models import get_refresh_token_model
from oauthlib.oauth2.rfc6749 import errors

from .. import threads
from ..dispatch.revocations import CHECKING
from ..exceptions import Busy
from ..principal import NotYetKnown
from .models import Binding
from .questions import ask, begin, in_vain, is_begun
from .upstream import Upstream, upstream

KEPT = timedelta(days=1)  # for which a row stays that no token has
AT_ONCE = 100  # rows that are forgotten
AT_A_LOOK = 20  # accounts that are asked for at one look at what is open; more where more are due
UNKNOWN = "Whether the account stands by which the person signed in cannot be told just now."


# Codes.


def bind(code: str, request: HttpRequest) -> None:
    """Keep by which account somebody has signed in who consents. In the caller's transaction."""
    if (found := upstream()) is not None:
        account, user = found.account(request) or "", cast(Any, request.user)
        Binding.objects.create(digest=_digest(code), user=user, account=account)


def is_good_code(code: str, user: Any) -> bool:
    """Whether tokens may be given for a code: the account is asked for."""
    return _is_good(Binding.objects.filter(digest=_digest(code), user=user))


def redeemed(code: str, family: Any) -> bool:
    """In the transaction that redeems it: the family is bound from now on. False if it is not."""
    if upstream() is None:
        return True
    rows = Binding.objects.filter(digest=_digest(code), family=None)
    return family is not None and rows.update(family=family) == 1


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


# Tokens.


def is_good_family(family: Any, user: Any) -> bool:
    """Whether tokens may be given once more: the account is asked for."""
    return _is_good(Binding.objects.filter(family=family, user=user))


def _is_good(rows: QuerySet[Binding]) -> bool:
    """Raises ``TemporarilyUnavailableError`` where that cannot be told."""
    if (found := upstream()) is None:
        return True
    row = rows.select_related("user").first()
    if row is None or not row.account:
        return row is not None
    if not in_vain(row.user, row.account):
        ask(found, row.user, row.account)
    row = rows.first()
    if row is not None and not _is_known(row.checked, found.max_age + found.grace):
        raise errors.TemporarilyUnavailableError(UNKNOWN, status_code=503)
    return row is not None


def wrong(user: Any, account: str | None, checked: datetime | None) -> str | None:
    """Why a token is not good, of which that is known. Raises ``NotYetKnown`` and ``Busy``."""
    if (found := upstream()) is None or account == "":
        return None
    if account is None:
        return "nobody knows how its user had signed in"
    if not _is_known(checked, found.max_age):
        if not in_vain(user, account):
            raise NotYetKnown(partial(_asked, found, user, account))
        if not _is_known(checked, found.max_age + found.grace):
            raise Busy(UNKNOWN)
    return None


def _is_known(checked: datetime | None, seconds: float) -> bool:
    return checked is not None and timezone.now() - checked <= timedelta(seconds=seconds)


async def _asked(found: Upstream, user: Any, account: str) -> None:
    question = partial(ask, found, user, account)
    await threads.verifiers.run_for(f"{user.pk}:{account}", question)


# What is open.


def known(rows: QuerySet[Any], family: str) -> QuerySet[Any]:
    """Tokens without those by which nothing may stay open: of their account too little is known."""
    if (found := upstream()) is None:
        return rows
    late = _older(found.max_age + found.grace).filter(family=OuterRef(family))
    return rows.filter(~Exists(late))


def look_after(families: QuerySet[Any]) -> None:
    """Ask again for the accounts of these, before it is too late. Nobody waits for it."""
    if (found := upstream()) is None:
        return
    early = _early(found)
    due = _older(early).filter(family__in=families).order_by("checked")
    accounts = {(row.user, row.account): None for row in due.select_related("user")}
    wanted = [key for key in accounts if not (in_vain(*key) or is_begun(*key))]
    for user, account in wanted[: _at_a_look(len(wanted), found.max_age - early)]:
        if not begin(found, user, account):
            break


def _early(found: Upstream) -> float:
    """Seconds: in time for the next look, and for an answer after that."""
    return min(found.max_age / 2, found.max_age - 1.5 * CHECKING)


def _at_a_look(due: int, seconds: float) -> int:
    """How many to ask for, so that all that are due were within half of so many seconds."""
    looks = max(1, int(seconds / 2 / CHECKING))
    return max(AT_A_LOOK, -(-due // looks))


def _older(seconds: float) -> QuerySet[Binding]:
    before = timezone.now() - timedelta(seconds=seconds)
    return Binding.objects.exclude(account="").filter(checked__lt=before)


# Tidying up.


def forget_bindings() -> int:
    """Forget some of codes that nobody redeemed, and of tokens that are there no more; how many."""
    kept = get_refresh_token_model().objects.filter(token_family=OuterRef("family"))
    old = Binding.objects.filter(~Exists(kept), created__lt=timezone.now() - KEPT)
    pks = list(old.values_list("pk", flat=True)[:AT_ONCE])
    return Binding.objects.filter(pk__in=pks).delete()[0] if pks else 0
