"""
Cache of kill switches: the declarations and servers that are switched off or limited.

Administrators add the rows. Without a rate a row switches off, and ``find`` returns it. A row with
a rate limits calls: it hides nothing, ``limits`` returns it, and ``calls.throttling`` counts.

A switch applies to all callers, to the members of a group, to the callers of one OAuth client, or
to the members of a group who use that client. While a switch of a server names a group,
``may_query`` is true: then ``find`` may query the groups of the user, once for each loaded user.

Call ``arefresh`` (event loop) or ``refresh`` (thread) before ``find``. They run one query if the
cache is older than half a second. If the database cannot be read, the cache stays valid. If it
never could be read, the error is raised, so that nothing can be used. Changes of switches in this
process are visible at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import DatabaseError

from ..runtime import threads
from ..runtime.runtime import Service, environment
from .group_membership import group_keys

if TYPE_CHECKING:
    from .principal import Principal

CACHE_SECONDS = 0.5  # for which the cache is valid
NEVER = float("-inf")
EVERYTHING = ""  # the name of a whole server's switch
logger = logging.getLogger("django_mcp")


class ActiveKillSwitch(NamedTuple):
    """What is switched off or limited, and for which callers: a row of ``models.Switch``.

    ``thing`` is "" for the whole server. ``group`` is the primary key of a group as text, or "" for
    all users. ``client`` is the client id of an OAuth client, or "" for all clients. ``rate`` is a
    valid rate such as "10/min" if the row limits calls, or "" if it switches off.
    """

    server: str
    thing: str = EVERYTHING
    group: str = ""
    client: str = ""
    rate: str = ""

    def applies_to(self, principal: Principal) -> bool:
        """Whether it applies to this caller. May query the groups of the user."""
        # The client first, because comparing it takes no query.
        if self.client and self.client != (principal.auth.client_id if principal.auth else ""):
            return False
        return not self.group or _is_member(principal, self.group)


def _is_member(principal: Principal, group: str) -> bool:
    if not principal.is_authenticated:
        return False
    groups = group_keys(principal.user)
    # If the groups of a user cannot be known, the switch applies: it must not fail open.
    return groups is None or group in groups


@dataclass(frozen=True, slots=True)
class SwitchTable:
    """All switches. It is replaced as a whole, so reading needs no lock.

    ``switches`` are those without a rate, by server and thing. ``limits`` are the others, by server
    only: most projects have none, and then one look-up finds that out.
    """

    switches: Mapping[tuple[str, str], tuple[ActiveKillSwitch, ...]] = field(default_factory=dict)
    limits: Mapping[str, tuple[ActiveKillSwitch, ...]] = field(default_factory=dict)
    servers_with_groups: frozenset[str] = frozenset()
    servers_with_audiences: frozenset[str] = frozenset()

    @classmethod
    def from_switches(cls, switches: Iterable[ActiveKillSwitch]) -> SwitchTable:
        # ``find`` takes the first that applies: those for all callers first, and last those that
        # name a group, because these may query.
        known = sorted(switches, key=lambda one: (one.server, one.thing, one.group, one.client))
        rows = [one for one in known if not one.rate]
        grouped = groupby(rows, lambda one: (one.server, one.thing))
        limits = groupby((one for one in known if one.rate), lambda one: one.server)
        return cls(
            {key: tuple(some) for key, some in grouped},
            {server: tuple(some) for server, some in limits},
            frozenset(one.server for one in rows if one.group),
            frozenset(one.server for one in rows if one.group or one.client),
        )


NOTHING_OFF = SwitchTable()

# Functions that read the switches. The app fills this list when it is ready.
source: list[Callable[[], frozenset[ActiveKillSwitch]]] = []


class PendingRead:
    """The query of one event loop that refreshes the cache. All tasks that wait share it."""

    task: asyncio.Task[None] | None = None


_pending_read = Service(PendingRead)


class SwitchCache:
    """The cache of this process. Reading it needs no lock.

    ``_lock`` is held during the query: when the cache expires, one of many threads runs it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Empty the cache."""
        self._table = NOTHING_OFF
        self._until, self._is_changed = NEVER, False

    def find(self, server: str, thing: str, principal: Principal) -> ActiveKillSwitch | None:
        """Return the switch by which a thing or its server is off for this caller, or None.

        It may query the database if ``may_query(server)``.
        """
        switches = self._table.switches
        if not switches:
            return None
        for name in (EVERYTHING, thing):
            for switch in switches.get((server, name), ()):
                if switch.applies_to(principal):
                    return switch
        return None

    def limits(self, server: str) -> tuple[ActiveKillSwitch, ...]:
        """Return the limits of a server and its declarations, for whatever callers."""
        return self._table.limits.get(server, ())

    def may_query(self, server: str) -> bool:
        """Whether a switch of this server names a group, so that ``find`` may need a thread."""
        return server in self._table.servers_with_groups

    def has_audiences(self, server: str) -> bool:
        """Whether a switch of this server applies to some callers only.

        Then callers see different public lists, so shared caches must not store them.
        """
        return server in self._table.servers_with_audiences

    async def arefresh(self) -> None:
        """Update the cache if it is stale, by one query in a thread for all tasks of this loop."""
        while self._is_stale():  # a switch may have changed during the query: then read again
            pending = _pending_read()
            if pending.task is None or pending.task.done():
                read = threads.lookups.run(self.refresh)
                pending.task = asyncio.get_running_loop().create_task(read)
            # A cancelled waiter must not cancel the query of the others.
            await asyncio.shield(pending.task)
            # Do not compare the time again. If the loop resumes this task late, the cache has
            # expired, and under load it would query for ever.
            if not self._is_changed:
                return

    def refresh(self) -> None:
        """Update the cache if it is stale. Call it in a thread that may run queries."""
        if not self._is_changed and monotonic() < self._until:
            return
        with self._lock:
            if self._is_stale():
                self._read()

    def mark_stale(self, **kwargs: Any) -> None:
        """Mark the cache as stale, because a switch was changed in this process."""
        self._is_changed = True

    def _is_stale(self) -> bool:
        # Other processes change switches without a signal in this one, so the cache expires.
        return self._is_changed or (monotonic() >= self._until and environment().is_shared())

    def _read(self) -> None:
        # Before the query: a switch that changes during it must make the cache stale again.
        self._is_changed = False
        try:
            self._table = SwitchTable.from_switches(
                frozenset().union(*(known() for known in source))
            )
        except DatabaseError:
            if self._until == NEVER:
                raise
            logger.exception("The kill switches cannot be read; the last ones stay in use")
        self._until = monotonic() + CACHE_SECONDS


cache = SwitchCache()
find, limits = cache.find, cache.limits
may_query, has_audiences = cache.may_query, cache.has_audiences
refresh, arefresh = cache.refresh, cache.arefresh
mark_stale, forget = cache.mark_stale, cache.forget
