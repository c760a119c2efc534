"""Four hosts and a client: two workers, one with PostgreSQL and Redis, and nginx."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.restarts.processes import Client
from tools.database_servers import do, folder_of, program

from . import network, shown
from .site import Site

ADDRESSES = {
    "front": "10.0.0.2", "client": "10.0.0.3", "data": "10.0.0.10", "web1": "10.0.0.11",
    "web2": "10.0.0.12",
}  # fmt: skip


@pytest.fixture(scope="module")
def hosts() -> Iterator[network.Network]:
    if reason := network.why_not():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with network.Network() as made:
        for name, address in ADDRESSES.items():
            made.add(name, address)
        yield made


@pytest.fixture(scope="module")
def data(
    hosts: network.Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], None]]:
    """PostgreSQL, with the tables of the project, and Redis.

    ``data("stop")`` and ``data("start")`` make an outage of PostgreSQL.
    """
    initdb, pg_ctl = (program(name, "postgresql") for name in ("initdb", "pg_ctl"))
    redis, place = program("redis-server", "redis-server"), tmp_path_factory.mktemp("redis")
    with folder_of("postgres") as (folder, account), ExitStack() as stack:
        kept, address = folder / "data", ADDRESSES["data"]
        do(account, initdb, "-A", "trust", "-U", "shop", "-E", "UTF8", "-D", kept)
        with (kept / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.0.0.0/24 trust\n")
        options = f"-h {address} -k {folder} -c fsync=off"

        def postgres(action: str) -> None:
            by = ["-m", "immediate"] if action == "stop" else ["-l", folder / "log", "-o", options]
            with hosts.inside("data"):
                do(account, pg_ctl, "-D", kept, "-w", *by, action)

        postgres("start")
        stack.callback(postgres, "stop")
        with hosts.inside("data"):
            running = subprocess.Popen(
                [redis, "--bind", address, "--protected-mode", "no", "--save", "",
                 "--appendonly", "no", "--dir", str(place), "--logfile", "redis.log"],
            )  # fmt: skip
            stack.callback(running.wait)
            stack.callback(running.terminate)
        _prepare(hosts)
        yield postgres


def _prepare(hosts: network.Network) -> None:
    import psycopg

    with hosts.inside("client"):
        place: dict[str, Any] = {"host": ADDRESSES["data"], "user": "shop", "dbname": "postgres"}
        with psycopg.connect(**place, autocommit=True) as asking:
            asking.execute("CREATE DATABASE shop")
        migrate = [sys.executable, "-m", "django", "migrate", "-v0"]
        subprocess.run(migrate, check=True, cwd=shown.ROOT, env=Site.environment())


@pytest.fixture
def site(hosts: network.Network, data: object, tmp_path: Path) -> Iterator[Site]:
    """A site with two workers behind nginx. The test runs on the host of the client."""
    with Site(hosts, ADDRESSES, tmp_path) as made, hosts.inside("client"):
        yield made
    for name in ADDRESSES:
        hosts.mend(name)


@pytest.fixture
def connect() -> Iterator[Any]:
    made: list[Client] = []

    def connected(place: tuple[str, int]) -> Client:
        made.append(Client(place, host="shop.example"))
        return made[-1]

    yield connected
    for client in made:
        client.close()
