"""
Which process works on what: each beats on a row of its own, and watches the others.

Rule: nobody compares clocks. A process is dead when an observer saw the same
counter for a whole lease, on its own monotonic clock, with no failed look in
between. One that could not beat for two thirds of a lease holds nothing any
more, before anybody else may think so.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping

from django.db import connections

from .. import threads
from . import processes

logger = logging.getLogger("django_mcp")
LEASE = 15.0  # seconds


class Lease:
    """This process's claim to the calls that it works on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id, self._beaten = "", 0.0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self) -> str:
        """The name of this process, under which it may claim calls. Asks the database."""
        with self._lock:
            if not self._id or self._is_rolled_back():
                self._begin()
            return self._id

    def _is_rolled_back(self) -> bool:
        """Whether its row is gone with the transaction of a test, where nothing beats."""
        return threads.is_adopted() and self._id not in processes.beats()

    def _begin(self) -> None:
        id = uuid.uuid4().hex
        processes.begin(id)
        self._id, self._beaten = id, time.monotonic()
        if not threads.is_adopted() and (self._thread is None or not self._thread.is_alive()):
            self._start()

    def _start(self) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._beat_on, args=(self._ending,), name="mcp-heartbeat", daemon=True
        )
        self._thread.start()

    @property
    def is_doubtful(self) -> bool:
        """Whether others may soon think that this process is dead."""
        late = time.monotonic() - self._beaten > LEASE * 2 / 3
        return bool(self._id) and self._thread is not None and late

    def abandon(self) -> None:
        """What is held under this name is nobody's; from now on another is used."""
        with self._lock:
            self._id = ""

    def _beat_on(self, ending: threading.Event) -> None:
        try:
            while not ending.wait(LEASE / 3):
                self._beat()
        finally:
            connections.close_all()

    def _beat(self) -> None:
        id = self._id
        try:
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            alive = not id or processes.beat(id)
        except Exception:
            logger.warning("The heartbeat could not be written", exc_info=True)
            return
        if alive:
            self._beaten = time.monotonic()
        else:
            logger.error("This process was taken for dead, and begins anew")
            self.abandon()

    def end(self, *, holding: bool = False) -> None:
        """Beat no more. What is still held may be taken over at once."""
        thread, self._thread = self._thread, None
        self._ending.set()
        if thread is not None:
            thread.join(timeout=1)
        id, self._id = self._id, ""
        if id and holding:
            processes.leave(id)
        elif id:
            processes.end(id)

    def forget(self) -> None:
        """In a child of this process nothing of it holds."""
        self.__init__()  # type: ignore[misc]


class Observer:
    """Tells which processes are dead, from what it sees of their counters."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, beats: Mapping[str, int]) -> list[str]:
        """Those whose counter has not moved for a whole lease, and those that said so."""
        now = time.monotonic()
        self._seen = {id: self._since(id, count, now) for id, count in beats.items()}
        found = self._seen.items()
        return [id for id, (c, since) in found if c == processes.LEFT or now - since >= LEASE]

    def _since(self, id: str, count: int, now: float) -> tuple[int, float]:
        before = self._seen.get(id)
        return before if before is not None and before[0] == count else (count, now)

    def blind(self) -> None:
        """A look has failed: what was seen before proves nothing."""
        self._seen.clear()


lease = Lease()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lease.forget)
