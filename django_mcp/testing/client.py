"""
``Client``: the synchronous test client, for tests, commands and a shell.

It runs the methods of ``async_client.AsyncClient`` in an event loop (``Loop``) that runs only while
the caller waits, in the caller's thread. Between two uses of a client nothing runs in the loop and
no job uses the test's database connections, so the test may use the ORM. The test's own functions
are called outside the loop for the same reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from .async_client import AsyncClient, Options
from .environment import wait_for_jobs
from .peers import Caller, Log, Progress
from .results import Listed, Prompted, ReadResult, Result
from .wires import JSON

if TYPE_CHECKING:
    from pathlib import Path

    from ..declarations.server import Server

T = TypeVar("T")
SYNC_IN_LOOP_MESSAGE = (
    "A synchronous client cannot be used where an event loop runs, as in an async test: "
    "use AsyncClient, which is awaited (async_mcp_client, or self.async_mcp)."
)


class Loop:
    """An event loop that runs only while the test waits for a coroutine."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        # Functions of the test that coroutines want called, each with the future for its result.
        self._pending_functions: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._function_added: asyncio.Event | None = None  # set when one is added

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``. Run the test's functions in between."""
        if _is_running():
            work.close()
            raise RuntimeError(SYNC_IN_LOOP_MESSAGE)
        task = self._runner.get_loop().create_task(work, context=copy_context())
        try:
            while True:
                self._runner.run(self._run_until(task))
                if task.done():
                    return task.result()
                self._call_function(*self._pending_functions.popleft())
        except BaseException:
            task.cancel()
            raise
        finally:
            wait_for_jobs()

    async def _run_until(self, task: asyncio.Task[Any]) -> None:
        """Run until the task is done or a function of the test has to be called."""
        self._function_added = asyncio.Event()
        if self._pending_functions:
            return
        waiter = asyncio.ensure_future(self._function_added.wait())
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()

    def _call_function(self, function: Callable[[], Any], result: asyncio.Future[Any]) -> None:
        wait_for_jobs()
        try:
            value = function()
        except Exception as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function`` in the test's thread while the event loop is paused."""
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending_functions.append((partial(function, *args), result))
        if self._function_added is not None:
            self._function_added.set()
        return await result

    def close(self) -> None:
        if not _is_running():
            self._runner.close()


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Inner(AsyncClient):
    """An ``AsyncClient`` that calls functions of the test in the test's thread."""

    def __init__(self, loop: Loop, user: Any, options: Options) -> None:
        self._loop = loop
        super().__init__(user, **options)

    def _caller(self) -> Caller:
        return self._loop.call


