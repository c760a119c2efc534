"""The model of calls that a second person must approve, in the database of the users.

A row is changed by conditional UPDATEs only, so that of two people who decide, or of two calls that
use an approval, one wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import models, router, transaction
from django.utils import timezone
from django.utils.translation import gettext, override
from django.utils.translation import gettext_lazy as _

from .sessions import JSONText

if TYPE_CHECKING:
    from datetime import datetime, timedelta

MAX_REASON_LENGTH = 1000


class ApprovalStatus(models.IntegerChoices):
    """The states of an approval. Lists show them in this order."""

    PENDING = 0, _("waiting")
    APPROVED = 1, _("approved")
    REFUSED = 2, _("refused")
    USED = 3, _("used")
    EXPIRED = 4, _("expired")


class Approval(models.Model):
    """One call of a tool that a second person must approve.

    ``digest`` is a keyed digest of what is approved: the server, the tool, the caller and all
    arguments. ``arguments`` are those arguments for people, with secrets masked. A dry run
    makes the request of the caller again from ``caller``.
    """

    server = models.CharField(_("server"), max_length=255)
    tool = models.CharField(_("tool"), max_length=255)
    permission = models.CharField(_("permission to decide"), max_length=255)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+",
        verbose_name=_("user"),
    )  # fmt: skip
    application = models.CharField(_("application"), max_length=255, blank=True)  # of the token
    client = models.CharField(_("client"), max_length=255, blank=True)  # as it calls itself
    caller = JSONText(default=dict)
    arguments = JSONText(_("arguments"), default=dict)
    has_secrets = models.BooleanField(default=False)  # an argument was masked
    digest = models.CharField(max_length=64)
    # True until the approval is used or expires, then NULL. So there is one open row per digest.
    open = models.BooleanField(null=True, default=True)
    status = models.SmallIntegerField(
        _("status"), choices=ApprovalStatus.choices, default=ApprovalStatus.PENDING
    )
    # Who uses the approval: a run, or the call that it is kept for. Empty: any call may use it.
    holder = models.CharField(max_length=64, default="")
    created = models.DateTimeField(_("requested"), default=timezone.now)
    expires = models.DateTimeField(_("expires"))
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+",
        verbose_name=_("decided by"),
    )  # fmt: skip
    decided = models.DateTimeField(_("decided"), null=True)
    reason = models.CharField(_("reason"), max_length=MAX_REASON_LENGTH, blank=True)
    used = models.DateTimeField(_("used"), null=True)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("approval"), _("approvals")
        constraints = [
            models.UniqueConstraint(fields=["digest", "open"], name="django_mcp_approval_open")
        ]
        indexes = [
            models.Index(fields=["status", "-id"], name="django_mcp_approval_status"),
            models.Index(fields=["expires"], name="django_mcp_approval_expires"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} #{self.pk}"

    @property
    def lifetime(self) -> timedelta:
        """How long an undecided request is valid. A decision is valid for as long again."""
        return self.expires - (self.decided or self.created)

    @property
    def is_expired(self) -> bool:
        return bool(self.open) and self.expires <= timezone.now()

    @property
    def impersonator(self) -> str:
        """The key of the member of staff who acts as ``user`` in the admin's inspector, or ""."""
        return self.caller.get("impersonator") or ""

    def is_involved(self, user: Any) -> bool:
        """Whether ``user`` is the caller, acts as the caller, or issued the caller's token."""
        caller = self.caller
        return str(user.pk) in (
            str(self.user_id), self.impersonator, caller.get("issued_by")
        )  # fmt: skip

    def objection(self, by: Any) -> str:
        """Return why the user ``by`` may not decide, or "" if they may."""
        if not (by.is_authenticated and by.is_active and by.has_perm(self.permission)):
            return gettext("You need the permission %s to decide.") % self.permission
        if self.user_id is None:
            return gettext("The user who made the call was deleted.")
        # Also if it is a superuser: two people must agree.
        if self.is_involved(by):
            return gettext(
                "Somebody else must decide about your own calls, and about calls with a token that "
                "you created."
            )
        return ""

    def approve(self, by: Any) -> bool:
        """Approve the call as the user ``by``. Return False if it was decided or has expired.

        Raise ``PermissionDenied`` if ``by`` may not decide.
        """
        return self._decide(by, ApprovalStatus.APPROVED, "", [ApprovalStatus.PENDING])

    def refuse(self, by: Any, reason: str = "") -> bool:
        """Refuse the call as the user ``by``. The ``reason`` is told to the client.

        An approval that was not used yet is taken back. Return False if it is too late. Raise
        ``PermissionDenied`` if ``by`` may not decide.
        """
        until = [ApprovalStatus.PENDING, ApprovalStatus.APPROVED]
        return self._decide(by, ApprovalStatus.REFUSED, reason[:MAX_REASON_LENGTH], until)

    def _decide(
        self, by: Any, status: ApprovalStatus, reason: str, until: list[ApprovalStatus]
    ) -> bool:
        if objection := self.objection(by):
            raise PermissionDenied(objection)
        now = timezone.now()
        changes: dict[str, datetime | Any] = {
            "status": status, "reason": reason, "decided_by": by, "decided": now,
            "expires": now + self.lifetime,
        }  # fmt: skip
        # Not where it was read from: that may be a replica.
        same = type(self)._base_manager.using(router.db_for_write(type(self), instance=self))
        # The conditions make one of two decisions win, and none after the call has run.
        undecided = same.filter(pk=self.pk, status__in=until, open=True, expires__gt=now)
        # The entry in the admin's history is committed with the decision.
        with transaction.atomic(using=same.db):
            if not undecided.update(**changes):
                return False
            self._add_to_history(by, status, reason, same.db)
        for name, value in changes.items():
            setattr(self, name, value)
        return True

    def _add_to_history(self, by: Any, status: ApprovalStatus, reason: str, alias: str) -> None:
        if not apps.is_installed("django.contrib.admin"):
            return
        # Not at the start of the module: its models need the app.
        from django.contrib.admin.models import CHANGE, LogEntry
        from django.contrib.contenttypes.models import ContentType

        with override(settings.LANGUAGE_CODE):  # as all entries of the admin's history
            is_approval = status == ApprovalStatus.APPROVED
            message = gettext("Approved.") if is_approval else gettext("Refused.")
            message = f"{message} {reason}".rstrip()
        LogEntry.objects.create(
            user_id=by.pk, action_flag=CHANGE, object_id=str(self.pk), object_repr=str(self)[:200],
            content_type=ContentType.objects.db_manager(alias).get_for_model(self),
            change_message=message,
        )  # fmt: skip
