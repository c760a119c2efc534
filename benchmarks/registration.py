"""
What it costs that a public client registers itself (RFC 7591), over HTTP and one after the other.

    python -m tools benchmark registration [--short] [--server fast] [--registrations 500]

Two servers take turns, each a process with a SQLite file: one that few clients know, and one where
nearly as many came as may wait to be authorized. No rate is kept here. What a registration costs is
the server's processor's time, which hardly depends on what else the machine does; what the client
waited is told beside it. Exits with 1 if anything but a new client was answered, and with 3 unless
19 of 20 registrations cost less than 20 ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from benchmarks.contenders import OAUTH, SERVERS, Contender
from benchmarks.running import Running, pinned
from benchmarks.wires import Wrong
from tools.benchmark import UNMET

MOST = 20.0  # milliseconds
ROUND = 10  # registrations, of which the first is not counted
CROWD = 9_000
PROJECT = Contender("django_mcp", "benchmarks.server:application", environ=OAUTH)
LANES: dict[str, dict[str, str]] = {
    "few clients": {},
    f"{CROWD:,} clients": {"BENCHMARK_CLIENTS": str(CROWD)},
}
COLUMNS = ("CPU p50", "CPU p95", "p50", "p95")


@dataclass
class Lane:
    """A server, and what its registrations took: milliseconds of its processor, and in all."""

    title: str
    started: Running
    spent: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    given: set[str] = field(default_factory=set)  # ids

    def round(self) -> None:
        with closing(http.client.HTTPConnection(*self.started.address, timeout=30)) as connection:
            self.register(connection)
            for _ in range(ROUND - 1):
                spent, began = self.started.cpu(), time.perf_counter()
                self.register(connection)
                self.waited.append((time.perf_counter() - began) * 1000)
                self.spent.append((self.started.cpu() - spent) * 1000)

    def register(self, connection: http.client.HTTPConnection) -> None:
        """Raises ``Wrong`` for what is no new client."""
        said = metadata(f"Agent {len(self.given)}")
        connection.request("POST", "/oauth/register", said, {"Content-Type": "application/json"})
        response = connection.getresponse()
        body, known = response.read(), len(self.given)
        if response.status == 201:
            self.given.add(json.loads(body)["client_id"])
        if len(self.given) == known:
            raise Wrong(f"{response.status} {body[:500]!r}\n{self.started.words()}")

    @property
    def is_met(self) -> bool:
        return percentile(self.spent, 95) < MOST

    def __str__(self) -> str:
        told = [percentile(found, n) for found in (self.spent, self.waited) for n in (50, 95)]
        return f"{self.title:<16}" + "".join(f"{one:>10.1f}" for one in told)


def metadata(name: str) -> bytes:
    """What a program on a person's machine registers."""
    said = {
        "client_name": name,
        "redirect_uris": ["http://127.0.0.1:7777/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
    }
    return json.dumps(said).encode()


def percentile(found: list[float], share: int) -> float:
    return statistics.quantiles(found, n=100)[share - 1]


def measured(server: str, registrations: int) -> list[Lane]:
    with ExitStack() as running:
        lanes = [
            Lane(title, running.enter_context(PROJECT.running(server, **environ)))
            for title, environ in LANES.items()
        ]
        with pinned():
            for _ in range(registrations // ROUND):
                for lane in lanes:
                    lane.round()
    return lanes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="60 registrations")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--registrations", type=int, default=500, help="at each server")
    options = parser.parse_args()
    lanes = measured(options.server, 60 if options.short else options.registrations)
    print("\n".join((" " * 16 + "".join(f"{name:>10}" for name in COLUMNS), *map(str, lanes))))
    met = all(lane.is_met for lane in lanes)
    print(f"{'met' if met else 'UNMET'}: 19 of 20 cost less than {MOST:g} ms of the processor")
    return 0 if met else UNMET


if __name__ == "__main__":
    sys.exit(main())
