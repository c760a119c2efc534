"""
Personal access tokens, beside the users they belong to.

Rule: the secret is shown once, by whoever makes it, and only its digest is
kept: 256 random bits need no salt and no slow hash.
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

from .fields import JSONText

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
        verbose_name, verbose_name_plural = _("access token"), _("access tokens")

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
        """A new token and its secret, which nobody can find out again."""
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
