"""
What is being worked on for a session: calls, their questions, their steps.

Rule: a call is changed by conditional UPDATEs alone. Whoever raises its fence
owns it; whoever held it before can write nothing more in its name.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .fields import JSONText
from .sessions import Session
from .streams import Stream

RUNNING, PARKED, DONE = "running", "parked", "done"


class Call(models.Model):
    """A request of a session; without a stream, a cancel that came before the call's row."""

    session = models.ForeignKey(Session, models.CASCADE, db_index=False)
    stream = models.ForeignKey(Stream, models.CASCADE, null=True)
    request_id = JSONText()
    request_digest = models.CharField(max_length=64)
    method = models.CharField(max_length=100)
    params = JSONText(default=dict)
    meta = JSONText(default=dict)
    user = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None is nobody
    scopes = JSONText(null=True)
    process = models.CharField(max_length=32, default="")
    fence = models.IntegerField(default=0)
    runs = models.IntegerField(default=0)  # how often it was taken over from the dead
    state = models.CharField(max_length=8, default=RUNNING)
    cancelled = models.BooleanField(default=False)
    atomic = models.BooleanField(default=False)  # its outcome comes in its tool's transaction
    high_water = models.FloatField(null=True)  # of its progress
    known = JSONText(default=dict)  # answers, by the digest of the question
    rounds = models.SmallIntegerField(default=0)
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("call"), _("calls")
        indexes = [
            models.Index(fields=["session", "request_digest"], name="django_mcp_call_request"),
            models.Index(fields=["process", "state"], name="django_mcp_call_process"),
        ]

    def __str__(self) -> str:
        return f"{self.method} #{self.pk}"


class Ask(models.Model):
    """A question of a call, under the id that it has on the wire."""

    id = models.CharField(primary_key=True, max_length=32)
    call = models.ForeignKey(Call, models.CASCADE)
    key = JSONText(default=str)
    digest = models.CharField(max_length=64)
    wire = JSONText()  # {"method", "params"}, in the newest revision's words
    answer = JSONText(null=True)
    open = models.BooleanField(default=True)
    seconds = models.FloatField()
    deadline = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("question"), _("questions")

    def __str__(self) -> str:
        return self.id


class Step(models.Model):
    """What ``request.once`` has done, or is doing, for a call."""

    call = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)  # of the key: databases may compare case-blind
    key = JSONText()
    value = JSONText(null=True)
    doing = models.BooleanField(default=True)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("step"), _("steps")
        constraints = [
            models.UniqueConstraint(fields=["call", "digest"], name="django_mcp_step_key")
        ]

    def __str__(self) -> str:
        return f"{self.call} {self.key}"
