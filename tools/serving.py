"""Start and stop the example project's server, which listens on 127.0.0.1 only.

On Ctrl-C the server must exit with code 0, even if connections are open.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools import ROOT
from tools.processes import replace_process

HOST, PORT = "127.0.0.1", 8000
START_TIMEOUT_SECONDS = 60  # a busy machine starts slowly
STOP_TIMEOUT_SECONDS = 10


class Failed(Exception):
    """The server did not start, or did not end as it should."""


def origin(port: int) -> str:
    return f"http://{HOST}:{port}"


def command(port: int) -> list[str]:
    return [sys.executable, "manage.py", "runserver", "--noreload", f"{HOST}:{port}"]


def environment(port: int) -> dict[str, str]:
    return dict(os.environ) | {"ATLAS_URL": origin(port), "PYTHONUNBUFFERED": "1"}


def is_taken(port: int) -> bool:
    """Whether another program listens on the port."""
    with socket.socket() as probe:
        if os.name == "posix":  # a port in TIME_WAIT counts as free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def serve(port: int) -> int:
    """Replace this process by the server."""
    accept_ctrl_c()
    return replace_process(command(port), ROOT, environment(port))


def accept_ctrl_c() -> None:
    """Restore SIGINT, which shells set to be ignored for background jobs and their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(port: int) -> Iterator[None]:
    """Run the server for the duration of the block. Raise ``Failed`` with its output."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        accept_ctrl_c()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command(port), cwd=ROOT, env=environment(port), stdout=log, stderr=log
        )
        try:
            wait_for(process, port)
            yield
            end(process)
        except (Failed, subprocess.TimeoutExpired) as failed:
            log.seek(0)
            raise Failed(f"{failed}\n{log.read().decode(errors='replace')}") from None
        finally:
            process.kill()
            process.wait()


def wait_for(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait until the port accepts connections. Raise ``Failed`` if the process ends first."""
    last = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < last:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if process.poll() is not None:
            raise Failed(f"The server ended with exit code {process.returncode}.")
        time.sleep(0.05)
    raise Failed(f"The server does not answer after {START_TIMEOUT_SECONDS} seconds.")


def end(process: "subprocess.Popen[bytes]") -> None:
    """Stop the server with SIGINT, or terminate it on Windows. Raise ``Failed``."""
    if os.name != "posix":
        process.terminate()
        return
    process.send_signal(signal.SIGINT)
    if code := process.wait(STOP_TIMEOUT_SECONDS):
        raise Failed(f"The server ended with exit code {code}.")
