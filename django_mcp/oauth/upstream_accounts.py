"""Bind codes and token families to accounts at an upstream identity provider, and recheck those.

If the project has an ``Upstream``, each code, and later its token family, needs a ``TokenBinding``
row. The row holds the account's name and the time of the last successful check. A check older than
``max_age`` is repeated before a token is accepted. If the check fails with an error, the last
result stays valid for ``grace`` more seconds. After that, requests are rejected until a check
succeeds. Accounts of open streams and calls are rechecked earlier, in the background, so that a
late check does not close them. A process runs one check of an account at a time, and other threads
wait for its result. A negative result revokes all tokens that are bound to the account.

Users still consent to each client here. Clients never receive tokens of the upstream provider, and
the provider never receives ours.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.module_loading import import_string
from oauth2_provider.models import get_refresh_token_model
from oauthlib.oauth2.rfc6749 import errors

from ..auth.principal import NotYetKnown
from ..calls.callers import CHECK_INTERVAL_SECONDS
from ..exceptions import Busy
from ..runtime import threads
from .conf import settings
from .models import TokenBinding
from .revocation import end_account

if TYPE_CHECKING:
    from django.http import HttpRequest

# Seconds, the minimum of max_age: a result stays usable however long the check itself took.
MIN_AGE_SECONDS = 10.0


class Upstream:
    """Base class of the project's upstream accounts: ``DJANGO_MCP["OAUTH"]["UPSTREAM"]``.

    Tokens are bound to the account that the user had signed in with when they consented. They are
    valid as long as that account is. It is checked whenever tokens are issued. When a token is
    used, it is checked if the last result is older than ``max_age`` seconds (at least 10). If the
    check raises, the last result stays valid for ``grace`` more seconds (MCP, Authorization,
    "Third-Party Authorization Flow").
    """

    max_age: float = 300.0
    grace: float = 600.0

    def account(self, request: HttpRequest) -> str | None:
        """Return the account that the user of ``request`` signed in with; None if a local one.

        The name is unique and has at most 255 characters, as ``"google:1234"``. Raise
        ``PermissionDenied`` if users who signed in this way may not authorize clients.
        """
        raise NotImplementedError

    def is_account_valid(self, user: Any, account: str) -> bool:
        """Ask the provider whether the account still belongs to ``user`` and is active.

        It runs in a thread and may query the database. The thread is blocked meanwhile, so use a
        timeout for HTTP requests. False revokes all tokens that are bound to the account. An
        exception, or a value that is not a bool, means that the provider could not be asked.
        """
        raise NotImplementedError


def upstream() -> Upstream | None:
    """Return the project's ``Upstream``, or None if it has none."""
    path = settings.UPSTREAM
    return None if path is None else _load(path)


@lru_cache(maxsize=8)
def _load(path: str) -> Upstream:
    found: Upstream = import_string(path)()
    return found


ERROR_RETRY_SECONDS = 10.0  # seconds before a check that failed with an error is repeated
WAIT_SECONDS = 10.0  # seconds to wait for a check of the same account in another thread
MAX_REMEMBERED_FAILURES = 1_000  # failed checks that are remembered
# Seconds after which a background check that has not finished counts as lost.
CHECK_TIMEOUT_SECONDS = 60.0
OWNER = "open streams and calls"  # owner of the background checks in the thread pool
Key = tuple[Any, str]
logger = logging.getLogger("django_mcp.oauth")
# Threads look up a running check and add their own, and count failed checks: no other thread may
# change the dictionaries in between.
_lock = threading.Lock()
_running: dict[Key, threading.Event] = {}  # running checks; the event is set at their end
_failed: dict[Key, float] = {}  # monotonic time of checks that failed with an error
_queued: dict[Key, float] = {}  # monotonic time at which background checks were queued


def check_account(upstream: Upstream, user: Any, account: str) -> None:
    """Check the account and store the result. Blocks. Errors of ``upstream`` are logged.

    If another thread is checking the same account, wait for it, for ``WAIT_SECONDS`` seconds at
    most.
    """
    key, own = (user.pk, account), threading.Event()
    # One check per account: many requests with an old result must not all ask the provider.
    with _lock:
        running = _running.setdefault(key, own)
    if running is not own:
        running.wait(WAIT_SECONDS)
        return
    try:
        _ask_provider(upstream, user, account)
    finally:
        with _lock:
            del _running[key]
        own.set()


