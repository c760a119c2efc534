"""Bind codes and token families to accounts at an upstream identity provider, and recheck those.

If the project has an ``Upstream``, each code, and later its token family, needs a ``TokenBinding``
row. The row holds the account's name and the time of the last successful check. A check older than
``max_age`` is repeated before a token is accepted. If the check fails with an error, the last
result stays valid for ``grace`` more seconds. After that, requests are rejected until a check
succeeds. Accounts of open streams and calls are rechecked earlier, in the background, so that a
late check does not close them. A process runs one check of an account at a time, and other threads
wait for its result. A negative result ends all tokens that are bound to the account.

Users still consent to each client here. Clients never receive tokens of the upstream provider, and
the provider never receives ours.
"""

from __future__ import annotations

import hashlib
import logging
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

    def stands(self, user: Any, account: str) -> bool:
        """Whether the account still belongs to ``user`` and is active, by asking the provider.

        It runs in a thread and may query the database. The thread is blocked meanwhile, so use a
        timeout for HTTP requests. False ends all tokens that are bound to the account. Any
        exception means that the answer is not known.
        """
        raise NotImplementedError


def upstream() -> Upstream | None:
    """Return the project's ``Upstream``, or None if it has none."""
    path = settings.UPSTREAM
    return None if path is None else _made(path)


@lru_cache(maxsize=8)
def _made(path: str) -> Upstream:
    found: Upstream = import_string(path)()
    return found


ERROR_RETRY_SECONDS = 10.0  # seconds before a check that failed with an error is repeated
WAIT_SECONDS = 10.0  # seconds to wait for a check of the same account in another thread
MAX_REMEMBERED_FAILURES = 1_000  # failed checks that are remembered
CHECK_TIMEOUT_SECONDS = (
    60.0  # seconds after which a background check that has not finished counts as lost
)
OWNER = "what is open"  # owner of the background checks in the thread pool
Key = tuple[Any, str]
logger = logging.getLogger("django_mcp")
_lock = threading.Lock()
_out: dict[Key, threading.Event] = {}  # running checks; the event is set at their end
_failed: dict[Key, float] = {}  # monotonic time of checks that failed with an error
_begun: dict[Key, float] = {}  # monotonic time at which background checks were queued


def ask(upstream: Upstream, user: Any, account: str) -> None:
    """Check the account and store the result. Blocks. Errors of ``upstream`` are logged.

    If another thread is checking the same account, wait for it, for ``WAIT_SECONDS`` seconds at
    most.
    """
    key, own = (user.pk, account), threading.Event()
    # One check per account: many requests with an old result must not all ask the provider.
    with _lock:
        event = _out.setdefault(key, own)
    if event is not own:
        event.wait(WAIT_SECONDS)
        return
    try:
        _ask(upstream, user, account)
    finally:
        with _lock:
            del _out[key]
        own.set()


def begin(upstream: Upstream, user: Any, account: str) -> bool:
    """Queue a background check. Return False if the thread pool is too busy."""
    key = user.pk, account
    _begun[key] = time.monotonic()
    try:
        threads.verifiers.run_in_background(partial(_ask_begun, upstream, user, account), OWNER)
    except Busy:
        _begun.pop(key, None)
        logger.info("Checks of upstream accounts postponed: all threads are busy")
        return False
    return True


def _ask_begun(upstream: Upstream, user: Any, account: str) -> None:
    try:
        ask(upstream, user, account)
    finally:
        _begun.pop((user.pk, account), None)


def is_begun(user: Any, account: str) -> bool:
    """Whether a background check of the account is queued or running."""
    when = _begun.get((user.pk, account))
    return when is not None and time.monotonic() - when < CHECK_TIMEOUT_SECONDS


def in_vain(user: Any, account: str) -> bool:
    """Whether a check failed with an error less than ``ERROR_RETRY_SECONDS`` seconds ago."""
    when = _failed.get((user.pk, account))
    return when is not None and time.monotonic() - when < ERROR_RETRY_SECONDS


def _ask(upstream: Upstream, user: Any, account: str) -> None:
    began = timezone.now()
    try:
        stands = upstream.stands(user, account)
    except Exception as error:  # the message may contain a token: log the type only
        logger.warning("An upstream account could not be checked: %s", type(error).__name__)
        _note((user.pk, account))
        return
    if stands:
        TokenBinding.objects.filter(user=user, account=account).update(checked=began)
    else:
        logger.info(
            "An upstream account of user %s was disabled: its consents are revoked", user.pk
        )
        end_account(account, user)


