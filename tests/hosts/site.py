"""The site of the guide: workers, each on its host, as systemd would start them, and nginx."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from tools.servers import program

from . import shown
from .network import Network

SECONDS = 60
LEASE = 3.0
WORKERS = ("web1", "web2")


class Site:
    def __init__(self, hosts: Network, addresses: dict[str, str], folder: Path) -> None:
        self._hosts, self.addresses, self._folder = hosts, addresses, folder
        self._stack = ExitStack()
        self.more: dict[str, str] = {}

    @staticmethod
    def environment(**more: str) -> dict[str, str]:
        given = {"DJANGO_SETTINGS_MODULE": "tests.hosts.settings", "LEASE": str(LEASE)}
        return {**os.environ, "PYTHONPATH": str(shown.ROOT), **shown.env(), **given, **more}

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def begin(self, **more: str) -> Site:
        """All that is to be served by, until the test ends."""
        for name in WORKERS:
            command = shown.by_systemd(self.addresses[name], 8000)
            self._start(name, command, self.environment(BIND=self.addresses[name], **more))
        configured = shown.nginx(self._folder)
        nginx = [program("nginx", "nginx-light"), "-p", str(self._folder), "-c", str(configured)]
        self._start("front", nginx, dict(os.environ))
        for name in WORKERS:
            self.until(lambda name=name: self.asked(name, "ready") == (200, "ready"))
        return self

    def _start(self, host: str, command: list[str], environment: dict[str, str]) -> None:
        words = self._stack.enter_context((self._folder / f"{host}.log").open("wb"))
        with self._hosts.inside(host):
            running = subprocess.Popen(
                command, cwd=shown.ROOT, env=environment, stdout=words, stderr=words
            )
        self._stack.callback(running.wait)
        self._stack.callback(running.kill)

    def at(self, name: str) -> tuple[str, int]:
        return self.addresses[name], 80 if name == "front" else 8000

    def words(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def asked(self, name: str, which: str) -> tuple[int, str]:
        """What a worker says of its health, to somebody on its own host."""
        with self._hosts.inside(name):
            connection = http.client.HTTPConnection(*self.at(name), timeout=10)
            try:
                connection.request("GET", f"/health/{which}")
                answer = connection.getresponse()
                return answer.status, answer.read().decode().strip()
            except OSError as error:
                return 0, str(error)
            finally:
                connection.close()

    def until(self, condition: object) -> None:
        assert callable(condition)
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, {name: self.words(name) for name in WORKERS}
            time.sleep(0.1)
