"""
Sessions: create them, find them by their secret id, delete them, and their subscriptions.

The database has only a digest of a session id, so that a reader of the database cannot use the
session. The number of sessions of one owner is limited. All functions of this module run queries.

A session is locked by an UPDATE of its row (``lock``). A transaction that locks several rows locks
the session first, then calls, then streams in the order of their ids, so that no two deadlock.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, transaction
from django.db.models import F, Q, QuerySet

from .. import signals
from ..auth.principal import client_network
from ..conf import settings
from ..exceptions import Busy
from ..models import DONE, Ask, Call, Event, Session, Step, Stream, Subscription
from . import databases
from .compiled_queries import column_names, fetch, instance
from .databases import digest_of, erase, one_transaction, rows, unlocked

logger = logging.getLogger("django_mcp.sessions")

SECRET_BYTES = 32
ID = re.compile(r"[A-Za-z0-9_-]{43}\Z")
LAST_SEEN_PRECISION = timedelta(minutes=1)
INITIALIZE_TIMEOUT = timedelta(minutes=1)  # from ``initialize`` to ``notifications/initialized``
REPLACEABLE_AFTER = timedelta(minutes=5)  # a session idle for so long may be deleted to make room
MAX_SUBSCRIPTIONS_PER_SESSION = 1_000


class SessionEnded(Exception):
    """The session has ended."""


def create(
    *,
    server: str,
    owner: str,
    user: str | None,
    revision: str,
    client_info: dict[str, Any],
    capabilities: dict[str, Any],
    scopes: list[str] | None = None,
    transport: str = "http",
    host: str | None = None,
    remote: str = "",
    id: str | None = None,
) -> tuple[str, Session]:
    """Create a session. Return its id and the session. Raise ``Busy`` if the owner has too many.

    Anonymous sessions are counted by the network of their ``remote`` address. Otherwise one
    anonymous client could use up the limit for all others.
    """
    network = "" if owner else client_network(remote)
    if _is_at_limit(owner, network) and not _make_room(owner, network):
        raise Busy("There are too many sessions. End one, or try again later.")
    id, now = id or new_id(), databases.now()
    session = rows(Session).create(
        digest=digest_of(id),
        server=server,
        transport=transport,
        host=host or "",
        owner=owner,
        network=network,
        user=user,
        revision=revision,
        client_info=client_info,
        capabilities=capabilities,
        scopes=scopes,
        created=now,
        last_seen=now,
    )
    signals.send_row_signal(signals.session_started, Session, session=session)
    return id, session


def new_id() -> str:
    """Return a new session id: 43 characters with 256 random bits."""
    return secrets.token_urlsafe(SECRET_BYTES)


def _is_at_limit(owner: str, network: str) -> bool:
    # Without a lock, because a session more does no harm: two requests at once may exceed the limit
    # by one.
    limit = settings.SESSIONS
    theirs = rows(Session).filter(owner=owner, network=network)
    return bool(theirs[:limit].count() >= limit)


def _make_room(owner: str, network: str) -> bool:
    """Delete sessions of an owner. Return whether one was deleted.

    Delete those that are expired or were never initialized. If there are none, delete the one that
    was idle longest, unless it has a running or parked call. Many clients open a session for every
    conversation and never end one. A client that uses a deleted session gets an error and opens
    another.
    """
    theirs, now = rows(Session).filter(owner=owner, network=network), databases.now()
    uninitialized = theirs.filter(initialized=False, created__lt=now - INITIALIZE_TIMEOUT)
    unusable = uninitialized | theirs.filter(last_seen__lt=expiry_time(now))
    ended = [end(session) for session in unusable.order_by("last_seen")[:100]]
    if any(ended):
        return True
    idle = theirs.filter(last_seen__lt=now - REPLACEABLE_AFTER).order_by("last_seen")[:100]
    return any(retire(session.pk, now - REPLACEABLE_AFTER) for session in idle)


def expiry_time(now: datetime) -> datetime:
    """Return the time before which ``last_seen`` of expired sessions is."""
    return now - timedelta(seconds=settings.SESSION_LIFETIME)


def find(id: str) -> Session | None:
    """Return the session of an id, or None if it does not exist or is expired.

    It takes one query, and none if ``id`` does not have the format of an id.
    """
    return find_all([id])[0]


def find_all(ids: Sequence[str]) -> list[Session | None]:
    """Return the session of each id, as ``find`` does, by one query for all of them.

    An id that occurs twice gets two instances, because the caller may change them.
    """
    digests = [digest_of(id) for id in ids if ID.match(id)]
    alias = settings.DATABASE
    rows = iter(fetch(alias, _by_digest, digests) if digests else ())
    now = databases.now() if digests else None
    return [_instance(alias, next(rows) if ID.match(id) else None, now) for id in ids]


def _by_digest(digests: Sequence[str]) -> QuerySet[Any]:
    found = Session._default_manager.filter(digest__in=digests)
    return found.values_list("digest", *column_names(Session))


def _instance(alias: str, row: Sequence[Any] | None, now: datetime | None) -> Session | None:
    session = None if row is None else instance(Session, alias, iter(row))
    if session is None or now is None or session.last_seen < expiry_time(now):
        return None
    if session.last_seen < now - LAST_SEEN_PRECISION:
        _touch(session, now)
    return session


def _touch(session: Session, now: datetime) -> None:
    # A savepoint, so that an error does not break a transaction of the caller, as in tests. The
    # request does not fail for it: ``last_seen`` is written again with the next one.
    try:
        with transaction.atomic(using=settings.DATABASE):
            # If another transaction has locked the session, do not wait: this job finds the
            # sessions of other requests too.
            unlocked(rows(Session).filter(pk=session.pk)).update(last_seen=now)
    except DatabaseError:
        logger.warning("last_seen could not be updated: session=%s", session.pk, exc_info=True)
    else:
        session.last_seen = now


@one_transaction
def touch_connected(session_ids: Collection[int]) -> None:
    """Update ``last_seen`` of sessions whose clients are connected."""
    now = databases.now()
    idle = rows(Session).filter(pk__in=session_ids, last_seen__lt=now - LAST_SEEN_PRECISION)
    # Locked sessions are skipped: the poller must not wait for a slow transaction. They are in use,
    # so their next poll or request writes it.
    unlocked(idle).update(last_seen=now)


def initialize(session: Session) -> None:
    """Store that the client has sent ``notifications/initialized``."""
    rows(Session).filter(pk=session.pk).update(initialized=True)
    session.initialized = True


def set_log_level(session: Session, level: str) -> None:
    rows(Session).filter(pk=session.pk).update(log_level=level)
    session.log_level = level


def lock(session_id: int, **changes: Any) -> None:
    """Lock a session for the rest of the transaction, by an UPDATE. Raise ``SessionEnded``."""
    if not rows(Session).filter(pk=session_id).update(**(changes or {"streams": F("streams")})):
        raise SessionEnded(SessionEnded.__doc__)


def is_initialized(session: Session) -> bool:
    """Whether the client has sent ``notifications/initialized``, to any process."""
    if rows(Session).filter(pk=session.pk, initialized=True).exists():
        session.initialized = True
    return session.initialized


def exists(session: Session) -> bool:
    """Whether the session still exists."""
    return bool(rows(Session).filter(pk=session.pk).exists())


def of_stream(stream_id: int | None) -> Session | None:
    """Return the session of a stream, or None if it was deleted."""
    return rows(Session).filter(stream=stream_id or 0).first()


# The end.


def end(session: Session) -> bool:
    """Delete a session and all of its rows. Return False if it was deleted before."""
    try:
        _end(session.pk)
    except SessionEnded:
        return False
    return True


def retire(session_id: int, before: datetime) -> bool:
    """Delete a session not seen since ``before``, unless it has a call that is not done.

    Return whether it was deleted.
    """
    try:
        return _retire(session_id, before)
    except SessionEnded:
        return False


@one_transaction
def _retire(session_id: int, before: datetime) -> bool:
    lock(session_id)
    # Checked under the lock: the client may have used the session after the caller selected it.
    is_idle = rows(Session).filter(pk=session_id, last_seen__lt=before).exists()
    if not is_idle or rows(Call).filter(session=session_id).exclude(state=DONE).exists():
        return False
    _erase(session_id)
    return True


@one_transaction
def _end(session_id: int) -> None:
    lock(session_id)
    _erase(session_id)


def _erase(session_id: int) -> None:
    # Read before the rows are deleted, and only if the signal has receivers.
    has_receivers = signals.session_ended.has_listeners(Session)
    ended = rows(Session).filter(pk=session_id).first() if has_receivers else None
    # First the calls: from here on no process can append in the name of one.
    rows(Call).filter(session=session_id).exclude(state=DONE).update(state=DONE, cancelled=True)
    # A process that is appending holds the stream's lock. Closing a stream waits for it, or its
    # events would be inserted after those of the session were deleted.
    for stream in _open_streams(session_id):
        rows(Stream).filter(pk=stream).update(closed=True)
    _erase_steps(session_id)
    erase(rows(Ask).filter(call__session=session_id))
    erase(rows(Call).filter(session=session_id))
    erase(rows(Event).filter(stream__session=session_id))
    erase(rows(Stream).filter(session=session_id))
    erase(rows(Subscription).filter(session=session_id))
    erase(rows(Session).filter(pk=session_id))
    if ended is not None:
        signals.send_row_signal(signals.session_ended, Session, session=ended)


def _open_streams(session_id: int) -> Sequence[int]:
    found = rows(Stream).filter(session=session_id, closed=False).order_by("pk")
    return list(found.values_list("pk", flat=True))


def _erase_steps(session_id: int) -> None:
    calls = rows(Call).filter(session=session_id).values_list("pk", flat=True)
    if names := [f"c{call}" for call in calls]:
        erase(rows(Step).filter(call__in=names))


# Subscriptions.


@one_transaction
def subscribe(
    session: Session, uri: str, row_ref: str = "", scopes: list[str] | None = None
) -> None:
    """Subscribe a session to a URI, or renew its subscription.

    ``row_ref`` is the model and key of the row behind the URI, if there is one ("shop.invoice 5").
    ``scopes`` are those of the token of this request. Raise ``Busy`` if there are too many, and
    ``SessionEnded``.
    """
    lock(session.pk)  # or two requests at once would insert the same subscription twice
    digest, theirs = digest_of(uri), rows(Subscription).filter(session=session.pk)
    known = {"visible": True, "row_ref": row_ref, "scopes": scopes}
    if theirs.filter(digest=digest).update(**known):
        return
    has_room = rows(Session).filter(pk=session.pk, subscriptions__lt=MAX_SUBSCRIPTIONS_PER_SESSION)
    if not has_room.update(subscriptions=F("subscriptions") + 1):
        raise Busy(f"A session subscribes to at most {MAX_SUBSCRIPTIONS_PER_SESSION} resources.")
    rows(Subscription).create(session_id=session.pk, digest=digest, uri=uri, **known)


@one_transaction
def unsubscribe(session: Session | int, uri: str) -> None:
    """Delete the subscription of a session to a URI, if there is one. Raise ``SessionEnded``."""
    session_id = session if isinstance(session, int) else session.pk
    lock(session_id)
    if erase(rows(Subscription).filter(session=session_id, digest=digest_of(uri))):
        rows(Session).filter(pk=session_id).update(subscriptions=F("subscriptions") - 1)


def subscribed_uris(session: Session) -> list[str]:
    """Return the URIs to which a session subscribes, the oldest subscription first."""
    found = rows(Subscription).filter(session=session.pk).order_by("pk")
    return list(found.values_list("uri", flat=True))


def token_scopes(session: Session) -> list[list[str] | None]:
    """Return the scopes of all tokens of a session: its first one's, and its subscriptions'."""
    found = rows(Subscription).filter(session=session.pk, scopes__isnull=False)
    return [session.scopes, *found.values_list("scopes", flat=True).distinct()]


def subscriber_ids(server: str, uri: str) -> list[int]:
    """Return the ids of a server's sessions that subscribe to a URI, without expired ones."""
    found = rows(Subscription).filter(
        digest=digest_of(uri),
        session__server=server,
        session__last_seen__gte=expiry_time(databases.now()),
    )
    return list(found.values_list("session_id", flat=True))


