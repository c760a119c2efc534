"""
SIGTERM, SIGINT and SIGBREAK as bytes on a socket, for a server that may be blocked.

``signal.set_wakeup_fd`` makes CPython's C code write the byte, even while the main thread executes
no Python code. A Python handler does the same, in case other code replaces the wake-up descriptor.
A forked child gets the earlier handlers back while signals are blocked, so that no signal to the
child reaches this process's socket.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

NAMES = ("SIGTERM", "SIGINT", "SIGBREAK")  # SIGBREAK exists only on Windows
SIGNALS = {getattr(signal, name) for name in NAMES if hasattr(signal, name)}


class SignalSocket:
    """Send signals as bytes to a socket and call ``ring``, until ``give_back`` is called.

    Outside the main thread this does nothing.
    """

    def __init__(self, socket: int, ring: Callable[..., None]) -> None:
        self._before: dict[Any, Any] = {}
        self._held = threading.local()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, ring) for number in SIGNALS}
            self._wakeup = signal.set_wakeup_fd(socket, warn_on_full_buffer=False)
            self._guard_forks()

    def give_back(self) -> None:
        """Restore the earlier handlers and wake-up descriptor."""
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

    # Signals are blocked during a fork: one that arrived in the child before its handlers are
    # restored would be written to the socket that it shares with the parent.

    def _hold(self) -> None:
        self._held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _let(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held.mask)

    def _begin_child(self) -> None:
        self.give_back()
        self._let()
