"""Rights that are given and taken in a process of their own, and clients that hear of it."""

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

from .wire import JSON, ROOT, Answer, Client, environment

PREFIX = "io.modelcontextprotocol/"
META = {
    PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {},
    PREFIX + "clientInfo": {"name": "restarts", "version": "1"},
}  # fmt: skip
LISTS = {"toolsListChanged": True, "resourcesListChanged": True}
HAND = """
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


class Hand:
    """A process that serves nobody, and changes what it is told to."""

    def __init__(self, folder: Path, **more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HAND], cwd=ROOT, env=environment(folder, **more), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def do(self, statement: str) -> tuple[float, str]:
        """Run it in one transaction: when that began, and the ``value`` it left."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()
        began, value = self._process.stdout.readline().rstrip("\n").split(" ", 1)
        return float(began), value

    def person(self, name: str) -> str:
        """A user in a group of the same name that may see groups; their token."""
        self.do(
            f"u = User.objects.create_user({name!r}); g = Group.objects.create(name={name!r});"
            "g.permissions.add(Permission.objects.get(codename='view_group')); u.groups.add(g)"
        )
        return self.do(f"value = Token.make(User.objects.get(username={name!r}), 't')[1]")[1]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Told:
    """Reads a stream in a thread, and notes when each message came, and when it ended."""

    def __init__(self, answer: Answer) -> None:
        assert answer.status == 200, answer.json()
        self.answer, self.came = answer, list[tuple[float, JSON]]()
        self.ended: float | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self.answer:
                self.came.append((time.time(), message))
        except (OSError, ValueError, AttributeError):
            pass  # it was cut
        finally:
            self.ended = time.time()
            self.answer.cut()

    def close(self) -> None:
        """Break the connection, if it is there."""
        if self._thread.is_alive() and (line := self.answer._connection.sock) is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def wait(self, method: str, since: float, seconds: float = 20) -> float:
        """When it was first told of, after ``since``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [at for at, one in list(self.came) if one.get("method") == method]
            if late := [at for at in found if at >= since]:
                return late[0]
            time.sleep(0.005)
        raise TimeoutError(f"{method} was not told: {self.came}")

    def end(self, seconds: float = 20) -> float:
        """When it ended."""
        self._thread.join(seconds)
        assert self.ended is not None, "It goes on."
        return self.ended


def alone(port: int, token: str, method: str, **params: Any) -> Answer:
    """A request of the revision without sessions."""
    params = {**params, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {
        "accept": "application/json, text/event-stream", "content-type": "application/json",
        "authorization": f"Bearer {token}", "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }  # fmt: skip
    if name := params.get("name", params.get("uri")):
        headers["mcp-name"] = name
    return Answer(port, "POST", headers, json.dumps(message).encode())


def listen(port: int, token: str) -> Answer:
    return alone(port, token, "subscriptions/listen", notifications=LISTS)


def answered(answer: Answer) -> JSON:
    """The response, whether it comes at once or as a stream."""
    is_plain = "json" in (answer.headers["content-type"] or "")
    try:
        return answer.json() if is_plain else list(answer)[-1]
    finally:
        answer.cut()


def all_kinds(
    ports: Sequence[int], token: str, connect: Callable[..., Client], told: Callable[..., Told]
) -> dict[str, Told]:
    """Of each kind of what stays open, one at each worker: a stream, a listen and a call."""
    at = [(port, connect(port, token)) for port in ports]
    opened = {f"session {port}": told(client.get()) for port, client in at}
    opened |= {f"listen {port}": told(listen(port, token)) for port in ports}
    return opened | {f"call {port}": told(one.call("guarded", seconds=60)) for port, one in at}


def results(opened: dict[str, Told]) -> list[JSON]:
    """What calls came to."""
    said = [one for where, told in opened.items() if "call" in where for _, one in told.came]
    return [one for one in said if "result" in one]


def refusals(ports: Sequence[int], token: str) -> list[int]:
    """How each worker refuses what comes next."""
    refused = [alone(port, token, "tools/list") for port in ports]
    assert all("error" in answered(one) for one in refused)
    return [one.status for one in refused]


def report(what: str, since: float, at: dict[str, float]) -> None:
    told = ", ".join(f"{name} {(when - since) * 1000:.0f} ms" for name, when in at.items())
    print(f"{what}: {told}")


def names(response: JSON) -> set[str]:
    return {tool["name"] for tool in response["result"]["tools"]}


def listed(client: Client, port: int | None = None) -> set[str]:
    """The tools that a session's client is shown."""
    client.count += 1
    message = {"jsonrpc": "2.0", "id": client.count, "method": "tools/list", "params": {}}
    return names(answered(client.post(message, port)))


class Pipe:
    """A client over stdio, of one session."""

    def __init__(self, folder: Path, user: str, **more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django", "mcp_stdio", "--user", user], cwd=ROOT, text=True,
            env=environment(folder, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.came: list[tuple[float, JSON]] = []
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
            self.came.append((time.time(), json.loads(line)))

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

    def told(self, method: str, since: float) -> float:
        return self._wait(lambda at, one: one.get("method") == method and at >= since)[0]

    def _wait(self, is_meant: Any, seconds: float = 20) -> tuple[float, JSON]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := [both for both in list(self.came) if is_meant(*both)]:
                return found[0]
            time.sleep(0.005)
        raise TimeoutError(f"It did not come: {self.came}")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._thread.join()
        self._process.stdout.close()
