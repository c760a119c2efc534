"""Start the noisy project over stdio in a subprocess, as clients do, and record its output.

The tools of the project print to stdout, read stdin and hang.
"""

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
    """Return the environment of a subprocess, without the variables of pytest and Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYT")}
    return kept | {
        "NOISY_DATABASE": str(database),
        "DJANGO_SETTINGS_MODULE": "tests.spec.noisy.settings",
    } | more  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *arguments]


class RequestWriter:
    """Write requests of a revision, with consecutive ids."""

    def __init__(self, revision: str) -> None:
        self.revision, self._count = REVISIONS[revision], 0

    def message(self, method: str, params: JSON) -> JSON:
        self._count += 1
        if not self.revision.handshake:
            version = {PREFIX + "protocolVersion": self.revision.name}
            meta = {**params.get("_meta", {}), **version, PREFIX + "clientCapabilities": {}}
            params = params | {"_meta": meta}
        return {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}

    def line(self, method: str, params: JSON) -> bytes:
        return json.dumps(self.message(method, params)).encode() + b"\n"


class NoisyProcess(RequestWriter):
    """A subprocess that runs ``mcp_stdio`` in the noisy project."""

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
        """Wait for the response to a request and return it."""
        found: JSON = self.out.until(lambda: next(self._with(id), None))
        return found

    def _with(self, id: int) -> Any:
        return (one for one in self.messages() if one.get("id") == id and "method" not in one)

    def messages(self) -> list[JSON]:
        """Return the messages on stdout so far. Raise if a line is not JSON."""
        return [json.loads(line.decode("utf-8", "strict")) for line in self.out.lines()]

    def request(self, method: str, **params: Any) -> JSON:
        response = self.wait(self.start(method, **params))
        result: JSON = response["result"]
        return result

    def text(self, tool: str, **arguments: Any) -> str:
        result = self.request("tools/call", name=tool, arguments=arguments)
        return str(result["content"][0]["text"])

    def close(self) -> None:
        """Close stdin of the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait_for_exit(self, seconds: float = 60) -> int:
        """Wait for the end of the process and of its output. Return the exit code."""
        code = self.process.wait(seconds)
        self.out.join()
        self.err.join()
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait_for_exit()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class Stream:
    """The output of a pipe, which a thread reads. ``is_closed`` at its end."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe, self.raw, self.is_closed = pipe, b"", False
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._pipe.fileno(), 65_536):
            with self._arrived:
                self.raw += chunk
                self._arrived.notify_all()
        with self._arrived:
            self.is_closed = True
            self._arrived.notify_all()

    def lines(self) -> list[bytes]:
        """Return the complete lines so far."""
        return self.raw.split(b"\n")[:-1]

    def until(self, condition: Any, seconds: float = 60) -> Any:
        """Wait until ``condition`` returns a true value, and return it."""
        with self._arrived:
            found = self._arrived.wait_for(lambda: condition() or self.is_closed, seconds)
            found = condition()
            assert found, self.raw[-2000:]
            return found

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()
