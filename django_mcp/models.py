"""
Models: sessions with their streams, events and calls, the change log, tokens, kill switches,
approvals and the audit log.

*Sessions* (worker processes, sessions, subscriptions, streams, events, calls, steps) are in the
database ``DJANGO_MCP["DATABASE"]``, and only ``storage`` writes them. The id of a session is a
secret and is not stored, only its digest. Users may be in another database, so here they are texts
and not foreign keys. After initialization only the log level, the subscriptions and the current
stream of a session change.

The sequence numbers of a stream's events have no gaps. They are assigned under the lock of the
stream's row, so events become visible in order. A stream's row is kept as long as its session.

A call is changed by conditional UPDATEs only. The process that raises its ``fence`` (a fencing
token) owns it, and earlier owners can write nothing more.

JSON is stored as ASCII text (``JSONText``). The databases' own JSON types reject some valid
JSON (NUL, unpaired surrogates) and change some of it (numbers, the order of keys).

The *change log*: changes, interests in models, delivery cursors, visibility of lists. A change is a
row in the database in which it happened, and commits or rolls back with it. A reader gives it a
number later. Numbers have the order in which changes became visible, and saving never waits for
them.

*Personal access tokens* and *kill switches* are in the database of the users. The secret of a token
is shown once, when it is made. Only its SHA-256 is stored: a secret of 256 random bits needs no
salt and no slow hash. A kill switch is a row while something is switched off. What is on has no
row.

*Approvals*, calls that a second person must approve, are in the database of the users. A row is
changed by conditional UPDATEs only, so that of two people who decide, or of two calls that use an
approval, one wins.

The *audit log* is in the database of the users too.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import models, router, transaction
from django.utils import timezone
from django.utils.module_loading import import_string
from django.utils.translation import gettext, override
from django.utils.translation import gettext_lazy as _

from . import signals
from .conf import settings as mcp_settings

if TYPE_CHECKING:
    from datetime import timedelta

    Text = models.TextField[Any, Any]
else:
    Text = models.TextField

__all__ = [
    "DONE", "ENDLESS", "PARKED", "RUNNING", "Approval", "ApprovalStatus", "Ask", "AuditEntry",
    "BroadcastCursor", "Call", "Change", "Event", "Inspector", "Interest", "Process", "Session",
    "Step", "Stream", "Subscription", "Switch", "Token", "VisibilitySnapshot",
]  # fmt: skip

# Functions that return the models whose databases need the table of changes.
sources: list[Callable[[], Iterable[type[models.Model]]]] = []

MAX_REASON_LENGTH = 1000

# Begins the ``client`` of a call in the inspector as another user, before the key of the member of
# staff.
IMPERSONATOR_PREFIX = "impersonator:"


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


class Switch(models.Model):
    """A kill switch. ``thing`` is for example "tool:refund", or "" for the whole server.

    Without ``rate`` it switches off. With a rate such as "10/min" it limits the calls to which it
    applies: all of them count together.

    Without ``group`` and ``client`` it applies to all callers. With both, it applies to the members
    of the group who use the client. They are texts and not foreign keys: projects may be without
    groups and OAuth, and a deleted group must not switch anything on.
    """

    # The lengths together fit into one unique index of MariaDB, which has at most 3072 bytes.
    server = models.CharField(_("server"), max_length=200)
    thing = models.CharField(_("declaration"), max_length=200, blank=True)
    group = models.CharField(_("group"), max_length=64, blank=True)  # its primary key
    client = models.CharField(_("client"), max_length=255, blank=True)  # the client id
    rate = models.CharField(_("limit"), max_length=32, blank=True)  # empty: it is off
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    since = models.DateTimeField(_("since"), default=timezone.now, editable=False)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="+",
        verbose_name=_("added by"),
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
        if self.rate:
            parts.append(_("limit %(rate)s") % {"rate": self.rate})
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


class ApprovalStatus(models.IntegerChoices):
    """The states of an approval. Lists show them in this order."""

    PENDING = 0, _("waiting")
    APPROVED = 1, _("approved")
    REFUSED = 2, _("refused")
    USED = 3, _("used")
    EXPIRED = 4, _("expired")


class Approval(models.Model):
    """One call of a tool that a second person must approve.

    ``digest`` is a keyed digest of what is approved: the server, the tool, the caller and all
    arguments. ``arguments`` are those arguments for people, with secrets masked. A dry run
    makes the request of the caller again from ``caller``.
    """

    server = models.CharField(_("server"), max_length=255)
    tool = models.CharField(_("tool"), max_length=255)
    permission = models.CharField(_("permission to decide"), max_length=255)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+",
        verbose_name=_("user"),
    )  # fmt: skip
    application = models.CharField(_("application"), max_length=255, blank=True)  # of the token
    client = models.CharField(_("client"), max_length=255, blank=True)  # as it calls itself
    caller = JSONText(default=dict)
    arguments = JSONText(_("arguments"), default=dict)
    has_secrets = models.BooleanField(default=False)  # an argument was masked
    digest = models.CharField(max_length=64)
    # True until the approval is used or expires, then NULL. So there is one open row per digest.
    open = models.BooleanField(null=True, default=True)
    status = models.SmallIntegerField(
        _("status"), choices=ApprovalStatus.choices, default=ApprovalStatus.PENDING
    )
    # Who uses the approval: a run, or the call that it is kept for. Empty: any call may use it.
    holder = models.CharField(max_length=64, default="")
    created = models.DateTimeField(_("requested"), default=timezone.now)
    expires = models.DateTimeField(_("expires"))
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+",
        verbose_name=_("decided by"),
    )  # fmt: skip
    decided = models.DateTimeField(_("decided"), null=True)
    reason = models.CharField(_("reason"), max_length=MAX_REASON_LENGTH, blank=True)
    used = models.DateTimeField(_("used"), null=True)

    class Meta:
        default_permissions = ("view",)
        verbose_name, verbose_name_plural = _("approval"), _("approvals")
        constraints = [
            models.UniqueConstraint(fields=["digest", "open"], name="django_mcp_approval_open")
        ]
        indexes = [
            models.Index(fields=["status", "-id"], name="django_mcp_approval_status"),
            models.Index(fields=["expires"], name="django_mcp_approval_expires"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} #{self.pk}"

    @property
    def lifetime(self) -> timedelta:
        """How long an undecided request is valid. A decision is valid for as long again."""
        return self.expires - (self.decided or self.created)

    @property
    def is_expired(self) -> bool:
        return bool(self.open) and self.expires <= timezone.now()

    @property
    def impersonator(self) -> str:
        """The key of the member of staff who acts as ``user`` in the admin's inspector, or ""."""
        return self.caller.get("impersonator") or ""

    def is_involved(self, user: Any) -> bool:
        """Whether ``user`` is the caller, acts as the caller, or issued the caller's token."""
        caller = self.caller
        return str(user.pk) in (
            str(self.user_id), self.impersonator, caller.get("issued_by")
        )  # fmt: skip

    @staticmethod
    def visible_to(user: Any, approvals: models.QuerySet[Approval]) -> models.QuerySet[Approval]:
        """Return the ``approvals`` that the user may see and decide.

        If ``DJANGO_MCP["APPROVALS"]["QUERYSET"]`` names a function, return what it returns.
        Otherwise, return all ``approvals``. The permission to decide is not checked here.
        """
        path = mcp_settings.APPROVALS.get("QUERYSET")
        return approvals if path is None else import_string(path)(user, approvals)

    def is_visible_to(self, user: Any) -> bool:
        """Whether the project lets ``user`` see and decide this call: see ``visible_to``."""
        if mcp_settings.APPROVALS.get("QUERYSET") is None:
            return True
        return self.visible_to(user, self._stored().filter(pk=self.pk)).exists()

    def _stored(self) -> models.QuerySet[Approval]:
        # Use the database for writes, because the row may have been read from a replica.
        return type(self)._base_manager.using(router.db_for_write(type(self), instance=self))

    def objection(self, by: Any) -> str:
        """Return why the user ``by`` may not decide, or "" if they may."""
        if not (by.is_authenticated and by.is_active and by.has_perm(self.permission)):
            return gettext("You need the permission %s to decide.") % self.permission
        if not self.is_visible_to(by):
            return gettext("You may not decide about this call.")
        if self.user_id is None:
            return gettext("The user who made the call was deleted.")
        # Also if it is a superuser: two people must agree.
        if self.is_involved(by):
            return gettext(
                "Somebody else must decide about your own calls, and about calls with a token that "
                "you created."
            )
        return ""

    def approve(self, by: Any) -> bool:
        """Approve the call as the user ``by``. Return False if it was decided or has expired.

        Raise ``PermissionDenied`` if ``by`` may not decide.
        """
        return self._decide(by, ApprovalStatus.APPROVED, "", [ApprovalStatus.PENDING])

    def refuse(self, by: Any, reason: str = "") -> bool:
        """Refuse the call as the user ``by``. The ``reason`` is told to the client.

        An approval that was not used yet is taken back. Return False if it is too late. Raise
        ``PermissionDenied`` if ``by`` may not decide.
        """
        until = [ApprovalStatus.PENDING, ApprovalStatus.APPROVED]
        return self._decide(by, ApprovalStatus.REFUSED, reason[:MAX_REASON_LENGTH], until)

    def _decide(
        self, by: Any, status: ApprovalStatus, reason: str, until: list[ApprovalStatus]
    ) -> bool:
        if objection := self.objection(by):
            raise PermissionDenied(objection)
        now = timezone.now()
        changes: dict[str, datetime | Any] = {
            "status": status, "reason": reason, "decided_by": by, "decided": now,
            "expires": now + self.lifetime,
        }  # fmt: skip
        same = self._stored()
        # The conditions make one of two decisions win, and none after the call has run.
        undecided = same.filter(pk=self.pk, status__in=until, open=True, expires__gt=now)
        # The entry in the admin's history is committed with the decision.
        with transaction.atomic(using=same.db):
            if not undecided.update(**changes):
                return False
            self._add_to_history(by, status, reason, same.db)
        for name, value in changes.items():
            setattr(self, name, value)
        return True

    def _add_to_history(self, by: Any, status: ApprovalStatus, reason: str, alias: str) -> None:
        if not apps.is_installed("django.contrib.admin"):
            return
        # Not at the start of the module: its models need the app.
        from django.contrib.admin.models import CHANGE, LogEntry
        from django.contrib.contenttypes.models import ContentType

        with override(settings.LANGUAGE_CODE):  # as all entries of the admin's history
            is_approval = status == ApprovalStatus.APPROVED
            message = gettext("Approved.") if is_approval else gettext("Refused.")
            message = f"{message} {reason}".rstrip()
        LogEntry.objects.create(
            user_id=by.pk, action_flag=CHANGE, object_id=str(self.pk), object_repr=str(self)[:200],
            content_type=ContentType.objects.db_manager(alias).get_for_model(self),
            change_message=message,
        )  # fmt: skip


