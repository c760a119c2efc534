"""Models of sessions: worker processes, sessions, subscriptions, streams, events, calls, steps.

The id of a session is a secret and is not stored, only its digest. Users may be in another
database, so here they are texts and not foreign keys. After initialization only the log level, the
subscriptions and the current stream of a session change.

The sequence numbers of a stream's events have no gaps. They are assigned under the lock of the
stream's row, so events become visible in order. A stream's row is kept as long as its session.

A call is changed by conditional UPDATEs only. The process that raises its ``fence`` (a fencing
token) owns it, and earlier owners can write nothing more.

JSON is stored as ASCII text (``JSONText``). The databases' own JSON types reject some valid
JSON (NUL, unpaired surrogates) and change some of it (numbers, the order of keys).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    Text = models.TextField[Any, Any]
else:
    Text = models.TextField


class JSONText(Text):
    """JSON in a text column; None is NULL."""

    if TYPE_CHECKING:
        _pyi_private_set_type: Any
        _pyi_private_get_type: Any
        _pyi_lookup_exact_type: Any

    def from_db_value(self, value: str | None, *of: Any) -> Any:
        return None if value is None else json.loads(value)

    def to_python(self, value: Any) -> Any:
        return value

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)


class Process(models.Model):
    """A worker process. It counts as alive as long as its heartbeat counter increases."""

    id = models.CharField(primary_key=True, max_length=32)
    beats = models.BigIntegerField(default=0)
    started = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ()
        verbose_name, verbose_name_plural = _("process"), _("processes")

    def __str__(self) -> str:
        return self.id


class Session(models.Model):
    """A connected client, from its ``initialize`` request on."""

    digest = models.CharField(max_length=64, unique=True)
    server = models.CharField(max_length=255)
    transport = models.CharField(max_length=8, default="http")  # as the protocol names it
    host = models.CharField(max_length=300, default="")  # at which it began; empty if none is known
    owner = models.CharField(max_length=255)  # Principal.key
    # A keyed digest of the network from which it began, if it is anonymous.
    network = models.CharField(max_length=32, default="", db_default="")
    user = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None: anonymous
    scopes = JSONText(null=True)  # of the token that it began with
    revision = models.CharField(max_length=16)  # over HTTP+SSE empty until it is initialized
    client_info = JSONText(default=dict)
    capabilities = JSONText(default=dict)
    initialized = models.BooleanField(default=False)
    log_level = models.CharField(max_length=16, default="info")
    created = models.DateTimeField(default=timezone.now)
    last_seen = models.DateTimeField(default=timezone.now, db_index=True)
    current = models.BigIntegerField(null=True)  # the stream for notifications without a request
    pending_changes = JSONText(default=list)  # marks of changes that no stream has accepted yet
    streams = models.IntegerField(default=0)
    subscriptions = models.IntegerField(default=0)

    class Meta:
        default_permissions = ("view",)
        permissions = [("end_session", "Can end session")]
        verbose_name, verbose_name_plural = _("session"), _("sessions")
        indexes = [models.Index(fields=["owner", "network"], name="django_mcp_session_owner")]

    def __str__(self) -> str:
        return f"{self.server} #{self.pk}"


class Subscription(models.Model):
    """A URI to whose changes a session subscribes."""

    session = models.ForeignKey(Session, models.CASCADE, db_index=False)
    digest = models.CharField(max_length=64, db_index=True)
    uri = JSONText()
    visible = models.BooleanField(default=True)  # to the session's owner, at the last check
    # The model and key of the row behind the URI, at the last check: "shop.invoice 5".
    place = models.CharField(max_length=255, default="", db_index=True)
    scopes = JSONText(null=True)  # of the token that subscribed; None: the session's

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


# The initial ``pending_responses`` of the only stream of an HTTP+SSE session, so that it never
# closes. Each finished call lowers it by one, and retention raises it again when it deletes
# finished calls.
ENDLESS = 2**31 - 1


class Stream(models.Model):
    """A sequence of messages to the client: for one request, a batch, or for no request."""

    session = models.ForeignKey(Session, models.CASCADE)
    standalone = models.BooleanField(default=False)
    last = models.BigIntegerField(default=0)
    first = models.BigIntegerField(default=1)  # of earlier events, only responses are kept
    size = models.BigIntegerField(default=0)  # bytes of its events
    pending_responses = models.IntegerField(default=0)  # the last one closes the stream
    closed = models.BooleanField(default=False)
    ended = models.DateTimeField(null=True, db_index=True)
    reader = models.IntegerField(default=1)  # the number of its latest connection
    released = models.IntegerField(default=0)  # connections up to this number must end
    nonce = models.CharField(max_length=32, default="")  # of the attempt that opens it
    pong = models.CharField(max_length=80, default="", db_default="")  # the last ping answered
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
    nonce = models.CharField(max_length=32, default="")  # of the attempt that wrote it
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("event"), _("events")
        constraints = [
            models.UniqueConstraint(fields=["stream", "seq"], name="django_mcp_event_seq")
        ]

    def __str__(self) -> str:
        return f"{self.stream_id}-{self.seq}"


RUNNING, PARKED, DONE = "running", "parked", "done"


class Call(models.Model):
    """A request of a session, ``created`` when it was received.

    A row without a stream is a cancel that arrived before its call was stored.
    """

    session = models.ForeignKey(Session, models.CASCADE, db_index=False)
    stream = models.ForeignKey(Stream, models.CASCADE, null=True)
    request_id = JSONText()
    request_digest = models.CharField(max_length=64)
    method = models.CharField(max_length=100)
    params = JSONText(default=dict)
    meta = JSONText(default=dict)
    user = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None: anonymous
    scopes = JSONText(null=True)
    process = models.CharField(max_length=32, default="")
    fence = models.IntegerField(default=0)
    runs = models.IntegerField(default=0)  # how often it was taken over from a dead process
    state = models.CharField(max_length=8, default=RUNNING)
    cancelled = models.BooleanField(default=False)
    atomic = models.BooleanField(default=False)  # its response commits in its tool's transaction
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
    """A question of a call. Its id is that of the JSON-RPC request to the client."""

    id = models.CharField(primary_key=True, max_length=32)
    call = models.ForeignKey(Call, models.CASCADE)
    key = JSONText(default=str)
    digest = models.CharField(max_length=64)
    wire = JSONText()  # {"method", "params"}, in the newest revision's terms
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
    """A step of a call (``request.once``), finished or under way."""

    call = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)  # of the key: databases may ignore case
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
