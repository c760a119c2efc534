"""``Throttle``: how many calls a caller may make in a period. Declarations and servers have them.

A throttle has a rate and a key. Calls with the same key count together. ``calls.throttling`` counts
calls, after it was checked that the caller has the permission.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from asgiref.sync import iscoroutinefunction
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.utils.translation import gettext_noop

from .attribute_checks import did_you_mean, is_ours

if TYPE_CHECKING:
    from .request import Request
    from .server import Server

MINUTE, HOUR, DAY = 60, 3_600, 86_400  # seconds
PERIODS = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), MINUTE),
    **dict.fromkeys(("h", "hour"), HOUR),
    **dict.fromkeys(("d", "day"), DAY),
    "week": 7 * DAY,
    "month": 30 * DAY,
}
PERIOD_NAMES = {1: "second", MINUTE: "minute", HOUR: "hour", DAY: "day"}
PERIOD_NAMES |= {7 * DAY: "week", 30 * DAY: "30 days"}
RATE = re.compile(r"([1-9][0-9]{0,11})/([a-z]+)\Z")
RATE_HINT = gettext_noop(  # the admin translates it
    'Write a number and a period, such as "5/s", "60/min", "1000/day" or "20000/month".'
)


class Rate(NamedTuple):
    """``limit`` calls in ``period`` seconds."""

    limit: int
    period: int

    def __str__(self) -> str:
        return f"{self.limit} per {PERIOD_NAMES[self.period]}"


def parse_rate(rate: str) -> Rate:
    """Return the rate that a text such as "60/min" means. Raise ``ValueError``."""
    if not isinstance(rate, str):  # it may be unhashable, which the cache does not take
        raise ValueError(f"{rate!r} is not a rate. {RATE_HINT}")
    return _parse_text(rate)


@lru_cache(maxsize=256)
def _parse_text(rate: str) -> Rate:
    found = RATE.match(rate)
    if found is None or found[2] not in PERIODS:
        raise ValueError(f"{rate!r} is not a rate. {RATE_HINT}")
    return Rate(int(found[1]), PERIODS[found[2]])


class Throttle:
    """Limit the calls with the same key to a rate. Abstract: a subclass must define ``get_key``.

    A system check reports a class without it.

    ``rate`` is a text in the syntax of Django REST framework: "5/s", "60/min", "1000/day". A
    subclass may also set it in the class body. By default a throttle counts the calls of the
    declaration or server that has it. All throttles with the same ``name`` count together.
    ``cache`` is the alias in ``CACHES`` of the cache that counts.
    """

    rate: str = ""
    name: str = ""
    cache: str = "default"

    def __init__(
        self, rate: str | None = None, *, name: str | None = None, cache: str | None = None
    ) -> None:
        self.rate = self.rate if rate is None else rate
        self.name = self.name if name is None else name
        self.cache = self.cache if cache is None else cache

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rate!r})"

    def get_key(self, request: Request) -> str | None:
        """Return the key of a call, such as "user:7", or None if the throttle does not limit it.

        A subclass must define it. It runs in a thread, may query the database, and must not be
        ``async``.
        """
        raise NotImplementedError

    def get_rate(self, request: Request) -> str:
        """Return the rate for a call. The default is ``rate``. It runs like ``get_key``."""
        return self.rate

    @property
    def _is_plain(self) -> bool:
        """Whether the project overrides neither method, so that neither can block."""
        methods = (type(self).get_key, type(self).get_rate)
        return all(method.__module__ == __name__ for method in methods)

    @property
    def _kind(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def _scope(self, server: Server, mark: str) -> str:
        """Return the scope within which calls with the same key count together.

        It is the ``name``, or else the declaration with this ``Declaration._qualified_name``. The
        mark "" is that of the whole server.
        """
        return self.name or f"{server.name}/{mark}"


class UserThrottle(Throttle):
    """Limit each user, with all of their clients. ``throttle = "60/min"`` means this class.

    Calls without a user count for their application or token. Those without a token count for their
    network.
    """

    def get_key(self, request: Request) -> str | None:
        principal = request.principal
        if principal.is_authenticated:
            return f"user:{principal.user.pk}"
        return principal.limit_keys[-1]


class ClientThrottle(Throttle):
    """Limit each client: an OAuth application, with all of its users, or a personal access token.

    Calls without a token count for their user. Those without a user count for their network.
    """

    def get_key(self, request: Request) -> str | None:
        auth = request.auth
        if auth is not None and auth.application is not None:
            return f"application:{auth.application.pk}"
        return request.principal.limit_keys[-1]


class TotalThrottle(Throttle):
    """Limit all callers together."""

    def get_key(self, request: Request) -> str | None:
        return "all"


# What a project writes: a rate, a throttle, its class, or several of them.
Throttles = str | Throttle | type[Throttle] | Sequence[str | Throttle | type[Throttle]]


def listed(declared: Any) -> tuple[Throttle, ...]:
    """Return the throttles for a value of the attribute ``throttle``. Raise ``TypeError``."""
    if declared is None:
        return ()
    if isinstance(declared, list | tuple):
        return tuple(one for each in declared for one in listed(each))
    if isinstance(declared, str):
        return (UserThrottle(declared),)
    if isinstance(declared, type) and issubclass(declared, Throttle):
        return (declared(),)
    if isinstance(declared, Throttle):
        return (declared,)
    raise TypeError(f"{declared!r:.80} is not a rate or an mcp.Throttle.")


# System checks.


def problems(declared: Any) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each error in a value of the attribute ``throttle``."""
    try:
        throttles = listed(declared)
    except TypeError as error:
        yield f"throttle: {error}", f"{RATE_HINT} Or write mcp.ClientThrottle(...)."
        return
    seen: set[tuple[str, str, int]] = set()
    for throttle in throttles:
        wrong = [*_throttle_problems(throttle)]
        yield from wrong
        if wrong:  # its attributes may be of any type
            continue
        try:
            counted = (throttle._kind, throttle.name, parse_rate(throttle.rate).period)
        except ValueError:
            continue
        if counted in seen:
            message = f"throttle: two of {type(throttle).__name__} count the same calls twice."
            yield message, "Remove one of them, or give them different periods or names."
        seen.add(counted)