class Client:
    """A client of one of the project's servers, in this process.

    ``user`` is the user it acts as, None for anonymous. ``options`` are those of ``Options``. It
    connects on its first use, and is a context manager. Where an event loop runs, use
    ``AsyncClient``, which has the same methods as coroutines. Raise ``TypeError`` or ``ValueError``
    for an unknown option.
    """

    def __init__(self, user: Any = None, **options: Unpack[Options]) -> None:
        self._loop, self._owns_loop = Loop(), True  # clients of ``acting_as`` share the loop
        self._inner = _Inner(self._loop, user, options)
        self._others: list[Client] = []

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    @property
    def user(self) -> Any:
        """The user it acts as."""
        return self._inner.user

    def acting_as(self, user: Any, **options: Unpack[Options]) -> Self:
        """Return another client for ``user``, with this one's options updated by ``options``."""
        made = object.__new__(type(self))
        made._loop, made._owns_loop = self._loop, False
        changed: Options = {**self._inner.options, **options}
        made._inner, made._others = _Inner(self._loop, user, changed), []
        self._others.append(made)
        return made

    # Connecting.

    def open(self) -> Self:
        """Connect now. Raise ``Misdeclared``, or ``RpcError`` if the server refuses."""
        self._run(self._inner.open())
        return self

    def close(self) -> None:
        """Disconnect this client and all clients made by ``acting_as``."""
        try:
            for other in self._others:
                other.close()
            self._run(self._inner.close())
        finally:
            if self._owns_loop:
                self._loop.close()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: object, *details: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:  # the exception of the block is more useful
                raise

    # Requests.

    def call(self, tool: str, /, **arguments: Any) -> Result:
        """Call a tool, answer its questions, and return the result.

        A row can be passed instead of its key.
        """
        return self._run(self._inner.call(tool, **arguments))

    def start(self, tool: str, /, **arguments: Any) -> Running:
        """Start a call without waiting for it. It continues whenever the client is used."""
        return self._run(self._start(tool, arguments))

    async def _start(self, tool: str, arguments: JSON) -> Running:
        await self._inner.open()
        task = self._inner.start(tool, **arguments)
        # Let the event loop send the request. The task needs a few rounds of the loop to do so, and
        # ten are more than enough. If they were not, the request would be sent at the next use.
        for _ in range(10):
            await asyncio.sleep(0)
        return Running(self._loop, task)

    def read(self, thing: Any) -> ReadResult:
        """Return the contents of a resource, by URI or by a row of a registered model."""
        return self._run(self._inner.read(thing))

    def prompt(self, name: str, /, **arguments: Any) -> Prompted:
        """Return the messages of a prompt."""
        return self._run(self._inner.prompt(name, **arguments))

    def complete(self, name: str, argument: str, text: str = "", /, **before: str) -> list[str]:
        """Return completions of ``text`` for an argument of a prompt or of a URI template.

        ``before`` are arguments that are already filled in. Raise ``RpcError``.
        """
        return self._run(self._inner.complete(name, argument, text, **before))

    def request(self, method: str, **params: Any) -> JSON:
        """Return the raw result of any request. Raise ``RpcError``."""
        return self._run(self._inner.request(method, **params))

    def info(self) -> JSON:
        """Return the server's name, capabilities and instructions."""
        return self._run(self._inner.info())

    # Lists. Each raises ``RpcError``.

    def tools(self) -> Listed:
        """Return the tools that this client may use, from all pages."""
        return self._run(self._inner.tools())

    def resources(self) -> Listed:
        """Return all pages of ``resources/list`` for this client."""
        return self._run(self._inner.resources())

    def templates(self) -> Listed:
        """Return the URI templates of resources, from all pages."""
        return self._run(self._inner.templates())

    def prompts(self) -> Listed:
        """Return the prompts that this client may use, from all pages."""
        return self._run(self._inner.prompts())

    def catalog(self) -> JSON:
        """Return all lists of this client: ``tools``, ``resources``, ``templates``, ``prompts``."""
        return self._run(self._inner.catalog())

    def assert_catalog(self, path: str | Path) -> None:
        """Assert that the catalog equals the file at ``path``: see ``snapshots.assert_matches``."""
        self._run(self._inner.assert_catalog(path))

    # Questions and notifications.

    def answers(self, **given: Any) -> Self:
        """Set the answers to all later questions of these kinds: values or functions.

        ``elicit``: a dict, the value of a form's only field, ``DECLINE`` or ``CANCEL``, or a
        function of (message, schema) that returns one of these. ``visit``: ``True``, ``DECLINE`` or
        ``CANCEL`` for a page to open, or a function of (message, url). ``sample``: a text, a result
        as a dict, or a function of (messages). ``roots``: a list of URIs, or a function. Raise
        ``TypeError``.
        """
        self._inner.answers(**given)
        return self

    @property
    def server(self) -> Server:
        """The server that it connects to."""
        return self._inner.server

    @property
    def asked(self) -> list[JSON]:
        """The server's questions so far, each with ``method`` and ``params``."""
        return self._inner.asked

    @property
    def progress(self) -> list[Progress]:
        """The progress notifications of calls."""
        return self._inner.progress

    @property
    def logs(self) -> list[Log]:
        """The log messages of calls."""
        return self._inner.logs

    @property
    def notifications(self) -> list[JSON]:
        """All other notifications, as received."""
        return self._inner.notifications

    # Subscriptions.

    def subscribe(self, *things: Any) -> None:
        """Subscribe to changes of resources, by URI or row. Raise ``RpcError``."""
        self._run(self._inner.subscribe(*things))

    def unsubscribe(self, *things: Any) -> None:
        """Cancel subscriptions to resources."""
        self._run(self._inner.unsubscribe(*things))

    def listen(self) -> None:
        """Subscribe to changes of the lists of tools, prompts and resources."""
        self._run(self._inner.listen())

    def until(self, condition: Callable[[], T], seconds: float = 10) -> T:
        """Return the value of ``condition`` as soon as it is true. Raise ``TimeoutError``.

        It is evaluated after each received message.
        """
        return self._run(self._inner.until(condition, seconds))

    def wait_for(self, method: str, *, seconds: float = 10, **params: Any) -> JSON:
        """Return the first notification of ``method`` that has these ``params``.

        Raise ``TimeoutError`` after ``seconds``.
        """
        return self._run(self._inner.wait_for(method, seconds=seconds, **params))

    def wait_for_update(self, thing: Any, *, seconds: float = 10) -> JSON:
        """Return the notification that a resource changed, by URI or row.

        Raise ``TimeoutError`` after ``seconds``.
        """
        return self._run(self._inner.wait_for_update(thing, seconds=seconds))

    # Broken connections, over http.

    def drop(self) -> int:
        """Drop every connection, as if the network failed. Return how many were open."""
        return self._run(self._inner.drop())

    def resume(self) -> None:
        """Resume dropped streams after the last event that was read (``Last-Event-ID``)."""
        self._run(self._inner.resume())

    @contextmanager
    def dropping(self, after: int = 1) -> Iterator[None]:
        """Drop each connection after ``after`` messages and resume it on another connection.

        Raise ``AssertionError`` if no connection was dropped: a plain JSON response has no events.
        """
        with self._inner.dropping(after):
            yield


class Running:
    """A call that ``Client.start`` started."""

    def __init__(self, loop: Loop, task: asyncio.Task[Result]) -> None:
        self._loop, self._task = loop, task

    @property
    def is_done(self) -> bool:
        """Whether the call has ended."""
        return self._task.done()

    def result(self) -> Result:
        """Wait for the call and return its result. Raise what ``Client.call`` raises."""

        async def waited() -> Result:
            return await self._task

        return self._loop.run(waited())

    def cancel(self) -> None:
        """Cancel the call and wait until it has ended."""

        async def cancelled() -> None:
            self._task.cancel()
            await asyncio.wait([self._task])

        self._loop.run(cancelled())
