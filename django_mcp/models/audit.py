"""The model of the audit log, in the database of the users."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .sessions import JSONText

# Begins the ``client`` of a call in the inspector as another user, before the key of the member of
# staff.
IMPERSONATOR_PREFIX = "impersonator:"


class AuditEntry(models.Model):
    """A call, a read or a prompt of a client, or its denied attempt.

    Users and clients are texts and not foreign keys, so that an entry remains when they are
    deleted. ``arguments`` has no secrets: see ``declarations.redaction``.
    """

    at = models.DateTimeField(_("time"), default=timezone.now)
    server = models.CharField(_("server"), max_length=255)
    method = models.CharField(_("method"), max_length=32)
    # A tool, a prompt or a URI template. Of an unknown one, what the client sent.
    name = models.CharField(_("name"), max_length=255)
    user = models.CharField(_("user id"), max_length=255, null=True)  # noqa: DJ001 - None: anonymous
    username = models.CharField(_("user"), max_length=255, blank=True)  # at that time
    # The client id of an OAuth application, or the key of another token.
    client = models.CharField(_("client"), max_length=255, blank=True)
    client_name = models.CharField(_("client name"), max_length=255, blank=True)  # not verified
    session = models.BigIntegerField(_("session"), null=True)
    transport = models.CharField(_("transport"), max_length=16)
    revision = models.CharField(_("protocol revision"), max_length=16)
    approval = models.BigIntegerField(_("approval"), null=True)  # its key
    arguments = JSONText(_("arguments"), null=True)
    outcome = models.CharField(_("outcome"), max_length=16)
    error = models.CharField(_("error"), max_length=255, blank=True)  # the name of its class
    duration = models.FloatField(_("duration"))  # seconds
    queries = models.IntegerField(_("queries"))
    rows_written = models.IntegerField(_("rows written"))
    trace_id = models.CharField(_("trace id"), max_length=32, blank=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("export_auditentry", "Can export audit log")]
        verbose_name, verbose_name_plural = _("audit entry"), _("audit entries")
        # Each index makes every audited call more expensive: on SQLite by about 2 percent of a tool
        # that saves a row. So only columns with many values have an index of their own, in which
        # the database finds the newest entries with one value. It finds the other filtered columns
        # in the index of times, which it reads instead of the rows.
        indexes = [
            models.Index(
                fields=["at", "id", "outcome", "method", "server", "session"], name="mcp_audit_at"
            ),
            models.Index(fields=["client", "id"], name="mcp_audit_client"),
            models.Index(fields=["name", "id"], name="mcp_audit_name"),
            models.Index(fields=["user", "id"], name="mcp_audit_user"),
            models.Index(fields=["username", "id"], name="mcp_audit_username"),
            models.Index(fields=["trace_id", "id"], name="mcp_audit_trace"),
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.name} #{self.pk}"

    @property
    def impersonator(self) -> str:
        """The key of the member of staff who acted as ``user`` in the admin's inspector, or ""."""
        is_impersonated = self.client.startswith(IMPERSONATOR_PREFIX)
        return self.client.removeprefix(IMPERSONATOR_PREFIX) if is_impersonated else ""
