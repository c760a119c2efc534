"""
Which process works on what: each beats on a row of its own, and watches the others.

Rule: nobody compares clocks. A process is dead when an observer saw the same
counter for a whole lease, on its own monotonic clock, with no failed look in
between. One that could not beat for two thirds of a lease holds nothing any
more, before anybody else may think so, and claims nothing until it has another
name. Each measures from the moment that is the worse for itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping

from django.db import InterfaceError, connections

from .. import threads
from . import processes

logger = logging.getLogger("django_mcp")
LEASE = 15.0  # seconds
BEATS, ATTEMPTS = 5, 20  # of a lease: how often it beats, and how often while it cannot


class Doubtful(InterfaceError):
    """This process may be taken for dead: what it works on is let go of first."""


class Lease:
    """This process's claim to the calls that it works on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id, self._beaten = "", 0.0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self) -> str:
        """The name of this process, under which it may claim calls. Asks the database.

        Raises ``Doubtful``.
        """
        with self._lock:
            if self.is_doubtful:
                raise Doubtful(Doubtful.__doc__)
            if not self._id or self._is_rolled_back():
                self._begin()
            return self._id

    def _is_rolled_back(self) -> bool:
        """Whether its row is gone with the transaction of a test, where nothing beats."""
        return threads.is_adopted() and self._id not in processes.beats()

    def _begin(self) -> None:
        id, began = uuid.uuid4().hex, time.monotonic()
        processes.begin(id)
        self._beaten, self._id = began, id
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
        """What is held under this name is nobody's; from now on another is used.

        Waits for nothing: who writes the heartbeat may be stuck, and then another one will.
        """
        self._id = ""
        self._ending.set()
        self._thread = None

    def _beat_on(self, ending: threading.Event) -> None:
        pause = LEASE / BEATS
        try:
            while not ending.wait(pause):
                pause = LEASE / (BEATS if self._beat() else ATTEMPTS)
        finally:
            connections.close_all()

    def _beat(self) -> bool:
        """Whether it could be written."""
        id, began = self._id, time.monotonic()
        try:
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            alive = not id or processes.beat(id)
        except Exception as error:
            logger.warning("The heartbeat could not be written: %s", error)
            return False
        if id == self._id and not self._ending.is_set():  # else it was given up meanwhile
            self._take(alive, began)
        return True

    def _take(self, alive: bool, began: float) -> None:
        if alive:
            self._beaten = began
        else:
            logger.error("This process was taken for dead, and begins anew")
            self.abandon()

    def end(self, *, holding: bool = False) -> None:
        """Beat no more. What is still held may be taken over at once."""
        thread, self._thread = self._thread, None
        self._ending.set()
        if thread is not None and thread.is_alive():  # it may be about to start
            thread.join(timeout=1)
        if (id := self._id) and holding:
            processes.leave(id)
        self._id = ""  # not before that was said: what could not be written is tried again
        if id and not holding:
            processes.end(id)

    def forget(self) -> None:
        """In a child of this process nothing of it holds."""
        self.__init__()  # type: ignore[misc]


class Observer:
    """Tells which processes are dead, from what it sees of their counters."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, beats: Mapping[str, int], asked: float | None = None) -> list[str]:
        """Those whose counter has not moved for a whole lease, and those that said so.

        ``asked``: before the counters were looked up, so that a late answer proves no more.
        """
        now = time.monotonic()
        asked = now if asked is None else asked
        self._seen = {id: self._since(id, count, now) for id, count in beats.items()}
        found = self._seen.items()
        return [id for id, (c, since) in found if c == processes.LEFT or asked - since >= LEASE]

    def _since(self, id: str, count: int, now: float) -> tuple[int, float]:
        before = self._seen.get(id)
        return before if before is not None and before[0] == count else (count, now)

    def blind(self) -> None:
        """A look has failed: what was seen before proves nothing."""
        self._seen.clear()


lease = Lease()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lease.forget)
