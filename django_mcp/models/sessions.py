"""
Who is connected: the processes that serve, and the sessions of clients.

Rule: a session is settled when it is initialized; what changes afterwards is
its log level, its subscriptions, and where its news go. Its id is a secret and
is not stored. Users live in another database: here they are texts.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .fields import JSONText


class Process(models.Model):
    """A process that serves. It lives for as long as its counter goes up."""

    id = models.CharField(primary_key=True, max_length=32)
    beats = models.BigIntegerField(default=0)
    started = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("process"), _("processes")

    def __str__(self) -> str:
        return self.id


class Session(models.Model):
    """A client that has shaken hands."""

    digest = models.CharField(max_length=64, unique=True)
    server = models.CharField(max_length=255)
    transport = models.CharField(max_length=8, default="http")  # as the protocol names it
    host = models.CharField(max_length=300, default="")  # at which it began; empty if none is known
    owner = models.CharField(max_length=255, db_index=True)  # Principal.key
    user = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None is nobody
    scopes = JSONText(null=True)  # of the token that it began with
    revision = models.CharField(max_length=16)  # over HTTP+SSE empty until it is initialized
    client_info = JSONText(default=dict)
    capabilities = JSONText(default=dict)
    initialized = models.BooleanField(default=False)
    log_level = models.CharField(max_length=16, default="info")
    created = models.DateTimeField(default=timezone.now)
    last_seen = models.DateTimeField(default=timezone.now, db_index=True)
    current = models.BigIntegerField(null=True)  # the stream that takes its news
    dirty = JSONText(default=list)  # what no stream has taken yet
    streams = models.IntegerField(default=0)
    subscriptions = models.IntegerField(default=0)

    class Meta:
        default_permissions = ("view",)
        permissions = [("end_session", "Can end session")]
        verbose_name, verbose_name_plural = _("session"), _("sessions")

    def __str__(self) -> str:
        return f"{self.server} #{self.pk}"


class Subscription(models.Model):
    """A URI of which a session wants to know when it changes."""

    session = models.ForeignKey(Session, models.CASCADE, db_index=False)
    digest = models.CharField(max_length=64, db_index=True)
    uri = JSONText()
    visible = models.BooleanField(default=True)  # to the session's owner, when last looked at
    # Which row of which model it was then: "shop.invoice 5".
    place = models.CharField(max_length=255, default="", db_index=True)
    scopes = JSONText(null=True)  # of the token that it was asked with; None: the session's

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("subscription"), _("subscriptions")
        constraints = [
            models.UniqueConstraint(
                fields=["session", "digest"], name="django_mcp_subscription_uri"
            )
        ]

    def __str__(self) -> str:
        return str(self.uri)
