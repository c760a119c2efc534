"""
What is known of clients beside what django-oauth-toolkit keeps, and who agreed to what.

Rule: no foreign key to its models, which a project may have swapped: a client is named by its id,
a chain of refresh tokens by its family.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..models.fields import JSONText

LONGEST_ID = 255  # characters of a client's id, as django-oauth-toolkit has it
LONGEST_NAME = 200  # characters of the name of something that is used


class Source(models.TextChoices):
    """How a client came to be known."""

    MANUAL = "manual", _("registered by hand")
    DCR = "dcr", _("registered itself")
    CIMD = "cimd", _("by its metadata document")


class ClientProfile(models.Model):
    """A client: where it came from, what it says of itself, and whether it may come again."""

    client_id = models.CharField(_("client id"), max_length=LONGEST_ID, unique=True)
    source = models.CharField(_("source"), max_length=10, choices=Source)
    name = models.CharField(_("name"), max_length=100, blank=True)
    client_uri = models.CharField(_("web site"), max_length=512, blank=True)
    logo_uri = models.CharField(_("logo"), max_length=512, blank=True)
    application_type = models.CharField(_("kind of application"), max_length=10, blank=True)
    # At the token endpoint.
    auth_method = models.CharField(_("authentication"), max_length=30, blank=True)
    jwks_uri = models.CharField(_("keys"), max_length=512, blank=True)
    digest = models.CharField(max_length=64, blank=True, db_index=True)  # of what it registered
    address = models.CharField(max_length=64, blank=True)  # a keyed digest of whence it registered
    created = models.DateTimeField(_("created"), default=timezone.now)
    # When its metadata document was last had.
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


class Turn(models.Model):
    """Where one at a time may be at something: whoever wrote this row, until that is committed."""

    name = models.CharField(max_length=30, primary_key=True)
    taken = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class RedeemedCode(models.Model):
    """An authorization code that was redeemed, by its digest: its second use ends the family."""

    digest = models.CharField(max_length=64, unique=True)
    family = models.UUIDField()
    expires = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return str(self.family)


class Binding(models.Model):
    """By which account elsewhere a person had signed in who consented: of a code, then a family.

    ``account`` is "" where they had signed in here. ``checked`` is as of when it is known to stand.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    account = models.CharField(max_length=LONGEST_ID, blank=True)
    digest = models.CharField(max_length=64, unique=True)  # of the code
    family = models.UUIDField(null=True, unique=True)  # once that was redeemed
    checked = models.DateTimeField(null=True)
    created = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        indexes = [models.Index(fields=["account", "user"], name="mcp_binding_account")]

    def __str__(self) -> str:
        return self.account


class Consent(models.Model):
    """That a user let a client act for them at a server, and where the answer went."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="mcp_consents",
        verbose_name=_("user"),
    )
    client_id = models.CharField(_("client id"), max_length=LONGEST_ID, db_index=True)
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
    """That a client did something for a user, on one day: how often, and when last.

    It names what the project declares, and nothing that the client sent.
    """

    # A digest of whose, what and on which day it is: one row for each.
    key = models.CharField(max_length=64, unique=True, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="mcp_activities",
        verbose_name=_("user"),
    )
    client_id = models.CharField(_("client id"), max_length=LONGEST_ID)
    server = models.CharField(_("server"), max_length=255)
    method = models.CharField(_("method"), max_length=30)
    name = models.CharField(_("name"), max_length=LONGEST_NAME)
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
