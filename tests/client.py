"""
A client of one conversation, in this process, that believes nothing it is told.

Every message of the server is held against the official schema of the
revision spoken: a test that talks to the server at all tests its conformance.
It is synchronous, so that a test may use the ORM between two requests. The client that projects
have for their tests (``django_mcp.testing``) behaves; this one sends what no client should.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser

from django_mcp.auth.principal import Principal
from django_mcp.declarations.server import Server, default_server
from django_mcp.protocol.jsonrpc import encode
from django_mcp.protocol.revisions import LATEST, REVISIONS, Revision
from django_mcp.testing.async_client import EVERYTHING
from django_mcp.testing.results import RpcError
from django_mcp.transports.pipe import Conversation

from .oracle import message_conforms

CLIENT_INFO = {"name": "tests", "version": "1"}
PREFIX = "io.modelcontextprotocol/"
SECONDS = 60  # to wait for what comes at once, however busy the machine is
JSON = dict[str, Any]
T = TypeVar("T")


def result_of(response: JSON) -> JSON:
    """Return the result in a response. Raise ``RpcError``."""
    if "error" in response:
        raise RpcError(response["error"])
    result: JSON = response["result"]
    return result


class Speaker:
    """The messages of clients that do not depend on the transport."""

    revision: Revision
    capabilities: JSON
    answers: dict[str, Callable[[JSON], JSON]]
    asked: list[JSON]  # requests of the server's
    log_level: str | None = None

    def result(self, method: str, params: JSON) -> JSON:
        """Send one request and return its result. Raise ``RpcError``."""
        raise NotImplementedError

    def notify(self, method: str, **params: Any) -> Any:
        raise NotImplementedError

    @property
    def introduction(self) -> JSON:
        """Return the parameters of ``initialize``."""
        return {
            "protocolVersion": self.revision.name,
            "capabilities": self.capabilities,
            "clientInfo": CLIENT_INFO,
        }

    def envelope(self) -> JSON:
        """Return the ``_meta`` about the client, for revisions without a handshake."""
        level = {PREFIX + "logLevel": self.log_level} if self.log_level else {}
        return {
            PREFIX + "protocolVersion": self.revision.name,
            PREFIX + "clientInfo": CLIENT_INFO,
            PREFIX + "clientCapabilities": self.capabilities,
        } | level

    def initialize(self, **params: Any) -> JSON:
        """Initialize the connection."""
        result = self.request("initialize", **(self.introduction | params))
        self.notify("notifications/initialized")
        return result

    def request(self, method: str, **params: Any) -> JSON:
        """Send a request, answer its questions, and return the result. Raise ``RpcError``."""
        while True:
            result = self.result(method, params)
            if result.get("resultType") != "input_required" or not self.answers:
                return result
            params = params | self._retry(result)

    def _retry(self, result: JSON) -> JSON:
        asked = result.get("inputRequests", {})
        self.asked += asked.values()
        given = {
            key: self.answers[one["method"]](one.get("params", {})) for key, one in asked.items()
        }
        return {"inputResponses": given, "requestState": result["requestState"]}

    def reply_to(self, message: JSON) -> JSON | None:
        """Return the response to a message of the server, or None if it is not a request."""
        answer = self.answers.get(message["method"])
        if answer is None and message["method"] == "ping":
            answer = lambda params: {}  # noqa: E731
        if answer is None:
            return None
        reply = answer(message.get("params", {}))
        member = "error" if "code" in reply else "result"
        return {"jsonrpc": "2.0", "id": message["id"], member: reply}

    def call(self, tool: str, /, **arguments: Any) -> JSON:
        """Call a tool and return its result."""
        return self.request("tools/call", name=tool, arguments=arguments)

    def text(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool and return the text of its result, which must not be an error."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return str(result["content"][0]["text"])

    def failure(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must fail, and return the error text."""
        result = self.call(tool, **arguments)
        assert result["isError"], result
        return str(result["content"][0]["text"])


