"""The atlas over HTTP, as a project serves it: a real ASGI server in a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .rows import ROOT

APPLICATION = "example_project.asgi:application"
COMMANDS = {
    "daphne": ("daphne", "-b", "127.0.0.1", "-v", "0", "-p", "{port}", APPLICATION),
    "uvicorn": ("uvicorn", "--log-level", "warning", "--port", "{port}", APPLICATION),
}
PATIENCE = 60
IN_ORDER = (0, -signal.SIGTERM)  # uvicorn raises the signal again when all is done


@contextmanager
def served(server: str, environ: dict[str, str], log: Path) -> Iterator[str]:
    """The endpoint, while the server runs; it must end in order when it is told to."""
    port = free_port()
    command = [part.format(port=port) for part in COMMANDS[server]]
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environ | {"ATLAS_URL": f"http://127.0.0.1:{port}"},
            stdout=file,
            stderr=file,
        )
        try:
            _wait_for(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
            process.terminate()
            assert process.wait(PATIENCE) in IN_ORDER, log.read_text("utf-8")
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"Nobody listens on {port}; exit code {process.poll()}.")
