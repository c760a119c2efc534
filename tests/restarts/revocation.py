"""Helpers for the tests of revocation: a shell that changes permissions, and recording clients."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .processes import JSON, ROOT, Client, Response, environment

PREFIX = "io.modelcontextprotocol/"
META = {
    PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {},
    PREFIX + "clientInfo": {"name": "restarts", "version": "1"},
}  # fmt: skip
LISTS = {"toolsListChanged": True, "resourcesListChanged": True}
SHELL = """
import sys, time, django
django.setup()
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django_mcp.models import Switch, Token
for line in sys.stdin:
    began = time.time()
    value = None
    with transaction.atomic():
        exec(line)
    print(began, value, flush=True)
"""


class Shell:
    """A process of the project that executes statements and serves no requests."""

    def __init__(self, folder: Path, **more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHELL], cwd=ROOT, env=environment(folder, **more), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def do(self, statement: str) -> tuple[float, str]:
        """Run a statement in a transaction. Return its start time and the ``value`` that it set."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()
        began, value = self._process.stdout.readline().rstrip("\n").split(" ", 1)
        return float(began), value

    def person(self, name: str) -> str:
        """Create a user in a group of the same name that may see groups. Return a token."""
        self.do(
            f"u = User.objects.create_user({name!r}); g = Group.objects.create(name={name!r});"
            "g.permissions.add(Permission.objects.get(codename='view_group')); u.groups.add(g)"
        )
        return self.do(f"value = Token.make(User.objects.get(username={name!r}), 't')[1]")[1]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class StreamRecorder:
    """Reads a stream in a thread, and records the time of each message and of the end."""

    def __init__(self, answer: Response) -> None:
        assert answer.status == 200, answer.json()
        self.answer, self.messages = answer, list[tuple[float, JSON]]()
        self.ended: float | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self.answer:
                self.messages.append((time.time(), message))
        except (OSError, ValueError, AttributeError):
            pass  # the connection was closed
        finally:
            self.ended = time.time()
            self.answer.cut()

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._thread.is_alive() and (line := self.answer._connection.sock) is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def wait(self, method: str, since: float, seconds: float = 20) -> float:
        """Return when the first such notification after ``since`` arrived."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [at for at, one in list(self.messages) if one.get("method") == method]
            if late := [at for at in found if at >= since]:
                return late[0]
            time.sleep(0.005)
        raise TimeoutError(f"{method} did not arrive: {self.messages}")

    def end(self, seconds: float = 20) -> float:
        """Return when the stream ended."""
        self._thread.join(seconds)
        assert self.ended is not None, "It goes on."
        return self.ended


def stateless_request(port: int, token: str, method: str, **params: Any) -> Response:
    """Send a request of the revision without sessions."""
    params = {**params, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {
        "accept": "application/json, text/event-stream", "content-type": "application/json",
        "authorization": f"Bearer {token}", "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }  # fmt: skip
    if name := params.get("name", params.get("uri")):
        headers["mcp-name"] = name
    return Response(port, "POST", headers, json.dumps(message).encode())


def listen(port: int, token: str) -> Response:
    return stateless_request(port, token, "subscriptions/listen", notifications=LISTS)


def response_of(answer: Response) -> JSON:
    """Return the response, from JSON or from a stream."""
    is_plain = "json" in (answer.headers["content-type"] or "")
    try:
        return answer.json() if is_plain else list(answer)[-1]
    finally:
        answer.cut()


def open_all_kinds(
    ports: Sequence[int],
    token: str,
    connect: Callable[..., Client],
    record: Callable[..., StreamRecorder],
) -> dict[str, StreamRecorder]:
    """Open a session stream, a listen and a call at each worker."""
    at = [(port, connect(port, token)) for port in ports]
    opened = {f"session {port}": record(client.get()) for port, client in at}
    opened |= {f"listen {port}": record(listen(port, token)) for port in ports}
    return opened | {f"call {port}": record(one.call("guarded", seconds=60)) for port, one in at}


def results(opened: dict[str, StreamRecorder]) -> list[JSON]:
    """Return the results of the calls."""
    said = [
        one for where, record in opened.items() if "call" in where for _, one in record.messages
    ]
    return [one for one in said if "result" in one]


def refusals(ports: Sequence[int], token: str) -> list[int]:
    """Return the status with which each worker rejects a request."""
    refused = [stateless_request(port, token, "tools/list") for port in ports]
    assert all("error" in response_of(one) for one in refused)
    return [one.status for one in refused]


def report(what: str, since: float, at: dict[str, float]) -> None:
    delays = ", ".join(f"{name} {(when - since) * 1000:.0f} ms" for name, when in at.items())
    print(f"{what}: {delays}")


def tool_names(response: JSON) -> set[str]:
    return {tool["name"] for tool in response["result"]["tools"]}


def listed_tools(client: Client, port: int | None = None) -> set[str]:
    """Return the names of the tools that a session's client can list."""
    client.count += 1
    message = {"jsonrpc": "2.0", "id": client.count, "method": "tools/list", "params": {}}
    return tool_names(response_of(client.post(message, port)))


class Pipe:
    """A stdio client with one session."""

    def __init__(self, folder: Path, user: str, **more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django", "mcp_stdio", "--user", user], cwd=ROOT, text=True,
            env=environment(folder, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.messages: list[tuple[float, JSON]] = []
        self.count = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        params = {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "restarts", "version": "1"},
        }  # fmt: skip
        self.ask("initialize", **params)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.messages.append((time.time(), json.loads(line)))

    def _write(self, message: JSON) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def begin(self, method: str, **params: Any) -> int:
        self.count += 1
        self._write({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})
        return self.count

    def ask(self, method: str, **params: Any) -> JSON:
        return self.answer_to(self.begin(method, **params))[1]

    def answer_to(self, id: int) -> tuple[float, JSON]:
        return self._wait(lambda at, one: one.get("id") == id)

    def wait_for(self, method: str, since: float) -> float:
        return self._wait(lambda at, one: one.get("method") == method and at >= since)[0]

    def _wait(self, is_meant: Any, seconds: float = 20) -> tuple[float, JSON]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := [both for both in list(self.messages) if is_meant(*both)]:
                return found[0]
            time.sleep(0.005)
        raise TimeoutError(f"The message did not arrive: {self.messages}")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._thread.join()
        self._process.stdout.close()
