"""The client's side of the protocol: requests, responses, notifications, and answers to questions.

A request has one response. After a timeout the request is cancelled and ``TimeoutError`` raised.
Errors in messages that were received are stored, because they occur in callbacks of the event loop.
The next request or wait of the client raises them.

A test gives answers to the server's questions as values or functions. A question without an answer
fails the test with the question's text. It is never answered by a default. Answers have the format
of the newest revision.

Sources: basic, basic/lifecycle, basic/utilities, client/elicitation, client/sampling and
client/roots of each revision.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..protocol.connection import CAPABILITIES, CLIENT_INFO, LOG_LEVEL, VERSION
from ..protocol.revisions import REVISIONS
from .results import RpcError, unwatch, watch
from .wires import JSON, Ends, HttpWire, Id, MemoryWire, StdioWire, Wire

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server


# Calls a function of the test where its code may use the ORM.
Caller = Callable[..., Awaitable[Any]]
MODEL = "a model of the test's"

T = TypeVar("T")
WIRES: dict[str, type[Wire]] = {"memory": MemoryWire, "http": HttpWire, "stdio": StdioWire}
CLIENT = {"name": "django_mcp.testing", "version": "1"}
DEFAULT_LEVEL = "info"  # the log level of a session that sets none
METHODS_WITH_PROGRESS = frozenset(("tools/call", "resources/read", "prompts/get"))
UNANSWERED_CODE = -32601  # of the error that answers a question without an answer


class Unanswered(AssertionError):
    """The server asked a question without an answer: see ``Client.answers``."""


class Refusal(enum.Enum):
    """The user declines to answer, or closes the form."""

    DECLINE = "decline"
    CANCEL = "cancel"


DECLINE, CANCEL = Refusal.DECLINE, Refusal.CANCEL


class AnswerKind(Protocol):
    """Return the arguments for the test's function, and the function that writes its answer."""

    def __call__(self, params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]: ...


class Answers:
    """The answers of a test to ``elicit``, ``visit``, ``sample`` and ``roots``."""

    def __init__(self, **given: Any) -> None:
        self._given: dict[str, Any] = {}
        self.give(**given)

    def give(self, **given: Any) -> None:
        """Set answers for all later questions. Raise ``TypeError`` for an unknown kind."""
        if unknown := sorted(set(given) - set(KINDS)):
            raise TypeError(f"Nobody asks for {', '.join(unknown)}; answers: {', '.join(KINDS)}.")
        self._given |= given

    async def answer(self, method: str, params: JSON, call: Caller) -> JSON:
        """Return the result that answers a question. Raise ``Unanswered``."""
        kind = _kind(method, params)
        if kind not in self._given:
            raise Unanswered(_unanswered_message(method, params, kind))
        arguments, written = KINDS[kind](params)
        answer = self._given[kind]
        if inspect.iscoroutinefunction(answer):
            return written(await answer(*arguments))
        return written(await call(answer, *arguments) if callable(answer) else answer)


def _kind(method: str, params: JSON) -> str:
    if method == "elicitation/create":
        return "visit" if "url" in params else "elicit"
    return {"sampling/createMessage": "sample", "roots/list": "roots"}.get(method, method)


def _unanswered_message(method: str, params: JSON, kind: str) -> str:
    asked = params.get("message") or params.get("messages") or ""
    return (
        f"The server asked ({method}): {asked!r}, and nobody answers. "
        f"Give an answer: client.answers({kind}=...)."
    )


