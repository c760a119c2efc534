"""
Sessions: made, found again by their secret id, and ended with all they have.

Rule: an id is known to its client alone; here it is a digest. What one owner
may have is bounded.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, transaction
from django.db.models import F, Q

from ..conf import settings
from ..exceptions import Busy
from ..models import DONE, Ask, Call, Event, Session, Step, Stream, Subscription
from . import clock
from .patience import unlocked
from .rows import digest_of, erase, one_transaction, row_with, rows

logger = logging.getLogger("django_mcp")

BYTES = 32
ID = re.compile(r"[A-Za-z0-9_-]{43}\Z")
TOUCHED = timedelta(minutes=1)  # last_seen is no more exact than this
UNFINISHED = timedelta(minutes=1)  # for a handshake
RESTING = timedelta(minutes=5)  # not used for so long, a session may make room for another
SUBSCRIPTIONS = 1_000


class Gone(Exception):
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
    id: str | None = None,
) -> tuple[str, Session]:
    """A session and its id. Raises ``Busy`` when the owner has too many."""
    if _has_too_many(owner) and not _reaped(owner):
        raise Busy("There are too many sessions. End one, or try again later.")
    id, now = id or new_id(), clock.now()
    session = rows(Session).create(
        digest=digest_of(id),
        server=server,
        transport=transport,
        host=host or "",
        owner=owner,
        user=user,
        revision=revision,
        client_info=client_info,
        capabilities=capabilities,
        scopes=scopes,
        created=now,
        last_seen=now,
    )
    return id, session


def new_id() -> str:
    return secrets.token_urlsafe(BYTES)


def _has_too_many(owner: str) -> bool:
    # Counted in an index, up to the limit: two who count at once may both be let in.
    limit = settings.SESSIONS
    return bool(rows(Session).filter(owner=owner)[:limit].count() >= limit)


def _reaped(owner: str) -> bool:
    """End what its client has left behind, else what has rested longest; whether there was any.

    Many clients open a session for every conversation and never end one. Whoever comes back to
    one that has ended is told so, and opens another. A session in which a call is under way, or
    waits for an answer, does not rest.
    """
    theirs, now = rows(Session).filter(owner=owner), clock.now()
    unfinished = theirs.filter(initialized=False, created__lt=now - UNFINISHED)
    left = unfinished | theirs.filter(last_seen__lt=oldest(now))
    ended = [end(session) for session in left.order_by("last_seen")[:100]]
    if any(ended):
        return True
    resting = theirs.filter(last_seen__lt=now - RESTING).order_by("last_seen")[:100]
    return any(retire(session.pk, now - RESTING) for session in resting)


def oldest(now: datetime) -> datetime:
    """Sessions that were last seen before are gone."""
    return now - timedelta(seconds=settings.SESSION_LIFETIME)


def find(id: str) -> Session | None:
    """The session of an id, in one query; none is made for what cannot be one."""
    if not ID.match(id):
        return None
    now = clock.now()
    session = row_with(Session, "digest", digest_of(id))
    if session is None or session.last_seen < oldest(now):
        return None
    if session.last_seen < now - TOUCHED:
        _touch(session, now)
    return session


def _touch(session: Session, now: datetime) -> None:
    try:
        with transaction.atomic(using=settings.DATABASE):
            rows(Session).filter(pk=session.pk).update(last_seen=now)
    except DatabaseError:
        logger.warning("It could not be noted that session %s was seen", session.pk, exc_info=True)
    else:
        session.last_seen = now


@one_transaction
def seen(session_ids: Collection[int]) -> None:
    """Their clients are connected, and so they are not idle."""
    now = clock.now()
    idle = rows(Session).filter(pk__in=session_ids, last_seen__lt=now - TOUCHED)
    unlocked(idle).update(last_seen=now)  # whom others have locked is not idle


def initialize(session: Session) -> None:
    """The client has said that it is ready."""
    rows(Session).filter(pk=session.pk).update(initialized=True)
    session.initialized = True


def set_log_level(session: Session, level: str) -> None:
    rows(Session).filter(pk=session.pk).update(log_level=level)
    session.log_level = level


def lock(session_id: int, **changes: Any) -> None:
    """Take a session's lock for the rest of the transaction. Raises ``Gone``."""
    if not rows(Session).filter(pk=session_id).update(**(changes or {"streams": F("streams")})):
        raise Gone(Gone.__doc__)


