"""
Count calls, completions, log messages and progress against their limits.

*Throttles* of servers and declarations are counted in Django's cache, so all workers share them.
They count only calls that the caller has the permission for. So do the *limits of administrators*,
which are kill switches with a rate. *Limits of the process* are counted in the memory of this
process, before the permission is checked. They stop a runaway loop early and need no cache. The
protocol requires limits: "Servers MUST rate limit tool invocations" (server/tools), and completions
too (server/utilities/completion).

Both use a sliding window. It adds the calls of this period to a share of the calls of the previous
period: the share that a window of the same length still covers. This needs two numbers for each key
instead of a list of times. It uses only ``cache.add`` and ``cache.incr``, which are atomic.

A worker reserves calls in the cache in blocks of at most one percent of the limit, so a busy caller
costs few requests to the cache. All workers together never admit more calls than the limit. While
the cache fails, each worker counts in its own memory.

A call counts once, however often it runs. A retry that carries the answer to a question continues
the call. Only the first retry with the same state is free, because a client could repeat it.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django.core.cache import caches
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache

from ..auth import kill_switches
from ..conf import settings
from ..declarations.throttles import HOUR, Rate, UserThrottle, parse_rate
from ..exceptions import Throttled
from ..runtime import threads

if TYPE_CHECKING:
    from ..auth.kill_switches import ActiveKillSwitch
    from ..declarations.declaration import Declaration
    from ..declarations.request import Request
    from ..declarations.server import Server
    from ..declarations.throttles import Throttle
    from .call_state import CallRun

logger = logging.getLogger("django_mcp.calls")
# For each principal and server. They stop a runaway loop, not a busy agent.
DEFAULTS = {
    "calls": "60000/min",
    "completions": "6000/min",
    "log": "120000/min",
    "progress": "120000/min",
}
MAX_KEYS = 10_000  # in memory
BLOCKS_PER_LIMIT = 100  # a block is one percent of the limit
MAX_REJECTED_SECONDS = 1.0  # for which a worker rejects a key without asking the cache again
OUTAGE_SECONDS = 5.0  # after a failure of the cache, until it is tried again
# For a client whose subscriptions are in memory: over stdio or in one `subscriptions/listen`.
MAX_SUBSCRIPTIONS = 10_000
UNCOUNTED = frozenset(("ping", "subscriptions/listen"))  # not counted as concurrent calls


class Counts(Protocol):
    """Numbers of calls, by key and by the number of the window since 1970."""

    def add(self, key: str, window: int, number: int, period: int) -> int:
        """Add ``number``, which may be negative, and return the sum. It is atomic."""
        ...

    def get(self, key: str, window: int) -> int: ...


def count_calls(counts: Counts, key: str, rate: Rate, number: int = 1) -> tuple[int, float]:
    """Count up to ``number`` calls. Return how many the rate allows.

    If it allows none, return also the seconds until it allows one.
    """
    limit, period = rate
    now = time.time()
    window, elapsed = int(now // period), now % period
    # First add, then compare: two workers that read first could both take the last call.
    count = counts.add(key, window, number, period)
    before = 0
    # The previous window has at most ``limit`` calls. With fewer calls than this in the current
    # one, the sum cannot exceed the limit.
    if count > limit * elapsed / period:
        before = counts.get(key, window - 1)
    excess = count + math.floor(before * (1 - elapsed / period)) - limit
    if excess <= 0:
        return number, 0.0
    # Rejected calls do not count, or a client that tries again too early would wait for ever.
    counts.add(key, window, -min(excess, number), period)
    if excess < number:
        return number - excess, 0.0
    return 0, _seconds_to_wait(rate, elapsed, count - number, before)


def _seconds_to_wait(rate: Rate, elapsed: float, count: int, before: int) -> float:
    """Return the seconds until the rate allows a call, if no other call is counted until then."""
    limit, period = rate
    if count < limit and before:  # later in this window, as less of the previous one counts
        return max(0.001, period * (1 - (limit - count) / before) - elapsed)
    # In the next window, as less of this one counts.
    count = max(count, limit)
    return max(0.001, period - elapsed + period * (1 - limit / count))


class ProcessCounts:
    """The counts in the memory of this process, of at most ``MAX_KEYS`` keys."""

    def __init__(self) -> None:
        # By key: the number of the window, its calls, and the calls of the window before.
        self._counts: OrderedDict[str, list[int]] = OrderedDict()
        # The event loop and threads count. Without the lock two could add to the same number.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: str, window: int, number: int, period: int) -> int:
        with self._lock:
            entry = self._counts.get(key)
            if entry is None:
                entry = self._counts[key] = [window, 0, 0]
                if len(self._counts) > MAX_KEYS:  # drop the least recently used
                    self._counts.popitem(last=False)
            else:
                self._counts.move_to_end(key)
            if entry[0] != window:
                entry[:] = window, 0, entry[1] if entry[0] == window - 1 else 0
            entry[1] += number
            return entry[1]

    def get(self, key: str, window: int) -> int:
        with self._lock:
            entry = self._counts.get(key, [window, 0, 0])
            return entry[1] if entry[0] == window else entry[2] if entry[0] == window + 1 else 0

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()


class CacheCounts:
    """The counts in a cache of the project."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def add(self, key: str, window: int, number: int, period: int) -> int:
        name = f"{key}:{window}"
        try:
            return int(self._cache.incr(name, number))
        except ValueError:  # there is no such key
            pass
        # The next window needs the number too. One minute more, because clocks differ.
        if self._cache.add(name, number, timeout=2 * period + 60):
            return number
        return int(self._cache.incr(name, number))  # another worker has added it meanwhile

    def get(self, key: str, window: int) -> int:
        return int(self._cache.get(f"{key}:{window}") or 0)


