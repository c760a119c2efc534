"""Models of personal access tokens and kill switches, in the database of the users.

The secret of a token is shown once, when it is made. Only its SHA-256 is stored: a secret of 256
random bits needs no salt and no slow hash.

A kill switch is a row while something is switched off. What is on has no row.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .. import signals
from .sessions import JSONText


class Switch(models.Model):
    """A kill switch. ``thing`` is for example "tool:refund", or "" for the whole server.

    Without ``group`` and ``client`` it applies to all callers. With both, it applies to the members
    of the group who use the client. They are texts and not foreign keys: projects may be without
    groups and OAuth, and a deleted group must not switch anything on.
    """

    # The lengths together fit into one unique index of MariaDB, which has at most 3072 bytes.
    server = models.CharField(_("server"), max_length=200)
    thing = models.CharField(_("declaration"), max_length=200, blank=True)
    group = models.CharField(_("group"), max_length=64, blank=True)  # its primary key
    client = models.CharField(_("client"), max_length=255, blank=True)  # the client id
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    since = models.DateTimeField(_("since"), default=timezone.now, editable=False)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="+",
        verbose_name=_("switched off by"),
    )  # fmt: skip

    class Meta:
        default_permissions = ("add", "delete", "view")
        verbose_name, verbose_name_plural = _("kill switch"), _("kill switches")
        constraints = [
            models.UniqueConstraint(
                fields=["server", "thing", "group", "client"], name="mcp_switch_once"
            )
        ]

    def __str__(self) -> str:
        thing = self.thing or _("everything")
        parts = [_("%(thing)s of %(server)s") % {"thing": thing, "server": self.server}]
        if self.group:
            parts.append(_("group %(group)s") % {"group": self.group})
        if self.client:
            parts.append(_("client %(client)s") % {"client": self.client})
        return ", ".join(parts)


PREFIX, BYTES, SHOWN = "mcp_", 32, 8
KEY = re.compile(r"token-([1-9][0-9]{0,17})")


class Token(models.Model):
    """A secret by which a program acts for a user.

    ``issued_by`` is the user who created the token, if that is known. They have seen the secret, so
    they may not approve calls that are made with it.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="mcp_tokens", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(_("prefix"), max_length=SHOWN, editable=False)
    server = models.CharField(_("server"), max_length=255, blank=True)  # empty: every server
    scopes = JSONText(_("scopes"), default=list, blank=True)
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    issued_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="+",
        verbose_name=_("issued by"),
    )  # fmt: skip
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
        issued_by: Any = None,
    ) -> tuple[Token, str]:
        """Create a token. Return it and its secret, which cannot be recovered later.

        ``issued_by`` is the user who receives the secret, or None if that is unknown.
        """
        secret = PREFIX + secrets.token_urlsafe(BYTES)
        token = cls.objects.create(
            user=user,
            name=name,
            digest=cls.digest_of(secret),
            prefix=secret[:SHOWN],
            server=server,
            scopes=sorted(set(scopes)),
            expires=expires,
            issued_by=issued_by,
        )
        signals.send_row_signal(signals.token_created, cls, token=token)
        return token, secret

    @staticmethod
    def digest_of(secret: str) -> str:
        return hashlib.sha256(secret.encode()).hexdigest()

    @property
    def auth_key(self) -> str:
        """The ``Auth.key`` of principals that this token verifies."""
        return f"token-{self.pk}"

    @staticmethod
    def pk_of(auth_key: str) -> int | None:
        """Return the primary key of the token with that ``auth_key``; None for any other text."""
        found = KEY.fullmatch(auth_key)
        return int(found[1]) if found else None

    def is_valid(self, now: datetime | None = None) -> bool:
        """Whether it has neither expired nor been revoked."""
        return self.revoked is None and (
            self.expires is None or (now or timezone.now()) < self.expires
        )
