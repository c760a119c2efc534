"""
Real servers: daphne, uvicorn, granian, hypercorn and gunicorn, each on a free port of its own.

They serve the project in ``tests.spec.served``, or another, with databases of its own. What comes
over the wire is read by a client that knows HTTP and nothing of us.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from django_mcp.protocol.revisions import LATEST
from tools.ports import free_port

from .client import PREFIX
from .http import BOTH, Event, Events

ROOT = Path(__file__).parent.parent
APPLICATION = "tests.spec.served.asgi:application"
SETTINGS = "tests.spec.served.settings"
PATIENCE = 60  # seconds, on a machine that has other things to do
JSON = dict[str, Any]

# How each is started, and its option for a prefix that it is below, if it has one.
COMMANDS: dict[str, tuple[list[str], str]] = {
    "daphne": (["-m", "daphne", "-b", "127.0.0.1", "-p", "{port}", "-v", "0"], "--root-path"),
    "uvicorn": (
        ["-m", "uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"],
        "--root-path",
    ),
    "granian": (
        ["-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}",
         "--log-level", "warning"],
        "--url-path-prefix",
    ),
    "hypercorn": (
        ["-m", "hypercorn", "--workers", "0", "--bind", "127.0.0.1:{port}"], "--root-path",
    ),
    "gunicorn": (
        ["-m", "gunicorn", "--worker-class", "uvicorn_worker.UvicornWorker", "--bind",
         "127.0.0.1:{port}", "--log-level", "warning", "--no-control-socket"],
        "",
    ),
}  # fmt: skip
# uvicorn raises the signal again when it is done, so that who started it knows.
IN_ORDER = {"uvicorn": (-signal.SIGTERM,)}


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a subprocess, without the variables of pytest and Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYT")}
    return kept | {"SERVED_FOLDER": str(folder), "DJANGO_SETTINGS_MODULE": SETTINGS} | more


@cache
def _template() -> Path:
    """Return a folder with migrated databases, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="django_mcp_served_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for alias in ("default", "mcp"):
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "--database", alias, "-v", "0"],
            cwd=ROOT, env=environment(folder), check=True,
        )  # fmt: skip
    return folder


def prepare(folder: Path) -> Path:
    """Copy migrated databases to ``folder``, and return it."""
    for file in _template().iterdir():
        shutil.copy(file, folder)
    return folder


class Served:
    """A running ASGI server. ``root`` is its URL prefix, ``options`` are added to its command."""

    def __init__(
        self,
        server: str,
        folder: Path,
        *options: str,
        root: str = "",
        application: str = APPLICATION,
        port: int | None = None,
        **environ: str,
    ) -> None:
        self.server, self.folder, self.port = server, folder, port or free_port()
        command, rooted = COMMANDS[server]
        filled = [part.format(port=self.port) for part in command]
        rooting = [rooted, root] if root else []
        self.log = folder / "log.txt"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *filled, *rooting, *options, application],
                cwd=ROOT, env=environment(folder, **environ), stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._open: list[http.client.HTTPConnection] = []
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def _wait(self) -> None:
        self.until(self._answers, "it does not listen")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.told()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def until(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        last = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < last, f"{what}\n{self.told()}"
            time.sleep(0.01)
        return found

    def told(self) -> str:
        """Return the log of the server."""
        return self.log.read_text("utf-8", "replace")

    def traced(self, name: str, seconds: float = PATIENCE) -> None:
        """Wait until a tool has written its file."""
        self.until((self.folder / name).exists, f"no trace of {name}", seconds)

    # Requests.

    def connect(self, timeout: float = PATIENCE) -> http.client.HTTPConnection:
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        self._open.append(made)
        return made

    def socket(self, timeout: float = PATIENCE) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def begin(
        self, message: Any, path: str = "/mcp", headers: dict[str, str] | None = None
    ) -> Reply:
        """Send a message, and return when the response begins."""
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        connection = self.connect()
        connection.request("POST", path, raw, around(message) | (headers or {}))
        return Reply(connection, connection.getresponse())

    def call(self, tool: str, /, **arguments: Any) -> JSON:
        """Call a tool and return its result."""
        reply = self.begin(request("tools/call", name=tool, arguments=arguments))
        (*_, last) = reply.messages()
        result: JSON = last["result"]
        return result

    def text(self, tool: str, /, **arguments: Any) -> str:
        return str(self.call(tool, **arguments)["content"][0]["text"])

    # The process.

    def terminate(self) -> None:
        """Send the signal to the process only, as a process manager does."""
        self.process.terminate()

    def interrupt(self) -> None:
        """Send the signal to the process and its workers, as a terminal does at Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self, seconds: float = PATIENCE) -> int:
        """Wait for the exit, and return the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.server} goes on\n{self.told()}") from None

    @property
    def exit_codes(self) -> tuple[int, ...]:
        """The exit codes of a normal end."""
        return IN_ORDER.get(self.server, (0,))

    def kill(self) -> None:
        for connection in self._open:
            connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def children(self) -> list[int]:
        """Return the child processes, such as workers."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in found.read_text().split()] if found.exists() else []

    def resident(self) -> int:
        """Return the memory of the server and its workers in kilobytes."""
        statuses = (Path(f"/proc/{pid}/status") for pid in [*self.children(), self.process.pid])
        lines = [line for one in statuses for line in one.read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *details: object) -> None:
        self.kill()


class Reply:
    """A response that is read in pieces."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self.connection, self.response = connection, response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self._events = Events()

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    def events(self) -> Iterator[Event]:
        """Yield the events as they arrive, to the end of the stream."""
        while line := self.response.readline():
            yield from self._events.feed(line)
        self._events.end()

    @property
    def comments(self) -> int:
        return self._events.comments

    def messages(self) -> Iterator[JSON]:
        """Yield the messages as they arrive, to the end."""
        if self.is_stream:
            yield from (json.loads(event.data) for event in self.events() if event.data)
        else:
            yield json.loads(self.response.read())

    def leave(self) -> None:
        """Close the connection."""
        self.response.close()
        self.connection.close()


def request(method: str, /, *, id: Any = 1, meta: JSON | None = None, **params: Any) -> JSON:
    """Return a request of the newest revision."""
    envelope = {PREFIX + "protocolVersion": LATEST.name, PREFIX + "clientCapabilities": {}}
    given = params | {"_meta": envelope | (meta or {})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": given}


def around(message: Any) -> dict[str, str]:
    """Return the headers of a valid request of the newest revision."""
    found = {
        "Accept": BOTH, "Content-Type": "application/json", "MCP-Protocol-Version": LATEST.name,
    }  # fmt: skip
    if isinstance(message, dict):
        found["Mcp-Method"] = message["method"]
        if name := message["params"].get("name"):
            found["Mcp-Name"] = name
    return found
