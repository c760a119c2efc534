"""What all clients share: server addresses, timeouts and the random generator.

Random values are drawn from the seed; durations are not reproducible.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

from .client import Address
from .faults import EXCUSING, Faults
from .findings import Findings

FRONT_SHARE = 0.4  # of requests that go through the front
CALM = 20.0  # seconds in which everything must have come where nothing strikes
BOUND = 6  # times its patience a call may take, however often it is struck


@dataclass
class CampaignContext:
    """The settings and shared state of a campaign."""

    front: Address
    workers: Sequence[Address]
    seed: int
    lease: float
    database: str
    layer: str
    seconds: float
    findings: Findings
    skewed: Sequence[Address] = ()  # workers whose time of day is wrong
    faults: Faults = field(default_factory=Faults)
    is_quiet: bool = False  # whether nothing strikes any more, and nothing is excused
    open: dict[object, Callable[[], str]] = field(default_factory=dict)  # what is waited for
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def waiting(self, state: Callable[[], str]) -> Iterator[None]:
        """Register a waiting client. ``state`` describes what it waits for, for the report."""
        self.open[key := object()] = state
        try:
            yield
        finally:
            del self.open[key]

    @property
    def timeout(self) -> float:
        """Seconds within which everything expected must arrive if no fault happens meanwhile."""
        return CALM if self.is_quiet else 45.0 + 4 * self.lease

    def was_faulty(
        self, since: float, place: Address | None = None, kinds: Container[str] = EXCUSING
    ) -> bool:
        """Whether a fault concerned what began at ``since`` at that address."""
        return not self.is_quiet and self.faults.affected(since, self.worker(place), kinds)

    def new_deadline(self) -> Deadline:
        return Deadline(self.timeout, self.was_faulty)

    def worker(self, place: Address | None) -> Address | None:
        """Return the worker at an address; None for the proxy, behind which any worker may be."""
        return place if place in self.workers else None

    @property
    def is_strict(self) -> bool:
        """Whether a tool's transaction contains the outcome of its call. It does not on SQLite."""
        return self.database != "sqlite"

    @property
    def seconds_left(self) -> float:
        """Seconds until no further calls are started."""
        return self.seconds - (time.monotonic() - self.began)

    def rng(self, *parts: object) -> random.Random:
        return random.Random(":".join(map(str, (self.seed, *parts))))

    @property
    def workers_with_correct_clocks(self) -> Sequence[Address]:
        """The workers whose clocks are right."""
        return [one for one in self.workers if one not in self.skewed] or self.workers

    def random_server(self, rng: random.Random) -> Address:
        """Return a random server: the proxy, or one of the workers."""
        if rng.random() < FRONT_SHARE:
            return self.front
        return rng.choice(self.workers)

    def another_worker(self, rng: random.Random, than: Address) -> Address:
        """Return a worker that is not ``than``, if there is one."""
        others = [worker for worker in self.workers if worker != than]
        return rng.choice(others or list(self.workers))


class Deadline:
    """The deadline of a call. Each fault that concerns the call extends it, up to a limit."""

    def __init__(
        self, seconds: float, was_faulty: Callable[[float], bool] = lambda since: False
    ) -> None:
        self.seconds, self._was_faulty = seconds, was_faulty
        self._hard = time.monotonic() + BOUND * seconds
        self._since = time.monotonic()
        self._until = self._since + seconds
        self.failures = 0

    def count_failure(self) -> None:
        """Count a broken connection or a refusal. Extend the deadline if a fault explains it."""
        self.failures += 1
        if self._was_faulty(self._since):
            self.renew()

    def renew(self) -> None:
        """Extend the deadline, because something was received."""
        self._since = time.monotonic()
        self._until = min(self._since + self.seconds, self._hard)

    @property
    def left(self) -> float:
        return self._until - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.left <= 0


async def pause(rng: random.Random, attempt: int) -> None:
    """Wait before the next attempt, longer each time."""
    await asyncio.sleep(min(1.0, 0.05 * 2**attempt) * rng.uniform(0.5, 1.5))
