"""
A server that is measured: started on a core of its own, looked at from outside, stopped again.

The rule: standard library alone, on Linux. The load keeps to another core where there are two.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools import ROOT

PATIENCE = 60
CPUCLOCK_SCHED = 2  # with a process's id, the clock that clock_getcpuclockid(3) tells


@dataclass
class Running:
    """A server of one process that answers at `address`."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    log: Path
    environ: dict[str, str]

    def memory(self) -> int:
        """Resident memory in bytes: of the process itself, shared pages included."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def cpu(self) -> float:
        """Seconds of processor time it has used, those of its threads that ended among them."""
        return time.clock_gettime((~self.process.pid << 3) | CPUCLOCK_SCHED)

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


def cores() -> tuple[int, int]:
    """The load's core and the server's: the same where there is but one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


@contextmanager
def pinned() -> Iterator[None]:
    """Keep this process to the load's core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores()[0]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def running(command: list[str], port: int, environ: dict[str, str]) -> Iterator[Running]:
    """The server that `command` starts at this port, for as long as needed."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        log, environ = Path(folder) / "log", os.environ | {"BENCHMARK_FOLDER": folder} | environ
        with log.open("wb") as words:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environ,
                stdout=words,
                stderr=words,
                preexec_fn=lambda: os.sched_setaffinity(0, {cores()[1]}),
            )
        started = Running(process, ("127.0.0.1", port), log, environ)
        try:
            wait(started)
            yield started
        finally:
            stop(process)


def wait(started: Running) -> None:
    """Until it takes connections."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and started.process.poll() is None:
        with suppress(OSError), socket.create_connection(started.address, timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"The server did not start:\n{started.words()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