class Client(Speaker):
    """A client of ``server`` for ``user``. ``answers`` maps methods of questions to functions."""

    def __init__(
        self,
        user: Any = None,
        *,
        server: Server = default_server,
        revision: str = LATEST.name,
        capabilities: JSON | None = None,
        answers: dict[str, Callable[[JSON], JSON]] | None = None,
        initialize: bool = True,
    ) -> None:
        self.revision = REVISIONS[revision]
        self.user, self.capabilities = user, EVERYTHING if capabilities is None else capabilities
        self.answers = answers or {}
        self.notes: list[JSON] = []  # notifications
        self.asked: list[JSON] = []  # requests of the server's
        self.received: list[Any] = []
        self.problems: list[Exception] = []  # with what came
        self._ids = itertools.count(1)
        self._methods: dict[Any, str] = {}
        self._responses: dict[Any, asyncio.Future[JSON]] = {}
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        try:
            self._runner.run(self._open(server))
        except BaseException:
            self._runner.close()
            raise
        if initialize and self.revision.handshake:
            self.initialize()

    async def _open(self, server: Server) -> None:
        self._arrived = asyncio.Event()
        self.conversation = Conversation(server, self._principal, self._sent)

    async def _principal(self) -> Principal:
        return Principal(self.user if self.user is not None else AnonymousUser())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *details: object) -> None:
        self._runner.run(self.conversation.close())
        self._runner.close()
        if self.problems and details[0] is None:
            raise self.problems[0]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the loop until ``work`` is done. Raise an error for each invalid message."""
        result = self._runner.run(work)
        if self.problems:
            raise self.problems[0]
        return result

    # What comes.

    def _sent(self, message: Any) -> None:
        copied = json.loads(encode(message))
        self._loop.call_soon_threadsafe(self._take, copied)

    def _take(self, message: Any) -> None:
        self.received.append(message)
        for one in message if isinstance(message, list) else [message]:
            for step in (self._check, self._take_one):
                try:
                    step(one)
                except Exception as problem:  # in a callback of the loop it would be lost
                    self.problems.append(problem)
        self._arrived.set()

    def _check(self, message: JSON) -> None:
        if self.revision.null_ids and message.get("id", 0) is None:
            message = message | {"id": 0}  # JSON-RPC asks for null, the schemas forbid it
        message_conforms(self.revision, message, self._methods.get(message.get("id")))

    def _take_one(self, message: JSON) -> None:
        if "method" not in message:
            future = self._responses.get(message.get("id"))
            if future is not None and not future.done():
                future.set_result(message)
        elif "id" in message:
            self.asked.append(message)
            self._reply(message)
        else:
            self.notes.append(message)

    def _reply(self, message: JSON) -> None:
        if (reply := self.reply_to(message)) is not None:
            self.send(reply)

    # What goes.

    def send(self, message: Any) -> None:
        """Send one message, or a batch, unchanged."""
        raw = message if isinstance(message, bytes | str) else json.dumps(message)
        self.conversation.receive(raw)

    def message(self, method: str, params: JSON, *, id: Any = None) -> JSON:
        """Return a request, with the next id unless one is given."""
        id = next(self._ids) if id is None else id
        self._methods[id] = method
        self._responses[id] = self._loop.create_future()
        if not self.revision.handshake:
            params = params | {"_meta": self.envelope() | params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def start(self, method: str, *, id: Any = None, **params: Any) -> Any:
        """Send a request without waiting. Return its id."""
        message = self.message(method, params, id=id)
        self._run(self._send(message))
        return message["id"]

    async def _send(self, message: Any) -> None:
        self.send(message)

    def wait(self, id: Any, seconds: float = SECONDS) -> JSON:
        """Wait for the response to a request, and return it."""
        return self._run(asyncio.wait_for(asyncio.shield(self._responses[id]), seconds))

    def until(self, condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
        """Wait until ``condition`` returns a true value, and return it."""

        async def waiting() -> Any:
            async with asyncio.timeout(seconds):
                while not (found := condition()):
                    self._arrived.clear()
                    await self._arrived.wait()
                return found

        return self._run(waiting())

    def settle(self) -> None:
        """Run the loop until nothing is left to do at once."""

        async def settled() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        self._run(settled())

    def notify(self, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        self._runner.run(self._send(message | ({"params": params} if params else {})))

    def result(self, method: str, params: JSON) -> JSON:
        return result_of(self.wait(self.start(method, **params)))

    def all(self, method: str, member: str) -> list[JSON]:
        """Return the items of all pages of a list."""
        found, cursor = [], {}
        while True:
            page = self.request(method, **cursor)
            found += page[member]
            if "nextCursor" not in page:
                return found
            cursor = {"cursor": page["nextCursor"]}