def is_initialized(session: Session) -> bool:
    """Whether the client has said that it is ready, to whichever process."""
    if rows(Session).filter(pk=session.pk, initialized=True).exists():
        session.initialized = True
    return session.initialized


def is_there(session: Session) -> bool:
    """Whether it has not ended since it was found."""
    return bool(rows(Session).filter(pk=session.pk).exists())


def of_stream(stream_id: int | None) -> Session | None:
    return rows(Session).filter(stream=stream_id or 0).first()


def living(server: str) -> list[int]:
    """The sessions of a server that have shaken hands, first those that were seen last."""
    found = rows(Session).filter(
        server=server, initialized=True, last_seen__gte=oldest(clock.now())
    )
    return list(found.order_by("-last_seen").values_list("pk", flat=True))


# The end.


def end(session: Session) -> bool:
    """Nothing is left of it; False when it had ended before."""
    try:
        _end(session.pk)
    except Gone:
        return False
    return True


def retire(session_id: int, before: datetime) -> bool:
    """End a session that nobody has seen since, unless a call of it is under way."""
    try:
        return _retire(session_id, before)
    except Gone:
        return False


@one_transaction
def _retire(session_id: int, before: datetime) -> bool:
    lock(session_id)
    idle = rows(Session).filter(pk=session_id, last_seen__lt=before).exists()
    if not idle or rows(Call).filter(session=session_id).exclude(state=DONE).exists():
        return False
    _erase(session_id)
    return True


@one_transaction
def _end(session_id: int) -> None:
    lock(session_id)
    _erase(session_id)


def _erase(session_id: int) -> None:
    rows(Call).filter(session=session_id).exclude(state=DONE).update(state=DONE, cancelled=True)
    # Who appends holds the stream's lock: wait for each, in the order that all keep.
    for stream in _open_streams(session_id):
        rows(Stream).filter(pk=stream).update(closed=True)
    _erase_steps(session_id)
    erase(rows(Ask).filter(call__session=session_id))
    erase(rows(Call).filter(session=session_id))
    erase(rows(Event).filter(stream__session=session_id))
    erase(rows(Stream).filter(session=session_id))
    erase(rows(Subscription).filter(session=session_id))
    erase(rows(Session).filter(pk=session_id))


def _open_streams(session_id: int) -> Sequence[int]:
    found = rows(Stream).filter(session=session_id, closed=False).order_by("pk")
    return list(found.values_list("pk", flat=True))


def _erase_steps(session_id: int) -> None:
    calls = rows(Call).filter(session=session_id).values_list("pk", flat=True)
    if names := [f"c{call}" for call in calls]:
        erase(rows(Step).filter(call__in=names))


# Subscriptions.


@one_transaction
def subscribe(session: Session, uri: str, place: str = "", scopes: list[str] | None = None) -> None:
    """``place`` is which row it is, if it is one; ``scopes`` are of the token that asks for it.

    Raises ``Busy`` when there are too many.
    """
    lock(session.pk)
    digest, theirs = digest_of(uri), rows(Subscription).filter(session=session.pk)
    known = {"visible": True, "place": place, "scopes": scopes}
    if theirs.filter(digest=digest).update(**known):
        return
    if not _counted(session.pk):
        raise Busy(f"A session subscribes to at most {SUBSCRIPTIONS} resources.")
    rows(Subscription).create(session_id=session.pk, digest=digest, uri=uri, **known)


def _counted(session_id: int) -> int:
    free = rows(Session).filter(pk=session_id, subscriptions__lt=SUBSCRIPTIONS)
    return free.update(subscriptions=F("subscriptions") + 1)


