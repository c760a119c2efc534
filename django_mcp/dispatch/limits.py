"""
How much one principal may do in a while: calls, completions, log lines, progress.

Rule: a token bucket per principal, server and kind, in this process; the
defaults stop a loop gone wild, not a busy agent. The specifications ask for
it: "Servers MUST rate limit tool invocations" (server/tools), and completion
(server/utilities/completion).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

from ..conf import settings

# As "number/seconds": that many at once, refilled evenly.
DEFAULTS = {
    "calls": "10000/10",
    "completions": "1000/10",
    "log": "20000/10",
    "progress": "20000/10",
}
MAX_BUCKETS = 10_000
NEVER = 86_400.0  # seconds, where a rate lets nothing pass


@dataclass(slots=True)
class Bucket:
    """What is left, and when that was so."""

    tokens: float
    at: float

    def take(self, size: float, per_second: float, now: float) -> float:
        """Take one; the seconds to wait for one if there is none, else 0."""
        self.tokens = min(size, self.tokens + (now - self.at) * per_second)
        self.at = now
        if self.tokens < 1:
            return (1 - self.tokens) / per_second if per_second else NEVER
        self.tokens -= 1
        return 0.0


_buckets: OrderedDict[tuple[str, ...], Bucket] = OrderedDict()
_lock = threading.Lock()


def rate(kind: str) -> tuple[float, float] | None:
    """How many of ``kind`` at once, and how many a second; None without a limit."""
    text = settings.RATES.get(kind, DEFAULTS[kind])
    return None if text is None else _read(text)


@lru_cache(maxsize=64)
def _read(text: str) -> tuple[float, float]:
    number, _, seconds = text.partition("/")
    return float(number), float(number) / float(seconds or 1)


def wait(kind: str, *owner: str) -> float:
    """Take one of ``kind`` for ``owner``: 0, or the seconds until there is one again."""
    allowed = rate(kind)
    if allowed is None:
        return 0.0
    size, per_second = allowed
    now = time.monotonic()
    with _lock:
        bucket = _buckets.setdefault((kind, *owner), Bucket(size, now))
        _buckets.move_to_end((kind, *owner))
        if len(_buckets) > MAX_BUCKETS:
            _buckets.popitem(last=False)
        return bucket.take(size, per_second, now)


def forget() -> None:
    """Start afresh. For tests."""
    with _lock:
        _buckets.clear()
