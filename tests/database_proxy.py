"""A TCP proxy in front of the tests' database. It breaks connections, as a failover does."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

SIZE = 65_536


class Proxy:
    """Breaks all connections at once, and rejects the next ``refusals`` connections."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self._pairs = target, set[tuple[socket.socket, socket.socket]]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.refusals = 0
        self.cut_at: Callable[[bytes], bool] | None = None  # of what a client sends
        self.cut_after = False  # it is passed on and answered; the answer is lost
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.break_all()

    def break_all(self) -> None:
        for pair in list(self._pairs):
            self._break(pair)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self.refusals > 0:
            self.refusals -= 1
            client.close()
            return
        server = socket.create_connection(self._target)
        pair = client, server
        self._pairs.add(pair)
        written = False
        with suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select(pair, [], [], 60)
                for one in ready:
                    data = one.recv(SIZE)
                    if not data:
                        raise OSError
                    if one is server:
                        client.sendall(data)
                        continue
                    written = written or (self.cut_at is not None and self.cut_at(data))
                    if written and len(data) <= 64 and b"COMMIT" in data.upper():
                        self._cut(pair, data)
                        raise OSError
                    server.sendall(data)
        self._break(pair)

    def _cut(self, pair: tuple[socket.socket, socket.socket], commit: bytes) -> None:
        """Break at a COMMIT: before the database gets it, or before its answer arrives."""
        self.cut_at = None
        if self.cut_after:
            pair[1].sendall(commit)
            pair[1].recv(SIZE)
        self.break_all()

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        for one in pair:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
