"""
What changed, told to whoever listens in this process.

Rule: a bulletin names what changed and carries nothing of it; whoever
passes it on looks afresh what the listener may see.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

from .bulletins import Bulletin

logger = logging.getLogger("django_mcp")
LISTS = ("tools", "prompts", "resources")


class Listener(Protocol):
    def hear(self, server: str, news: Bulletin) -> None:
        """Called from any thread; returns at once."""
        ...


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
_lock = threading.Lock()


def listen(listener: Listener) -> None:
    with _lock:
        _listeners.add(listener)


def stop_listening(listener: Listener) -> None:
    with _lock:
        _listeners.discard(listener)


def is_heard() -> bool:
    return bool(_listeners)


def spread(server: str, news: Bulletin) -> None:
    """Tell every listener of this process, now."""
    with _lock:
        listeners = list(_listeners)
    for listener in listeners:
        try:
            listener.hear(server, news)
        except Exception:  # whoever announces has nothing to do with it
            logger.exception("%s did not hear an announcement", listener)
