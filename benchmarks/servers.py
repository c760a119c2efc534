"""
Servers that are measured: one process on a core of its own, observed from outside.

Standard library and Linux only. The load runs on another core if there are two.
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

PATIENCE = 180  # seconds until a server has started, on a busy machine
CPUCLOCK_SCHED = 2  # with a process's id, the clock that clock_getcpuclockid(3) returns


@dataclass
class RunningServer:
    """A server of one process that answers at `address`."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    log: Path
    environ: dict[str, str]

    def memory(self) -> int:
        """Return the resident memory of the process in bytes, including shared pages."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def cpu(self) -> float:
        """Return the seconds of processor time it has used, including those of ended threads."""
        return cpu_of(self.process.pid)

    def worker(self) -> int:
        """Return the id of its only child, for servers that answer in a process of their own."""
        (found,) = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )
        return int(found)

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that a process has used, with all its threads."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def cores() -> tuple[int, int]:
    """Return the core of the load and that of the server, which are one if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


@contextmanager
def pinned() -> Iterator[None]:
    """Run this process on the core of the load."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores()[0]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def running(
    command: list[str], port: int, environ: dict[str, str], cwd: Path | str = ROOT
) -> Iterator[RunningServer]:
    """Start a server by `command` at this port, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        log, environ = Path(folder) / "log", os.environ | {"BENCHMARK_FOLDER": folder} | environ
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environ,
                stdout=output,
                stderr=output,
                preexec_fn=lambda: os.sched_setaffinity(0, {cores()[1]}),
            )
        started = RunningServer(process, ("127.0.0.1", port), log, environ)
        try:
            wait(started)
            yield started
        finally:
            stop(process)


def wait(started: RunningServer) -> None:
    """Wait until the server accepts connections."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and started.process.poll() is None:
        with suppress(OSError), socket.create_connection(started.address, timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"The server did not start:\n{started.log_tail()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
