"""
What is measured: the project, its peers at pinned versions, and two servers that do almost
nothing.

Each contender is one process. All that allow it run under the same ASGI server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.environments import NotInstallable, interpreter, version
from benchmarks.messages import LIST, SESSION, STATELESS
from benchmarks.servers import RunningServer, running
from tools.database_servers import postgres
from tools.ports import free_port

OURS = ("-e", ".[daphne,oauth,redis]", "psycopg[binary]==3.*")
# Idle connections stay open for a minute, because a busy machine lets a connection wait for long.
UVICORN = (
    "-m uvicorn --no-access-log --log-level warning --timeout-keep-alive 60"
    " --port {port} {how} {application}"
)
# As `pip install uvicorn` leaves it, which is what the peers bring; and as uvicorn[standard] does.
SERVERS = {"plain": "--loop asyncio --http h11", "fast": "--loop uvloop --http httptools"}


@dataclass(frozen=True)
class Contender:
    """A server to measure: the packages it needs, and the command that starts it."""

    name: str
    application: str
    packages: tuple[str, ...] = OURS
    distribution: str = ""
    command: str = UVICORN
    environ: dict[str, str] = field(default_factory=dict)
    oldest: tuple[int, int] = (3, 11)
    variants: tuple[str, ...] = (STATELESS, SESSION)
    tools: tuple[str, ...] = ("add",)
    about: str = ""
    has_postgres: bool = False  # a PostgreSQL server of its own, which is not measured

    @property
    def python(self) -> Path:
        return interpreter(self.distribution or "django_mcp", self.packages, self.oldest)

    @property
    def title(self) -> str:
        found = version(self.python, self.distribution) if self.distribution else ""
        return " ".join(filter(None, (self.name, found)))

    @contextmanager
    def running(self, server: str = "plain", **environ: str) -> Iterator[RunningServer]:
        port, how = free_port(), SERVERS[server]
        arguments = self.command.format(port=port, application=self.application, how=how).split()
        with ExitStack() as stack:
            given = self.environ | environ
            if self.has_postgres:
                given |= {"BENCHMARK_DATABASE": "postgres", **stack.enter_context(postgres())}
            yield stack.enter_context(running([str(self.python), *arguments], port, given))


def peer(name: str, application: str, wanted: str, **more: object) -> Contender:
    where = f"benchmarks.peers.{application}"
    return Contender(name, where, (wanted,), wanted.split("==")[0], **more)  # type: ignore[arg-type]


def floor(name: str) -> Contender:
    return Contender(name, f"benchmarks.peers.{name}:application", variants=(STATELESS,))


OAUTH = {"BENCHMARK_OAUTH": "1"}  # the project as an authorization server
AS_JSON = {"environ": {"ANSWERS": "json"}}
LISTED = 200  # tools
LISTING = {"environ": {"BENCHMARK_TOOLS": str(LISTED)}, "variants": (STATELESS,), "tools": (LIST,)}
CONTENDERS = (
    Contender("django_mcp", "benchmarks.server:application", tools=("add", "add_sync", "city")),
    Contender(
        "django_mcp-postgres",
        "benchmarks.server:application",
        variants=(SESSION,),
        has_postgres=True,
    ),
    Contender("django_mcp-200", "benchmarks.server:application", **LISTING),  # type: ignore[arg-type]
    peer("mcp", "sdk:application", "mcp==2.3.*"),
    # Off by default. It makes a response in a session one JSON body instead of a stream.
    peer("mcp-json", "sdk:application", "mcp==2.3.*", **AS_JSON, variants=(SESSION,)),
    peer("fastmcp", "fast:application", "fastmcp==4.1.*"),
    peer("fastmcp-200", "fast:application", "fastmcp==4.1.*", **LISTING),
    peer(
        "bolt-mcp",
        "bolt",
        "bolt-mcp==0.2.*",
        command="-m {application} {port}",
        oldest=(3, 12),
        about="a server of its own, in Rust",
    ),
    Contender(
        "django-view",
        "benchmarks.peers.view:application",
        environ={"BENCHMARK_URLS": "benchmarks.peers.view"},
        variants=(STATELESS,),
        tools=("city",),
    ),
    floor("lean"),
    floor("bare"),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}


def main() -> None:
    """Install the packages of all contenders."""
    for contender in CONTENDERS:
        try:
            print(f"Ready: {contender.title}", flush=True)
        except NotInstallable as problem:
            print(problem, flush=True)


if __name__ == "__main__":
    main()
