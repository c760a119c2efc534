"""Choose a port for a server that starts later. This module uses only the standard library."""

import secrets
import socket
import tempfile
from collections import deque
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HOST = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections: one of these could take the port before
# the server listens.
PORTS = range(15_000, 32_000)
# The locks of the latest ports. An older port needs none, because its server listens by now.
_locks: deque[IO[str]] = deque(maxlen=100)


def free_port() -> int:
    """Return a port of this machine on which nothing listens.

    Another process that calls this function does not get the same port before the server listens.
    Tests run in many processes, and would talk to each other's servers.
    """
    folder = Path(tempfile.gettempdir(), "django_mcp_ports")
    folder.mkdir(exist_ok=True)
    while True:
        # Not ``random``: pytest-randomly gives all processes the same seed.
        port = secrets.choice(PORTS)
        lock = (folder / str(port)).open("w")
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind((HOST, port))
        except OSError:
            lock.close()
        else:
            if len(_locks) == _locks.maxlen:
                _locks.popleft().close()
            _locks.append(lock)
            return port
