"""The wake-up services (Redis, or LISTEN connections of PostgreSQL) and nginx of a campaign."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from tools.database_servers import program, wait_for
from tools.ports import free_port

PATIENCE = 10.0  # seconds
COMMANDS = re.compile(rb"total_commands_processed:(\d+)")


class WakeupService(Protocol):
    """A service that sends wake-ups; it can be killed, or frozen as by a network failure."""

    @property
    def url(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def commands(self) -> int:
        """Return how many commands it has executed since its start."""


class Redis:
    def __init__(self, folder: Path) -> None:
        self.port, self._folder = free_port(), folder
        self._program = program("redis-server", "redis-server")
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        options = ["--save", "", "--appendonly", "no"]
        with open(self._folder / "redis.log", "ab") as log:
            self._running = subprocess.Popen(
                [self._program, *place, *options], stdout=log, stderr=log
            )
        wait_for(self.port, self._running)

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait(PATIENCE)

    def commands(self) -> int:
        """Return how many commands it has executed since its start."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as asking:
            asking.sendall(b"INFO stats\r\nQUIT\r\n")
            told = b"".join(iter(lambda: asking.recv(4096), b""))
        found = COMMANDS.search(told)
        return int(found[1]) if found else 0

    def freeze(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGCONT)


class ListenConnections:
    """The LISTEN connections of all workers to PostgreSQL, which itself keeps running."""

    url = ""
    OURS = "FROM pg_stat_activity WHERE application_name = 'django_mcp wakeups'"

    def __init__(self, port: int) -> None:
        self._place = {"host": "127.0.0.1", "port": port, "user": "postgres", "dbname": "faults"}
        self._hearing: Any = None
        self._heard = 0
        self._frozen: list[int] = []
        self._killing: threading.Event | None = None

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Return rows, or none while the database is down."""
        import psycopg

        with suppress(psycopg.Error), psycopg.connect(**self._place, autocommit=True) as asking:
            return asking.execute(statement).fetchall()
        return []

    def kill(self) -> None:
        """Terminate the connections, and each new one until ``start``."""
        self._killing = ended = threading.Event()

        def kill_on() -> None:
            while not ended.wait(0.1):
                self._ask(f"SELECT pg_terminate_backend(pid) {self.OURS}")

        threading.Thread(target=kill_on, name="no-lines", daemon=True).start()

    def start(self) -> None:
        if self._killing is not None:
            self._killing.set()

    def freeze(self) -> None:
        self._frozen = [pid for (pid,) in self._ask(f"SELECT pid {self.OURS}")]
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def commands(self) -> int:
        import psycopg

        with suppress(psycopg.Error):
            if self._hearing is None or self._hearing.closed:
                self._hearing = psycopg.connect(**self._place, autocommit=True)
            for (listen,) in self._ask(
                f"SELECT query {self.OURS} AND starts_with(query, 'LISTEN')"
            ):
                self._hearing.execute(listen)
            self._heard += sum(1 for _ in self._hearing.notifies(timeout=0))
        return self._heard

    def end(self) -> None:
        self.start()
        self.thaw()
        if self._hearing is not None:
            self._hearing.close()


@contextmanager
def lines(folder: Path, port: int) -> Iterator[ListenConnections]:
    made = ListenConnections(port)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def redis(folder: Path, port: int = 0) -> Iterator[Redis]:
    made = Redis(folder)
    made.start()
    try:
        yield made
    finally:
        made.kill()


WAKEUP_SERVICES: dict[str, Callable[[Path, int], AbstractContextManager[WakeupService]]] = {
    "redis": redis,
    "postgres": lines,
}

# nginx skips workers that are down, and never sends a request twice.
NGINX = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log crit;
events {{ worker_connections 2000; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream workers {{ {servers} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://workers; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $host; proxy_buffering off; proxy_request_buffering off;
      proxy_read_timeout 1h; proxy_connect_timeout 2s;
    }}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, ports: list[int]) -> Iterator[int]:
    """Start nginx in front of the workers, and yield its port."""
    port, configured = free_port(), folder / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{one} max_fails=0;" for one in ports)
    configured.write_text(NGINX.format(folder=folder, servers=servers, port=port))
    command = [program("nginx", "nginx-light"), "-p", str(folder), "-c", str(configured)]
    with open(folder / "nginx.out", "wb") as words:
        running = subprocess.Popen(command, stdout=words, stderr=words)
    try:
        wait_for(port, running)
        yield port
    finally:
        running.terminate()
        running.wait(PATIENCE)