class SessionSubscription(NamedTuple):
    """A subscription with its session.

    ``visible`` is whether the owner could see the resource at the last check. ``row_ref`` is the
    row behind it.
    """

    id: int
    session: int
    owner: str
    user: str | None
    scopes: list[str] | None
    host: str
    uri: str
    visible: bool
    row_ref: str


class InitializedSession(NamedTuple):
    """An initialized session, its owner, and the host at which it began."""

    session: int
    owner: str
    user: str | None
    scopes: list[str] | None
    host: str


def find_subscriptions(
    server: str,
    uris: Collection[str],
    row_refs: Collection[str] = (),
    models: Collection[str] = (),
    users: Collection[str] = (),
    *,
    every: bool = False,
) -> list[SessionSubscription]:
    """Return subscriptions to these URIs, rows or models, and all subscriptions of these users.

    "" in ``users`` means all users who are not anonymous. ``every`` returns all subscriptions of
    the server. Expired sessions are left out. The result is ordered by session.
    """
    wanted = Q(digest__in=[digest_of(uri) for uri in uris]) | Q(row_ref__in=list(row_refs))
    for model in models:
        wanted |= Q(row_ref__startswith=f"{model} ")
    if users:
        named = Q(session__user__isnull=False)
        wanted |= named if "" in users else named & Q(session__user__in=list(users))
    found = rows(Subscription).filter(
        Q() if every else wanted,
        session__server=server,
        session__last_seen__gte=expiry_time(databases.now()),
    )
    of_session = ("session__owner", "session__user", "session__scopes", "session__host")
    columns = ("pk", "session_id", *of_session, "uri", "visible", "row_ref", "scopes")
    ordered = found.order_by("session_id", "pk")
    return [_subscription_of(*row) for row in ordered.values_list(*columns)]


