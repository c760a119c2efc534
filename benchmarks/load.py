"""
The load: calls over connections that are kept, each connection waiting for its answer.

The rule: standard library alone, one thread on raw sockets, so that it is faster than what it
measures; and each answer is checked, so that a fast error counts as nothing.
"""

from __future__ import annotations

import itertools
import select
import socket
import statistics
import time
from dataclasses import dataclass, field

from benchmarks.wires import Wire, Wrong, cut

PATIENCE = 20  # seconds without any answer
FEWEST = 10  # answers of which anything can be told


class Connection:
    """A connection on which one call after the other is made."""

    __slots__ = ("buffer", "number", "sent", "socket", "wire")

    def __init__(self, address: tuple[str, int], wire: Wire) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire, self.buffer, self.number, self.sent = wire, b"", 0, 0.0

    def call(self, number: int) -> None:
        self.number, self.sent = number, time.perf_counter()
        self.socket.sendall(self.wire.request(number))

    def answered(self) -> float | None:
        """The seconds the call took, once its answer is whole and right."""
        came = self.socket.recv(65536)
        if not came:
            raise Wrong(f"The connection was closed during call {self.number}")
        whole = cut(self.buffer + came)
        if whole is None:
            self.buffer += came
            return None
        took = time.perf_counter() - self.sent
        answer, self.buffer = whole
        self.wire.check(answer, self.number)
        return took

    def complete(self, number: int) -> None:
        """A call and its answer, with nothing beside it."""
        self.call(number)
        while self.answered() is None:
            pass


@dataclass
class Measured:
    """What came of a load: how long it ran, and what each call took, in seconds."""

    seconds: float
    times: list[float] = field(repr=False)

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def percentile(self, share: int) -> float:
        """Milliseconds within which this share of the calls was answered."""
        return statistics.quantiles(self.times, n=100)[share - 1] * 1000


def load(
    address: tuple[str, int], wire: Wire, seconds: float, connections: int = 16, start: int = 1
) -> Measured:
    """Call for so long over so many connections, each call with an id of its own."""
    numbers = itertools.count(start)
    opened = [Connection(address, wire) for _ in range(connections)]
    try:
        return drive(opened, numbers, seconds)
    finally:
        for connection in opened:
            connection.socket.close()


def drive(opened: list[Connection], numbers: itertools.count[int], seconds: float) -> Measured:
    waiting = {connection.socket.fileno(): connection for connection in opened}
    poll = select.poll()
    times = []
    for number, connection in waiting.items():
        poll.register(number, select.POLLIN)
        connection.call(next(numbers))
    began = time.perf_counter()
    until = began + seconds
    while (now := time.perf_counter()) < until:
        ready = poll.poll(PATIENCE * 1000)
        if not ready:
            raise Wrong(f"No answer came within {PATIENCE} seconds")
        for number, _ in ready:
            connection = waiting[number]
            if (took := connection.answered()) is not None:
                times.append(took)
                connection.call(next(numbers))
    if len(times) < FEWEST:
        raise Wrong(f"Only {len(times)} calls were answered in {now - began:.1f} s")
    return Measured(now - began, times)
