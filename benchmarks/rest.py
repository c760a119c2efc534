"""
What a tool of a REST framework view costs, beside a request to the view itself.

    python -m tools benchmark rest [--short] [--server fast] [--rounds 9]

One process of uvicorn has both: `/mcp` with an access token, and `/api/` with REST framework's
`TokenAuthentication`. A worker of gunicorn has `/api/` under Django's WSGI handler. They take turns
on one core, with the same page of a filtered list and the same row. Every response is compared with
the expected data. A ratio is the median of the ratios within each round. Exits with 1 if a response
is wrong, and with 3 if a call takes more than 1.3 times the processor time of the request.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from benchmarks.contenders import OAUTH, OURS, SERVERS, Contender
from benchmarks.load import Connection, make_calls
from benchmarks.messages import JSON, SECRET, CallTemplate, WrongResponse, with_token
from benchmarks.servers import RunningServer, cpu_of, pinned
from tools.benchmark import UNMET

MOST = 1.3
ASGI, WSGI = "uvicorn", "gunicorn"  # where the request is answered
CONNECTIONS = 16
IDS = itertools.count(1_000_000)
SERVER = Contender(
    "django_mcp",
    "benchmarks.server:application",
    packages=(*OURS, "djangorestframework==3.18.*", "django-filter==26.*", "gunicorn>=27"),
    distribution="djangorestframework",
    environ=OAUTH | {"BENCHMARK_REST": "1"},
)
GUNICORN = "-m gunicorn --bind 127.0.0.1:{port} --threads 2 --keep-alive 60 {application}"
WSGI_SERVER = replace(SERVER, application="benchmarks.peers.wsgi:application", command=GUNICORN)
Address = tuple[str, int]


def city(number: int) -> JSON:
    return {"id": number, "name": f"City {number}", "population": number * 1000}


# Sorted by population, the second page of twenty cities with more than 500,000 inhabitants.
ASKED = {"population_min": 500_000, "page": 2}
PAGE = [city(number) for number in range(520, 540)]


@dataclass(frozen=True)
class EndpointTemplate(CallTemplate):
    """A request to the view: a GET, which has no body."""

    def request(self, number: int) -> bytes:
        return self.head

    def check(self, answer: bytes, number: int) -> None:
        compare(self.tool, json.loads(answer), answer)


@dataclass(frozen=True)
class ToolTemplate(CallTemplate):
    """A call of the tool."""

    def check(self, answer: bytes, number: int) -> None:
        message = json.loads(answer)
        if message.get("id") != number or message["result"].get("isError"):
            raise WrongResponse(f"The response to call {number} is {answer[:500]!r}")
        compare(self.tool, message["result"].get("structuredContent"), answer)


def compare(tool: str, data: JSON, answer: bytes) -> None:
    right = data == city(7)
    if tool == "list_city":
        right = data.get("results") == PAGE and data["count"] == 501
    if not right:
        raise WrongResponse(f"The data of {tool} are {answer[:500]!r}")


def endpoint(path: str, tool: str, address: Address) -> CallTemplate:
    lines = [
        f"GET /api/cities/{path} HTTP/1.1", "Host: {}:{}".format(*address),
        f"Authorization: Token {SECRET}", "Accept: application/json",
    ]  # fmt: skip
    return EndpointTemplate(tool, "\r\n".join([*lines, "", ""]).encode(), b"")


def call(arguments: JSON, tool: str, address: Address) -> CallTemplate:
    made = with_token(address, tool, arguments)
    return ToolTemplate(tool, made.head, made.body)


@dataclass
class Comparison:
    """A tool and the request that it stands for, with the microseconds of each round."""

    tool: str
    path: str
    arguments: JSON
    calls: list[float] = field(default_factory=list)
    requests: dict[str, list[float]] = field(default_factory=lambda: {ASGI: [], WSGI: []})

    def round(self, asgi: RunningServer, wsgi: RunningServer, calls: int) -> None:
        made = call(self.arguments, self.tool, asgi.address)
        self.calls.append(cost(asgi, asgi.process.pid, made, calls))
        pids = {ASGI: (asgi, asgi.process.pid), WSGI: (wsgi, wsgi.worker())}
        for name, (started, pid) in pids.items():
            made = endpoint(self.path, self.tool, started.address)
            self.requests[name].append(cost(started, pid, made, calls))

    def forget(self) -> None:
        for found in (self.calls, *self.requests.values()):
            found.clear()

    def is_met(self, name: str) -> bool:
        """Print the medians, and return whether a call costs at most `MOST` times the request."""
        own, requests = self.calls, self.requests[name]
        ratio = statistics.median(a / b for a, b in zip(own, requests, strict=True))
        verdict = "met" if ratio <= MOST else "UNMET"
        figures = (
            f"call {statistics.median(own):5.0f} us, request {statistics.median(requests):5.0f} us"
        )
        print(
            f"{self.tool:>14}  {figures} in {name}: {ratio:.2f} x, of at most {MOST} x, {verdict}"
        )
        return ratio <= MOST


def cost(started: RunningServer, pid: int, template: CallTemplate, calls: int) -> float:
    """Return the processor time of a call in microseconds, without that of the connections."""
    opened = [Connection(started.address, template) for _ in range(CONNECTIONS)]
    make_calls(opened, IDS, CONNECTIONS)  # threads start, and connect to the database
    before = cpu_of(pid)
    make_calls(opened, IDS, calls)
    spent = cpu_of(pid) - before
    for connection in opened:
        connection.socket.close()
    return spent / calls * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three short rounds")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=500, help="of a round")
    options = parser.parse_args()
    rounds, calls = (3, 150) if options.short else (options.rounds, options.calls)
    compared = [
        Comparison("list_city", "?" + urlencode(ASKED), ASKED),
        Comparison("retrieve_city", "7/", {"pk": 7}),
    ]
    with (
        SERVER.running(options.server) as asgi,
        WSGI_SERVER.running() as wsgi,
        pinned(),
    ):
        for one in compared:
            one.round(asgi, wsgi, calls)
            one.forget()  # the first round fills caches
        for _, one in itertools.product(range(rounds), compared):
            one.round(asgi, wsgi, calls)
    met = [one.is_met(name) for one in compared for name in one.requests]
    return 0 if all(met) else UNMET


if __name__ == "__main__":
    sys.exit(main())
