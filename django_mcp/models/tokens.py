"""Models of personal access tokens and kill switches, in the database of the users.

The secret of a token is shown once, when it is made. Only its SHA-256 is stored: a secret of 256
random bits needs no salt and no slow hash.

A kill switch is a row while something is switched off. What is on has no row.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .sessions import JSONText


class Switch(models.Model):
    """A kill switch. ``thing`` is for example "tool:refund", or "" for the whole server."""

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
        verbose_name, verbose_name_plural = _("kill switch"), _("kill switches")
        constraints = [models.UniqueConstraint(fields=["server", "thing"], name="mcp_switch_once")]

    def __str__(self) -> str:
        return f"{self.thing or 'everything'} of {self.server}"


PREFIX, BYTES, SHOWN = "mcp_", 32, 8


class Token(models.Model):
    """A secret by which a program acts for a user."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="mcp_tokens", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(_("prefix"), max_length=SHOWN, editable=False)
    server = models.CharField(_("server"), max_length=255, blank=True)  # empty: every server
    scopes = JSONText(_("scopes"), default=list, blank=True)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    expires = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used = models.DateTimeField(_("last used"), null=True, editable=False)
    revoked = models.DateTimeField(_("revoked"), null=True, editable=False)

    class Meta:
        default_permissions = ("add", "view")
        permissions = [("revoke_token", "Can revoke token")]
        verbose_name = _("personal access token")
        verbose_name_plural = _("personal access tokens")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @classmethod
    def make(
        cls,
        user: Any,
        name: str,
        *,
        scopes: Iterable[str] = (),
        server: str = "",
        expires: datetime | None = None,
    ) -> tuple[Token, str]:
        """Create a token. Return it and its secret, which cannot be recovered later."""
        secret = PREFIX + secrets.token_urlsafe(BYTES)
        token = cls.objects.create(
            user=user,
            name=name,
            digest=cls.digest_of(secret),
            prefix=secret[:SHOWN],
            server=server,
            scopes=sorted(set(scopes)),
            expires=expires,
        )
        return token, secret

    @staticmethod
    def digest_of(secret: str) -> str:
        return hashlib.sha256(secret.encode()).hexdigest()

    def is_valid(self, now: datetime | None = None) -> bool:
        """Whether it has neither expired nor been revoked."""
        return self.revoked is None and (
            self.expires is None or (now or timezone.now()) < self.expires
        )