def _subscription_of(*columns: Any) -> SessionSubscription:
    """Use the scopes of the token that subscribed, which may be broader than the session's."""
    *session_columns, scopes = columns
    subscription = SessionSubscription(*session_columns)
    return subscription if scopes is None else subscription._replace(scopes=scopes)


def initialized_sessions(server: str) -> list[InitializedSession]:
    """Return the initialized sessions of a server without expired ones, ordered by id."""
    found = rows(Session).filter(
        server=server, initialized=True, last_seen__gte=expiry_time(databases.now())
    )
    columns = ("pk", "owner", "user", "scopes", "host")
    return [InitializedSession(*one) for one in found.order_by("pk").values_list(*columns)]


def store_visibility(found: Sequence[tuple[int, bool, str]]) -> None:
    """Store for subscriptions, by id, whether they are visible now, and of which row they are."""
    alike: dict[tuple[bool, str], list[int]] = {}  # one UPDATE for all that get the same values
    for id, visible, row_ref in found:
        alike.setdefault((visible, row_ref), []).append(id)
    for (visible, row_ref), ids in alike.items():
        rows(Subscription).filter(pk__in=ids).update(visible=visible, row_ref=row_ref)


def revisions(ids: Sequence[int]) -> dict[int, str]:
    """Return the protocol revisions of these sessions, by id."""
    return dict(rows(Session).filter(pk__in=ids).values_list("pk", "revision"))
