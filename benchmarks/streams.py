"""
What an idle stream costs: the memory of each, and the processor time of all.

    python -m tools benchmark streams [--short] [--few 50] [--many 2050] [--idle 30]

Each is the GET stream of its own session, opened with a token. Memory is the growth of the process
from few streams to many, divided by the number of streams that were added. Processor time is taken
while the server only keeps the streams alive. Exits with 1 if a stream is lost, and with 3 if a
figure is not met.
"""

from __future__ import annotations

import argparse
import resource
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace

from benchmarks.contenders import BY_NAME
from benchmarks.messages import SESSION, WrongResponse, open_session
from benchmarks.servers import RunningServer, pinned
from tools.benchmark import UNMET

DAPHNE = "-m daphne -v 0 -p {port} {application}"
# The server, how it is started, and how many KB a stream may take.
SERVERS = (
    ("uvicorn", BY_NAME["django_mcp"].command, 30.0),
    ("daphne", DAPHNE, 34.0),
)
MOST_CPU = 2.0  # per cent of a core
TWO_BEATS = 30.0  # seconds within which every stream must receive a keep-alive
SETTLED = 3.0  # seconds after which the opening of streams costs nothing more
MAKE_TOKEN = """
import benchmarks.server
from django.contrib.auth.models import User
from django_mcp.models import Token
user, _ = User.objects.get_or_create(username="benchmark")
print(Token.make(user, "benchmark")[1])
"""


@dataclass
class Found:
    """What was measured under one server."""

    server: str
    kilobytes: float  # for each stream
    cpu: float  # per cent of a core
    most: float

    @property
    def is_met(self) -> bool:
        return self.kilobytes <= self.most and self.cpu < MOST_CPU

    def __str__(self) -> str:
        verdict = "met" if self.is_met else "UNMET"
        return (
            f"{verdict}: {self.server}, {self.kilobytes:.1f} KB for each idle stream (at most"
            f" {self.most:g}), {self.cpu:.2f} % of a core for all (less than {MOST_CPU:g})"
        )


def measure(server: str, command: str, most: float, few: int, many: int, idle: float) -> Found:
    contender = replace(BY_NAME["django_mcp"], command=command)
    with contender.running() as started, pinned():
        token = make_token(contender.python, started)
        streams = open_streams(started, token, few)
        before = started.memory()
        streams += open_streams(started, token, many - few)
        grown = started.memory() - before
        cpu = idling(started, streams, idle)
        for stream in streams:
            stream.close()
    return Found(server, grown / (many - few) / 1024, cpu, most)


def make_token(python: object, started: RunningServer) -> str:
    made = subprocess.run(
        [str(python), "-c", MAKE_TOKEN], env=started.environ, stdout=subprocess.PIPE, check=True
    )
    return made.stdout.decode().strip()


def open_streams(started: RunningServer, token: str, number: int) -> list[socket.socket]:
    """Open this many streams, each in its own session, and wait until they are idle."""
    opened = [open_stream(started.address, token) for _ in range(number)]
    time.sleep(SETTLED)
    return opened


def open_stream(address: tuple[str, int], token: str) -> socket.socket:
    headers = open_session(address, token) | {"MCP-Protocol-Version": SESSION}
    headers |= {"Host": "{}:{}".format(*address), "Accept": "text/event-stream"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    stream = socket.create_connection(address, timeout=20)
    stream.sendall(f"GET /mcp HTTP/1.1\r\n{lines}\r\n".encode())
    head = stream.recv(4096)
    if not head.startswith(b"HTTP/1.1 200") or b"text/event-stream" not in head.lower():
        raise WrongResponse(head.decode(errors="replace"))
    return stream


def idling(started: RunningServer, streams: list[socket.socket], seconds: float) -> float:
    """Return the server's per cent of a core while it only keeps the streams alive."""
    kept: set[int] = set()
    waiting = {stream.fileno(): stream for stream in streams}
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    began, before = time.monotonic(), started.cpu()
    while (passed := time.monotonic() - began) < seconds:
        for number, _ in poll.poll((seconds - passed) * 1000):
            if not waiting[number].recv(4096):
                raise WrongResponse("A stream was closed while it was idle")
            kept.add(number)
    if seconds >= TWO_BEATS and len(kept) < len(streams):
        raise WrongResponse(f"{len(streams) - len(kept)} streams were not kept alive")
    return (started.cpu() - before) / passed * 100


def raise_limit(wanted: int) -> None:
    """Allow this many open files, here and in the server, which inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    elif soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer streams, for a shorter time")
    parser.add_argument("--only", help="uvicorn or daphne")
    parser.add_argument("--few", type=int, default=50)
    parser.add_argument("--many", type=int, default=2050)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds")
    options = parser.parse_args()
    many, idle = (650, 15.0) if options.short else (options.many, options.idle)
    raise_limit(many + 200)
    found = []
    for server, command, most in SERVERS:
        if options.only in (None, server):
            found.append(measure(server, command, most, options.few, many, idle))
            print(found[-1], flush=True)
    return 0 if all(one.is_met for one in found) else UNMET


if __name__ == "__main__":
    sys.exit(main())