def _form(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    schema = params.get("requestedSchema", {})
    return (params.get("message", ""), schema), lambda answer: _filled_in(answer, schema)


def _filled_in(answer: Any, schema: JSON) -> JSON:
    if isinstance(answer, Refusal):
        return {"action": answer.value}
    if isinstance(answer, Mapping):
        return {"action": "accept", "content": dict(answer)}
    fields = list(schema.get("properties", {}))
    if len(fields) != 1 or answer is None:
        raise TypeError(
            f"{answer!r} does not fill in a form of {', '.join(fields)}: answer by a dict, by one "
            "value where there is one field, by DECLINE or by CANCEL."
        )
    return {"action": "accept", "content": {fields[0]: answer}}


def _page(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    return (params.get("message", ""), params["url"]), _page_result


def _page_result(answer: Any) -> JSON:
    if answer is not True and not isinstance(answer, Refusal):
        raise TypeError(f"{answer!r} says nothing of a page: answer True, DECLINE or CANCEL.")
    return {"action": "accept" if answer is True else answer.value}


def _sample(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    return (params.get("messages", []),), _sampling_result


def _sampling_result(answer: Any) -> JSON:
    said = {"role": "assistant", "model": MODEL, "stopReason": "endTurn"}
    if isinstance(answer, Mapping):
        return said | dict(answer)
    return said | {"content": {"type": "text", "text": str(answer)}}


def _roots(params: JSON) -> tuple[tuple[Any, ...], Callable[[Any], JSON]]:
    return (), lambda answer: {"roots": [_root(one) for one in answer]}


def _root(given: str | Mapping[str, Any] | Iterable[str]) -> JSON:
    if isinstance(given, str):
        return {"uri": given}
    return dict(given) if isinstance(given, Mapping) else dict(zip(("uri", "name"), given))  # noqa: B905


KINDS: dict[str, AnswerKind] = {"elicit": _form, "visit": _page, "sample": _sample, "roots": _roots}


class Progress(NamedTuple):
    """A progress notification of a call."""

    done: float
    total: float | None = None
    message: str | None = None


class Log(NamedTuple):
    """A log message that the server's code sent to the client."""

    level: str
    data: Any
    logger: str | None = None


class PendingRequest(NamedTuple):
    """A request without a response, or whose response was not read yet."""

    method: str
    response: asyncio.Future[JSON]


class Peer:
    """A client that speaks ``revision`` to ``server``. ``call`` runs the test's functions."""

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
        self.server, self.revision = server, _find("revision", REVISIONS, revision)
        self.capabilities, self.log_level, self.seconds = capabilities, log_level, seconds
        self.answers = Answers(**answers)
        ends = Ends(self, server, self.revision, principal, application)
        self.wire = _find("transport", WIRES, transport)(ends)
        self.notifications: list[JSON] = []
        self.progress: list[Progress] = []
        self.logs: list[Log] = []
        self.asked: list[JSON] = []  # the server's questions to the client
        self.opened: JSON | None = None  # the result of initialize
        self._call, self._opening = call, asyncio.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[Id, PendingRequest] = {}
        self._problems: list[BaseException] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._arrived = asyncio.Event()
        self._is_watching = False

    # The connection.

    async def open(self) -> None:
        """Connect and initialize, once. Raise ``Misdeclared`` or ``RpcError``."""
        async with self._opening:
            if self.opened is not None:
                return
            if not self._is_watching:
                self.server.ready()
                watch()
                self._is_watching = True
                await self.wire.open()
            self.opened = await self._initialize() if self.revision.handshake else {}

    async def _initialize(self) -> JSON:
        given = {
            "protocolVersion": self.revision.name,
            "capabilities": self.capabilities,
            "clientInfo": CLIENT,
        }
        result = await self._once("initialize", given)
        await self.notify("notifications/initialized")
        # The server has to process it first: until then it sends the session no notifications.
        await self.arrive()
        if self.log_level != DEFAULT_LEVEL:
            await self._once("logging/setLevel", {"level": self.log_level})
        return result

    async def arrive(self) -> None:
        """Wait until the server has read all sent messages and noticed dropped connections."""
        await self.wire.arrive()
        if self.wire.lags:
            await self._once("ping" if self.revision.handshake else "server/discover", {})

    async def close(self) -> None:
        """Disconnect. Raise the first error of messages that were received."""
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

    # Receiving (``wires.Owner``).

    def take(self, message: Any, about: Id | None = None, status: int | None = None) -> None:
        for one in message if isinstance(message, list) else [message]:
            id = one.get("id")
            if id is None and about is None and "error" in one:
                self._fail_waiting(one, status)
                continue
            waiting = self._waiting.get(about if id is None and about is not None else id or "")
            method = None if waiting is None or "method" in one else waiting.method
            self._run_safely(self.heard, one, method)
            self._run_safely(self._sort, one, waiting, status)
        self._arrived.set()

    def _fail_waiting(self, error: JSON, status: int | None) -> None:
        """Fail all requests that wait, for an error without an id.

        The server could not read a message, so it does not know which request the error answers.
        """
        self._run_safely(self.heard, error, None)
        waiting = [one for one in self._waiting.values() if not one.response.done()]
        for one in waiting:
            # A listen was read long ago, unless it is the only request.
            if one.method != "subscriptions/listen" or len(waiting) == 1:
                one.response.set_result(error | {"status": status})

    def _run_safely(self, step: Callable[..., None], *args: Any) -> None:
        try:
            step(*args)
        except Exception as problem:
            # The event loop would log an exception of its callback, not raise it in the test.
            self.object(problem)

    def heard(self, message: JSON, method: str | None) -> None:
        """Hook for each received message. ``method`` is that of the request if it is a response."""

    def _sort(self, message: JSON, waiting: PendingRequest | None, status: int | None) -> None:
        if "method" not in message:
            if waiting is not None and not waiting.response.done():
                waiting.response.set_result(message | {"status": status})
        elif "id" in message:
            self.spawn(self._respond_to(message))
        else:
            self._note(message["method"], message.get("params", {}), message)

    def _note(self, method: str, params: JSON, message: JSON) -> None:
        if method == "notifications/progress":
            progress = (params["progress"], params.get("total"), params.get("message"))
            self.progress.append(Progress(*progress))
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
        """Start a task that is cancelled when the connection closes."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Questions.

    async def _respond_to(self, question: JSON) -> None:
        """Answer a request of the server with a response."""
        response: JSON = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            response["result"] = await self._answer(question)
        except Exception as problem:
            # The server gets an error so that its call ends. The test gets the exception.
            self.object(problem)
            response["error"] = {"code": UNANSWERED_CODE, "message": "This question has no answer."}
        try:
            await self.wire.send(response)
        except Exception as problem:
            self.object(problem)

    async def _answer(self, question: JSON) -> JSON:
        if question["method"] == "ping":
            return {}
        self.asked.append(question)
        return await self.answers.answer(question["method"], question.get("params", {}), self._call)

    async def _retry(self, result: JSON) -> JSON:
        """Return the parameters with which a request is repeated ("input_required")."""
        asked = result.get("inputRequests", {})
        given = {key: await self._answer(one) for key, one in asked.items()}
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": given} | state

    # Sending.

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method}
        await self.wire.send(message | {"params": params} if params else message)

    async def request(self, method: str, params: JSON) -> JSON:
        """Return the result of a request after answering all questions. Raise ``RpcError``."""
        await self.open()
        while True:
            result = await self._once(method, params)
            if result.get("resultType") != "input_required":
                return result
            params = params | await self._retry(result)

    async def _once(self, method: str, params: JSON) -> JSON:
        self._raise()
        id = next(self._ids)
        self._waiting[id] = PendingRequest(method, asyncio.get_running_loop().create_future())
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
            # A listen request has no timeout: it stays open.
            seconds = None if method == "subscriptions/listen" else self.seconds
            return await asyncio.wait_for(asyncio.shield(self._waiting[id].response), seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            await self.wire.cancel(id, "The client waits no longer.")
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{method} was not answered within {self.seconds} s.") from None
            raise

    def message(self, id: Id, method: str, params: JSON) -> JSON:
        """Return a request as it is sent."""
        meta: JSON = {} if self.revision.handshake else self.envelope()
        if method in METHODS_WITH_PROGRESS:
            meta["progressToken"] = id
        params = params | ({"_meta": meta | params.get("_meta", {})} if meta else {})
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def envelope(self) -> JSON:
        """Return the client's metadata, part of every request in revisions without a handshake."""
        return {
            VERSION: self.revision.name,
            CLIENT_INFO: CLIENT,
            CAPABILITIES: self.capabilities,
            LOG_LEVEL: self.log_level,
        }

    # Waiting.

    async def until(self, condition: Callable[[], T], seconds: float) -> T:
        """Return the value of ``condition`` as soon as it is true. Raise ``TimeoutError``.

        It is evaluated after each received message.
        """
        async with asyncio.timeout(seconds):
            while True:
                self._arrived.clear()
                self._raise()
                if found := condition():
                    return found
                await self._arrived.wait()


def _find(what: str, known: Mapping[str, T], name: str) -> T:
    if name not in known:
        raise ValueError(f"There is no {what} {name!r}; there are: {', '.join(known)}.")
    return known[name]