def _throttle_problems(throttle: Throttle) -> Iterator[tuple[str, str]]:
    cls = type(throttle)
    if cls.get_key is Throttle.get_key:
        hint = "Write get_key(self, request), or use mcp.UserThrottle."
        yield f"throttle: {cls.__name__} has no get_key.", hint
    for method in (cls.get_key, cls.get_rate):
        if iscoroutinefunction(method):
            yield f"throttle: {method.__qualname__} is asynchronous.", "Write def."
    if not isinstance(throttle.name, str):
        yield f"throttle: the name {throttle.name!r} is not a text.", "Write a string."
    if cls.get_rate is Throttle.get_rate or throttle.rate:
        try:
            parse_rate(throttle.rate)
        except ValueError:
            near = ""
            if isinstance(throttle.rate, str) and "/" in throttle.rate:
                near = did_you_mean(throttle.rate.partition("/")[2], PERIODS)
            yield f"throttle: {throttle.rate!r} is not a rate.", f"{near} {RATE_HINT}".strip()
    if not isinstance(throttle.cache, str) or throttle.cache not in caches.settings:
        hint = f"CACHES has: {', '.join(caches.settings)}."
        yield f"throttle: there is no cache {throttle.cache!r}.", hint
    for one in cls.__mro__:
        for name in vars(one) if not is_ours(one) and one is not object else ():
            if name in ("allow_request", "get_cache_key", "scope", "wait", "cache_format"):
                hint = "Write get_key(self, request) or get_rate(self, request)."
                yield f"{one.__qualname__}.{name} has no effect on a throttle.", hint


def cache_problem(alias: str, *, is_debug: bool) -> str | None:
    """Return why a cache cannot count calls for all workers, or None."""
    try:
        cache = caches[alias]
    except Exception:  # an unknown alias, or a package that is not installed: Django reports these
        return None
    if isinstance(cache, LocMemCache):
        return None if is_debug else "It is in the memory of each process, so each counts alone."
    # This ``incr`` reads and then writes, and sets a timeout of its own. ``DummyCache`` has it too.
    is_atomic = inspect.getattr_static(type(cache), "incr") is not BaseCache.incr
    return None if is_atomic or is_debug else "It cannot count: its incr() is not atomic."
