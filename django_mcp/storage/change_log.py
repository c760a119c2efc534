"""Change log: record changes of rows, number them, and track which sessions were notified.

Each database with registered models has a table of changes. A change is inserted without a number
in the transaction that makes it, so that saving never waits for another transaction. (Primary keys
do not have the order of commits: a reader with a key as its cursor would miss a change with a lower
key that is committed later.) A reader gives numbers to the changes that it can see, under the lock
of a counter row (``LAST``). So a lower number was visible earlier, and a reader that keeps the last
number as its cursor misses nothing. A batch shares one number and is read whole.

Delivery (``BroadcastCursor`` rows): one process claims a page of changes and notifies sessions in
the order of their ids, a few in each transaction. The cursor is written in the same transaction, so
a process that continues skips no session and notifies none twice. A process that lost the claim
cannot write.

Visibility (``VisibilitySnapshot`` rows): digests of the URIs that each principal could see in
lists, so that it is notified when a row disappears. They are stored in the transaction that
completes a page, and deleted with the last session of the principal.

Interest (``Interest`` rows): the models whose changes anybody follows. Processes that save cache
them for a second, so a new follower waits until all caches have expired. They read them in a thread
and on a connection of this app. A process that cannot read them records all changes.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, OperationalError, connections, models, router, transaction
from django.db.models import Exists, F, Min, OuterRef, Q

from ..conf import settings
from ..models import (
    BroadcastCursor,
    Change,
    Interest,
    Process,
    Session,
    Subscription,
    VisibilitySnapshot,
    sources,
)
from ..runtime import outages, threads
from . import databases, sessions, streams
from .databases import (
    LOCKS,
    codes,
    digest_of,
    erase,
    is_there,
    one_transaction,
    own_queries,
    rows,
    unlocked,
)
from .jobs import BROKEN, is_break, run_or_disconnect

T = TypeVar("T")
# Kinds of changes, and what the subject of each is.
ROW = "row"  # one row: its keys, by the label of each registered model that it is an instance of
ROWS = "rows"  # any rows of these models
# Announced by the project's code, for a server or all.
URI, LIST, ELICITATION = "uri", "list", "elicitation"
OF_ONE = "of one"  # any of these, for the clients of one server
USER = "user"  # the user whose permissions changed, or ``ALL_USERS``
GROUP = "group"  # the group whose members' permissions changed
CREDENTIALS = "credentials"  # the user whose streams and calls may have to end, or ``ALL_USERS``
ALL_USERS = ""  # the subject in place of the key of a user
# Primary keys of two rows that are no changes: the number given last, and the highest number of
# which changes were deleted.
LAST, FLOOR = -1, -2
CHANGES_PER_NUMBER = 500  # changes that get one number
CHANGES_LIFETIME = timedelta(hours=1)  # for which a process can continue from an old cursor
MAX_CHANGES_PER_DATABASE = 1_000_000
CHANGES_PER_STATEMENT = 500  # rows deleted or inserted at once
MAX_BATCHES_PER_PRUNE = 1_000  # batches numbered before old changes are deleted
MISSING_TABLE_RETRY_SECONDS = 60.0  # until a database without the table is checked again
UNREACHABLE_RETRY_SECONDS = 5.0  # until a database that could not be reached is tried again
_ready: dict[str, float] = {}  # by alias: until when ``_lacking`` is valid
_away: dict[str, float] = {}  # by alias: until when a database is not tried after a failure
_lacking: set[str] = set()  # aliases of databases without the table
logger = logging.getLogger("django_mcp.storage")


class ChangeLogState(NamedTuple):
    """The state of a change log.

    ``last`` is the last number, ``floor`` the highest number of which changes were deleted, and
    ``waiting`` are the primary keys of changes that have no number yet.
    """

    last: int
    floor: int
    waiting: Sequence[int] = ()


class NumberedChange(NamedTuple):
    """A numbered change."""

    seq: int
    kind: str
    subject: Any


class Page(NamedTuple):
    """The changes after a number, up to ``until``. ``is_whole`` if none of them was deleted."""

    until: int
    changes: Sequence[NumberedChange]
    is_whole: bool


# Databases.


def aliases() -> set[str]:
    """Return the databases that hold changes: those of followed rows, and the session database."""
    return {alias for alias in {settings.DATABASE, *model_databases()} if carries(alias)}


def model_databases() -> set[str]:
    """Return the databases to which registered models, users and groups are written."""
    return {router.db_for_write(model) for source in sources for model in source()}


def carries(alias: str) -> bool:
    """Whether the database routers allow the table of changes in this database."""
    return router.allow_migrate_model(alias, Change)


def ready_databases() -> list[str]:
    """Return the aliases of databases that have the table. Log an error for each that lacks it."""
    return sorted(alias for alias in aliases() if _run_if_reachable(alias, is_ready))


def each(work: Callable[[str], T]) -> dict[str, T | None]:
    """Call ``work`` with the alias of each database that has the table, and return its results.

    The result is None for a database that cannot be reached or is locked. The others still work.
    """
    results = {
        alias: _run_if_reachable(alias, partial(_if_ready, work)) for alias in sorted(aliases())
    }
    return {alias: result for alias, result in results.items() if alias not in _lacking}


def number_all_changes() -> dict[str, ChangeLogState]:
    """Number what is visible, and return the state of each database that can be reached."""
    return {alias: state for alias, state in each(number_changes).items() if state is not None}


def _if_ready(work: Callable[[str], T], alias: str) -> T | None:
    if not is_ready(alias):
        return None
    found = work(alias)
    _away.pop(alias, None)
    return found


def _run_if_reachable(alias: str, work: Callable[[str], T]) -> T | None:
    """Return ``work(alias)``, or None if the database is away or locked."""
    if _away.get(alias, 0.0) > time.monotonic():
        return None
    try:
        return run_or_disconnect(work, alias)
    except BROKEN as error:
        _note_failure(alias, error)
        return None


def _note_failure(alias: str, error: Exception) -> None:
    """Skip a database for a while after an error: its timeouts would delay all others."""
    if codes(error) & LOCKS:
        logger.debug(
            "Change log not read, a transaction of the project holds a lock: database=%s", alias
        )
        return
    if is_break(error):
        outages.note_break(error, alias)
    elif alias not in _away:
        logger.warning("Changes cannot be read: database=%s error=%s", alias, error)
    _away[alias] = time.monotonic() + UNREACHABLE_RETRY_SECONDS


def is_ready(alias: str) -> bool:
    """Whether the database has the table.

    The answer is cached, for ``MISSING_TABLE_RETRY_SECONDS`` seconds if not.
    """
    if _ready.get(alias, 0.0) <= time.monotonic():
        found = has_table(alias)
        if not found and alias not in _ready:
            logger.error(
                "Table of changes is missing, migrate django_mcp there: database=%s", alias
            )
        _ready[alias] = math.inf if found else time.monotonic() + MISSING_TABLE_RETRY_SECONDS
        _lacking.discard(alias) if found else _lacking.add(alias)
    return alias not in _lacking


def has_table(alias: str) -> bool:
    """Whether the database exists and has the table. Runs queries."""
    if not is_there(alias):
        return False
    connection = connections[alias]
    with connection.cursor() as cursor:
        return Change._meta.db_table in connection.introspection.table_names(cursor)


def _rows(alias: str) -> models.QuerySet[Change]:
    return Change._default_manager.using(alias)


# Writing.


def record(alias: str, *changes: tuple[str, Any]) -> None:
    """Insert changes, each a kind and a subject, on the connection of the caller."""
    # ``bulk_create`` would open a transaction in the code of the project. ``_insert`` sends the
    # statement only.
    instances: list[Any] = [Change(kind=kind, subject=subject) for kind, subject in changes]
    fields = [field for field in Change._meta.concrete_fields if not field.primary_key]
    with own_queries():
        for start in range(0, len(instances), CHANGES_PER_STATEMENT):
            insert: Any = _rows(alias)._insert  # type: ignore[attr-defined]
            insert(instances[start : start + CHANGES_PER_STATEMENT], fields, using=alias)


# Numbering.


def read_state(alias: str) -> ChangeLogState:
    """Return the state of a change log, in one query."""
    # The rows ``LAST`` and ``FLOOR``, and the changes without a number.
    wanted = _rows(alias).filter(Q(pk__lt=0) | Q(seq=None)).order_by("pk")
    pairs = list(wanted.values_list("pk", "seq")[: CHANGES_PER_NUMBER + 2])
    marks = {pk: seq or 0 for pk, seq in pairs if pk < 0}
    waiting = [pk for pk, seq in pairs if seq is None][:CHANGES_PER_NUMBER]
    return ChangeLogState(marks.get(LAST, 0), marks.get(FLOOR, 0), waiting)


def number_changes(alias: str) -> ChangeLogState:
    """Number what is visible, at most one batch, and return the state after that."""
    state = read_state(alias)
    if not state.waiting:
        return state
    _number(alias, state.waiting)
    return read_state(alias)


def _number(alias: str, ids: Sequence[int]) -> None:
    """Give one number to all of these changes. Do nothing if another process is numbering.

    The lock of the counter row is held until the commit. So numbers become visible in order.
    """
    if not _rows(alias).filter(pk=LAST).exists():
        marks = [Change(pk=pk, seq=0, kind="mark", subject="") for pk in (FLOOR, LAST)]
        _rows(alias).bulk_create(marks, ignore_conflicts=True)
    with transaction.atomic(using=alias):
        if not unlocked(_rows(alias).filter(pk=LAST)).update(seq=F("seq") + 1):
            return
        last = _rows(alias).values_list("seq", flat=True).get(pk=LAST)
        _rows(alias).filter(pk__in=ids, seq=None).update(seq=last, at=databases.now())


# Reading.


def after(alias: str, seq: int, last: int) -> Page:
    """Return the changes after ``seq``, up to ``last``, or as many whole batches as fit a page."""
    found = _rows(alias).filter(pk__gt=0, seq__gt=seq, seq__lte=last).order_by("seq", "pk")
    columns: Any = found.values_list("seq", "kind", "subject")
    read = [NumberedChange(*one) for one in columns[: CHANGES_PER_NUMBER + 1]]
    if len(read) > CHANGES_PER_NUMBER:
        read = [one for one in read if one.seq < read[-1].seq]
        last = read[-1].seq
    # The floor is read last: changes that are deleted after this were read above.
    floor = _rows(alias).filter(pk=FLOOR).values_list("seq", flat=True).first() or 0
    return Page(last, read, floor <= seq)


# Deleting.


def prune_changes(alias: str, now: datetime) -> int:
    """Delete old changes, and the oldest beyond the limit. Return how many were deleted."""
    # Without clients nobody numbers changes, and changes without a number are not deleted.
    for _ in range(MAX_BATCHES_PER_PRUNE):
        if not number_changes(alias).waiting:
            break
    newest = _rows(alias).order_by("-pk").values_list("pk", flat=True).first() or 0
    old = _rows(alias).filter(
        Q(at__lt=now - CHANGES_LIFETIME) | Q(pk__lt=newest - MAX_CHANGES_PER_DATABASE), pk__gt=0
    )
    found: Any = old.exclude(seq=None).order_by("seq").values_list("pk", "seq")
    count = 0
    while page := list(found[:CHANGES_PER_STATEMENT]):
        count += _delete_changes(alias, [pk for pk, _ in page], page[-1][1])
    return count


def _delete_changes(alias: str, ids: Sequence[int], until: int) -> int:
    # The floor rises in the same transaction. A reader whose cursor is below it knows that its page
    # is not whole, and notifies its clients as if everything had changed.
    with transaction.atomic(using=alias):
        _rows(alias).filter(pk=FLOOR, seq__lt=until).update(seq=until)
        return int(_rows(alias).filter(pk__in=ids)._raw_delete(alias) or 0)


# Visibility.

MAX_URIS_PER_PRINCIPAL = 1_000
DIGEST_LENGTH = 12  # hex digits of a stored digest: collisions among 1,000 are unlikely
SNAPSHOTS_PER_STATEMENT = 100  # rows in one statement


class VisibleUris(NamedTuple):
    """Digests of the URIs that a principal could see in lists. ``owner`` is its key."""

    owner: str
    uris: Sequence[str]


def snapshots(names: Collection[str]) -> dict[str, Sequence[str]]:
    """Return the stored digests by the names of their rows."""
    wanted = sorted(names)
    found: dict[str, Sequence[str]] = {}
    for start in range(0, len(wanted), SNAPSHOTS_PER_STATEMENT):
        some = rows(VisibilitySnapshot).filter(
            pk__in=wanted[start : start + SNAPSHOTS_PER_STATEMENT]
        )
        found.update(some.values_list("pk", "uris"))
    return found


def compare_visible(
    before: Collection[str], uris: Iterable[str], visible: Collection[str]
) -> tuple[bool, list[str]]:
    """Return whether one of ``uris`` is visible now or was before, and the digests to store.

    ``before`` has digests, ``uris`` and ``visible`` have URIs.
    """
    digests, known, any_visible = dict.fromkeys(before), set(before), False
    for uri in uris:
        digest = digest_of(uri)[:DIGEST_LENGTH]
        any_visible |= uri in visible or digest in known
        if uri in visible:
            digests[digest] = None
        else:
            digests.pop(digest, None)
    return any_visible, list(digests)[-MAX_URIS_PER_PRINCIPAL:]


def store_snapshots(visible_uris: Mapping[str, VisibleUris]) -> None:
    """Store digests by name, within the caller's transaction. Delete rows that have none left."""
    if empty := [name for name, visible in visible_uris.items() if not visible.uris]:
        erase(rows(VisibilitySnapshot).filter(pk__in=empty))
    made = [
        VisibilitySnapshot(name=name, owner=owner, uris=uris)
        for name, (owner, uris) in visible_uris.items()
        if uris
    ]
    rows(VisibilitySnapshot).bulk_create(
        made, SNAPSHOTS_PER_STATEMENT, update_conflicts=True, update_fields=["uris"],
        unique_fields=_unique_snapshot_fields(),
    )  # fmt: skip


