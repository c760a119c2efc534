"""
In-process transports of the test clients, with what a synchronous client needs around them.

``MemoryWire`` and ``StdioWire`` run the server without sockets. Messages are encoded to JSON in
both directions, and received in order in the client's event loop.

``recorded`` collects the bugs and SQL queries of one call. The record is in a context variable,
which tasks and jobs of the call inherit, so concurrent calls have separate records. Over stdio the
context is lost, so only a single running call can be recorded. Nothing is recorded while no client
is open.

``Loop`` is the event loop of a synchronous client. It runs in the test's thread while the test
waits. Between two uses of a client nothing runs in the loop and no job uses the test's database
connections, so the test may use the ORM. The test's own functions are called outside the loop for
the same reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from django.http.request import split_domain_port, validate_host

from ..calls.execution import around, queries_through
from ..conf import settings
from ..protocol.jsonrpc import encode
from ..transports.http.security import allowed_hosts
from ..transports.pipe import Conversation
from ..transports.stdio import serve
from .environment import wait_for_jobs

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server
    from ..protocol.revisions import Revision

# Savepoints are made by transactions, not by the project's code.
UNCOUNTED = ("SAVEPOINT", "RELEASE", "ROLLBACK")
logger = logging.getLogger("django_mcp")


@dataclass(eq=False)
class RequestRecord:
    """The bugs and the project's SQL queries during one request."""

    bugs: list[BaseException] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)


_current: ContextVar[RequestRecord | None] = ContextVar("django_mcp_testing_record", default=None)
_open: list[RequestRecord] = []


@contextmanager
def recorded() -> Iterator[RequestRecord]:
    """Yield a record of what the calls do that start in this block."""
    record = RequestRecord()
    token = _current.set(record)
    _open.append(record)
    try:
        yield record
    finally:
        _open.remove(record)
        _current.reset(token)


def _record() -> RequestRecord | None:
    return _current.get() or (_open[0] if len(_open) == 1 else None)


def _note_bug(entry: logging.LogRecord) -> bool:
    """Record logged exceptions. This is a log filter that lets every record pass."""
    record = _record()
    error = entry.exc_info[1] if isinstance(entry.exc_info, tuple) else None
    if record is not None and error is not None and entry.levelno >= logging.ERROR:
        record.bugs.append(error)
    return True


@contextmanager
def _note_queries(request: Any) -> Iterator[None]:
    """Record queries in the thread that runs the project's code (``calls.execution.around``)."""
    record = _record()
    if record is None:
        yield
        return

    def note(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        # In a test, calls share one connection. Only the queries of this call are recorded.
        if _record() is record and not str(sql).startswith(UNCOUNTED):
            record.queries.append(str(sql))
        return execute(sql, params, many, context)

    with queries_through(note):
        yield


_lock = threading.Lock()
_clients = 0


def watch() -> None:
    """Start recording for one more client."""
    global _clients
    with _lock:
        _clients += 1
        if _clients == 1:
            logger.addFilter(_note_bug)
            around.append(_note_queries)


def unwatch() -> None:
    """Stop recording for one client."""
    global _clients
    with _lock:
        _clients -= 1
        if not _clients:
            logger.removeFilter(_note_bug)
            around.remove(_note_queries)


T = TypeVar("T")
WITHIN = (
    "A synchronous client cannot be used where an event loop runs, as in an async test: "
    "use AsyncClient, which is awaited (async_mcp_client, or self.async_mcp)."
)


class Loop:
    """An event loop that runs only while the test waits for a coroutine."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._errands: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._wanted: asyncio.Event | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``. Run the test's functions in between."""
        if _is_running():
            work.close()
            raise RuntimeError(WITHIN)
        task = self._runner.get_loop().create_task(work, context=copy_context())
        try:
            while True:
                self._runner.run(self._until(task))
                if task.done():
                    return task.result()
                self._do(*self._errands.popleft())
        except BaseException:
            task.cancel()
            raise
        finally:
            wait_for_jobs()

    async def _until(self, task: asyncio.Task[Any]) -> None:
        """Run until the task is done or a function of the test has to be called."""
        self._wanted = asyncio.Event()
        if self._errands:
            return
        wanted = asyncio.ensure_future(self._wanted.wait())
        await asyncio.wait([task, wanted], return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()

    def _do(self, function: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        wait_for_jobs()
        try:
            value = function()
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function`` in the test's thread while the event loop is paused."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._errands.append((partial(function, *args), answer))
        if self._wanted is not None:
            self._wanted.set()
        return await answer

    def close(self) -> None:
        if not _is_running():
            self._runner.close()


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


JSON = dict[str, Any]
Id = str | int
CHUNK_BYTES = 65_536
IN_TESTS = "testserver"  # the host that Django adds to ALLOWED_HOSTS in tests


class Owner(Protocol):
    """The client that receives the messages of a wire."""

    def take(self, message: Any, about: Id | None = None, status: int | None = None) -> None:
        """Receive a message of the server, or a batch.

        Over HTTP, ``status`` is that of the response and ``about`` the request that it answers.
        """

    def refuse(self, id: Id, error: Exception) -> None:
        """Fail the request with that id, which gets no response."""

    def is_waiting(self, id: Id) -> bool:
        """Whether the request with that id has no response yet."""

    def object(self, problem: BaseException) -> None:
        """Store an error in a received message. The client raises it on its next use."""


@dataclass(frozen=True)
class Ends:
    """What a wire connects: a client, a server, and the client's principal."""

    owner: Owner
    server: Server
    revision: Revision
    principal: Callable[[], Awaitable[Principal]]
    application: Any = None  # an ASGI application; by default the server's endpoint


def public_host() -> str:
    """The host of ``URL``."""
    return str(urlsplit(settings.URL).netloc)


def answered_to(*hosts: str) -> str:
    """Return the first of ``hosts`` that ALLOWED_HOSTS allows, else the first."""
    allowed = list(allowed_hosts())
    taken = (host for host in hosts if validate_host(split_domain_port(host)[0], allowed))
    return next(taken, hosts[0])


class Wire:
    """A transport between a client and the server, in both directions."""

    lags = False  # whether ``send`` may return before the server has the message

    def __init__(self, ends: Ends) -> None:
        self.ends = ends

    async def open(self) -> None:
        """Connect. Call it in the client's event loop."""

    async def send(self, message: Any) -> None:
        """Send one message, a batch, or a raw line."""
        raise NotImplementedError

    async def arrive(self) -> None:
        """Wait until the server has noticed dropped connections, if the transport has any."""

    async def hear(self) -> None:
        """Open the stream for notifications that belong to no request, if the transport has one."""

    async def cancel(self, id: Id, reason: str) -> None:
        """Cancel a request of the client."""
        told = {"requestId": id, "reason": reason}
        method = "notifications/cancelled"
        await self.send({"jsonrpc": "2.0", "method": method, "params": told})

    async def close(self) -> None:
        """Disconnect."""


class MemoryWire(Wire):
    """A conversation as over stdio, without pipes."""

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        ends = self.ends
        host = answered_to(public_host(), IN_TESTS)
        self._conversation = Conversation(ends.server, ends.principal, self._sent, host=host)

    def _sent(self, message: Any) -> None:
        """Pass a message to the client. Called from any thread.

        It is copied through JSON at once, so that later changes of its objects have no effect.
        """
        copied = json.loads(encode(message))
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self.ends.owner.take, copied)

    async def send(self, message: Any) -> None:
        self._conversation.receive(_raw(message))

    async def close(self) -> None:
        await self._conversation.close()


class StdioWire(Wire):
    """Two pipes, served as ``mcp_stdio`` serves them."""

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