def _note(key: Key) -> None:
    with _lock:
        _failed.pop(key, None)
        _failed[key] = time.monotonic()
        while len(_failed) > MAX_REMEMBERED_FAILURES:
            del _failed[next(iter(_failed))]


KEPT = timedelta(days=1)  # age up to which a binding without a refresh token is kept
ROWS_PER_DELETE = 100  # rows deleted at a time
MIN_CHECKS_PER_ROUND = (
    20  # minimum of background checks that may start per round of revocation checks
)
UNKNOWN = "The account with which the user signed in cannot be checked at the moment."


# Codes.


def bind(code: str, request: HttpRequest) -> None:
    """Store the account that the consenting user signed in with, in the caller's transaction."""
    if (found := upstream()) is not None:
        account, user = found.account(request) or "", cast(Any, request.user)
        TokenBinding.objects.create(digest=_digest(code), user=user, account=account)


def is_good_code(code: str, user: Any) -> bool:
    """Whether tokens may be issued for a code. Checks the account."""
    return _is_good(TokenBinding.objects.filter(digest=_digest(code), user=user))


def redeemed(code: str, family: Any) -> bool:
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


def is_good_family(family: Any, user: Any) -> bool:
    """Whether tokens of the family may be refreshed. Checks the account."""
    return _is_good(TokenBinding.objects.filter(family=family, user=user))


def _is_good(rows: QuerySet[TokenBinding]) -> bool:
    """Whether the binding exists and its account is valid.

    Raise ``TemporarilyUnavailableError`` if the last known result is too old and no new one can be
    had.
    """
    if (found := upstream()) is None:
        return True
    row = rows.select_related("user").first()
    if row is None or not row.account:
        return row is not None
    if not in_vain(row.user, row.account):
        ask(found, row.user, row.account)
    row = rows.first()  # read again: the check has updated the row, or deleted it
    if row is not None and not _is_known(row.checked, found.max_age + found.grace):
        raise errors.TemporarilyUnavailableError(UNKNOWN, status_code=503)
    return row is not None


def wrong(user: Any, account: str | None, checked: datetime | None) -> str | None:
    """Return why a token with this binding is invalid, or None if it is valid.

    Raise ``NotYetKnown`` if the account has to be checked first, and ``Busy`` if a check has just
    failed and the last result is older than ``max_age`` and ``grace``.
    """
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


# Open streams and calls.


def known(rows: QuerySet[Any], family: str) -> QuerySet[Any]:
    """Exclude the tokens whose account was last checked too long ago.

    ``rows`` are tokens, ``family`` is the lookup from them to their token family. Streams and calls
    of the excluded tokens are closed.
    """
    if (found := upstream()) is None:
        return rows
    late = _older(found.max_age + found.grace).filter(family=OuterRef(family))
    return rows.filter(~Exists(late))


def look_after(families: QuerySet[Any]) -> None:
    """Queue background checks of the families' accounts before the last results get too old."""
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
    """Return the age in seconds at which to recheck.

    It leaves time for the next round of revocation checks, and for the provider's answer.
    """
    return min(found.max_age / 2, found.max_age - 1.5 * CHECK_INTERVAL_SECONDS)


def _at_a_look(due: int, seconds: float) -> int:
    """Return how many checks to start now, so that all ``due`` start within ``seconds / 2``."""
    looks = max(1, int(seconds / 2 / CHECK_INTERVAL_SECONDS))
    return max(MIN_CHECKS_PER_ROUND, -(-due // looks))


def _older(seconds: float) -> QuerySet[TokenBinding]:
    before = timezone.now() - timedelta(seconds=seconds)
    return TokenBinding.objects.exclude(account="").filter(checked__lt=before)


# Cleanup.


def forget_bindings() -> int:
    """Delete some bindings of unredeemed codes and deleted tokens. Return how many."""
    kept = get_refresh_token_model().objects.filter(token_family=OuterRef("family"))
    old = TokenBinding.objects.filter(~Exists(kept), created__lt=timezone.now() - KEPT)
    pks = list(old.values_list("pk", flat=True)[:ROWS_PER_DELETE])
    return TokenBinding.objects.filter(pk__in=pks).delete()[0] if pks else 0
