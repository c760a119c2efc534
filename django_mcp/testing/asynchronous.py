"""
The client of the kit: a user, a revision and a transport, and all that can be asked of a server.

Rule: a bug of the server's code is raised as itself, as by Django's test client; what a client of
the protocol would be told is an answer, to make assertions about. ``client.Client`` is the same
for code that does not await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from asgiref.sync import sync_to_async

from .. import threads
from ..declare.servers import server_named
from ..principal import Principal
from ..protocol.errors import ResourceNotFound
from .arguments import as_json, as_text, as_uri
from .http import HttpWire
from .lists import Listed
from .options import DEFAULTS, EVERYTHING, Options
from .peers import Log, Peer, Progress
from .questions import Caller
from .recording import recorded
from .results import Answer, Contents, Prompted, Result, RpcError
from .snapshots import assert_matches, canonical
from .users import principal_of
from .wires import JSON

if TYPE_CHECKING:
    from pathlib import Path

    from ..declare.servers import Server

A = TypeVar("A", bound=Answer)
T = TypeVar("T")
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class AsyncClient:
    """A client of a server of this project, in this process.

    ``user`` is whom it acts as, None is nobody; ``options`` are those of ``Options``. It connects
    when it is first used, and is an async context manager. Raises ``TypeError`` or ``ValueError``
    for an option there is not.
    """

    def __init__(self, user: Any = None, **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(DEFAULTS)):
            raise TypeError(f"There is no option {', '.join(unknown)}; see Options.")
        self.user, self.options = user, options
        given: Any = DEFAULTS | options
        self.raise_exceptions: bool = given.pop("raise_exceptions")
        self._scopes = given.pop("scopes")
        server, capabilities, answers = (
            given.pop(k) for k in ("server", "capabilities", "answers")
        )
        self._peer = Peer(
            server_named(server) if isinstance(server, str) else server,
            self._principal,
            self._caller(),
            capabilities=EVERYTHING if capabilities is None else capabilities,
            answers=answers or {},
            **given,
        )
        self._listens: dict[str, asyncio.Task[Any]] = {}
        self._others: list[AsyncClient] = []

    def _caller(self) -> Caller:
        """How functions of the test are called: where Django lets synchronous code run."""
        return lambda function, *args: sync_to_async(function)(*args)

    async def _principal(self) -> Principal:
        return principal_of(self.user, self._scopes)

    def acting_as(self, user: Any, **options: Unpack[Options]) -> Self:
        """Another client, for ``user``: with the options of this one, but for those given."""
        changed: Options = {**self.options, **options}
        made = type(self)(user, **changed)
        self._others.append(made)
        return made

    # Connecting.

    async def open(self) -> Self:
        """Connect now. Raises ``Misdeclared``, or ``RpcError`` where the server refuses."""
        await self._peer.open()
        return self

    async def close(self) -> None:
        """Disconnect, with every client made by ``acting_as``."""
        for other in self._others:
            await other.close()
        for listen in self._listens.values():
            listen.cancel()
        await self._peer.close()
        await self._rest()

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, kind: object, *details: object) -> None:
        try:
            await self.close()
        except Exception:
            if kind is None:  # or what went wrong before says more
                raise

    async def _rest(self) -> None:
        while not threads.at_rest():  # noqa: ASYNC110 - jobs of threads tell nobody
            await asyncio.sleep(0.001)

    # Asking.

    async def call(self, tool: str, /, **arguments: Any) -> Result:
        """The result of a tool, with its questions answered. Rows may stand for their keys."""
        given = as_json(self.server, arguments)
        params = {"name": tool, "arguments": given}
        return await self._ask(Result, f"The tool {tool}", "tools/call", params)

    def start(self, tool: str, /, **arguments: Any) -> asyncio.Task[Result]:
        """Begin a call, in a task: to cancel the task is to cancel the call."""
        return self._peer.spawn(self.call(tool, **arguments))

    async def read(self, thing: Any) -> Contents:
        """The contents of a resource: of a URI, or of a row of a registered model."""
        uri = as_uri(self.server, thing)
        return await self._ask(Contents, uri, "resources/read", {"uri": uri})

    async def prompt(self, name: str, /, **arguments: Any) -> Prompted:
        """The messages of a prompt."""
        given = {key: as_text(self.server, value) for key, value in arguments.items()}
        params = {"name": name, "arguments": given}
        return await self._ask(Prompted, f"The prompt {name}", "prompts/get", params)

    async def _ask(self, kind: type[A], subject: str, method: str, params: JSON) -> A:
        raw, error = {}, None  # type: JSON, RpcError | None
        with recorded() as record:
            try:
                raw = await self._peer.request(method, params)
            except RpcError as refused:
                error = refused
            finally:
                await self._rest()
        if record.bugs and self.raise_exceptions:
            raise record.bugs[0]
        return kind(subject, raw, error, record)

    async def complete(
        self, name: str, argument: str, text: str = "", /, **before: str
    ) -> list[str]:
        """What completes an argument of a prompt, or of a resource's URI template, after ``text``.

        ``before`` are arguments that are filled in already. Raises ``RpcError``.
        """
        by_uri = {"type": "ref/resource", "uri": name}
        ref = by_uri if ":" in name else {"type": "ref/prompt", "name": name}
        context = {"context": {"arguments": before}} if before else {}
        params = {"ref": ref, "argument": {"name": argument, "value": text}} | context
        found = await self.request("completion/complete", **params)
        values: list[str] = found["completion"]["values"]
        return values

    async def request(self, method: str, **params: Any) -> JSON:
        """The result of any request, as it came. Raises ``RpcError``."""
        try:
            return await self._peer.request(method, params)
        finally:
            await self._rest()

    async def info(self) -> JSON:
        """How the server introduces itself: capabilities, instructions, and who it is."""
        await self.open()
        return self._peer.opened or await self.request("server/discover")

    # Lists. Each raises ``RpcError``.

    async def tools(self) -> Listed:
        """The tools that this client may use, over all pages."""
        return await self._all("tools/list", "tools")

    async def resources(self) -> Listed:
        """The resources that are listed for this client, over all pages."""
        return await self._all("resources/list", "resources")

    async def templates(self) -> Listed:
        """The URI templates of resources, over all pages."""
        return await self._all("resources/templates/list", "resourceTemplates")

    async def prompts(self) -> Listed:
        """The prompts that this client may use, over all pages."""
        return await self._all("prompts/list", "prompts")

    async def _all(self, method: str, member: str) -> Listed:
        found, cursor = Listed(), {}  # type: Listed, JSON
        while True:
            page = await self.request(method, **cursor)
            found += page[member]
            if "nextCursor" not in page:
                return found
            cursor = {"cursor": page["nextCursor"]}

    async def catalog(self) -> JSON:
        """All that this client is offered: ``tools``, ``resources``, ``templates``, ``prompts``."""
        has = (await self.info()).get("capabilities", {})
        found: JSON = {"tools": [], "resources": [], "templates": [], "prompts": []}
        for kind in found:
            if ("resources" if kind == "templates" else kind) in has:
                found[kind] = await getattr(self, kind)()
        return canonical(found)

    async def assert_catalog(self, path: str | Path) -> None:
        """The catalog is what the file at ``path`` holds: see ``snapshots.assert_matches``."""
        assert_matches(await self.catalog(), path)

    # What the server asks and says.

    def answers(self, **given: Any) -> Self:
        """Answer questions so from now on, by a value or by a function (which may be async).

        ``elicit``: a dict, the one value of a form of one field, ``DECLINE`` or ``CANCEL``, or a
        function of (message, schema) that returns one of these. ``visit``: the same of a page to
        open, ``True`` or a function of (message, url). ``sample``: a text, or a result as a dict,
        or a function of (messages). ``roots``: a list of URIs, or a function. Raises ``TypeError``.
        """
        self._peer.answers.give(**given)
        return self

    @property
    def server(self) -> Server:
        """The server that it talks to."""
        return self._peer.server

    @property
    def asked(self) -> list[JSON]:
        """The questions that were asked, each with a ``method`` and ``params``."""
        return self._peer.asked

    @property
    def progress(self) -> list[Progress]:
        """What calls said of how far they were."""
        return self._peer.progress

    @property
    def logs(self) -> list[Log]:
        """What calls logged for the client."""
        return self._peer.logs

    @property
    def notifications(self) -> list[JSON]:
        """Whatever else the server told, as it came."""
        return self._peer.notifications

    # News.

    async def subscribe(self, *things: Any) -> None:
        """Be told when these resources change: URIs, or rows. Raises ``RpcError``."""
        await self._hear()
        for uri in (as_uri(self.server, thing) for thing in things):
            if self._peer.revision.handshake:
                await self.request("resources/subscribe", uri=uri)
            else:
                await self._listen(uri, {"resourceSubscriptions": [uri]})

    async def unsubscribe(self, *things: Any) -> None:
        """Be told no more."""
        for uri in (as_uri(self.server, thing) for thing in things):
            if self._peer.revision.handshake:
                await self.request("resources/unsubscribe", uri=uri)
            elif listen := self._listens.pop(uri, None):
                listen.cancel()
                await asyncio.wait([listen])
                await self._peer.arrive()

    async def listen(self) -> None:
        """Be told when lists change: of tools, prompts and resources."""
        await self._hear()
        if not self._peer.revision.handshake:
            kinds = ("tools", "prompts", "resources")
            await self._listen("", {f"{kind}ListChanged": True for kind in kinds})

    async def _hear(self) -> None:
        await self.open()
        await self._peer.wire.hear()

    async def _listen(self, key: str, wanted: JSON) -> None:
        """Hold a listen open, and be here when it is acknowledged (``subscriptions/listen``)."""
        listen = self._peer.spawn(self._held(wanted))
        self._listens[key] = listen
        found = await self.until(lambda: listen.done() or self._acknowledged())
        if found is True:
            listen.result()  # raises why
        elif key and key not in found.get("resourceSubscriptions", ()):
            listen.cancel()
            raise RpcError({"code": ResourceNotFound.code, "message": f"Resource not found: {key}"})

    async def _held(self, wanted: JSON) -> None:
        await self._peer.request("subscriptions/listen", {"notifications": wanted})

    def _acknowledged(self) -> Any:
        for told in self.notifications:
            if told["method"] == ACKNOWLEDGED:
                self.notifications.remove(told)
                return told["params"]["notifications"] or {"nothing": True}
        return None

    async def until(self, condition: Callable[[], T], seconds: float = 10) -> T:
        """What ``condition`` is, once something that came made it true. Raises ``TimeoutError``."""
        try:
            return await self._peer.until(condition, seconds)
        finally:
            await self._rest()

    async def wait_for(self, method: str, *, seconds: float = 10, **params: Any) -> JSON:
        """The first notification of ``method`` with these ``params``. Raises ``TimeoutError``."""

        def found() -> JSON | None:
            for told in self.notifications:
                given = told.get("params", {})
                if told["method"] == method and params.items() <= given.items():
                    return told
            return None

        told = await self.until(found, seconds)
        assert told is not None
        return told

    async def wait_for_update(self, thing: Any, *, seconds: float = 10) -> JSON:
        """The notification that a resource changed, a URI or a row. Raises ``TimeoutError``."""
        uri = as_uri(self.server, thing)
        return await self.wait_for(UPDATED, uri=uri, seconds=seconds)

    # Broken connections, over http.

    async def drop(self) -> int:
        """Cut every connection, as a network does that is gone; how many were open."""
        return await self._http().drop()

    async def resume(self) -> None:
        """Go on with what broke, from the last event that was read of it (``Last-Event-ID``)."""
        await self._http().resume()

    @contextmanager
    def dropping(self, after: int = 1) -> Iterator[None]:
        """Cut each connection after so many messages, and fetch the rest over another one.

        ``AssertionError`` if there was nothing to cut: an answer of plain JSON has no events.
        """
        wire = self._http()
        before, wire.drop_after = wire.drops, after
        try:
            yield
        finally:
            wire.drop_after = None
        if wire.drops == before:
            raise AssertionError(
                f"No connection was dropped: no stream had {after} messages. A call is streamed "
                "when it says something, asks, or is durable."
            )

    def _http(self) -> HttpWire:
        if not isinstance(self._peer.wire, HttpWire):
            raise TypeError('Only connections over HTTP can be dropped: transport="http".')
        return self._peer.wire
