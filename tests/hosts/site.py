"""The site of the guide: workers, each on its host, as systemd would start them, and nginx."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tools.database_servers import program

from . import shown
from .network import Network

SECONDS = 60
LEASE = 3.0
WORKERS = ("web1", "web2")


class Site:
    def __init__(self, hosts: Network, addresses: dict[str, str], folder: Path) -> None:
        self.hosts, self.addresses, self._folder = hosts, addresses, folder
        self._stack = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @staticmethod
    def environment(**more: str) -> dict[str, str]:
        given = {"DJANGO_SETTINGS_MODULE": "tests.hosts.settings", "LEASE": str(LEASE)}
        return {**os.environ, "PYTHONPATH": str(shown.ROOT), **shown.env(), **given, **more}

    def manage(self, *arguments: str, fails: bool = False, **more: str) -> str:
        """Run a management command on the client's host, and return what it prints."""
        command = [sys.executable, "-m", "django", *arguments]
        with self.hosts.inside("client"):
            done = subprocess.run(
                command, cwd=shown.ROOT, env=self.environment(**more), text=True,
                capture_output=True,
            )  # fmt: skip
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def begin(self, *, nginx_without: str = "", **more: str) -> Site:
        """Start all servers until the test ends, nginx maybe without a line of its site."""
        for name in WORKERS:
            command = shown.by_systemd(self.addresses[name], 8000)
            self._start(name, command, self.environment(BIND=self.addresses[name], **more))
        self._start_nginx(shown.nginx(self._folder, nginx_without))
        for name in WORKERS:
            self.until(lambda name=name: self.asked(name, "ready") == (200, "ready"))
        return self

    def begin_beside_wsgi(self, **more: str) -> Site:
        """Start the site on WSGI and the ASGI server on the host of nginx."""
        for command in shown.beside_wsgi():
            environment = self.environment(**more) | {"FORWARDED_ALLOW_IPS": "127.0.0.1"}
            self._start("front", command, environment)
        self._start_nginx(shown.nginx(self._folder, site=shown.SITE_BESIDE_WSGI))
        for path in ("/admin/login/", "/oauth/register"):
            self.until(lambda path=path: self.status("front", path) not in (0, 502))
        return self

    def _start_nginx(self, configured: Path) -> None:
        nginx = [program("nginx", "nginx-light"), "-p", str(self._folder), "-c", str(configured)]
        self._start("front", nginx, dict(os.environ), is_nginx=True)

    def _start(
        self, host: str, command: list[str], environment: dict[str, str], is_nginx: bool = False
    ) -> None:
        words = self._stack.enter_context((self._folder / f"{host}.log").open("ab"))
        with self.hosts.inside(host):
            running = subprocess.Popen(
                command, cwd=shown.ROOT, env=environment, stdout=words, stderr=words
            )
        self._running[host] = running
        self._stack.callback(running.wait)
        # Killed, nginx and gunicorn would leave their worker processes, which go on listening.
        has_workers = is_nginx or "gunicorn" in command
        self._stack.callback(running.terminate if has_workers else running.kill)

    def end(self, name: str) -> None:
        """Stop a worker as systemd does, and wait for it as long as systemd would."""
        self._running[name].terminate()
        self._running[name].wait(int(dict(shown.service())["TimeoutStopSec"]))

    def at(self, name: str) -> tuple[str, int]:
        return self.addresses[name], 80 if name == "front" else 8000

    def words(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def status(self, name: str, path: str) -> int:
        """Return the status of a request to a host from itself, or 0 without a response."""
        return self._got(name, path)[0]

    def asked(self, name: str, which: str) -> tuple[int, str]:
        """Return status and text of a health endpoint of a worker, from its own host."""
        return self._got(name, f"/health/{which}")

    def _got(self, name: str, path: str) -> tuple[int, str]:
        with self.hosts.inside(name):
            connection = http.client.HTTPConnection(*self.at(name), timeout=10)
            try:
                connection.request("GET", path, headers={"Host": "shop.example"})
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
            said = {log.name: log.read_text()[-3000:] for log in self._folder.glob("*.log")}
            assert time.monotonic() < end, said
            time.sleep(0.1)
