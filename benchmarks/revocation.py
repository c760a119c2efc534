"""
How soon each worker acts when another process takes a permission away.

    python -m tools benchmark revocation [--short] [--only sqlite,postgres] [--layers none,redis]

Three workers of uvicorn share a database and, with the layer `redis`, a Redis. At each worker a
session has an open stream, a 2026-07-28 client listens, and calls run that need a permission. A
process that serves no clients takes the permission from a group and gives it back; in every other
round it deactivates a user instead. The times run from just before its transaction until each
worker has notified each stream, ended each call, and closed the connections of the deactivated
user. Exits with 3 if one of them takes a second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path

from benchmarks.wakeups import redis
from tests.restarts.processes import ROOT, Client, Process, environment, migrate
from tests.restarts.revocation import (
    Shell,
    StreamRecorder,
    listen,
    response_of,
    stateless_request,
    tool_names,
)
from tools.benchmark import UNMET
from tools.database_servers import postgres

WORKERS, NAME = 3, "revocation"
CHANGED = "notifications/tools/list_changed"
TAKE = "Group.objects.get(name={0!r}).permissions.clear()"
GIVE = (
    "Group.objects.get(name={0!r}).permissions.add(Permission.objects.get(codename='view_group'))"
)
LEAVE = "u = User.objects.get(username={0!r}); u.is_active = False; u.save()"
MOST = 1000.0  # milliseconds
SETTLED = 1.5  # seconds at least between the start of a round and its change
DATABASES = {"sqlite": nullcontext, "postgres": postgres}
LAYERS = {"none": lambda folder: nullcontext({}), "redis": redis}
Took = defaultdict[tuple[str, int], list[float]]  # milliseconds, by what and at which worker


class Round:
    """The connections of one user: streams, listens and calls at each worker."""

    def __init__(self, ports: list[int], token: str) -> None:
        self.ports, self.token = ports, token
        self.clients = [Client(port, token=token) for port in ports]
        self.streams = [StreamRecorder(client.get()) for client in self.clients]
        self.listens = [StreamRecorder(listen(port, token)) for port in ports]
        self.calls = [StreamRecorder(client.call("guarded", seconds=60)) for client in self.clients]
        self.ended: dict[int, float] = {}
        self._single = [threading.Thread(target=self._call, args=(n,)) for n in range(WORKERS)]
        for one in self._single:
            one.start()

    def _call(self, number: int) -> None:
        given = {"name": "guarded", "arguments": {"seconds": 60}}
        response_of(stateless_request(self.ports[number], self.token, "tools/call", **given))
        self.ended[number] = time.time()

    def notified(self, since: float, took: Took, what: str) -> None:
        """Record when the streams were notified and the calls ended."""
        for number in range(WORKERS):
            for stream in (self.streams[number], self.listens[number]):
                took[what, number].append((stream.wait(CHANGED, since) - since) * 1000)
        self._calls(since, took)

    def closed(self, since: float, took: Took) -> None:
        """Record when everything was closed."""
        for number in range(WORKERS):
            for stream in (self.streams[number], self.listens[number]):
                took["streams closed", number].append((stream.end() - since) * 1000)
        self._calls(since, took)

    def _calls(self, since: float, took: Took) -> None:
        for number in range(WORKERS):
            took["calls ended", number].append((self.calls[number].end() - since) * 1000)
            self._single[number].join()
            took["calls ended", number].append((self.ended[number] - since) * 1000)

    def refused(self) -> None:
        for port in self.ports:
            assert "guarded" not in tool_names(
                response_of(stateless_request(port, self.token, "tools/list"))
            )

    def close(self) -> None:
        for one in (*self.streams, *self.listens, *self.calls):
            one.close()
        for client in self.clients:
            client.close()


def measure(database: str, layer: str, rounds: int) -> Took:
    took: Took = defaultdict(list)
    with workers(database, layer) as (shell, ports):
        for number in range(rounds):
            name = f"person {number}"
            with closing(Round(ports, shell.person(name))) as one:
                time.sleep(
                    SETTLED + number / rounds
                )  # so that rounds differ in where the workers are in their periods
                if number % 2:
                    one.closed(shell.do(LEAVE.format(name))[0], took)
                else:
                    one.notified(shell.do(TAKE.format(name))[0], took, "lists notified, taken")
                    one.refused()
                    since, _ = shell.do(GIVE.format(name))
                    for worker, listens in enumerate(one.listens):
                        at = listens.wait(CHANGED, since)
                        took["lists notified, given", worker].append((at - since) * 1000)
    return took


@contextmanager
def workers(database: str, layer: str) -> Iterator[tuple[Shell, list[int]]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        more = dict(stack.enter_context(DATABASES[database]()) or {})
        if url := stack.enter_context(LAYERS[layer](str(folder))).get("BENCHMARK_REDIS"):
            more["LAYERS"] = json.dumps(_layers(url))
        if database == "sqlite":
            migrate(folder)
        else:
            more |= _created(folder, more)
        shell = stack.enter_context(closing(Shell(folder, **more)))
        ports = []
        for _ in range(WORKERS):
            process = Process(folder, **more)
            stack.callback(process.kill)
            ports.append(process.port)
        yield shell, ports


def _layers(url: str) -> dict[str, object]:
    backend = "channels_redis.core.RedisChannelLayer"
    return {"default": {"BACKEND": backend, "CONFIG": {"hosts": [url]}}}


def _created(folder: Path, given: dict[str, str]) -> dict[str, str]:
    more = {"TEST_DATABASE": "postgres", "RESTARTS_DATABASE": NAME}
    subprocess.run(["createdb", NAME], check=True, env={**os.environ, **given})
    command = [sys.executable, "-m", "django", "migrate", "-v0"]
    subprocess.run(command, check=True, cwd=ROOT, env=environment(folder, **given, **more))
    return more


def report(database: str, layer: str, took: Took) -> bool:
    print(f"{database}, layer: {layer}")
    for (what, number), found in sorted(took.items()):
        half, most = statistics.median(found), max(found)
        word = "met" if most < MOST else "UNMET"
        figures = f"median {half:.0f} ms, at most {most:.0f} ms (less than {MOST:g}), {len(found)}"
        print(f"  {word}: {what}, worker {number + 1}: {figures}", flush=True)
    return all(max(found) < MOST for found in took.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="few rounds")
    parser.add_argument("--only", default=",".join(DATABASES), help="sqlite, postgres, or both")
    parser.add_argument("--layers", default=",".join(LAYERS), help="none, redis, or both")
    options = parser.parse_args()
    met = [
        report(database, layer, measure(database, layer, 6 if options.short else 24))
        for database in options.only.split(",")
        for layer in options.layers.split(",")
    ]
    return 0 if all(met) else UNMET


if __name__ == "__main__":
    sys.exit(main())
