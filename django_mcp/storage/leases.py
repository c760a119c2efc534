"""Leases and heartbeats: which worker processes are alive and may own calls.

Each process has a row with a counter, which a heartbeat thread increments. No clocks of different
processes are compared. A process counts as dead if another process reads the same counter for a
whole lease, measured by the monotonic clock of the reader, and no read failed meanwhile.

A process that could not write its heartbeat for two thirds of a lease stops its calls itself,
before others may take them over. It claims no call until it has a new id, under which it takes
over the calls of its former ids without waiting.

A lease is measured from the beginning of a heartbeat by its owner, and from the end of a read by
the others. So an owner whose event loop runs stops before the others take over, however slow the
queries are. The fencing token of a call stops the writes of a suspended process or a tool's thread.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping

from django.db import connections
from django.db.models import F

from ..exceptions import LeaseDoubtful
from ..models import Process
from ..runtime.runtime import environment
from .databases import erase, rows

LEFT = -1  # the counter of a process that shut down and left calls


def begin(id: str) -> None:
    """Insert the row of a process."""
    rows(Process).create(id=id)


def beat(id: str) -> bool:
    """Increment the counter. Return False if the process was declared dead or has shut down."""
    return bool(rows(Process).filter(pk=id).exclude(beats=LEFT).update(beats=F("beats") + 1))


def beats() -> dict[str, int]:
    """Return the counters of all processes."""
    return dict(rows(Process).values_list("pk", "beats"))


def leave(id: str) -> None:
    """Mark a process as shut down, so that others take over its calls without waiting."""
    rows(Process).filter(pk=id).update(beats=LEFT)


def end(id: str) -> None:
    """Delete the row of a process. Others take over the calls that it owns."""
    erase(rows(Process).filter(pk=id))


logger = logging.getLogger("django_mcp.storage")
LEASE_SECONDS = 15.0
BEATS_PER_LEASE, ATTEMPTS_PER_LEASE = 5, 20  # heartbeats, and attempts while heartbeats fail
MAX_FORMER_IDS = 10  # ids that a process remembers after it gave them up


class Lease:
    """The lease of this process, which lets it own calls, and the thread of its heartbeat."""

    def __init__(self) -> None:
        # Held while a lease begins, query included: two event loops that call ``hold`` at once
        # must get the same id. The heartbeat thread does not take it.
        self._lock = threading.Lock()
        # Held while the attributes below change. Otherwise a late heartbeat of a former id could
        # change or give up a lease that begins at that moment. It is not held during a query, so
        # the heartbeat and event loops never wait for the database here.
        self._change_lock = threading.Lock()
        self._id = ""
        self._beaten_at = 0.0  # when the last heartbeat that was stored began (monotonic clock)
        # The ids that this process gave up. Threads read it without a lock: it is never changed
        # in place.
        self.former: tuple[str, ...] = ()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self) -> str:
        """Return the id under which this process may claim calls. Begin a lease if there is none.

        It may run queries. Raise ``LeaseDoubtful`` if the last heartbeat is too old.
        """
        with self._lock:
            if self.is_doubtful:
                raise LeaseDoubtful(LeaseDoubtful.__doc__)
            id = self._id  # ``abandon`` may clear the attribute meanwhile
            return id or self._begin()

    def _begin(self) -> str:
        id, began = uuid.uuid4().hex, time.monotonic()
        begin(id)
        with self._change_lock:
            self._beaten_at, self._id = began, id
            is_beating = self._thread is not None and self._thread.is_alive()
            if not is_beating:
                environment().start_background(self._start)
        return id

    def _start(self) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._beat_on, args=(self._ending,), name="mcp-heartbeat", daemon=True
        )
        self._thread.start()

    @property
    def is_doubtful(self) -> bool:
        """Whether the last heartbeat is older than two thirds of a lease."""
        is_late = time.monotonic() - self._beaten_at > LEASE_SECONDS * 2 / 3
        return bool(self._id) and self._thread is not None and is_late

    def abandon(self, only: str | None = None) -> None:
        """Give up the id, so that the next ``hold`` begins a new one.

        ``only`` is an id: another one, which has replaced it meanwhile, is kept. This does not wait
        for the heartbeat thread, which may be stuck in the database. The next lease starts another
        thread.
        """
        with self._change_lock:
            if only is not None and only != self._id:
                return
            if self._id:
                self.former = (*self.former, self._id)[-MAX_FORMER_IDS:]
            self._id = ""
            self._ending.set()
            self._thread = None

    def _beat_on(self, ending: threading.Event) -> None:
        pause = LEASE_SECONDS / BEATS_PER_LEASE
        try:
            while not ending.wait(pause):
                pause = LEASE_SECONDS / (BEATS_PER_LEASE if self._beat() else ATTEMPTS_PER_LEASE)
        finally:
            connections.close_all()

    def _beat(self) -> bool:
        """Write a heartbeat. Return whether the database could be reached."""
        id, began = self._id, time.monotonic()
        try:
            for connection in connections.all(initialized_only=True):
                # ``CONN_MAX_AGE`` is not applied. With a pool, a heartbeat that returned its
                # connection might have to wait for one that tools hold, and other workers would
                # take over the calls of this one.
                if connection.connection is not None and not connection.is_usable():
                    connection.close()
            alive = not id or beat(id)
        except Exception as error:
            logger.warning("The heartbeat could not be stored: %s", error)
            return False
        with self._change_lock:
            if id != self._id or self._ending.is_set():
                return True  # the lease was given up meanwhile, and the result is of the former one
            if alive:
                self._beaten_at = began
                return True
        logger.error(
            "Lease lost: other processes take this one for dead. It continues under a new id"
        )
        self.abandon(only=id)
        return True

    def end(self, *, holding: bool = False) -> None:
        """End the lease. Delete the row, or with ``holding`` mark it as left.

        ``holding`` means that this process still owns calls. Another process deletes the row and
        takes over the calls, without waiting until the lease has expired.
        """
        thread, self._thread = self._thread, None
        self._ending.set()
        if thread is not None and thread.is_alive():  # joining an unstarted thread raises
            thread.join(timeout=1)
        if (id := self._id) and holding:
            leave(id)
        self._id = ""  # after ``leave``: if that fails, the caller retries with the same id
        if id and not holding:
            end(id)

    def forget(self) -> None:
        """Reset in a forked child, which has neither the lease nor the thread of its parent."""
        self.__init__()  # type: ignore[misc]


class HeartbeatObserver:
    """Detect dead processes: those whose counter has not changed for a whole lease."""

    def __init__(self) -> None:
        # The counter of each process, and when it was read first (monotonic clock).
        self._counters: dict[str, tuple[int, float]] = {}

    def dead(self, beats: Mapping[str, int], asked: float | None = None) -> list[str]:
        """Return the processes whose counter has not changed for a lease, and those that shut down.

        ``asked`` is the monotonic time before the query, so that a slow query does not count as
        time without a heartbeat.
        """
        now = time.monotonic()
        asked = now if asked is None else asked
        before = self._counters
        self._counters = {
            id: before[id] if id in before and before[id][0] == count else (count, now)
            for id, count in beats.items()
        }
        return [
            id
            for id, (count, since) in self._counters.items()
            if count == LEFT or asked - since >= LEASE_SECONDS
        ]

    def reset(self) -> None:
        """Start anew after a failed poll: the processes may have been alive meanwhile."""
        self._counters.clear()


lease = Lease()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lease.forget)
