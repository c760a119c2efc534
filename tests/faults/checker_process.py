"""The checker process: started, informed of injected faults, and asked for its report.

It gets the addresses of the servers and the injected faults, but not their effects.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from .schedule import Fault
from .workers import ROOT, Worker

NAMES = {"kill-at": "kill", "hold": "pause"}  # faults, as it is told of them
LISTENING = 0.3  # seconds between the last word to it and the signal
PATIENCE = 200.0  # seconds to see the end of all that is open, and what was not seen yet


class Checker:
    def __init__(self, folder: Path) -> None:
        self._log = folder / "checker.log"
        self._process: asyncio.subprocess.Process | None = None
        self.told: asyncio.Task[bytes] | None = None

    async def start(
        self, front: int, workers: list[Worker], only: tuple[str, ...] = (), **options: Any
    ) -> None:
        given = {"front": f"http://127.0.0.1:{front}/mcp", **options}
        arguments = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        for name in only:
            arguments += ["--only", name]
        for worker in workers:
            arguments += ["--worker", worker.url]
            arguments += ["--skewed", worker.url] if worker.clock else []
        with self._log.open("wb") as words:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.faults.checker", *arguments, cwd=ROOT,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=words,
            )  # fmt: skip
        assert self._process.stdout is not None
        self.told = asyncio.create_task(self._process.stdout.read())

    def hear(self, fault: Fault, at: str, worker: Worker | None = None) -> None:
        """Of a fault, that it begins, has struck somebody, or ends."""
        name = NAMES.get(fault.kind, fault.kind)
        self._tell(name, at, worker, point=fault.at, id=fault.id)

    def hear_of(self, worker: Worker, what: str) -> None:
        """That a worker is down, or up again."""
        self._tell(what, "begin", worker)

    def hear_of_pause(self, worker: Worker, began: float, ended: float) -> None:
        """That a worker wrote no heartbeat for a while, which is over."""
        self._tell("silence", "struck", worker, began=began, ended=ended)

    def _tell(self, what: str, at: str, worker: Worker | None = None, **more: str | float) -> None:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            return
        told = {"fault": what, "at": at, "worker": worker and worker.url, **more}
        process.stdin.write(json.dumps(told).encode() + b"\n")

    async def hear_the_last(self) -> None:
        """Nothing strikes any more, and all workers are up."""
        self._tell("over", "begin")
        await asyncio.sleep(LISTENING)

    async def finish(self) -> tuple[dict[str, Any], str]:
        """What it saw, when all that is open has ended; or why there is nothing."""
        assert self.told is not None and self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await asyncio.wait([self.told], timeout=PATIENCE)
        if not self.told.done():
            self._process.kill()
            return {}, "the checker did not come to its end"
        try:
            found: dict[str, Any] = json.loads((await self.told).strip().splitlines()[-1])
        except (IndexError, ValueError):
            return {}, f"the checker told nothing: {self._log.read_text(errors='replace')[-2000:]}"
        return found, ""

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
