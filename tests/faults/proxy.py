"""A proxy between workers and database, which cuts connections while a commit is on the wire.

It passes bytes on unchanged and recognizes only a COMMIT after writes of this package. At a cut,
the database has either committed and its reply is lost, or it never got the COMMIT. The worker
cannot tell which.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

SIZE = 65_536
HEARD = 0.1  # seconds for the checker to learn of a cut
SHORT = 64  # bytes: a COMMIT comes alone
WRITES = (b"INSERT INTO", b"UPDATE ", b"DELETE ")
OURS = b"django_mcp_"


class WriteTracker:
    """Tracks whether a connection has written since its last COMMIT."""

    def __init__(self) -> None:
        self.writes = False

    def asks_commit(self, data: bytes) -> bool:
        """Return whether the data is a COMMIT of writes to the session database."""
        if is_commit(data):
            writes, self.writes = self.writes, False
            return writes
        if OURS in data and any(word in data for word in WRITES):
            self.writes = True
        return False


def is_commit(data: bytes) -> bool:
    """A COMMIT in PostgreSQL's simple or extended protocol, or in MariaDB's."""
    return len(data) <= SHORT and b"COMMIT" in data.upper()


class Proxy:
    """A proxy with a list of pending cuts, each with whether the commit shall happen."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.waiting: list[tuple[str, bool]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            cut(writer)
            return
        wire = ProxiedConnection(self, reader, writer, there, to)
        await wire.run()


class ProxiedConnection:
    """One connection of a worker to the database."""

    def __init__(self, proxy: Proxy, *ends: Any) -> None:
        self._proxy, self._said = proxy, WriteTracker()
        self._reader, self._writer, self._there, self._to = ends
        self._doomed = ""

    async def run(self) -> None:
        ways = [asyncio.ensure_future(self._ask()), asyncio.ensure_future(self._answer())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        cut(self._writer)
        cut(self._to)

    async def _ask(self) -> None:
        while data := await self._reader.read(SIZE):
            if self._said.asks_commit(data) and self._proxy.waiting:
                self._doomed, happens = self._proxy.waiting.pop(0)
                if not happens:
                    tell(cut=self._doomed, happened=False)
                    await asyncio.sleep(HEARD)
                    return
            self._to.write(data)
            await self._to.drain()

    async def _answer(self) -> None:
        while data := await self._there.read(SIZE):
            if self._doomed:  # it has committed, and the reply is lost
                tell(cut=self._doomed, happened=True)
                await asyncio.sleep(HEARD)
                return
            self._writer.write(data)
            await self._writer.drain()


def cut(writer: asyncio.StreamWriter) -> None:
    """Abort a connection with a reset."""
    sock = writer.get_extra_info("socket")
    with suppress(OSError):  # the other side has closed it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def tell(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


async def main(listen: int, target: int) -> None:
    proxy = Proxy(target)
    loop = asyncio.get_running_loop()
    told = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", listen):
        tell(ready=True)
        while line := await told.readline():
            wanted = json.loads(line)
            proxy.waiting.append((wanted["cut"], wanted["happens"]))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
