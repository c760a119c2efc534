"""Approvals: find or create the request of a call, use an approval once, delete old rows.

The rows are in the database of the user model. Every change of a row is a conditional UPDATE.

An approval is used once. Usually it is used in the tool's transaction: if that is rolled back, so
is the use. Otherwise it is used before the function is called, and a crash in between loses it.
A call that ended a run to execute a step, or to ask a question outside of a transaction, keeps its
approval for its next run, so that no other call can use it meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, router, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from ..conf import settings
from ..exceptions import ToolError
from ..models import Approval, ApprovalStatus, Token
from .databases import delete_in_batches, own_queries

MAX_PENDING_PER_USER = 20
MAX_INSERTS = 3  # attempts to store one request
ROWS_PER_QUERY = 500
APPROVED, PENDING, USED = ApprovalStatus.APPROVED, ApprovalStatus.PENDING, ApprovalStatus.USED


def digest(*parts: Any) -> str:
    """Return a keyed digest of JSON values.

    It is keyed because an argument may be a secret that could be guessed from a plain digest.
    """
    text = json.dumps(parts, sort_keys=True)
    return salted_hmac("django_mcp.approval", text, algorithm="sha256").hexdigest()


def database() -> str:
    """Return the alias of the database of approvals."""
    return router.db_for_write(Approval)


def _rows(**conditions: Any) -> QuerySet[Approval]:
    # Never a replica: it may not have a decision or a use yet.
    return Approval._base_manager.using(database()).filter(**conditions)


def find_or_close(digest: str, call: str) -> Approval | None:
    """Return the open row of a digest, for ``call``. Close it, and return None, if it is invalid.

    An approval counts only while the person who gave it is active and has the permission. One that
    is kept for another call is closed too: that call may never run again.
    """
    approval = _rows(digest=digest, open=True).select_related("decided_by").first()
    if approval is None or (_is_valid(approval) and approval.holder in ("", call)):
        return approval
    _rows(pk=approval.pk, status=approval.status, holder=approval.holder, open=True).update(
        status=ApprovalStatus.EXPIRED, open=None
    )
    return None


def _is_valid(approval: Approval) -> bool:
    return not approval.is_expired and (approval.status != APPROVED or _may_decide(approval))


def _may_decide(approval: Approval) -> bool:
    """Whether the person who decided is still active and has the permission."""
    approver = approval.decided_by
    return approver is not None and not approval.objection(approver)


def issuer(auth_key: str) -> str:
    """Return the primary key, as text, of the user who issued a personal token, or "".

    ``auth_key`` is ``Auth.key``. The row is read here, because a call that continues in another
    process has nothing of the token but its key.
    """
    if (pk := Token.pk_of(auth_key)) is None:
        return ""
    tokens = Token._base_manager.using(router.db_for_write(Token)).filter(pk=pk)
    found = tokens.values_list("issued_by", flat=True).first()
    return "" if found is None else str(found)


def create(approval: Approval, lifetime: float) -> Approval:
    """Insert a request, or return the open one that another process has inserted first.

    ``lifetime`` is in seconds. Raise ``ToolError`` if the user has too many requests.
    """
    pending = _rows(user=approval.user_id, status=PENDING, expires__gt=timezone.now())
    too_many = ToolError(
        f"{MAX_PENDING_PER_USER} calls of this user already wait for an approval. Call again when "
        "one of them is decided."
    )
    approval.expires = approval.created + timedelta(seconds=lifetime)
    for attempt in range(MAX_INSERTS):
        if pending.count() >= MAX_PENDING_PER_USER:
            raise too_many
        try:
            with transaction.atomic(using=database()):
                approval.save(using=database(), force_insert=True)
            break
        except IntegrityError:
            existing = _rows(digest=approval.digest, open=True).first()
            if existing is not None:
                return existing
            # The other request was deleted meanwhile, because its call found that it is over the
            # limit, or it was closed. So count and insert again. Any other cause, such as a deleted
            # user, fails each time.
            if attempt == MAX_INSERTS - 1:
                raise
    # Simultaneous calls may all have counted before any of them inserted its request. So each of
    # them counts again after its insert is committed: the last one to commit sees all other rows.
    if pending.count() > MAX_PENDING_PER_USER and _rows(pk=approval.pk, status=PENDING).delete()[0]:
        raise too_many
    return approval


@dataclass(frozen=True, slots=True)
class ApprovalUse:
    """One run's use of an approval.

    ``token`` is unique to the run. ``kept_for`` names the call for which the approval was kept, or
    is "". If ``rolls_back`` is True, the approval is used in the tool's transaction.
    """

    approval: int
    token: str
    kept_for: str
    rolls_back: bool

    def begin(self) -> bool:
        """Use the approval. Return False if it is not valid any more, or another call uses it.

        In a transaction, another run that uses it waits until the transaction ends.
        """
        now = timezone.now()
        usable = _rows(pk=self.approval, status=APPROVED, holder=self.kept_for, expires__gt=now)
        # In a transaction of the tool this is a part of it, and needs no savepoint.
        with own_queries(), transaction.atomic(using=database(), savepoint=False):
            if not usable.update(status=USED, open=None, used=now, holder=self.token):
                return False
            # ``find_or_close`` has checked the approver too. But they may have lost the permission
            # since then, while the call waited for a thread.
            used = _rows(pk=self.approval).select_related("decided_by").get()
            if _may_decide(used):
                return True
            _rows(pk=self.approval).update(status=ApprovalStatus.EXPIRED, used=None)
        return False

    def undo(self) -> None:
        """Give the approval back, because the function was not called."""
        self._release(Q(status=USED, holder=self.token), self.kept_for)

    def keep_for(self, call: str) -> bool:
        """Keep the approval for the next run of ``call``. Return False if another call uses it."""
        free = Q(status=APPROVED, holder=self.kept_for)  # its use was rolled back or undone
        return self._release(Q(status=USED, holder=self.token) | free, call)

    def _release(self, mine: Q, holder: str) -> bool:
        changes = {"status": APPROVED, "open": True, "used": None, "holder": holder}
        try:
            with transaction.atomic(using=database()):
                return bool(_rows(pk=self.approval).filter(mine).update(**changes))
        # While this approval was in use, another call with the same arguments made a new request.
        except IntegrityError:
            return False


def decided_among(pks: Collection[int]) -> set[int]:
    """Return which of these requests no longer wait for a decision, deleted ones included."""
    keys, waiting = sorted(pks), set[int]()
    for start in range(0, len(keys), ROWS_PER_QUERY):
        some = _rows(pk__in=keys[start : start + ROWS_PER_QUERY], status=PENDING)
        waiting.update(some.values_list("pk", flat=True))
    return set(pks) - waiting


def close_expired(now: datetime) -> None:
    """Mark open rows as expired after their time."""
    _rows(open=True, expires__lte=now).update(status=ApprovalStatus.EXPIRED, open=None)


def delete_old(now: datetime) -> int:
    """Delete rows that expired ``AUDIT_DAYS`` ago. Return how many.

    They say who approved the calls in the audit log, so they are kept as long as its entries.
    """
    close_expired(now)
    if settings.AUDIT_DAYS is None:
        return 0
    before = now - timedelta(days=settings.AUDIT_DAYS)
    return delete_in_batches(_rows(open=None, expires__lte=before))
