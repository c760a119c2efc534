"""
Models of the authorization server: client profiles, consents, upstream bindings, activity.

They extend django-oauth-toolkit's models without foreign keys to them, because a project may swap
those. Clients are referenced by ``client_id``, and chains of refresh tokens by their family.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..models import JSONText

MAX_CLIENT_ID_LENGTH = 255  # characters of a client id, as in django-oauth-toolkit
MAX_CALL_NAME_LENGTH = 200  # characters of the name of a tool, resource or prompt


class Source(models.TextChoices):
    """How a client was registered."""

    MANUAL = "manual", _("registered by hand")
    DCR = "dcr", _("registered itself")
    CIMD = "cimd", _("by its metadata document")


class ClientProfile(models.Model):
    """An OAuth client's metadata, its dates of use, and whether it is blocked.

    It exists beside the application of django-oauth-toolkit with the same ``client_id``.
    """

    client_id = models.CharField(_("client id"), max_length=MAX_CLIENT_ID_LENGTH, unique=True)
    source = models.CharField(_("source"), max_length=10, choices=Source)
    name = models.CharField(_("name"), max_length=100, blank=True)
    client_uri = models.CharField(_("web site"), max_length=512, blank=True)
    logo_uri = models.CharField(_("logo"), max_length=512, blank=True)
    application_type = models.CharField(_("kind of application"), max_length=10, blank=True)
    # Authentication at the token endpoint.
    auth_method = models.CharField(_("authentication"), max_length=30, blank=True)
    jwks_uri = models.CharField(_("keys"), max_length=512, blank=True)
    digest = models.CharField(max_length=64, blank=True, db_index=True)  # of its metadata
    address = models.CharField(max_length=64, blank=True)  # keyed digest of its network address
    created = models.DateTimeField(_("created"), default=timezone.now)
    # Last successful fetch of its metadata document.
    fetched = models.DateTimeField(_("document fetched"), null=True)
    last_authorized = models.DateTimeField(_("last authorized"), null=True)
    last_used = models.DateTimeField(_("last used"), null=True)
    blocked = models.DateTimeField(_("blocked"), null=True, blank=True)

    class Meta:
        verbose_name, verbose_name_plural = _("client"), _("clients")
        indexes = [
            models.Index(fields=["address", "created"], name="mcp_client_address"),
            models.Index(fields=["last_authorized", "created"], name="mcp_client_unused"),
        ]

    def __str__(self) -> str:
        return self.name or self.client_id


class Lock(models.Model):
    """A lock: the transaction that writes this row holds it until it ends."""

    name = models.CharField(max_length=30, primary_key=True)
    taken = models.DateTimeField()

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("lock"), _("locks")

    def __str__(self) -> str:
        return self.name


class RedeemedCode(models.Model):
    """The digest of a redeemed authorization code. A second use revokes the token family."""

    digest = models.CharField(max_length=64, unique=True)
    family = models.UUIDField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name, verbose_name_plural = _("redeemed code"), _("redeemed codes")

    def __str__(self) -> str:
        return str(self.family)


class TokenBinding(models.Model):
    """The upstream account that a user had signed in with when they consented.

    It belongs to a code, and after its redemption to a token family. ``account`` is "" for a local
    account. ``checked`` is the time of the last successful check, or None before the first.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    account = models.CharField(max_length=MAX_CLIENT_ID_LENGTH, blank=True)
    digest = models.CharField(max_length=64, unique=True)  # of the code
    family = models.UUIDField(null=True, unique=True)  # None until the code is redeemed
    checked = models.DateTimeField(null=True)
    created = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        verbose_name, verbose_name_plural = _("token binding"), _("token bindings")
        indexes = [models.Index(fields=["account", "user"], name="mcp_binding_account")]

    def __str__(self) -> str:
        return self.account


class Consent(models.Model):
    """A user's consent to a client at a server, and the host that the code was sent to."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="mcp_consents",
        verbose_name=_("user"),
    )
    client_id = models.CharField(_("client id"), max_length=MAX_CLIENT_ID_LENGTH, db_index=True)
    resource = models.CharField(_("resource"), max_length=512)
    scopes = JSONText(_("scopes"), default=list)
    redirect_host = models.CharField(_("redirect host"), max_length=255)
    digest = models.CharField(max_length=64, blank=True)  # of the client's metadata at that time
    granted = models.DateTimeField(_("granted"), default=timezone.now)
    revoked = models.DateTimeField(_("revoked"), null=True)
    last_used = models.DateTimeField(_("last used"), null=True)

    class Meta:
        verbose_name, verbose_name_plural = _("consent"), _("consents")

    def __str__(self) -> str:
        return f"{self.user} → {self.client_id}"


class Activity(models.Model):
    """How often a client did something for a user on one day, and when last.

    It contains names that the project declares, and no data that the client sent.
    """

    # Digest of the user, client, server, method, name and day. It is unique, so each has one row.
    key = models.CharField(max_length=64, unique=True, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="mcp_activities",
        verbose_name=_("user"),
    )
    client_id = models.CharField(_("client id"), max_length=MAX_CLIENT_ID_LENGTH)
    server = models.CharField(_("server"), max_length=255)
    method = models.CharField(_("method"), max_length=30)
    name = models.CharField(_("name"), max_length=MAX_CALL_NAME_LENGTH)
    count = models.PositiveIntegerField(_("how often"), default=0)
    at = models.DateTimeField(_("last time"))

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("activity"), _("activities")
        indexes = [
            models.Index(fields=["user", "client_id", "at"], name="mcp_activity_lately"),
            models.Index(fields=["at"], name="mcp_activity_at"),
        ]

    def __str__(self) -> str:
        return f"{self.client_id}: {self.method} {self.name}"