def _unique_snapshot_fields() -> list[str] | None:
    features = connections[settings.DATABASE].features
    return ["name"] if features.supports_update_conflicts_with_target else None


def prune_snapshots() -> int:
    """Delete what principals without a session could see. Return the number of rows."""
    has_session = Exists(rows(Session).filter(owner=OuterRef("owner")))
    names = list(rows(VisibilitySnapshot).exclude(has_session).values_list("pk", flat=True))
    pages = range(0, len(names), SNAPSHOTS_PER_STATEMENT)
    return sum(
        erase(
            rows(VisibilitySnapshot).filter(pk__in=names[start : start + SNAPSHOTS_PER_STATEMENT])
        )
        for start in pages
    )


# Delivery to sessions.


START = -1  # a cursor below every floor, so that a page after it is never whole


class ClaimLost(Exception):
    """Another process has the claim."""


class ClaimedChanges(NamedTuple):
    """A claimed page of changes: those after one number, up to another.

    ``notified`` is the id of the last session that was notified of it. ``claim`` is the fencing
    token.
    """

    name: str
    claim: int
    after: int
    until: int
    notified: int = 0


Messages = Mapping[int, Sequence[tuple[str, str]]]  # messages with their marks, by session id
Visibility = Sequence[tuple[int, bool, str]]  # id of the subscription, whether visible, its row
NO_SNAPSHOTS: Mapping[str, VisibleUris] = {}


