"""The example project's server, on a port of this machine.

The rule: it listens on 127.0.0.1 alone, and ends as it is told to: with exit code 0, whatever is
still open.
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

from tools.become import become
from tools.environment import ROOT

HOST, PORT = "127.0.0.1", 8000
PATIENCE = 60  # seconds until it answers, on a machine that is busy
ENDING = 10


class Failed(Exception):
    """The server did not start, or did not end as it should."""


def origin(port: int) -> str:
    return f"http://{HOST}:{port}"


def command(port: int) -> list[str]:
    return [sys.executable, "manage.py", "runserver", "--noreload", f"{HOST}:{port}"]


def environment(port: int) -> dict[str, str]:
    return dict(os.environ) | {"ATLAS_URL": origin(port), "PYTHONUNBUFFERED": "1"}


def is_taken(port: int) -> bool:
    """Whether another program listens there."""
    with socket.socket() as probe:
        if os.name == "posix":  # else what has just ended would count
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def serve(port: int) -> int:
    """Go on as the server, until Ctrl-C."""
    heed_ctrl_c()
    return become(command(port), ROOT, environment(port))


def heed_ctrl_c() -> None:
    """A shell that starts this in the background has SIGINT ignored, by its children too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(port: int) -> Iterator[None]:
    """The server, for a while. Raises ``Failed`` with what it wrote."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        heed_ctrl_c()
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
    """Return when somebody listens there."""
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if process.poll() is not None:
            raise Failed(f"The server ended with exit code {process.returncode}.")
        time.sleep(0.05)
    raise Failed(f"The server does not answer after {PATIENCE} seconds.")


def end(process: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C ends it, where another process can do that."""
    if os.name != "posix":
        process.terminate()
        return
    process.send_signal(signal.SIGINT)
    if code := process.wait(ENDING):
        raise Failed(f"The server ended with exit code {code}.")
