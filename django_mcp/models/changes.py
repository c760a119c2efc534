"""
Models of the change log: changes, interests in models, delivery cursors, visibility of lists.

A change is a row in the database in which it happened, and commits or rolls back with it. A reader
gives it a number later. Numbers have the order in which changes became visible, and saving never
waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.db import models
from django.utils.translation import gettext_lazy as _

from .sessions import JSONText

# Functions that return the models whose databases need the table of changes.
sources: list[Callable[[], Iterable[type[models.Model]]]] = []


class Change(models.Model):
    """A change: its kind and what it concerns, without values of fields."""

    seq = models.BigIntegerField(null=True, db_index=True)
    at = models.DateTimeField(null=True)  # when it got its number
    kind = models.CharField(max_length=16)
    subject = JSONText()

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("change"), _("changes")

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"


class Interest(models.Model):
    """A model of which a process, or the sessions of all processes, follow the changes."""

    holder = models.CharField(max_length=32)  # of a process, or of the sessions
    model = models.CharField(max_length=255)  # its label
    since = models.DateTimeField()  # when it was committed; in the future until then
    at = models.DateTimeField()  # when it was last renewed

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("interest"), _("interests")
        constraints = [
            models.UniqueConstraint(fields=["holder", "model"], name="django_mcp_interest_once")
        ]

    def __str__(self) -> str:
        return self.model


class BroadcastCursor(models.Model):
    """Cursor and claim of the process that notifies sessions of one database's changes."""

    name = models.CharField(primary_key=True, max_length=200)
    seq = models.BigIntegerField(default=0)  # sessions were notified of changes up to this number
    until = models.BigIntegerField(default=0)  # the end of the page that is being delivered
    notified = models.BigIntegerField(default=0)  # the last session that was notified of this page
    claim = models.BigIntegerField(default=0)  # fencing token
    holder = models.CharField(max_length=64, default="")  # the process, or a digest
    at = models.DateTimeField(null=True)  # for periodic work: when it was last due

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("broadcast cursor"), _("broadcast cursors")

    def __str__(self) -> str:
        return self.name


class VisibilitySnapshot(models.Model):
    """Digests of the recently changed URIs that a principal could see in lists."""

    name = models.CharField(
        primary_key=True, max_length=64
    )  # a digest of the cursor, server, principal and host
    owner = models.CharField(max_length=255)  # Principal.key
    uris = JSONText(default=list)  # shortened digests, the oldest first

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("visibility snapshot"), _("visibility snapshots")

    def __str__(self) -> str:
        return self.name
