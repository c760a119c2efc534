"""The databases of a campaign: started for it, and stopped without a shutdown.

A failure is that of a machine, never orderly; committed data is there after the recovery. SQLite
has no server: instead another connection holds its lock for a while.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from tools.database_servers import do, folder_of, program, start, wait_for
from tools.ports import free_port

PATIENCE = 30.0  # seconds


class Database(Protocol):
    """A database on ``port``; ``fail`` and ``recover`` block until they are done."""

    port: int

    def fail(self) -> None: ...

    def recover(self) -> None: ...


class SQLite:
    """Two files: that of the project and that of the sessions."""

    port = 0
    FILES = ("db.sqlite3", "mcp.sqlite3")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[sqlite3.Connection] = []

    def fail(self) -> None:
        """Take the exclusive lock, after the present transaction."""
        self._held = [
            sqlite3.connect(
                self._folder / name, timeout=PATIENCE, check_same_thread=False, isolation_level=None
            )
            for name in self.FILES
        ]
        for one in self._held:
            one.execute("BEGIN EXCLUSIVE")

    def recover(self) -> None:
        held, self._held = self._held, []
        for one in held:
            one.close()


class Postgres:
    def __init__(self, folder: Path, account: str | None) -> None:
        self.port = free_port()
        self._ctl, self._account = program("pg_ctl", "postgresql"), account
        self._data, self._log = folder / "data", folder / "log"
        initdb = program("initdb", "postgresql")
        do(account, initdb, "-A", "trust", "-U", "postgres", "-E", "UTF8", "-D", self._data)
        # Only processes are killed, so written data survives without fsync.
        settings = f"-h 127.0.0.1 -k {folder} -c fsync=off -c max_connections=300"
        self._options = f"-p {self.port} {settings}"

    def recover(self) -> None:
        self._do("-l", self._log, "-w", "-o", self._options, "start")

    def fail(self) -> None:
        self._do("-m", "immediate", "-w", "stop")

    def _do(self, *arguments: str | Path) -> None:
        do(self._account, self._ctl, "-D", self._data, *arguments)

    def prepare(self) -> None:
        import psycopg

        place: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "user": "postgres"}
        with psycopg.connect(**place, autocommit=True) as connection:
            connection.execute("CREATE DATABASE faults")


class MariaDB:
    def __init__(self, folder: Path, account: str | None) -> None:
        self.port = free_port()
        self._folder, self._account = folder, account
        self._server = program("mariadbd", "mariadb-server")
        self._running: subprocess.Popen[bytes] | None = None
        self._data = f"--datadir={folder / 'data'}"
        installer = program("mariadb-install-db", "mariadb-server")
        normal = "--auth-root-authentication-method=normal"
        do(account, installer, "--no-defaults", self._data, normal)

    def recover(self) -> None:
        place = [f"--port={self.port}", f"--socket={self._folder / 'socket'}"]
        # Only processes are killed, so written data survives without a flush: see PostgreSQL.
        limits = ["--bind-address=127.0.0.1", "--max-connections=300"]
        limits += ["--innodb-flush-log-at-trx-commit=2"]
        with open(self._folder / "log", "ab") as log:
            self._running = start(
                self._account, log, self._server, "--no-defaults", self._data, *place, *limits
            )
        wait_for(self.port, self._running)

    def fail(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGKILL)
        self._running.wait(PATIENCE)

    def prepare(self) -> None:
        import pymysql

        until = time.monotonic() + PATIENCE
        while True:  # it listens before it accepts logins
            try:
                connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root")
                break
            except pymysql.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE faults CHARACTER SET utf8mb4")


SERVERS: dict[str, tuple[type[Postgres] | type[MariaDB], str]] = {
    "postgres": (Postgres, "postgres"),
    "mariadb": (MariaDB, "mysql"),
}


@contextmanager
def database(name: str, folder: Path) -> Iterator[Database]:
    """Start an empty database, and stop it at the end."""
    if name == "sqlite":
        yield SQLite(folder)
        return
    make, account = SERVERS[name]
    with folder_of(account) as (place, owner):
        made = make(place, owner)
        made.recover()
        try:
            made.prepare()
            yield made
        finally:
            with suppress(SystemExit, subprocess.TimeoutExpired):  # it may have failed just now
                made.fail()
