"""
What the registration of a public client costs (RFC 7591), over HTTP and one after the other.

    python -m tools benchmark registration [--short] [--server fast] [--registrations 500]

Two servers take turns, each a process with a SQLite file: one with few clients, and one with almost
as many unauthorized clients as are allowed. There is no rate limit. The figure is the processor
time of the server, which hardly depends on other work of the machine; the time that the client
waits is printed beside it. Exits with 1 if a response is not a new client, and with 3 unless 19 of
20 registrations cost less than 20 ms.
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
from benchmarks.messages import WrongResponse
from benchmarks.servers import RunningServer, pinned
from tools.benchmark import UNMET

MOST = 20.0  # milliseconds
ROUND = 10  # registrations, of which the first is not counted
UNAUTHORIZED = 9_000
PROJECT = Contender("django_mcp", "benchmarks.server:application", environ=OAUTH)
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "few clients": {},
    f"{UNAUTHORIZED:,} clients": {"BENCHMARK_CLIENTS": str(UNAUTHORIZED)},
}
COLUMNS = ("CPU p50", "CPU p95", "p50", "p95")


@dataclass
class Result:
    """A server, and the milliseconds of its registrations: processor time, and waiting time."""

    title: str
    started: RunningServer
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
        """Register a client. Raise ``WrongResponse`` unless it is a new one."""
        body = metadata(f"Agent {len(self.given)}")
        connection.request("POST", "/oauth/register", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer, known = response.read(), len(self.given)
        if response.status == 201:
            self.given.add(json.loads(answer)["client_id"])
        if len(self.given) == known:
            raise WrongResponse(f"{response.status} {answer[:500]!r}\n{self.started.log_tail()}")

    @property
    def is_met(self) -> bool:
        return percentile(self.spent, 95) < MOST

    def __str__(self) -> str:
        figures = [percentile(found, n) for found in (self.spent, self.waited) for n in (50, 95)]
        return f"{self.title:<16}" + "".join(f"{one:>10.1f}" for one in figures)


def metadata(name: str) -> bytes:
    """Return the metadata that a program on a user's machine registers."""
    fields = {
        "client_name": name,
        "redirect_uris": ["http://127.0.0.1:7777/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
    }
    return json.dumps(fields).encode()


def percentile(found: list[float], share: int) -> float:
    return statistics.quantiles(found, n=100)[share - 1]


def measured(server: str, registrations: int) -> list[Result]:
    with ExitStack() as running:
        results = [
            Result(title, running.enter_context(PROJECT.running(server, **environ)))
            for title, environ in ENVIRONMENTS.items()
        ]
        with pinned():
            for _ in range(registrations // ROUND):
                for result in results:
                    result.round()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="60 registrations")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--registrations", type=int, default=500, help="at each server")
    options = parser.parse_args()
    results = measured(options.server, 60 if options.short else options.registrations)
    print("\n".join((" " * 16 + "".join(f"{name:>10}" for name in COLUMNS), *map(str, results))))
    met = all(result.is_met for result in results)
    print(f"{'met' if met else 'UNMET'}: 19 of 20 cost less than {MOST:g} ms of the processor")
    return 0 if met else UNMET


if __name__ == "__main__":
    sys.exit(main())
