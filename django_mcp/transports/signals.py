"""
The signals that end this process, heard while it serves.

Rule: they are heard even if Python does not come to it, by a byte that C writes, and even if
somebody else has taken C's way, by a handler. They are this process's alone: a child that is
forked gets its own back before one can reach it, and none that is sent to it is heard here.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

NAMES = ("SIGTERM", "SIGINT", "SIGBREAK")  # the last is one of Windows
SIGNALS = {getattr(signal, name) for name in NAMES if hasattr(signal, name)}


class Caught:
    """Signals, from now until ``give_back``, are bytes on a socket, and calls of ``ring``.

    Outside the main thread nothing is caught.
    """

    def __init__(self, socket: int, ring: Callable[..., None]) -> None:
        self._before: dict[Any, Any] = {}
        self._held = threading.local()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, ring) for number in SIGNALS}
            self._wakeup = signal.set_wakeup_fd(socket, warn_on_full_buffer=False)
            self._guard_forks()

    def give_back(self) -> None:
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if before:
            signal.set_wakeup_fd(self._wakeup)

    def _guard_forks(self) -> None:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._hold, after_in_parent=self._let, after_in_child=self._begin_child
            )

    def _hold(self) -> None:
        self._held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _let(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held.mask)

    def _begin_child(self) -> None:
        self.give_back()
        self._let()
