"""
The client's side of the protocol: requests and their responses, questions and what is told.

Rule: a request has one response, waited for so long and no longer; one that is given up is
cancelled. What is wrong with anything that came is raised by whoever waits next.

Source: basic, basic/lifecycle and basic/utilities of each revision.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..protocol.envelope import CAPABILITIES, CLIENT_INFO, LOG_LEVEL, VERSION
from ..protocol.revisions import REVISIONS
from .http import HttpWire
from .questions import Answers, Caller
from .recording import unwatch, watch
from .results import RpcError
from .wires import JSON, Ends, Id, MemoryWire, StdioWire, Wire

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

T = TypeVar("T")
WIRES: dict[str, type[Wire]] = {"memory": MemoryWire, "http": HttpWire, "stdio": StdioWire}
CLIENT = {"name": "django_mcp.testing", "version": "1"}
DEFAULT_LEVEL = "info"  # what a session hears unless it asks for more
TOLD_OF = frozenset(("tools/call", "resources/read", "prompts/get"))  # how far they are
NOT_ASKED = -32601  # what a question is answered by that nobody answers


class Progress(NamedTuple):
    """How far a call said that it was."""

    done: float
    total: float | None = None
    message: str | None = None


class Log(NamedTuple):
    """A line that the server's code wrote for the client."""

    level: str
    data: Any
    logger: str | None = None


class Waiting(NamedTuple):
    """A request that has had no response yet, or whose response is not read."""

    method: str
    response: asyncio.Future[JSON]