def cursor_of(name: str, seq: int) -> BroadcastCursor:
    """Return the cursor of that name. Create it at ``seq`` if there is none."""
    return rows(BroadcastCursor).get_or_create(name=name, defaults={"seq": seq, "until": seq})[0]


# Suffix of cursor names for changes of lists. Alone, the name of the row with the last time that
# these were delivered (``restart_if_due``).
LIST_CURSOR_SUFFIX = "?lists"


def create_cursors() -> None:
    """Create the missing cursors of each database at the last change.

    If the last change is unknown, because the database cannot be reached, start before the first.
    """
    for alias, state in each(read_state).items():
        last = START if state is None else state.last
        cursor_of(alias, last)
        cursor_of(alias + LIST_CURSOR_SUFFIX, last)


def store_digest(name: str, digest: str) -> bool:
    """Store a digest under a name. Return whether another digest was stored before."""
    _, is_new = rows(BroadcastCursor).get_or_create(name=name, defaults={"holder": digest})
    others = rows(BroadcastCursor).filter(pk=name).exclude(holder=digest)
    return not is_new and bool(others.update(holder=digest))


def restart_if_due(name: str, every: float) -> bool:
    """Return whether ``every`` seconds are over. If they are, start to count anew.

    The time is stored, so of all processes only one gets True in each interval.
    """
    cursor_of(name, 0)
    now, pause = databases.now(), timedelta(seconds=every)
    # A time in the future is due too: the clock was put back.
    due = rows(BroadcastCursor).filter(pk=name).exclude(at__range=(now - pause, now + pause))
    return bool(due.update(at=now))


