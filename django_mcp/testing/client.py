"""
The client of the kit for code that does not await: tests, commands, a shell.

Rule: everything is done by ``asynchronous.AsyncClient``, in a loop that runs while the caller
waits, and says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from .asynchronous import AsyncClient
from .lists import Listed
from .loops import Loop
from .options import Options
from .peers import Log, Progress
from .questions import Caller
from .results import Contents, Prompted, Result
from .wires import JSON

if TYPE_CHECKING:
    from pathlib import Path

    from ..declare.servers import Server

T = TypeVar("T")


class _Inner(AsyncClient):
    """Whose functions of the test are called by the thread of the test."""

    def __init__(self, loop: Loop, user: Any, options: Options) -> None:
        self._loop = loop
        super().__init__(user, **options)

    def _caller(self) -> Caller:
        return self._loop.call


class Client:
    """A client of a server of this project, in this process.

    ``user`` is whom it acts as, None is nobody; ``options`` are those of ``Options``. It connects
    when it is first used, and is a context manager. Not for where an event loop runs: that is
    ``AsyncClient``, whose methods are the same, awaited. Raises ``TypeError`` or ``ValueError``
    for an option there is not.
    """

    def __init__(self, user: Any = None, **options: Unpack[Options]) -> None:
        self._loop, self._is_first = Loop(), True
        self._inner = _Inner(self._loop, user, options)
        self._others: list[Client] = []

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    @property
    def user(self) -> Any:
        """Whom it acts as."""
        return self._inner.user

    def acting_as(self, user: Any, **options: Unpack[Options]) -> Self:
        """Another client, for ``user``: with the options of this one, but for those given."""
        made = object.__new__(type(self))
        made._loop, made._is_first = self._loop, False  # one loop, in which all of them live
        changed: Options = {**self._inner.options, **options}
        made._inner, made._others = _Inner(self._loop, user, changed), []
        self._others.append(made)
        return made

    # Connecting.

    def open(self) -> Self:
        """Connect now. Raises ``Misdeclared``, or ``RpcError`` where the server refuses."""
        self._run(self._inner.open())
        return self

    def close(self) -> None:
        """Disconnect, with every client made by ``acting_as``."""
        try:
            for other in self._others:
                other.close()
            self._run(self._inner.close())
        finally:
            if self._is_first:
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
            if kind is None:  # or what went wrong before says more
                raise

    # Asking.

    def call(self, tool: str, /, **arguments: Any) -> Result:
        """The result of a tool, with its questions answered. Rows may stand for their keys."""
        return self._run(self._inner.call(tool, **arguments))

    def start(self, tool: str, /, **arguments: Any) -> Running:
        """Begin a call, and do not wait for it: it goes on whenever the client is used."""
        return self._run(self._started(tool, arguments))

    async def _started(self, tool: str, arguments: JSON) -> Running:
        await self._inner.open()
        task = self._inner.start(tool, **arguments)
        for _ in range(10):  # it is on its way
            await asyncio.sleep(0)
        return Running(self._loop, task)

    def read(self, thing: Any) -> Contents:
        """The contents of a resource: of a URI, or of a row of a registered model."""
        return self._run(self._inner.read(thing))

    def prompt(self, name: str, /, **arguments: Any) -> Prompted:
        """The messages of a prompt."""
        return self._run(self._inner.prompt(name, **arguments))

    def complete(self, name: str, argument: str, text: str = "", /, **before: str) -> list[str]:
        """What completes an argument of a prompt, or of a resource's URI template, after ``text``.

        ``before`` are arguments that are filled in already. Raises ``RpcError``.
        """
        return self._run(self._inner.complete(name, argument, text, **before))

    def request(self, method: str, **params: Any) -> JSON:
        """The result of any request, as it came. Raises ``RpcError``."""
        return self._run(self._inner.request(method, **params))

    def info(self) -> JSON:
        """How the server introduces itself: capabilities, instructions, and who it is."""
        return self._run(self._inner.info())

    # Lists. Each raises ``RpcError``.

    def tools(self) -> Listed:
        """The tools that this client may use, over all pages."""
        return self._run(self._inner.tools())

    def resources(self) -> Listed:
        """The resources that are listed for this client, over all pages."""
        return self._run(self._inner.resources())

    def templates(self) -> Listed:
        """The URI templates of resources, over all pages."""
        return self._run(self._inner.templates())

    def prompts(self) -> Listed:
        """The prompts that this client may use, over all pages."""
        return self._run(self._inner.prompts())

    def catalog(self) -> JSON:
        """All that this client is offered: ``tools``, ``resources``, ``templates``, ``prompts``."""
        return self._run(self._inner.catalog())

    def assert_catalog(self, path: str | Path) -> None:
        """The catalog is what the file at ``path`` holds: see ``snapshots.assert_matches``."""
        self._run(self._inner.assert_catalog(path))

    # What the server asks and says.

    def answers(self, **given: Any) -> Self:
        """Answer questions so from now on, by a value or by a function.

        ``elicit``: a dict, the one value of a form of one field, ``DECLINE`` or ``CANCEL``, or a
        function of (message, schema) that returns one of these. ``visit``: the same of a page to
        open, ``True`` or a function of (message, url). ``sample``: a text, or a result as a dict,
        or a function of (messages). ``roots``: a list of URIs, or a function. Raises ``TypeError``.
        """
        self._inner.answers(**given)
        return self

    @property
    def server(self) -> Server:
        """The server that it talks to."""
        return self._inner.server

    @property
    def asked(self) -> list[JSON]:
        """The questions that were asked, each with a ``method`` and ``params``."""
        return self._inner.asked

    @property
    def progress(self) -> list[Progress]:
        """What calls said of how far they were."""
        return self._inner.progress

    @property
    def logs(self) -> list[Log]:
        """What calls logged for the client."""
        return self._inner.logs

    @property
    def notifications(self) -> list[JSON]:
        """Whatever else the server told, as it came."""
        return self._inner.notifications

    # News.

    def subscribe(self, *things: Any) -> None:
        """Be told when these resources change: URIs, or rows. Raises ``RpcError``."""
        self._run(self._inner.subscribe(*things))

    def unsubscribe(self, *things: Any) -> None:
        """Be told no more."""
        self._run(self._inner.unsubscribe(*things))

    def listen(self) -> None:
        """Be told when lists change: of tools, prompts and resources."""
        self._run(self._inner.listen())

    def until(self, condition: Callable[[], T], seconds: float = 10) -> T:
        """What ``condition`` is, once something that came made it true. Raises ``TimeoutError``."""
        return self._run(self._inner.until(condition, seconds))

    def wait_for(self, method: str, *, seconds: float = 10, **params: Any) -> JSON:
        """The first notification of ``method`` with these ``params``. Raises ``TimeoutError``."""
        return self._run(self._inner.wait_for(method, seconds=seconds, **params))

    def wait_for_update(self, thing: Any, *, seconds: float = 10) -> JSON:
        """The notification that a resource changed, a URI or a row. Raises ``TimeoutError``."""
        return self._run(self._inner.wait_for_update(thing, seconds=seconds))

    # Broken connections, over http.

    def drop(self) -> int:
        """Cut every connection, as a network does that is gone; how many were open."""
        return self._run(self._inner.drop())

    def resume(self) -> None:
        """Go on with what broke, from the last event that was read of it (``Last-Event-ID``)."""
        self._run(self._inner.resume())

    @contextmanager
    def dropping(self, after: int = 1) -> Iterator[None]:
        """Cut each connection after so many messages, and fetch the rest over another one.

        ``AssertionError`` if there was nothing to cut: an answer of plain JSON has no events.
        """
        with self._inner.dropping(after):
            yield


class Running:
    """A call that was begun by ``Client.start``."""

    def __init__(self, loop: Loop, task: asyncio.Task[Result]) -> None:
        self._loop, self._task = loop, task

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def result(self) -> Result:
        """Its result, once it is there. Raises what ``Client.call`` raises."""

        async def waited() -> Result:
            return await self._task

        return self._loop.run(waited())

    def cancel(self) -> None:
        """Cancel it, as a client does that no longer waits."""

        async def cancelled() -> None:
            self._task.cancel()
            await asyncio.wait([self._task])

        self._loop.run(cancelled())