class Peer:
    """Speaks ``revision`` to ``server`` over a transport; ``call`` calls functions of the test."""

    def __init__(
        self,
        server: Server,
        principal: Callable[[], Awaitable[Principal]],
        call: Caller,
        *,
        revision: str,
        transport: str,
        capabilities: JSON,
        answers: Mapping[str, Any],
        log_level: str,
        seconds: float,
        application: Any = None,
    ) -> None:
        self.server, self.revision = server, _named("revision", REVISIONS, revision)
        self.capabilities, self.log_level, self.seconds = capabilities, log_level, seconds
        self.answers = Answers(**answers)
        ends = Ends(self, server, self.revision, principal, application)
        self.wire = _named("transport", WIRES, transport)(ends)
        self.notifications: list[JSON] = []
        self.progress: list[Progress] = []
        self.logs: list[Log] = []
        self.asked: list[JSON] = []  # questions of the server's
        self.opened: JSON | None = None  # how the server introduced itself
        self._call, self._opening = call, asyncio.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[Id, Waiting] = {}
        self._problems: list[BaseException] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._arrived = asyncio.Event()
        self._is_watching = False

    # The connection.

    async def open(self) -> None:
        """Connect and shake hands, once. Raises ``Misdeclared`` or ``RpcError``."""
        async with self._opening:
            if self.opened is not None:
                return
            if not self._is_watching:
                self.server.ready()
                watch()
                self._is_watching = True
                await self.wire.open()
            self.opened = await self._introduced() if self.revision.handshake else {}

    async def _introduced(self) -> JSON:
        given = {
            "protocolVersion": self.revision.name,
            "capabilities": self.capabilities,
            "clientInfo": CLIENT,
        }
        result = await self._once("initialize", given)
        await self.notify("notifications/initialized")
        await self.arrive()  # or news of what happens next would come too early
        if self.log_level != DEFAULT_LEVEL:
            await self._once("logging/setLevel", {"level": self.log_level})
        return result

    async def arrive(self) -> None:
        """Come back when what was sent has been read, and what was cut noticed."""
        await self.wire.arrive()
        if self.wire.lags:
            await self._once("ping" if self.revision.handshake else "server/discover", {})

    async def close(self) -> None:
        """Disconnect. Raises what was wrong with anything that came."""
        if not self._is_watching:
            return
        self._is_watching, self.opened = False, None
        try:
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks))
            await self.wire.close()
        finally:
            unwatch()
        self._raise()

    # What comes (``wires.Owner``).

    def take(self, message: Any, about: Id | None = None, status: int | None = None) -> None:
        for one in message if isinstance(message, list) else [message]:
            id = one.get("id")
            waiting = self._waiting.get(about if id is None and about is not None else id or "")
            method = None if waiting is None or "method" in one else waiting.method
            self._safely(self.heard, one, method)
            self._safely(self._sort, one, waiting, status)
        self._arrived.set()

    def _safely(self, step: Callable[..., None], *args: Any) -> None:
        try:
            step(*args)
        except Exception as problem:  # in a callback of the loop it would be lost
            self.object(problem)

    def heard(self, message: JSON, method: str | None) -> None:
        """A message came, a response to ``method`` if it is one: a place to look at it."""

    def _sort(self, message: JSON, waiting: Waiting | None, status: int | None) -> None:
        if "method" not in message:
            if waiting is not None and not waiting.response.done():
                waiting.response.set_result(message | {"status": status})
        elif "id" in message:
            self.spawn(self._reply(message))
        else:
            self._note(message["method"], message.get("params", {}), message)

    def _note(self, method: str, params: JSON, message: JSON) -> None:
        if method == "notifications/progress":
            told = (params["progress"], params.get("total"), params.get("message"))
            self.progress.append(Progress(*told))
        elif method == "notifications/message":
            self.logs.append(Log(params["level"], params.get("data"), params.get("logger")))
        else:
            self.notifications.append(message)

    def refuse(self, id: Id, error: Exception) -> None:
        if self.is_waiting(id):
            self._waiting[id].response.set_exception(error)
        self._arrived.set()

    def is_waiting(self, id: Id) -> bool:
        return id in self._waiting and not self._waiting[id].response.done()

    def object(self, problem: BaseException) -> None:
        self._problems.append(problem)
        self._arrived.set()

    def _raise(self) -> None:
        if self._problems:
            problem, self._problems = self._problems[0], []
            raise problem

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """A task that ends with the connection."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Questions.

    async def _reply(self, question: JSON) -> None:
        """Answer a request of the server's by a response."""
        reply: JSON = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            reply["result"] = await self._answered(question)
        except Exception as problem:  # the call that asked is to end, and tell of this
            self.object(problem)
            reply["error"] = {"code": NOT_ASKED, "message": "Nobody answers this."}
        try:
            await self.wire.send(reply)
        except Exception as problem:
            self.object(problem)

    async def _answered(self, question: JSON) -> JSON:
        if question["method"] == "ping":
            return {}
        self.asked.append(question)
        return await self.answers.answer(question["method"], question.get("params", {}), self._call)

    async def _retry(self, result: JSON) -> JSON:
        """What a request is repeated with, whose result asks ("input_required")."""
        asked = result.get("inputRequests", {})
        given = {key: await self._answered(one) for key, one in asked.items()}
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": given} | state

    # What goes.

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        told = {"params": params} if params else {}
        await self.wire.send({"jsonrpc": "2.0", "method": method} | told)

    async def request(self, method: str, params: JSON) -> JSON:
        """The result of a request, with every question answered. Raises ``RpcError``."""
        await self.open()
        while True:
            result = await self._once(method, params)
            if result.get("resultType") != "input_required":
                return result
            params = params | await self._retry(result)

    async def _once(self, method: str, params: JSON) -> JSON:
        self._raise()
        id = next(self._ids)
        self._waiting[id] = Waiting(method, asyncio.get_running_loop().create_future())
        try:
            await self.wire.send(self.message(id, method, params))
            response = await self._response(id, method)
        finally:
            del self._waiting[id]
        self._raise()
        if "error" in response:
            raise RpcError(response["error"], response["status"])
        result: JSON = response["result"]
        return result

    async def _response(self, id: Id, method: str) -> JSON:
        try:
            # Who listens waits for as long as it takes.
            seconds = None if method == "subscriptions/listen" else self.seconds
            return await asyncio.wait_for(asyncio.shield(self._waiting[id].response), seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            await self.wire.cancel(id, "The client waits no longer.")
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{method} was not answered within {self.seconds} s.") from None
            raise

    def message(self, id: Id, method: str, params: JSON) -> JSON:
        """A request as it is sent."""
        meta: JSON = {} if self.revision.handshake else self.envelope()
        if method in TOLD_OF:
            meta["progressToken"] = id
        said = params | ({"_meta": meta | params.get("_meta", {})} if meta else {})
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": said}

    def envelope(self) -> JSON:
        """What every request says of its client, where there is no handshake."""
        return {
            VERSION: self.revision.name,
            CLIENT_INFO: CLIENT,
            CAPABILITIES: self.capabilities,
            LOG_LEVEL: self.log_level,
        }

    # Waiting.

    async def until(self, condition: Callable[[], T], seconds: float) -> T:
        """What ``condition`` is, once something that came made it true. Raises ``TimeoutError``."""
        async with asyncio.timeout(seconds):
            while True:
                self._arrived.clear()
                self._raise()
                if found := condition():
                    return found
                await self._arrived.wait()


def _named(what: str, known: Mapping[str, T], name: str) -> T:
    if name not in known:
        raise ValueError(f"There is no {what} {name!r}; there are: {', '.join(known)}.")
    return known[name]
