"""
What an administrator has switched off, until the row is deleted.

Rule: a row is an "off", beside users and tokens; there is no row for what is on.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Switch(models.Model):
    """What nobody may use for now; ``thing`` is "tool:refund", or "" for all of the server."""

    server = models.CharField(_("server"), max_length=255)
    thing = models.CharField(_("thing"), max_length=255, blank=True)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    since = models.DateTimeField(_("since"), default=timezone.now, editable=False)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="+",
        verbose_name=_("by"),
    )  # fmt: skip

    class Meta:
        default_permissions = ("add", "delete", "view")
        verbose_name, verbose_name_plural = _("switched off"), _("switched off")
        constraints = [models.UniqueConstraint(fields=["server", "thing"], name="mcp_switch_once")]

    def __str__(self) -> str:
        return f"{self.thing or 'everything'} of {self.server}"
