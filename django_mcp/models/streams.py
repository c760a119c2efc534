"""
What is said to a session: streams, and the events of each.

Rule: the sequence of a stream has no gap, is given out under the lock of the
stream's row, and so becomes visible in order. A stream's row lives as long as
its session.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .sessions import Session

# Owed by a stream that is the only one of its session: it never closes. It becomes less by one
# with each call that is over, and more again when those are forgotten.
ENDLESS = 2**31 - 1


class Stream(models.Model):
    """The messages to one request, to a batch, or to nobody's in particular."""

    session = models.ForeignKey(Session, models.CASCADE)
    standalone = models.BooleanField(default=False)
    last = models.BigIntegerField(default=0)
    first = models.BigIntegerField(default=1)  # of what is below, only responses are kept
    size = models.BigIntegerField(default=0)  # bytes of its events
    owed = models.IntegerField(default=0)  # responses; with the last of them it closes
    closed = models.BooleanField(default=False)
    ended = models.DateTimeField(null=True, db_index=True)
    reader = models.IntegerField(default=1)  # the number of its latest connection
    released = models.IntegerField(default=0)  # connections up to this number are to end
    nonce = models.CharField(max_length=32, default="")  # of the attempt that opens it
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("stream"), _("streams")

    def __str__(self) -> str:
        return f"#{self.pk}"


class Event(models.Model):
    """One encoded message."""

    stream = models.ForeignKey(Stream, models.CASCADE, db_index=False)
    seq = models.BigIntegerField()
    data = models.TextField()
    size = models.IntegerField()
    final = models.BooleanField(default=False)  # a response
    nonce = models.CharField(max_length=32, default="")  # of the flush that wrote it
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("event"), _("events")
        constraints = [
            models.UniqueConstraint(fields=["stream", "seq"], name="django_mcp_event_seq")
        ]

    def __str__(self) -> str:
        return f"{self.stream_id}-{self.seq}"
