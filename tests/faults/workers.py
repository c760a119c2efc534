"""The workers of a campaign: started, killed and restarted.

A worker keeps its name and its port when it is restarted. The campaign learns how each process
ended, and knows whether that was intended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
PAUSE = 0.02
WHOLE = (
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCONT,
)  # sent to all processes of a worker
JSON = dict[str, Any]


class Program:
    """A child process that reads and writes lines of JSON."""

    def __init__(self, heard: Callable[[JSON], None]) -> None:
        self._heard, self._ready = heard, asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, module: str, *arguments: str, environ: dict[str, str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, cwd=ROOT, env={**os.environ, **environ},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait(
            [waiting, self._reading], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        if not self._ready.is_set():
            raise SystemExit(f"{module} did not begin.")

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            if "ready" in told:
                self._ready.set()
            else:
                self._heard(told)

    def tell(self, **what: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        if self._reading is not None:
            await self._reading


class ForkServer(Program):
    """A process that forks workers after it has imported everything."""

    def __init__(self) -> None:
        super().__init__(self._told)
        self._begun: dict[str, asyncio.Future[int]] = {}
        self._lives: dict[int, asyncio.Future[int]] = {}

    def _told(self, what: JSON) -> None:
        loop = asyncio.get_running_loop()
        if "began" in what:
            self._lives[what["began"]] = loop.create_future()
            self._begun.pop(what["worker"]).set_result(what["began"])
        else:
            life = self._lives.setdefault(what["died"], loop.create_future())
            if not life.done():
                life.set_result(what["code"])

    async def begin(self, worker: str, **wanted: Any) -> tuple[int, asyncio.Future[int]]:
        """Return the process id, and a future of its exit code."""
        self._begun[worker] = asyncio.get_running_loop().create_future()
        self.tell(worker=worker, **wanted)
        pid = await self._begun[worker]
        return pid, self._lives[pid]

    async def manage(self, log: Path, *commands: tuple[str, JSON]) -> None:
        """Run management commands to their end."""
        _, life = await self.begin("manage", kind="manage", commands=commands, log=str(log))
        if await life:
            raise SystemExit(f"{commands[0][0]} failed: see {log}")


class Worker:
    """A worker: a name and a port at which processes serve the project."""

    def __init__(self, number: int, folder: Path, fork_server: ForkServer) -> None:
        self.name, self.port = f"w{number}", free_port()
        self.folder, self._fork_server = folder, fork_server
        self.log = folder / f"{self.name}.log"
        self.clock: Path | None = None
        self.kind, self.pid = "", 0
        self.is_up, self.spared = False, 0.0  # until when no fault may be injected
        self.life: asyncio.Future[int] | None = None
        self.starts: list[float] = []  # duration of each start

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def is_free(self) -> bool:
        """Whether faults may be injected now."""
        return self.is_up and time.monotonic() > self.spared

    async def start(self, kind: str) -> None:
        began, self.kind, self.spared = time.monotonic(), kind, 0.0
        if kind == "granian":
            self.pid, self.life = await self._granian()
        else:
            self.pid, self.life = await self._fork_server.begin(
                self.name, kind=kind, port=self.port, log=str(self.log), environ=self._environ()
            )
        await self._answers()
        self.is_up = not self.life.done()
        self.starts.append(time.monotonic() - began)

    def _environ(self) -> dict[str, str]:
        clock = {} if self.clock is None else {"FAKETIME_TIMESTAMP_FILE": str(self.clock)}
        return {"FAULTS_WORKER": self.name, **clock}

    async def _granian(self) -> tuple[int, asyncio.Future[int]]:
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--no-log"]
        with self.log.open("ab") as words:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "granian", "--interface", "asgi", *place,
                "tests.faults.project.asgi:application", cwd=ROOT, stdout=words, stderr=words,
                env={**os.environ, **self._environ(), "FAULTS_GRANIAN": "1"},
                start_new_session=True,
            )  # fmt: skip
        return process.pid, asyncio.ensure_future(process.wait())

    async def _answers(self) -> None:
        until = time.monotonic() + PATIENCE
        assert self.life is not None
        while time.monotonic() < until and not self.life.done():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(PAUSE)

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.kind == "granian" and number in WHOLE:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def hear(self, **what: Any) -> None:
        """Send a message to the fault injection in the worker."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            with contextlib.suppress(
                OSError
            ):  # the worker is down, and gets the message after its restart
                sender.sendto(json.dumps(what).encode(), str(self.folder / f"{self.name}.sock"))
