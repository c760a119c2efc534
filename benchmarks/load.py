"""
The load generator: it makes calls over kept connections, one call at a time on each.

It uses the standard library and raw sockets in one thread, so that it is faster than what it
measures. It checks each response, so that a fast error is not counted as a call.
"""

from __future__ import annotations

import itertools
import select
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.messages import CallTemplate, WrongResponse, split_response

PATIENCE = 60  # seconds without any answer
# Responses without which no figure is given: on a busy machine a load lasts longer, to have them.
FEWEST, LONGER = 200, 180.0


class Connection:
    """A kept connection that makes one call after the other."""

    __slots__ = ("buffer", "number", "sent", "socket", "template")

    def __init__(self, address: tuple[str, int], template: CallTemplate) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.template, self.buffer, self.number, self.sent = template, b"", 0, 0.0

    def call(self, number: int) -> None:
        self.number, self.sent = number, time.perf_counter()
        self.socket.sendall(self.template.request(number))

    def answered(self) -> float | None:
        """Return the seconds the call took, or None while its response is incomplete."""
        received = self.socket.recv(1_000_000 if self.buffer else 65_536)
        if not received:
            raise WrongResponse(f"The connection was closed during call {self.number}")
        whole = split_response(self.buffer + received)
        if whole is None:
            self.buffer += received
            return None
        took = time.perf_counter() - self.sent
        answer, self.buffer = whole
        self.template.check(answer, self.number)
        return took

    def complete(self, number: int) -> None:
        """Make a call and wait for its response."""
        self.call(number)
        while self.answered() is None:
            pass


@dataclass
class Measured:
    """The seconds that a load ran, and those that each call took."""

    seconds: float
    times: list[float] = field(repr=False)

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def percentile(self, share: int) -> float:
        """Return the milliseconds within which this percentage of calls was answered."""
        return statistics.quantiles(self.times, n=100)[share - 1] * 1000


def load(
    address: tuple[str, int],
    template: CallTemplate,
    seconds: float,
    connections: int = 16,
    start: int = 1,
    fewest: int = FEWEST,
) -> Measured:
    """Make calls over these connections for that many seconds, each call with its own id.

    If that were fewer calls than `fewest`, continue for up to `LONGER` seconds.
    """
    numbers = itertools.count(start)
    opened = [Connection(address, template) for _ in range(connections)]
    try:
        return drive(opened, numbers, seconds, fewest)
    finally:
        for connection in opened:
            connection.socket.close()


def make_calls(opened: list[Connection], numbers: Iterator[int], calls: int) -> None:
    """Make that many calls over these connections, and wait for all responses."""
    waiting = {connection.socket.fileno(): connection for connection in opened}
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    for connection in opened[:calls]:
        connection.call(next(numbers))
    begun = done = min(calls, len(opened))
    while done:
        ready = poll.poll(PATIENCE * 1000)
        if not ready:
            raise WrongResponse(f"No response within {PATIENCE} seconds")
        for number, _ in ready:
            connection = waiting[number]
            if connection.answered() is None:
                continue
            done -= 1
            if begun < calls:
                begun, done = begun + 1, done + 1
                connection.call(next(numbers))


def drive(
    opened: list[Connection], numbers: itertools.count[int], seconds: float, fewest: int
) -> Measured:
    waiting = {connection.socket.fileno(): connection for connection in opened}
    poll = select.poll()
    times = []
    for number, connection in waiting.items():
        poll.register(number, select.POLLIN)
        connection.call(next(numbers))
    began = time.perf_counter()
    until = began + seconds
    while (now := time.perf_counter()) < until or len(times) < fewest:
        if now > until + LONGER:
            raise WrongResponse(f"Only {len(times)} calls were answered in {now - began:.1f} s")
        ready = poll.poll(PATIENCE * 1000)
        if not ready:
            raise WrongResponse(f"No response within {PATIENCE} seconds")
        for number, _ in ready:
            connection = waiting[number]
            if (took := connection.answered()) is not None:
                times.append(took)
                connection.call(next(numbers))
    return Measured(now - began, times)
