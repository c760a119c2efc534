"""
The ways to a server, in this process: what a client of the kit speaks over.

Rule: nothing of the server is left out but the socket. A message is bytes on its way, in both
directions, and what comes is handed over in the client's loop, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from django.http.request import split_domain_port, validate_host

from ..conf import settings
from ..dispatch.conversations import Conversation
from ..protocol.jsonrpc import encode
from ..transports.http.guards import allowed_hosts
from ..transports.stdio import serve

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal
    from ..protocol.revisions import Revision

JSON = dict[str, Any]
Id = str | int
CHUNK = 65_536
IN_TESTS = "testserver"  # what Django lets tests call any site


class Owner(Protocol):
    """Whose wire it is: the client, who is told what came."""

    def take(self, message: Any, about: Id | None = None, status: int | None = None) -> None:
        """One message of the server's, or a batch.

        Over HTTP it came with a ``status``, in the answer to the request ``about``.
        """

    def refuse(self, id: Id, error: Exception) -> None:
        """The request of that id gets no answer."""

    def is_waiting(self, id: Id) -> bool:
        """Whether that request has had no answer yet."""

    def object(self, problem: BaseException) -> None:
        """What came is wrong; the client raises it when it is next used."""


@dataclass(frozen=True)
class Ends:
    """The two ends that a wire joins."""

    owner: Owner
    server: Server
    revision: Revision
    principal: Callable[[], Awaitable[Principal]]
    application: Any = None  # an ASGI application; else the endpoint of the server


def public_host() -> str:
    """The host of ``URL``."""
    return str(urlsplit(settings.URL).netloc)


def answered_to(*hosts: str) -> str:
    """The first of ``hosts`` that the site answers to."""
    allowed = list(allowed_hosts())
    taken = (host for host in hosts if validate_host(split_domain_port(host)[0], allowed))
    return next(taken, hosts[0])


class Wire:
    """A pipe: what is written on it arrives, and so does what comes back."""

    lags = False  # what was sent may not have arrived when ``send`` comes back

    def __init__(self, ends: Ends) -> None:
        self.ends = ends

    async def open(self) -> None:
        """Begin. In the client's loop."""

    async def send(self, message: Any) -> None:
        """Write one message, or a batch, or a line as it is."""
        raise NotImplementedError

    async def arrive(self) -> None:
        """Come back when the server has noticed what was cut, unless it does not."""

    async def hear(self) -> None:
        """Be where news of the server's arrive, which no request asked for."""

    async def cancel(self, id: Id, reason: str) -> None:
        """Stop a request of ours."""
        told = {"requestId": id, "reason": reason}
        method = "notifications/cancelled"
        await self.send({"jsonrpc": "2.0", "method": method, "params": told})

    async def close(self) -> None:
        """End."""


class MemoryWire(Wire):
    """A conversation, as stdio has it, without the streams."""

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        ends = self.ends
        host = answered_to(public_host(), IN_TESTS)
        self._conversation = Conversation(ends.server, ends.principal, self._sent, host=host)

    def _sent(self, message: Any) -> None:
        """From any thread. It must be JSON now, and cannot change later."""
        copied = json.loads(encode(message))
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.ends.owner.take, copied)

    async def send(self, message: Any) -> None:
        self._conversation.receive(_raw(message))

    async def close(self) -> None:
        await self._conversation.close()


class StdioWire(Wire):
    """The lines of a pipe, served as ``mcp_stdio`` serves them."""

    lags = True

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        reading, self._writing = os.pipe()
        self._reading, writing = os.pipe()
        self._theirs = (reading, writing)
        ends = self.ends
        host = answered_to(public_host(), IN_TESTS)
        served = serve(ends.server, ends.principal, reading, writing, caught=False, host=host)
        self._served = self._loop.create_task(served)
        self._hearing = threading.Thread(target=self._hear, name="mcp-test-pipe", daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        with open(self._reading, "rb") as lines, contextlib.suppress(RuntimeError):
            for line in lines:
                self._loop.call_soon_threadsafe(self.ends.owner.take, json.loads(line))

    async def send(self, message: Any) -> None:
        line = _raw(message).encode() + b"\n"
        await asyncio.to_thread(_write, self._writing, line)

    async def close(self) -> None:
        os.close(self._writing)
        await self._served
        for descriptor in self._theirs:
            os.close(descriptor)
        await asyncio.to_thread(self._hearing.join)


def _raw(message: Any) -> str:
    return message if isinstance(message, str) else json.dumps(message)


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]
