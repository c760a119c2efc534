"""
Rate limits for calls, completions, log messages and progress.

A token bucket for each principal, server and kind, in the memory of this process. Anonymous clients
have one for each network. The defaults stop a runaway loop, not a busy agent. The specification
requires limits: "Servers MUST rate limit tool invocations" (server/tools), and completion
(server/utilities/completion).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

from ..conf import settings

# As "number/seconds": the size of the bucket, and the time in which it refills evenly.
DEFAULTS = {
    "calls": "10000/10",
    "completions": "1000/10",
    "log": "20000/10",
    "progress": "20000/10",
}
MAX_BUCKETS = 10_000
# For a client whose subscriptions are in memory: over stdio or in one `subscriptions/listen`.
MAX_SUBSCRIPTIONS = 10_000
UNCOUNTED = frozenset(("ping", "subscriptions/listen"))  # not counted as concurrent calls
NEVER = 86_400.0  # seconds to wait where the rate is 0


@dataclass(slots=True)
class Bucket:
    """The tokens left in a bucket at a time of the monotonic clock."""

    tokens: float
    at: float


_buckets: OrderedDict[tuple[str, ...], Bucket] = OrderedDict()
# The event loop and threads take tokens. Without the lock a bucket would give out too many.
_lock = threading.Lock()


@lru_cache(maxsize=64)
def _read(rate: str) -> tuple[float, float]:
    """Return the size of the bucket and the refill per second of a rate."""
    number, _, seconds = rate.partition("/")
    return float(number), float(number) / float(seconds or 1)


def wait(kind: str, *owner: str) -> float:
    """Take a token of ``kind`` for ``owner``. Return 0, or the seconds until there is one."""
    rate = settings.RATES.get(kind, DEFAULTS[kind])
    if rate is None:  # there is no limit
        return 0.0
    size, per_second = _read(rate)
    now = time.monotonic()
    with _lock:
        key = (kind, *owner)
        bucket = _buckets.get(key) or _buckets.setdefault(key, Bucket(size, now))
        _buckets.move_to_end(key)
        if len(_buckets) > MAX_BUCKETS:  # drop the least recently used, to bound the memory
            _buckets.popitem(last=False)
        bucket.tokens = min(size, bucket.tokens + (now - bucket.at) * per_second)
        bucket.at = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / per_second if per_second else NEVER
        bucket.tokens -= 1
        return 0.0


def forget() -> None:
    """Delete all buckets. For tests."""
    with _lock:
        _buckets.clear()