def claim(
    cursor: BroadcastCursor, until: int, process: str, former: Collection[str] = ()
) -> ClaimedChanges | None:
    """Claim the next page, or a page that a dead process left. Return None if another has it.

    ``former`` are ids that ``process`` had before. It continues their pages too.
    """
    if cursor.until > cursor.seq:  # a page is claimed
        is_mine = cursor.holder == process or cursor.holder in former
        if not is_mine and rows(Process).filter(pk=cursor.holder).exists():
            return None
        until = cursor.until
    # Of two processes that read the same row, the one that raises ``claim`` first wins.
    mine = rows(BroadcastCursor).filter(pk=cursor.pk, claim=cursor.claim)
    if not mine.update(claim=cursor.claim + 1, until=until, holder=process):
        return None
    return ClaimedChanges(cursor.name, cursor.claim + 1, cursor.seq, until, cursor.notified)


def reset_cursor(cursor: BroadcastCursor) -> None:
    """Reset a cursor to before the first change, because a backup was restored."""
    mine = rows(BroadcastCursor).filter(pk=cursor.pk, claim=cursor.claim)
    mine.update(claim=cursor.claim + 1, seq=START, until=START, notified=0)


@one_transaction
def deliver(
    claimed: ClaimedChanges, messages: Messages, visibility: Visibility = (),
    snapshots: Mapping[str, VisibleUris] = NO_SNAPSHOTS, *, is_last_chunk: bool = False,
    is_retry: bool = False,
) -> list[int]:  # fmt: skip
    """Notify sessions and move the cursor in one transaction. Return the streams to wake.

    ``is_last_chunk`` means that no sessions of the page are left. Only then ``snapshots`` are
    stored, because a process that continues the page needs the visibility from before it. Use
    ``is_retry=True`` to repeat it after an unknown commit. Raise ``ClaimLost`` if another process
    has the claim.
    """
    last = max(messages, default=claimed.notified)
    # The first statement locks the cursor and checks the fencing token, so a process that lost the
    # claim writes nothing.
    mine = rows(BroadcastCursor).filter(pk=claimed.name, claim=claimed.claim, seq__lt=claimed.until)
    done = {"seq": claimed.until, "notified": 0} if is_last_chunk else {"notified": last}
    if not (mine if is_last_chunk else mine.filter(notified__lt=last)).update(**done):
        if is_retry and _is_done(claimed, last, is_last_chunk=is_last_chunk):
            return []
        raise ClaimLost(ClaimLost.__doc__)
    if visibility:
        sessions.store_visibility(visibility)
    if is_last_chunk and snapshots:
        store_snapshots(snapshots)
    return streams.announce_in_transaction(messages) if messages else []