_local = threading.local()


def cache_of(alias: str) -> Any:
    """Return this thread's own object of a cache. Raise ``InvalidCacheBackendError``."""
    # ``caches`` keeps an object per context. Each call has a context of its own, so with Redis
    # every call would open a connection.
    if getattr(_local, "settings", None) is not caches.settings:
        _local.settings, _local.caches = caches.settings, {}
    if alias not in _local.caches:
        _local.caches[alias] = caches.create_connection(alias)
    return _local.caches[alias]


@dataclass(slots=True)
class Reservation:
    """What this process remembers of a key: reserved calls, and the latest rejection.

    ``window`` is the number of the window in which ``calls`` were reserved. After a rejection, the
    rate allows a call again at ``allowed_at``. Until ``rejects_until`` this process rejects calls
    without asking the cache. Both are seconds since 1970.
    """

    window: int = -1
    calls: int = 0
    rejects_until: float = 0.0
    allowed_at: float = 0.0


class ReservedCalls:
    """The calls that this process has reserved in the caches and not used yet, by key."""

    def __init__(self) -> None:
        self._reservations: OrderedDict[str, Reservation] = OrderedDict()
        # The event loop and threads use them. Without the lock two could use the same call.
        self._lock = threading.Lock()

    def use(self, key: str, period: int) -> float | None:
        """Use a reserved call and return 0. If the key is rejected, return the seconds to wait.

        Return None if only the cache knows.
        """
        now = time.time()
        with self._lock:
            reservation = self._reservations.get(key)
            if reservation is None:
                return None
            if reservation.calls and reservation.window == now // period:
                reservation.calls -= 1
                return 0.0
            return reservation.allowed_at - now if now < reservation.rejects_until else None

    def keep(self, key: str, period: int, calls: int, wait: float = 0.0) -> None:
        """Reserve ``calls`` more of this window. If ``wait`` is not 0, remember a rejection."""
        now = time.time()
        with self._lock:
            reservation = self._reservations.setdefault(key, Reservation())
            self._reservations.move_to_end(key)
            if len(self._reservations) > MAX_KEYS:  # drop the least recently used
                self._reservations.popitem(last=False)
            if reservation.window != (window := int(now // period)):
                reservation.window, reservation.calls = window, 0
            reservation.calls += calls
            reservation.allowed_at = now + wait
            reservation.rejects_until = now + min(wait, MAX_REJECTED_SECONDS)

    def clear(self) -> None:
        with self._lock:
            self._reservations.clear()


process_counts, reserved_calls = ProcessCounts(), ReservedCalls()
_failed_at: dict[str, float] = {}  # by the alias of a cache, by the monotonic clock
_namespace = ""  # of the keys in caches


def forget() -> None:
    """Start all counts again. For tests. The entries in the project's caches are not deleted."""
    global _namespace
    _namespace = secrets.token_hex(8)
    process_counts.clear()
    reserved_calls.clear()
    _failed_at.clear()


# Limits of the process.


def count_in_process(kind: str, *owner: str) -> float:
    """Count one call or message of this ``kind`` (a key of ``DEFAULTS``) for ``owner``.

    Return 0 if the limit allows it, or else the seconds to wait.
    """
    rate = process_rate(kind)
    if rate is None:
        return 0.0
    return count_calls(process_counts, " ".join((kind, *owner)), rate)[1]


def process_rate(kind: str) -> Rate | None:
    """Return the rate of a ``kind``, or None if it has no limit."""
    rate = settings.THROTTLES.get(kind, DEFAULTS[kind])
    return None if rate is None else parse_rate(rate)


def count_call_in_process(run: CallRun, kind: str) -> None:
    """Count a call or a completion by the limit of this process. Raise ``Throttled``."""
    if run.has_run_before:
        return
    if run.resumes and not count_calls(process_counts, f"state {run.resumes}", Rate(1, HOUR))[1]:
        return  # the first retry with this state continues a call that was counted
    seconds = count_in_process(kind, *run.principal.limit_keys, run.server.name)
    if seconds:
        raise Throttled(f"Too many {kind}: {process_rate(kind)}.", wait=seconds)


# Throttles.


@dataclass(frozen=True, slots=True)
class ThrottleCounter:
    """A throttle for one call: the cache and the key that count it, and the rate.

    ``label`` names the counted calls in an error.
    """

    alias: str
    key: str
    rate: Rate
    label: str = "calls"

    @property
    def _reservation_key(self) -> str:
        # With the limit: calls that were reserved before the limit was lowered must not be used.
        return f"{self.key}:{self.rate.limit}"

    def count_reserved(self) -> float | None:
        """Count with a reserved call. Return what ``ReservedCalls.use`` returns."""
        return reserved_calls.use(self._reservation_key, self.rate.period)

    def count(self) -> float:
        """Count a call. Return 0, or the seconds to wait. It may block."""
        wait = self.count_reserved()
        if wait is not None:
            return wait
        if _is_trusted(self.alias):
            block = max(1, self.rate.limit // BLOCKS_PER_LIMIT)
            try:
                fit, wait = count_calls(
                    CacheCounts(cache_of(self.alias)), self.key, self.rate, block
                )
            except Exception:  # caches raise what their drivers raise
                _note_failure(self.alias)
            else:
                reserved_calls.keep(self._reservation_key, self.rate.period, max(0, fit - 1), wait)
                return wait
        return count_calls(process_counts, self.key, self.rate)[1]

    def give_back(self) -> None:
        """Reserve a call that was counted and not made, so that the next call can use it."""
        reserved_calls.keep(self._reservation_key, self.rate.period, 1)

    def error(self, seconds: float) -> Throttled:
        return Throttled(f"Too many {self.label}: {self.rate}.", wait=seconds)


def _is_trusted(alias: str) -> bool:
    """Whether the cache has not failed in the last seconds."""
    return time.monotonic() - _failed_at.get(alias, -math.inf) > OUTAGE_SECONDS


def _note_failure(alias: str) -> None:
    _failed_at[alias] = time.monotonic()
    logger.exception("Throttles count in this process, because the cache failed: cache=%s", alias)


class DeclaredThrottle(NamedTuple):
    """A throttle, and the server or the declaration that declares it."""

    throttle: Throttle
    server: Server
    declaration: Declaration | None = None

    @property
    def scope(self) -> str:
        """The scope within which calls with the same key count together."""
        return self.throttle._scope(
            self.server, self.declaration._qualified_name if self.declaration else ""
        )


def _counters(
    request: Request, throttles: Iterable[Throttle], declaration: Declaration | None = None
) -> Iterator[ThrottleCounter]:
    label = "calls" if declaration is None else f"calls of {declaration.name}"
    for throttle in throttles:
        declared = DeclaredThrottle(throttle, request.server, declaration)
        if (counter := _counter(declared, request, label)) is not None:
            yield counter


def _counter(
    declared: DeclaredThrottle, request: Request, label: str = "calls"
) -> ThrottleCounter | None:
    throttle = declared.throttle
    key = throttle.get_key(request)
    if key is None:
        return None
    rate = parse_rate(throttle.get_rate(request))
    name = _cache_key(_namespace, throttle._kind, declared.scope, rate.period, str(key))
    return ThrottleCounter(throttle.cache, name, rate, label)


@lru_cache(maxsize=1_000)
def _cache_key(*parts: Any) -> str:
    """Return a key that every cache accepts: a digest, because user names have any characters."""
    return f"mcp:throttle:{blake2b(repr(parts).encode(), digest_size=16).hexdigest()}"


def is_limited(server: Server, declaration: Declaration) -> bool:
    """Whether calls of this declaration may have to be counted, for whatever caller."""
    if declaration._always_fails:
        # A call for a model that does not exist. It is not counted, as one for a forbidden model is
        # not: "too many calls" for only one of them would tell them apart.
        return False
    return bool(
        server._throttles or declaration._owner._throttles or kill_switches.limits(server.name)
    )


def _counters_of_call(
    run: CallRun, declaration: Declaration, limits: Iterable[ActiveKillSwitch]
) -> Iterator[ThrottleCounter]:
    yield from _counters(run.request, _server_throttles(run))
    source = declaration._owner
    yield from _counters(run.request, source._throttles, source)
    for limit in limits:
        if limit.applies_to(run.principal):
            yield _limit_counter(limit)


def _limit_counter(limit: ActiveKillSwitch) -> ThrottleCounter:
    """Return the counter of an administrator's limit: all calls to which it applies share it."""
    rate = parse_rate(limit.rate)
    # Without the number of calls: a changed limit continues the count of its period.
    name = _cache_key(_namespace, "limit", *limit._replace(rate=""), rate.period)
    _kind, _colon, thing = limit.thing.partition(":")
    return ThrottleCounter("default", name, rate, f"calls of {thing}" if thing else "calls")


def _limits(run: CallRun, declaration: Declaration) -> list[ActiveKillSwitch]:
    """Return the administrators' limits of this call, for whatever caller."""
    own = declaration._limit_names
    return [
        limit
        for limit in kill_switches.limits(run.server.name)
        if limit.thing in own
        # As in ``_server_throttles``.
        or (limit.thing == kill_switches.EVERYTHING and not run.is_counted)
    ]


def _server_throttles(run: CallRun) -> tuple[Throttle, ...]:
    # A read may try several templates of resources. It counts once for the server.
    return () if run.is_counted else run.server._throttles


def count_call(run: CallRun, declaration: Declaration) -> None:
    """Count a call that the caller has the permission for. Raise ``Throttled``. It may block.

    ``admitted`` and ``_in_loop`` call it only if ``is_limited``.
    """
    if not run.has_run_before:
        _count(run, declaration, _limits(run, declaration))


def _count(run: CallRun, declaration: Declaration, limits: Iterable[ActiveKillSwitch]) -> None:
    taken: list[ThrottleCounter] = []
    for counter in _counters_of_call(run, declaration, limits):
        if not taken and run.resumes and _is_first_retry(run.resumes, counter.alias):
            break
        if seconds := counter.count():
            _give_back(taken)
            raise counter.error(seconds)
        taken.append(counter)
    run.is_counted = True


async def acount_call(run: CallRun, declaration: Declaration) -> None:
    """Count a call from the event loop, in a thread if a cache or the project's code may block."""
    if run.has_run_before:
        return
    throttles = (*_server_throttles(run), *declaration._owner._throttles)
    # Read once: a thread may replace the table of kill switches, and then a limit for a group would
    # query in the event loop.
    limits = _limits(run, declaration)
    aliases = {throttle.cache for throttle in throttles} | ({"default"} if limits else set())
    is_plain = all(throttle._is_plain for throttle in throttles)
    is_plain = is_plain and not any(limit.group for limit in limits)
    if is_plain and all(map(_is_in_memory, aliases)):
        _count(run, declaration, limits)
    elif not (is_plain and not run.resumes and _count_reserved(run, declaration, limits)):
        job = partial(count_call, run, declaration)
        await threads.tools.run_for(run.principal.limit_keys, job)


def _is_in_memory(alias: str) -> bool:
    """Whether the cache never blocks, because it uses no network and no file."""
    try:
        return isinstance(cache_of(alias), LocMemCache | DummyCache)
    except Exception:  # ``ThrottleCounter.count`` logs it
        return False


def _count_reserved(
    run: CallRun, declaration: Declaration, limits: Iterable[ActiveKillSwitch]
) -> bool:
    """Count a call with reserved calls. Return False, and count nothing, if a throttle has none."""
    used: list[ThrottleCounter] = []
    for counter in _counters_of_call(run, declaration, limits):
        seconds = counter.count_reserved()
        if seconds is None or seconds:
            _give_back(used)
            if seconds:
                raise counter.error(seconds)
            return False
        used.append(counter)
    run.is_counted = True
    return True


def _give_back(counters: Iterable[ThrottleCounter]) -> None:
    for counter in counters:
        counter.give_back()


def _is_first_retry(resumes: str, alias: str) -> bool:
    """Whether this is the first retry with this state of a call, on any worker."""
    key = _cache_key(_namespace, "state", resumes)
    try:
        return bool(cache_of(alias).add(key, 1, timeout=settings.STATE_LIFETIME))
    except Exception:
        _note_failure(alias)
        return False


@lru_cache(maxsize=16)
def _completion_throttle(rate: str, server: str) -> Throttle:
    return UserThrottle(rate, name=f"{server}/completions")


def count_completion(run: CallRun) -> None:
    """Count a completion by the setting ``THROTTLES``. Raise ``Throttled``. Runs in a thread."""
    if rate := settings.THROTTLES.get("completions"):
        throttle = _completion_throttle(rate, run.server.name)
        for counter in _counters(run.request, (throttle,)):
            if seconds := counter.count():
                raise Throttled(f"Too many completions: {counter.rate}.", wait=seconds)


# For the control room.


def declared_throttles(server: Server) -> Iterator[DeclaredThrottle]:
    """Yield the throttles of a server and of its declarations. Shared ones come once."""
    for throttle in server._throttles:
        yield DeclaredThrottle(throttle, server)
    sources = {one._owner: None for one in server._catalog._declarations()}
    for declaration in sources:
        for throttle in declaration._throttles:
            yield DeclaredThrottle(throttle, server, declaration)