class AuditEntry(models.Model):
    """A call, a read or a prompt of a client, or its denied attempt.

    Users and clients are texts and not foreign keys, so that an entry remains when they are
    deleted. ``arguments`` has no secrets: see ``declarations.redaction``.
    """

    at = models.DateTimeField(_("time"), default=timezone.now)
    server = models.CharField(_("server"), max_length=255)
    method = models.CharField(_("method"), max_length=32)
    # A tool, a prompt or a URI template. Of an unknown one, what the client sent.
    name = models.CharField(_("name"), max_length=255)
    user = models.CharField(_("user id"), max_length=255, null=True)  # noqa: DJ001 - None: anonymous
    username = models.CharField(_("user"), max_length=255, blank=True)  # at that time
    # The client id of an OAuth application, or the key of another token.
    client = models.CharField(_("client"), max_length=255, blank=True)
    client_name = models.CharField(_("client name"), max_length=255, blank=True)  # not verified
    session = models.BigIntegerField(_("session"), null=True)
    transport = models.CharField(_("transport"), max_length=16)
    revision = models.CharField(_("protocol revision"), max_length=16)
    approval = models.BigIntegerField(_("approval"), null=True)  # its key
    arguments = JSONText(_("arguments"), null=True)
    outcome = models.CharField(_("outcome"), max_length=16)
    error = models.CharField(_("error"), max_length=255, blank=True)  # the name of its class
    duration = models.FloatField(_("duration"))  # seconds
    queries = models.IntegerField(_("queries"))
    rows_written = models.IntegerField(_("rows written"))
    trace_id = models.CharField(_("trace id"), max_length=32, blank=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("export_auditentry", "Can export audit log")]
        verbose_name, verbose_name_plural = _("audit entry"), _("audit entries")
        # Each index makes every audited call more expensive: on SQLite by about 2 percent of a tool
        # that saves a row. So only columns with many values have an index of their own, in which
        # the database finds the newest entries with one value. It finds the other filtered columns
        # in the index of times, which it reads instead of the rows.
        indexes = [
            models.Index(
                fields=["at", "id", "outcome", "method", "server", "session"], name="mcp_audit_at"
            ),
            models.Index(fields=["client", "id"], name="mcp_audit_client"),
            models.Index(fields=["name", "id"], name="mcp_audit_name"),
            models.Index(fields=["user", "id"], name="mcp_audit_user"),
            models.Index(fields=["username", "id"], name="mcp_audit_username"),
            models.Index(fields=["trace_id", "id"], name="mcp_audit_trace"),
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.name} #{self.pk}"

    @property
    def impersonator(self) -> str:
        """The key of the member of staff who acted as ``user`` in the admin's inspector, or ""."""
        is_impersonated = self.client.startswith(IMPERSONATOR_PREFIX)
        return self.client.removeprefix(IMPERSONATOR_PREFIX) if is_impersonated else ""