def _is_done(claimed: ClaimedChanges, last: int, *, is_last_chunk: bool) -> bool:
    """Whether the first attempt was committed."""
    mine = rows(BroadcastCursor).filter(pk=claimed.name, claim=claimed.claim)
    if is_last_chunk:
        return bool(mine.filter(seq=claimed.until).exists())
    return bool(mine.filter(notified__gte=last).exists())


# Interests.

INTERESTS_CACHE_SECONDS = 1.0  # for which a process that saves caches the interests
CACHE_MARGIN_SECONDS = 0.2  # added for the time from reading the cache to the change
INTERESTS_TIMEOUT_SECONDS = 1.0  # for which a save waits for the interests
INTERESTS_RETRY_SECONDS = 5.0  # without another attempt after they could not be read
INTERESTS_RENEWAL_SECONDS = 600.0  # after which a process renews its interests
UNCOMMITTED = timedelta(days=1)  # how far ``since`` is in the future until the insert is committed
INTEREST_LIFETIME = timedelta(hours=1)  # age after which the holder of an interest counts as dead
# Holders of the interests that sessions have: in their subscriptions, and in lists.
SESSIONS_HOLDER, LISTS_HOLDER = "", "lists"
ANYTHING = "?"  # in place of a model: changes that the project's code announces