def queue_check(upstream: Upstream, user: Any, account: str) -> bool:
    """Queue a background check. Return False if the thread pool is too busy."""
    key = user.pk, account
    _queued[key] = time.monotonic()
    try:
        threads.verifiers.run_in_background(
            partial(_run_queued_check, upstream, user, account), OWNER
        )
    except Busy:
        _queued.pop(key, None)
        logger.info("Checks of upstream accounts postponed: all threads are busy")
        return False
    return True


def _run_queued_check(upstream: Upstream, user: Any, account: str) -> None:
    try:
        check_account(upstream, user, account)
    finally:
        _queued.pop((user.pk, account), None)


def is_queued(user: Any, account: str) -> bool:
    """Whether a background check of the account is queued or running."""
    when = _queued.get((user.pk, account))
    return when is not None and time.monotonic() - when < CHECK_TIMEOUT_SECONDS


def failed_recently(user: Any, account: str) -> bool:
    """Whether a check failed with an error less than ``ERROR_RETRY_SECONDS`` seconds ago."""
    when = _failed.get((user.pk, account))
    return when is not None and time.monotonic() - when < ERROR_RETRY_SECONDS


def _ask_provider(upstream: Upstream, user: Any, account: str) -> None:
    began = timezone.now()  # not the end: the account may change during the check
    try:
        valid = upstream.is_account_valid(user, account)
    except Exception as error:  # the message may contain a token: log the type only
        logger.warning("An upstream account could not be checked: %s", type(error).__name__)
        _remember_failure((user.pk, account))
        return
    # A forgotten return must neither revoke all tokens of the account nor keep them valid: the
    # last result is used until ``grace`` is over, and then requests are rejected.
    if not isinstance(valid, bool):
        returned = type(valid).__name__
        logger.error("is_account_valid() returned %s instead of True or False", returned)
        _remember_failure((user.pk, account))
    elif valid:
        TokenBinding.objects.filter(user=user, account=account).update(checked=began)
    else:
        logger.info("Upstream account disabled, its tokens are revoked: user=%s", user.pk)
        end_account(account, user)


def _remember_failure(key: Key) -> None:
    with _lock:
        _failed.pop(key, None)  # so that the dictionary stays in the order of time
        _failed[key] = time.monotonic()
        while len(_failed) > MAX_REMEMBERED_FAILURES:
            del _failed[next(iter(_failed))]


BINDING_RETENTION = timedelta(days=1)  # age of a binding without a refresh token
ROWS_PER_DELETE = 100
# Background checks that may always start in one round of revocation checks.
MIN_CHECKS_PER_ROUND = 20
CANNOT_CHECK = "The account with which the user signed in cannot be checked at the moment."


# Codes.


def bind(code: str, request: HttpRequest) -> None:
    """Store the account that the consenting user signed in with, in the caller's transaction."""
    if (found := upstream()) is not None:
        account, user = found.account(request) or "", cast(Any, request.user)
        TokenBinding.objects.create(digest=_digest(code), user=user, account=account)


def may_redeem_code(code: str, user: Any) -> bool:
    """Whether tokens may be issued for a code. Checks the account."""
    return _is_binding_valid(TokenBinding.objects.filter(digest=_digest(code), user=user))


def bind_family(code: str, family: Any) -> bool:
    """Bind the token family to the account of the code. Return False if that is not possible.

    Call it in the transaction that redeems the code.
    """
    if upstream() is None:
        return True
    rows = TokenBinding.objects.filter(digest=_digest(code), family=None)
    return family is not None and rows.update(family=family) == 1


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


# Tokens.


def may_refresh_family(family: Any, user: Any) -> bool:
    """Whether tokens of the family may be refreshed. Checks the account."""
    return _is_binding_valid(TokenBinding.objects.filter(family=family, user=user))


