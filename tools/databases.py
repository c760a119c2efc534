"""`python -m tools databases`: print which database servers are reachable, or why not.

The servers are those of tests/settings.py, configured by the same environment variables.
"""

import os
from collections.abc import Callable
from typing import NamedTuple


class Server(NamedTuple):
    """A database server that the tests know: how to ask whether it is there."""

    label: str
    prefix: str  # of the variables that name it
    port: str
    connect: Callable[["Server"], None]

    def variable(self, name: str, default: str) -> str:
        return os.environ.get(f"{self.prefix}{name}", default)

    @property
    def address(self) -> tuple[str, int]:
        return self.variable("HOST", "127.0.0.1"), int(self.variable("PORT", self.port))


def ask_postgres(server: Server) -> None:
    import psycopg

    host, port = server.address
    user, password = server.variable("USER", "postgres"), server.variable("PASSWORD", "")
    psycopg.connect(
        host=host, port=port, user=user, password=password, dbname="postgres", connect_timeout=5
    ).close()


def ask_mariadb(server: Server) -> None:
    import pymysql

    host, port = server.address
    user, password = server.variable("USER", "root"), server.variable("PASSWORD", "")
    pymysql.connect(host=host, port=port, user=user, password=password, connect_timeout=5).close()


SERVERS = {
    "postgres": Server("PostgreSQL", "PG", "5432", ask_postgres),
    "mariadb": Server("MariaDB", "MARIADB_", "3306", ask_mariadb),
}


def main(arguments: list[str]) -> int:
    absent = {name: why_absent(name) for name in arguments or SERVERS}
    for name, why in absent.items():
        print(why or f"{SERVERS[name].label} answers at {address_of(SERVERS[name])}")
    return int(any(absent.values()))


def why_absent(name: str) -> str | None:
    """Nothing if the server lets us in, otherwise why not and what to do about it."""
    server = SERVERS[name]
    try:
        server.connect(server)
    except Exception as error:
        # Whatever a driver raises is the answer to the question asked here.
        reason = " ".join(str(error).split()) or type(error).__name__
        prefix = server.prefix
        return (
            f"no {server.label} accepts a connection at {address_of(server)} ({reason}); "
            f"{prefix}HOST, {prefix}PORT, {prefix}USER and {prefix}PASSWORD name another"
        )
    return None


def address_of(server: Server) -> str:
    host, port = server.address
    return f"{host}:{port}"
