"""
What changed, who wants to know, how far it has been told, and who could see it.

Rule: a change is a row of the database in which it happened, and commits or
rolls back with it. It has no number until it is seen by others: numbers tell in
which order changes became visible, and no one who saves waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import JSONText

# Who knows of which models the rows are, beside which changes are kept.
sources: list[Callable[[], Iterable[type[models.Model]]]] = []


class Change(models.Model):
    """That something changed, and nothing of what it is now."""

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
    """That somebody wants to know when rows of a model change: a process, or sessions."""

    holder = models.CharField(max_length=32)
    model = models.CharField(max_length=255)
    since = models.DateTimeField()
    at = models.DateTimeField()  # when it was last said

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("interest"), _("interests")
        constraints = [
            models.UniqueConstraint(fields=["holder", "model"], name="django_mcp_interest_once")
        ]

    def __str__(self) -> str:
        return self.model


class Telling(models.Model):
    """How far sessions were told of the changes of one database."""

    name = models.CharField(primary_key=True, max_length=200)
    seq = models.BigIntegerField(default=0)  # up to this number, all of it was told
    until = models.BigIntegerField(default=0)  # and up to this it is being told
    told = models.BigIntegerField(default=0)  # to the sessions up to this one
    claim = models.BigIntegerField(default=0)  # which turn it is
    holder = models.CharField(max_length=64, default="")  # whose turn it is
    at = models.DateTimeField(null=True)  # of what is told so often at most: when it last was

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("telling"), _("tellings")

    def __str__(self) -> str:
        return self.name


class Sight(models.Model):
    """What of the lists somebody could see, of what was told of late."""

    name = models.CharField(primary_key=True, max_length=64)  # a digest: who, and where of
    owner = models.CharField(max_length=255)  # Principal.key
    uris = JSONText(default=list)  # digests, cut short; first those that were seen first

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("sight"), _("sights")

    def __str__(self) -> str:
        return self.name
