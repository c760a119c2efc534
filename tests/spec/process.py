"""A client that starts the noisy project as real clients do, and keeps every byte that comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from django_mcp.protocol.revisions import LATEST, REVISIONS
from tests.client import PREFIX

ROOT = Path(__file__).parent.parent.parent
PROGRAM = "from django.core.management import execute_from_command_line as run; run()"
JSON = dict[str, Any]


def environment(database: Path, **more: str) -> dict[str, str]:
    """The environment of a process that is none of the tests' own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYT")}
    return kept | {
        "NOISY_DATABASE": str(database),
        "DJANGO_SETTINGS_MODULE": "tests.spec.noisy.settings",
    } | more  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *arguments]


class Asking:
    """Writes requests of a revision, and counts them."""

    def __init__(self, revision: str) -> None:
        self.revision, self._count = REVISIONS[revision], 0

    def message(self, method: str, params: JSON) -> JSON:
        self._count += 1
        if not self.revision.handshake:
            version = {PREFIX + "protocolVersion": self.revision.name}
            params = params | {"_meta": version | {PREFIX + "clientCapabilities": {}}}
        return {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}

    def line(self, method: str, params: JSON) -> bytes:
        return json.dumps(self.message(method, params)).encode() + b"\n"


class Noisy(Asking):
    """A running ``mcp_stdio`` of the noisy project."""

    def __init__(self, database: Path, *arguments: str, revision: str = LATEST.name, **more: str):
        super().__init__(revision)
        self.process = subprocess.Popen(
            command("mcp_stdio", *arguments),
            cwd=ROOT, env=environment(database, **more), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.out, self.err = Stream(self.process.stdout), Stream(self.process.stderr)

    def write(self, raw: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(raw)
        self.process.stdin.flush()

    def start(self, method: str, **params: Any) -> int:
        message = self.message(method, params)
        self.write(json.dumps(message).encode() + b"\n")
        return int(message["id"])

    def open(self) -> None:
        if self.revision.handshake:
            info = {"name": "tests", "version": "1"}
            version = self.revision.name
            self.request("initialize", protocolVersion=version, capabilities={}, clientInfo=info)
            self.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')

    def wait(self, id: int) -> JSON:
        """The response to a request."""
        found: JSON = self.out.until(lambda: next(self._with(id), None))
        return found

    def _with(self, id: int) -> Any:
        return (one for one in self.messages() if one.get("id") == id and "method" not in one)

    def messages(self) -> list[JSON]:
        """What has come, a message a line; raises if anything else has."""
        return [json.loads(line.decode("utf-8", "strict")) for line in self.out.lines()]

    def request(self, method: str, **params: Any) -> JSON:
        response = self.wait(self.start(method, **params))
        result: JSON = response["result"]
        return result

    def text(self, tool: str, **arguments: Any) -> str:
        result = self.request("tools/call", name=tool, arguments=arguments)
        return str(result["content"][0]["text"])

    def close(self) -> None:
        """Close the input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self, seconds: float = 60) -> int:
        """The exit code, and everything that was written until then."""
        code = self.process.wait(seconds)
        self.out.join()
        self.err.join()
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class Stream:
    """Everything that comes out of a pipe, read in a thread."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe, self.raw, self.over = pipe, b"", False
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._pipe.fileno(), 65_536):
            with self._arrived:
                self.raw += chunk
                self._arrived.notify_all()
        with self._arrived:
            self.over = True
            self._arrived.notify_all()

    def lines(self) -> list[bytes]:
        """The whole lines so far."""
        return self.raw.split(b"\n")[:-1]

    def until(self, condition: Any, seconds: float = 60) -> Any:
        """What ``condition`` is, once something that arrived made it true."""
        with self._arrived:
            found = self._arrived.wait_for(lambda: condition() or self.over, seconds)
            found = condition()
            assert found, self.raw[-2000:]
            return found

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()