def store_interests(holder: str, models: Collection[str]) -> float:
    """Store an interest in models. Return the seconds until no change can be missed any more.

    Until then, a process that saves may use a cache from before the interest. Raise
    ``OperationalError`` if there is no session database yet.
    """
    if not is_there(settings.DATABASE):
        raise OperationalError(f"The database {settings.DATABASE!r} is not there yet")
    now = databases.now()
    # The insert may wait for a lock and is not visible until its commit. So ``since`` is in the
    # future at first and is set below, after the commit.
    made = [
        Interest(holder=holder, model=model, since=now + UNCOMMITTED, at=now) for model in models
    ]
    rows(Interest).bulk_create(
        made, update_conflicts=True, update_fields=["at"],
        unique_fields=_unique_interest_fields(),
    )  # fmt: skip
    now, stored = databases.now(), rows(Interest).filter(model__in=models)
    stored.filter(holder=holder, since__gt=now).update(since=now)
    # If another holder has had the interest for long, all processes record the changes already.
    known = stored.values_list("model").annotate(Min("since"))
    age = min((now - since for _, since in known), default=timedelta()).total_seconds()
    wait = INTERESTS_CACHE_SECONDS + CACHE_MARGIN_SECONDS
    return wait - min(wait, max(0.0, age))


def _unique_interest_fields() -> list[str] | None:
    features = connections[settings.DATABASE].features
    return ["holder", "model"] if features.supports_update_conflicts_with_target else None


def prune_interests() -> int:
    """Delete interests that were not renewed, and return how many.

    Interests of sessions need no renewal. They are deleted when no subscription needs them.
    """
    old = rows(Interest).filter(at__lt=databases.now() - INTEREST_LIFETIME)
    needed = Exists(rows(Subscription).filter(row_ref__startswith=OuterRef("model")))
    unwanted = list(old.filter(holder=SESSIONS_HOLDER).exclude(needed).values_list("pk", flat=True))
    if not rows(Session).exists():
        unwanted += old.filter(holder=LISTS_HOLDER).values_list("pk", flat=True)
    count = erase(old.exclude(holder__in=(SESSIONS_HOLDER, LISTS_HOLDER)))
    return count + erase(
        rows(Interest).filter(pk__in=unwanted, at__lt=databases.now() - INTEREST_LIFETIME)
    )


class Watched:
    """Cache of the models that anybody follows, for the processes that save. Thread-safe."""

    def __init__(self) -> None:
        # Held while the interests are read: when the cache expires, one of many saving threads
        # reads them. The others wait, at most as long as that read may take.
        self._lock = threading.Lock()
        self._models: frozenset[str] = frozenset()
        self._is_known = False
        self._until = 0.0
        self._ready: frozenset[str] = frozenset()  # the databases that have a table of changes
        self.is_possible = True  # whether there is a table of interests

    def __call__(self, models: Collection[str]) -> bool:
        """Whether anybody follows one of these models. True if that cannot be read."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._refresh()
            return not self._is_known or not self._models.isdisjoint(models)

    def _refresh(self) -> None:
        began = time.monotonic()
        try:
            self._models = threads.interests.wait(self._read, INTERESTS_TIMEOUT_SECONDS)
            self._is_known, self._until = True, began + INTERESTS_CACHE_SECONDS
        except Exception as error:
            logger.warning("Followed models cannot be read, so all changes are recorded: %s", error)
            self._is_known, self._until = False, time.monotonic() + INTERESTS_RETRY_SECONDS

    def _read(self) -> frozenset[str]:
        found = followed_models()
        if not found and not (self._is_known and self.is_possible):
            self.is_possible = is_possible()
        if found:
            self._ready = frozenset(ready_databases())
        return found

    def is_ready(self, alias: str) -> bool:
        """Whether a database has the table of changes, so that they can be recorded there."""
        return alias in self._ready

    def forget(self) -> None:
        """Read the interests again at the next save."""
        self._until = 0.0


def followed_models() -> frozenset[str]:
    """Return the labels of all models that anybody follows: none if there is no table yet."""
    if not is_there(settings.DATABASE):
        return frozenset()
    try:
        return frozenset(rows(Interest).values_list("model", flat=True).distinct())
    except DatabaseError:
        if is_possible():
            raise
        return frozenset()


def is_possible() -> bool:
    """Whether there is a table of interests. Runs queries."""
    if not is_there(settings.DATABASE):
        return False
    connection = connections[settings.DATABASE]
    with connection.cursor() as cursor:
        return Interest._meta.db_table in connection.introspection.table_names(cursor)


watched = Watched()


if hasattr(os, "register_at_fork"):
    # A forked child may have been created while another thread of its parent held the lock.
    os.register_at_fork(after_in_child=watched.__init__)  # type: ignore[misc]