def unsubscribe(session: Session | int, uri: str) -> None:
    _unsubscribe(session if isinstance(session, int) else session.pk, uri)


@one_transaction
def _unsubscribe(session_id: int, uri: str) -> None:
    lock(session_id)
    if erase(rows(Subscription).filter(session=session_id, digest=digest_of(uri))):
        rows(Session).filter(pk=session_id).update(subscriptions=F("subscriptions") - 1)


def uris(session: Session) -> list[str]:
    found = rows(Subscription).filter(session=session.pk).order_by("pk")
    return list(found.values_list("uri", flat=True))


def scopes(session: Session) -> list[list[str] | None]:
    """Of the tokens in whose names the session hears news: its first, and who subscribed."""
    found = rows(Subscription).filter(session=session.pk, scopes__isnull=False)
    return [session.scopes, *found.values_list("scopes", flat=True).distinct()]


def subscribers(server: str, uri: str) -> list[int]:
    """The living sessions of a server that subscribe to a URI."""
    found = rows(Subscription).filter(
        digest=digest_of(uri),
        session__server=server,
        session__last_seen__gte=oldest(clock.now()),
    )
    return list(found.values_list("session_id", flat=True))


class Subscribed(NamedTuple):
    """That a living session wants to know of a URI, and whether its owner could see it."""

    id: int
    session: int
    owner: str
    user: str | None
    scopes: list[str] | None
    host: str
    uri: str
    visible: bool
    place: str


class Living(NamedTuple):
    """A session that has shaken hands, whose it is, and at which host it began."""

    session: int
    owner: str
    user: str | None
    scopes: list[str] | None
    host: str


def subscribed(
    server: str,
    uris: Collection[str],
    places: Collection[str] = (),
    models: Collection[str] = (),
    users: Collection[str] = (),
    *,
    every: bool = False,
) -> list[Subscribed]:
    """Who subscribes to these, and what these users subscribe to; "" is all who have a name.

    Sessions that are idle for too long do not.
    """
    wanted = Q(digest__in=[digest_of(uri) for uri in uris]) | Q(place__in=list(places))
    for model in models:
        wanted |= Q(place__startswith=f"{model} ")
    if users:
        named = Q(session__user__isnull=False)
        wanted |= named if "" in users else named & Q(session__user__in=list(users))
    found = rows(Subscription).filter(
        Q() if every else wanted,
        session__server=server,
        session__last_seen__gte=oldest(clock.now()),
    )
    of = ("session__owner", "session__user", "session__scopes", "session__host")
    columns = ("pk", "session_id", *of, "uri", "visible", "place", "scopes")
    return [_by_its_token(*one) for one in found.order_by("session_id", "pk").values_list(*columns)]


def _by_its_token(*columns: Any) -> Subscribed:
    """It is seen with the token that asked for it, which may be broader than the session's."""
    *of, scopes = columns
    found = Subscribed(*of)
    return found if scopes is None else found._replace(scopes=scopes)


def owners(server: str) -> list[Living]:
    """The same sessions as ``living``, and whose they are."""
    found = rows(Session).filter(
        server=server, initialized=True, last_seen__gte=oldest(clock.now())
    )
    columns = ("pk", "owner", "user", "scopes", "host")
    return [Living(*one) for one in found.order_by("pk").values_list(*columns)]


def saw(seen: Sequence[tuple[int, bool, str]]) -> None:
    """Keep of subscriptions whether they are seen now, and where."""
    alike: dict[tuple[bool, str], list[int]] = {}
    for id, visible, place in seen:
        alike.setdefault((visible, place), []).append(id)
    for (visible, place), ids in alike.items():
        rows(Subscription).filter(pk__in=ids).update(visible=visible, place=place)


def revisions(ids: Sequence[int]) -> dict[int, str]:
    """Which revision each of these sessions speaks."""
    return dict(rows(Session).filter(pk__in=ids).values_list("pk", "revision"))