def _is_binding_valid(rows: QuerySet[TokenBinding]) -> bool:
    """Whether the binding exists and its account is valid.

    Raise ``TemporarilyUnavailableError`` if the last known result is too old and no new one can be
    had.
    """
    if (found := upstream()) is None:
        return True
    row = rows.select_related("user").first()
    if row is None or not row.account:
        return row is not None
    if not failed_recently(row.user, row.account):
        check_account(found, row.user, row.account)
    row = rows.first()  # read again: the check has updated the row, or deleted it
    if row is not None and not _is_recent(row.checked, found.max_age + found.grace):
        raise errors.TemporarilyUnavailableError(CANNOT_CHECK, status_code=503)
    return row is not None


def rejection_reason(user: Any, account: str | None, checked: datetime | None) -> str | None:
    """Return why a token with this binding is invalid, or None if it is valid.

    Raise ``NotYetKnown`` if the account has to be checked first, and ``Busy`` if a check has just
    failed and the last result is older than ``max_age`` and ``grace``.
    """
    if (found := upstream()) is None or account == "":
        return None
    if account is None:
        return "it is not known how its user had signed in"
    if not _is_recent(checked, found.max_age):
        if not failed_recently(user, account):
            raise NotYetKnown(partial(_check_in_thread, found, user, account))
        if not _is_recent(checked, found.max_age + found.grace):
            raise Busy(CANNOT_CHECK)
    return None


def _is_recent(checked: datetime | None, seconds: float) -> bool:
    return checked is not None and timezone.now() - checked <= timedelta(seconds=seconds)


async def _check_in_thread(found: Upstream, user: Any, account: str) -> None:
    job = partial(check_account, found, user, account)
    await threads.verifiers.run_for(f"{user.pk}:{account}", job)


# Open streams and calls.


def exclude_outdated(rows: QuerySet[Any], family: str) -> QuerySet[Any]:
    """Exclude the tokens whose account was last checked too long ago.

    ``rows`` are tokens, ``family`` is the lookup from them to their token family. Streams and calls
    of the excluded tokens are closed.
    """
    if (found := upstream()) is None:
        return rows
    outdated = _checked_before(found.max_age + found.grace).filter(family=OuterRef(family))
    return rows.filter(~Exists(outdated))


def queue_early_checks(families: QuerySet[Any]) -> None:
    """Queue background checks of the families' accounts before the last results get too old."""
    if (found := upstream()) is None:
        return
    recheck_age = _recheck_age(found)
    bindings = _checked_before(recheck_age).filter(family__in=families).order_by("checked")
    accounts = dict.fromkeys((row.user, row.account) for row in bindings.select_related("user"))
    due = [key for key in accounts if not (failed_recently(*key) or is_queued(*key))]
    for user, account in due[: _checks_per_round(len(due), found.max_age - recheck_age)]:
        if not queue_check(found, user, account):
            break


def _recheck_age(found: Upstream) -> float:
    """Return the age in seconds at which to recheck.

    It leaves time for the next round of revocation checks, and for the provider's answer.
    """
    return min(found.max_age / 2, found.max_age - 1.5 * CHECK_INTERVAL_SECONDS)


def _checks_per_round(due: int, seconds: float) -> int:
    """Return how many checks to start now, so that all ``due`` start within ``seconds / 2``."""
    rounds = max(1, int(seconds / 2 / CHECK_INTERVAL_SECONDS))
    return max(MIN_CHECKS_PER_ROUND, math.ceil(due / rounds))


def _checked_before(seconds: float) -> QuerySet[TokenBinding]:
    before = timezone.now() - timedelta(seconds=seconds)
    return TokenBinding.objects.exclude(account="").filter(checked__lt=before)


# Cleanup.


def delete_old_bindings() -> int:
    """Delete some bindings of unredeemed codes and deleted tokens. Return how many."""
    tokens = get_refresh_token_model().objects.filter(token_family=OuterRef("family"))
    before = timezone.now() - BINDING_RETENTION
    old = TokenBinding.objects.filter(~Exists(tokens), created__lt=before)
    pks = list(old.values_list("pk", flat=True)[:ROWS_PER_DELETE])
    return TokenBinding.objects.filter(pk__in=pks).delete()[0] if pks else 0
