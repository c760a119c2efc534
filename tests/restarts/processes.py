"""Worker processes that can be killed, and a plain HTTP client with sessions."""

from __future__ import annotations

import atexit
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
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tools.ports import free_port

ROOT = Path(__file__).parent.parent.parent
SECONDS = 40
JSON = dict[str, Any]
Address = int | tuple[str, int]  # a local port, or a host and port
SERVERS = {
    "uvicorn": "uvicorn tests.restarts.asgi:application --port {port} --log-level warning",
    "daphne": "daphne -v 0 -p {port} tests.restarts.asgi:application",
    "granian": "granian --interface asgi --port {port} --log-level warning"
    " tests.restarts.asgi:application",
}


def environment(folder: Path, **more: str) -> dict[str, str]:
    given = {"DJANGO_SETTINGS_MODULE": "tests.restarts.settings", "RESTARTS": str(folder)}
    return {**os.environ, "PYTHONPATH": str(ROOT), **given, **more}


def migrate(folder: Path, **more: str) -> None:
    """Give the project two migrated SQLite databases in ``folder``."""
    shutil.copytree(_migrated(frozenset(more.items())), folder, dirs_exist_ok=True)


@cache
def _migrated(more: frozenset[tuple[str, str]]) -> Path:
    """Return a folder with migrated databases, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="django_mcp_restarts_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for alias in ("default", "mcp"):
        command = [sys.executable, "-m", "django", "migrate", "-v0", f"--database={alias}"]
        subprocess.run(command, check=True, cwd=ROOT, env=environment(folder, **dict(more)))
    return folder


class Process:
    """One worker process."""

    def __init__(
        self, folder: Path, *, lease: float = 15.0, server: str = "uvicorn", **more: str
    ) -> None:
        self.port = free_port()
        self.log = (folder / f"{self.port}.log").open("wb")
        command = SERVERS[server].format(port=self.port).split()
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT,
            env=environment(folder, LEASE=str(lease), **more),
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._wait()

    @property
    def output(self) -> str:
        """Everything that the process has printed."""
        return Path(self.log.name).read_text()

    def _wait(self) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            assert self._process.poll() is None, self.output
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("It does not answer.")

    def kill(self) -> None:
        """Kill it with SIGKILL: nothing is cleaned up."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self.log.close()

    def suspend(self) -> None:
        """Suspend it; the process does not notice."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """Send a signal to the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def terminate(self) -> float:
        """Terminate it as a deployment does, and return how many seconds that took."""
        began = time.monotonic()
        self._process.terminate()
        self._process.wait(SECONDS)
        return time.monotonic() - began


class Response:
    """An HTTP response that is read as it arrives."""

    def __init__(
        self, address: Address, method: str, headers: dict[str, str], body: bytes = b""
    ) -> None:
        host, port = address if isinstance(address, tuple) else ("127.0.0.1", address)
        self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        self._connection.request(method, "/mcp", body, headers)
        self._response = self._connection.getresponse()
        self.status, self.headers = self._response.status, self._response.headers
        self.events: list[tuple[str, str]] = []  # (id, data)
        self.retried = False

    def __iter__(self) -> Iterator[JSON]:
        """Iterate over the messages of a stream, and record empty events."""
        fields: dict[str, str] = {}
        for raw in self._response:
            line = raw.decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if line and not line.startswith(":"):
                fields[name.rstrip(":")] = value
            elif not line and fields:
                self.events.append((fields.get("id", ""), fields.get("data", "")))
                self.retried |= "retry" in fields
                if fields.get("data"):
                    yield json.loads(fields["data"])
                fields = {}

    def primed(self) -> str:
        """Read only the empty event at the start of a stream, and return its id."""
        lines = [self._response.readline().decode().rstrip("\n") for _ in range(4)]
        found = dict(line.split(": ", 1) if ": " in line else (line, "") for line in lines if line)
        assert found.get("data:", found.get("data")) == "", lines
        return str(found["id"])

    def json(self) -> JSON:
        found: JSON = json.loads(self._response.read())
        return found

    def tool_text(self) -> str:
        """Return the text of a tool result, from JSON or from a stream."""
        is_plain = "json" in self.headers["content-type"]
        return text(self.json() if is_plain else list(self)[-1])

    @property
    def last(self) -> str:
        return [id for id, _ in self.events if id][-1]

    def cut(self) -> None:
        """Close the connection."""
        self._response.close()
        self._connection.close()


class Client:
    """A client of one session, which may use any worker process."""

    token = 0  # primary key of its token, if it has one

    def __init__(
        self, port: Address, *, token: str = "", revision: str = "2025-11-25", host: str = ""
    ) -> None:
        self.port, self.count = port, 0
        self.answers: list[Response] = []
        self.headers = {
            "accept": "application/json, text/event-stream", "content-type": "application/json",
        }  # fmt: skip
        if host:
            self.headers["host"] = host
        if token:
            self.headers["authorization"] = f"Bearer {token}"
        params = {
            "protocolVersion": revision, "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "restarts", "version": "1"},
        }  # fmt: skip
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = revision
        answer.json()
        self.notify("notifications/initialized")

    def post(self, message: JSON, port: Address | None = None) -> Response:
        body = json.dumps(message).encode()
        return self._kept(Response(port or self.port, "POST", self.headers, body))

    def _kept(self, answer: Response) -> Response:
        self.answers.append(answer)
        return answer

    def close(self) -> None:
        for answer in self.answers:
            answer.cut()

    def notify(self, method: str, port: Address | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        assert self.post(message, port).status == 202

    def call(self, tool: str, /, **arguments: Any) -> Response:
        self.count += 1
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self.count}}
        message = {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": params}
        return self.post(message)

    def get(self, last: str | None = None, port: Address | None = None) -> Response:
        more = {} if last is None else {"last-event-id": last}
        return self._kept(Response(port or self.port, "GET", {**self.headers, **more}))

    def delete(self, port: Address | None = None) -> Response:
        return self._kept(Response(port or self.port, "DELETE", self.headers))

    def answer(self, asked: JSON, port: Address | None = None) -> None:
        result = {"action": "accept", "content": {"answer": True}}
        message = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        assert self.post(message, port).status == 202


def text(message: JSON) -> str:
    found: str = message["result"]["content"][0]["text"]
    return found
