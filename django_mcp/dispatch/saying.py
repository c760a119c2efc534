"""
What a call says while it works: progress and log messages.

Rule: progress only for a token the client gave, and only upwards; a log
message only at the level the client asked for; both bounded, and neither ever
delays or fails the call.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from ..protocol.events import Call
from ..protocol.jsonrpc import JSON
from ..protocol.revisions import LOG_LEVELS, encode_notification
from . import limits

logger = logging.getLogger("django_mcp")
MAX_MESSAGE = 100_000  # characters of one message


class Saying:
    """The voice of one call: ``send`` takes a whole message, from any thread.

    ``level`` gives the least severe level to send, or None for none at all.
    """

    def __init__(
        self,
        call: Call,
        owner: tuple[str, ...],
        send: Callable[[JSON], None],
        level: Callable[[], str | None],
        high_water: float | None = None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._call, self._owner, self._send, self._level = call, owner, send, level
        self.high_water, self.release = high_water, release
        self._lock = threading.Lock()

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        if self._call.progress_token is None:
            return
        if not _is_finite(done):
            logger.warning("Progress of %r is no progress; left out", done)
            return
        params: JSON = {"progressToken": self._call.progress_token, "progress": done}
        if total is not None and _is_finite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)[:MAX_MESSAGE]
        with self._lock:  # the threads of one call speak in turn
            self._rise(done, params)

    def _rise(self, done: float, params: JSON) -> None:
        """The progress value MUST increase with each notification (utilities/progress)."""
        if self.high_water is None or done > self.high_water:
            self.high_water = done
            self._notify("progress", "notifications/progress", params)

    def log(self, level: str, data: Any, name: str | None) -> None:
        if level not in LOG_LEVELS:
            raise ValueError(f"There is no level {level!r}; there are: {', '.join(LOG_LEVELS)}.")
        if not self._wanted(level):
            return
        params: JSON = {"level": level, "data": _plain(data)}
        if name is not None:
            params["logger"] = str(name)
        self._notify("log", "notifications/message", params)

    def _wanted(self, level: str) -> bool:
        least = self._level()
        return least is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(least)

    def _notify(self, kind: str, method: str, params: JSON) -> None:
        if limits.wait(kind, *self._owner):
            logger.debug("Too much %s from %s; left out", kind, self._call.method)
            return
        message = encode_notification(self._call.revision, method, params)
        if message is not None:
            self._send(message)


def _is_finite(number: Any) -> bool:
    real = isinstance(number, int | float) and not isinstance(number, bool)
    try:
        return real and math.isfinite(number)
    except OverflowError:  # an integer beyond all measure
        return False


def _plain(data: Any) -> Any:
    """``data`` as JSON; what has none is written as text, what is too long is cut."""
    try:
        text = json.dumps(data, default=str, ensure_ascii=False)
    except Exception:  # odd keys, a circle, or a text that fails: a log message fails no call
        text = json.dumps(_text(data), ensure_ascii=False)
    if len(text) > MAX_MESSAGE:
        return text[:MAX_MESSAGE] + "…"
    return json.loads(text, parse_constant=lambda name: None)


def _text(data: Any) -> str:
    try:
        return str(data)
    except Exception:
        return f"<{type(data).__name__}>"
