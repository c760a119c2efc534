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
    server = models.CharField(_("server"), max_length=255)
    # As the protocol names it.
    transport = models.CharField(_("transport"), max_length=8, default="http")
    # The host at which it began; empty if none is known.
    host = models.CharField(_("host"), max_length=300, default="")
    owner = models.CharField(_("owner"), max_length=255)  # Principal.key
    # A keyed digest of the network from which it began, if it is anonymous.
    network = models.CharField(max_length=32, default="", db_default="")
    user = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None: anonymous
    scopes = JSONText(null=True)  # of the token that it began with
    # Over HTTP+SSE it is empty until it is initialized.
    revision = models.CharField(_("revision"), max_length=16)
    client_info = JSONText(default=dict)
    capabilities = JSONText(default=dict)
    initialized = models.BooleanField(_("initialized"), default=False)
    log_level = models.CharField(_("log level"), max_length=16, default="info")
    created = models.DateTimeField(_("created"), default=timezone.now)
    last_seen = models.DateTimeField(_("last seen"), default=timezone.now, db_index=True)
    current = models.BigIntegerField(null=True)  # the stream for notifications without a request
    pending_changes = JSONText(default=list)  # marks of changes that no stream has accepted yet
    streams = models.IntegerField(default=0)
    subscriptions = models.IntegerField(_("subscriptions"), default=0)

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
    row_ref = models.CharField(max_length=255, default="", db_index=True)
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

    session = models.ForeignKey(Session, models.CASCADE, verbose_name=_("session"))
    standalone = models.BooleanField(_("standalone"), default=False)
    last = models.BigIntegerField(_("last event"), default=0)
    # Of the events before it, only responses are kept.
    first = models.BigIntegerField(_("first event"), default=1)
    size = models.BigIntegerField(_("size in bytes"), default=0)  # bytes of its events
    # The last response closes the stream.
    pending_responses = models.IntegerField(_("pending responses"), default=0)
    closed = models.BooleanField(_("closed"), default=False)
    ended = models.DateTimeField(_("ended"), null=True, db_index=True)
    # The number of the latest connection.
    reader = models.IntegerField(_("latest connection"), default=1)
    # Connections up to this number must end.
    released = models.IntegerField(_("released connections"), default=0)
    nonce = models.CharField(max_length=32, default="")  # of the attempt that opens it
    pong = models.CharField(max_length=80, default="", db_default="")  # the last ping answered
    created = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("stream"), _("streams")

    def __str__(self) -> str:
        return f"#{self.pk}"


class Event(models.Model):
    """One encoded message."""

    stream = models.ForeignKey(Stream, models.CASCADE, db_index=False, verbose_name=_("stream"))
    seq = models.BigIntegerField(_("number"))
    data = models.TextField()
    size = models.IntegerField(_("size in bytes"))
    final = models.BooleanField(_("final"), default=False)  # a response
    nonce = models.CharField(max_length=32, default="")  # of the attempt that wrote it
    created = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("event"), _("events")
        constraints = [
            models.UniqueConstraint(fields=["stream", "seq"], name="django_mcp_event_seq")
        ]

    def __str__(self) -> str:
        return f"{self.stream_id}-{self.seq}"


RUNNING, PARKED, DONE = "running", "parked", "done"
CALL_STATES = [(RUNNING, _("running")), (PARKED, _("waiting for an answer")), (DONE, _("done"))]


class Call(models.Model):
    """A request of a session, ``created`` when it was received.

    A row without a stream is a cancel that arrived before its call was stored.
    """

    session = models.ForeignKey(Session, models.CASCADE, db_index=False, verbose_name=_("session"))
    stream = models.ForeignKey(Stream, models.CASCADE, null=True, verbose_name=_("stream"))
    request_id = JSONText()
    request_digest = models.CharField(max_length=64)
    method = models.CharField(_("method"), max_length=100)
    # Of the tool or prompt.
    name = models.CharField(_("name"), max_length=128, default="", db_default="")
    params = JSONText(default=dict)
    meta = JSONText(default=dict)
    user = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None: anonymous
    scopes = JSONText(null=True)
    process = models.CharField(_("process"), max_length=32, default="")
    fence = models.IntegerField(_("fencing token"), default=0)
    # How often the call was taken over from a dead process.
    runs = models.IntegerField(_("runs"), default=0)
    state = models.CharField(_("state"), max_length=8, choices=CALL_STATES, default=RUNNING)
    cancelled = models.BooleanField(_("cancelled"), default=False)
    atomic = models.BooleanField(default=False)  # its response commits in its tool's transaction
    high_water = models.FloatField(null=True)  # of its progress
    known = JSONText(default=dict)  # answers, by the digest of the question
    rounds = models.SmallIntegerField(_("rounds"), default=0)
    created = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        default_permissions = ("view",)
        permissions = [("cancel_call", "Can cancel call")]
        verbose_name, verbose_name_plural = _("call"), _("calls")
        indexes = [
            models.Index(fields=["session", "request_digest"], name="django_mcp_call_request"),
            models.Index(fields=["process", "state"], name="django_mcp_call_process"),
        ]

    def __str__(self) -> str:
        return f"{self.method} #{self.pk}"


class Inspector(Call):
    """The admin's inspector. It has no rows and no table: it exists for its permissions."""

    class Meta:
        proxy = True
        default_permissions = ()
        permissions = [
            ("use_inspector", "Can use the inspector"),
            ("impersonate_in_inspector", "Can act as another user in the inspector"),
        ]
        verbose_name, verbose_name_plural = _("inspector"), _("inspector")


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
