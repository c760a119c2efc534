"""
The transport of the admin's inspector: the client and the server of one connection, in one process.

``InspectorConnection`` sends the requests and serves them. It keeps every message as it would be
sent, in the client's revision. ``CallRunner`` runs the calls, as it does for other clients.

A question ends the run of a call. ``state`` is then all that is needed to continue: the messages so
far and the answers. The caller carries it, and any process can restore the connection from it. The
protocol state is not stored: the client's messages lead to the same one again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..calls.call_state import ActiveCall, CallOutput, NoSession
from ..calls.interaction import Asking, Interaction, understood, written
from ..calls.methods import lacks
from ..calls.once import StepRows
from ..calls.runner import CallRunner
from ..changes.permission_rechecks import permission_rechecker
from ..exceptions import CallParked
from ..protocol.connection import (
    CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    VERSION,
    Answered,
    ClientCall,
    Connection,
)
from ..protocol.jsonrpc import JSON, InternalError, encode
from ..protocol.revisions import Revision
from ..runtime.runtime import current

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

T = TypeVar("T")
logger = logging.getLogger("django_mcp.sessions")
CLIENT_LOG_LEVEL = "debug"
METHODS_WITH_PROGRESS = frozenset(("tools/call", "resources/read", "prompts/get"))
MAX_MESSAGES = 500  # of one connection; notifications beyond are counted and not kept


@dataclass(frozen=True, slots=True)
class WireMessage:
    """A message as it is sent, without its encoding as text."""

    sender: Literal["client", "server"]
    body: JSON


def client_capabilities(revision: Revision) -> JSON:
    """Return the client's capabilities: a person answers all kinds of questions."""
    features: JSON = {"form": {}, "url": {}} if revision.capability_features else {}
    found: dict[str, tuple[str, JSON]] = {
        "elicitation/create": ("elicitation", features),
        "sampling/createMessage": ("sampling", {}),
        "roots/list": ("roots", {}),
    }
    return dict(pair for method, pair in found.items() if method in revision.asks)


class ParkingStepRows(StepRows):
    """Rows of the steps of one call. They are kept while the call waits for answers."""

    is_parked = False

    async def aforget(self, call: str) -> None:
        if not self.is_parked:
            await super().aforget(call)


class InspectorConnection(NoSession, CallOutput):
    """A client of ``server`` in this process, and the server's end of its connection.

    ``get_principal`` is awaited before every run of a call. ``client_name`` is what the client
    calls itself. ``state`` continues an earlier connection. Use it in one event loop.
    """

    def __init__(
        self,
        server: Server,
        revision: Revision,
        get_principal: Callable[[], Awaitable[Principal]],
        *,
        host: str,
        client_name: str,
        state: JSON | None = None,
    ) -> None:
        server.ready()
        self.server, self.revision, self._get_principal = server, revision, get_principal
        self._host = host
        self._client_info: JSON = {"name": client_name, "version": "1"}
        # "stdio" is any pipe: the rules of HTTP do not apply.
        self._connection = Connection(transport="stdio", lacks=partial(lacks, server))
        self._level: str | None = "info" if revision.handshake else None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()  # set when a message was added, or the work is done
        self._steps = ParkingStepRows()
        self._call: ClientCall | None = None  # the latest
        self._pending: dict[str, tuple[str, JSON]] = {}  # id of a request: digest, question
        self._interaction: Interaction | None = None  # of the call that waits for answers
        self.messages: list[WireMessage] = []
        self.omitted = 0  # notifications that were not kept
        self._restore(state or {})

    # The state between two requests of the admin.

    @property
    def state(self) -> JSON:
        """Return what continues this connection, as JSON values."""
        interaction = self._interaction
        return {
            "messages": [[one.sender, one.body] for one in self.messages],
            "omitted": self.omitted,
            "level": self._level,
            "pending": self._pending,
            "interaction": None if interaction is None else asdict(interaction),
        }

    def _restore(self, state: JSON) -> None:
        for sender, body in state.get("messages", ()):
            message = WireMessage(sender, body)
            self.messages.append(message)
            if sender == "client":
                self._note_call(self._connection.receive(body).events)
        self.omitted, self._level = state.get("omitted", 0), state.get("level", self._level)
        self._pending = {
            id: (digest, wire) for id, (digest, wire) in state.get("pending", {}).items()
        }
        values = state.get("interaction")
        self._interaction = None if values is None else Interaction(**values)

    def _note_call(self, events: Sequence[Any]) -> None:
        self._call = next((one for one in events if isinstance(one, ClientCall)), self._call)

    # Messages.

    def _record_message(self, sender: Literal["client", "server"], message: Any) -> JSON:
        """Append a message as the other end would read it, and return it."""
        body: JSON = json.loads(encode(message))
        self.messages.append(WireMessage(sender, body))
        self._changed.set()
        return body

    def _receive(self, message: JSON) -> Sequence[Any]:
        """Send a message of the client. Return its events, and send what the server replies."""
        received = self._connection.receive(self._record_message("client", message))
        self._note_call(received.events)
        for reply in received.replies:
            self._record_message("server", reply)
        return received.events

    def send(self, message: JSON) -> None:
        """Take a notification of a call (``CallOutput``)."""
        if len(self.messages) >= MAX_MESSAGES:
            self.omitted += 1
            return
        # Appended here and not in the event loop, so that the order is the one in which the
        # messages would be written. ``ActiveCall`` holds a lock meanwhile.
        self.messages.append(WireMessage("server", json.loads(encode(message))))
        self._loop.call_soon_threadsafe(self._changed.set)

    def has_run_before(self) -> bool:
        """Whether this run continues a call that has asked (``CallOutput``)."""
        return self._interaction is not None

    async def follow(self, work: Awaitable[None]) -> AsyncGenerator[WireMessage, None]:
        """Run ``work``, a request or an answer, and yield each new message as soon as it is sent.

        If the iteration ends early, the call is cancelled.
        """
        task, position = asyncio.ensure_future(work), len(self.messages)
        task.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                self._changed.clear()
                while position < len(self.messages):
                    yield self.messages[position]
                    position += 1
                if task.done():
                    break
                await self._changed.wait()
        finally:
            task.cancel()
            await asyncio.wait([task])
        task.result()

    # The client.

    async def open(self) -> None:
        """Initialize the connection, in revisions with a handshake."""
        if not self.revision.handshake or self.messages:
            return
        given = {
            "protocolVersion": self.revision.name,
            "capabilities": client_capabilities(self.revision),
            "clientInfo": self._client_info,
        }
        answer = await self.request("initialize", given)
        self._receive({"jsonrpc": "2.0", "method": "notifications/initialized"})
        if "logging" in answer.get("result", {}).get("capabilities", {}):
            await self.request("logging/setLevel", {"level": CLIENT_LOG_LEVEL})

    async def request(self, method: str, params: JSON) -> JSON:
        """Send a request, and return the response, or {} if the server asks or the call stopped."""
        id = 1 + sum(one.sender == "client" and "id" in one.body for one in self.messages)
        meta: JSON = {} if self.revision.handshake else self._envelope()
        if method in METHODS_WITH_PROGRESS:
            meta["progressToken"] = id
        params = params | ({"_meta": meta} if meta else {})
        message: JSON = {"jsonrpc": "2.0", "id": id, "method": method}
        self._interaction, self._pending = None, {}
        events = self._receive(message | ({"params": params} if params else {}))
        if not events:  # the protocol has refused it
            return self.messages[-1].body
        return await self._run()

    def _envelope(self) -> JSON:
        return {
            VERSION: self.revision.name, CLIENT_INFO: self._client_info,
            CAPABILITIES: client_capabilities(self.revision), LOG_LEVEL: CLIENT_LOG_LEVEL,
        }  # fmt: skip

    async def call(self, method: str, params: JSON) -> None:
        """Open the connection and send one request."""
        await self.open()
        await self.request(method, params)

    @property
    def questions(self) -> dict[str, JSON]:
        """The questions that the call waits for, as sent: ``method`` and ``params`` by key."""
        if self.revision.input_required:
            result = self.response.get("result", {})
            requests: dict[str, JSON] = result.get("inputRequests", {})
            return requests if result.get("resultType") == "input_required" else {}
        asked = (one.body for one in self.messages if one.sender == "server")
        return {
            one["id"]: one for one in asked if "method" in one and one.get("id") in self._pending
        }

    @property
    def response(self) -> JSON:
        """The response to the latest request, or {} without one."""
        last = self.messages[-1].body if self.messages else {}
        return last if "result" in last or "error" in last else {}

    async def answer(self, answers: Mapping[str, JSON]) -> None:
        """Answer the questions by their key, each with a result, and run the call again."""
        if self.revision.input_required:
            call, state = self._call, self.response.get("result", {}).get("requestState")
            assert call is not None, "There is no call to continue."
            given = {"inputResponses": dict(answers)} | ({"requestState": state} if state else {})
            await self.request(call.method, call.params | given)
            return
        assert self._interaction is not None, "The call waits for no answer."
        for id, (digest, wire) in self._pending.items():
            events = self._receive({"jsonrpc": "2.0", "id": id, "result": answers.get(id, {})})
            for event in events:
                if isinstance(event, Answered) and (
                    found := understood(self.revision, wire, event)
                ):
                    self._interaction.known[digest] = found
        self._pending = {}
        await self._run()

    # The server.

    async def _run(self) -> JSON:
        """Run the latest call, and return the response: {} if it asks or was stopped."""
        assert self._call is not None
        active, interaction = ActiveCall(self._call, self), self._interaction
        runner = CallRunner(
            self.server, self._connection, self._get_principal, self, self, self._steps, self._host,
            transport="inspector",
        )  # fmt: skip
        # The service observes running calls once it exists, and ends this one if its caller loses
        # the permission.
        permission_rechecker()
        active.task = asyncio.ensure_future(runner.response(active, interaction))
        try:
            await asyncio.wait([active.task])
        except asyncio.CancelledError:  # nobody waits for the response any more
            active.cancel()
            await asyncio.wait([active.task])
            raise
        finally:
            is_stopped = active.stop.is_set or active.task.cancelled()
            active.end()
        message: JSON | None = None
        if is_stopped:
            error = active.refusal
            message = None if error is None else self._connection.error(self._call, error)
        else:
            try:
                message = active.task.result()
            except CallParked:
                return {}
        self._interaction = None
        return {} if message is None else self._respond(self._call, message)

    def _respond(self, call: ClientCall, message: JSON) -> JSON:
        try:
            return self._record_message("server", message)
        except (TypeError, ValueError):
            logger.exception("Response cannot be encoded: method=%s", call.method)
            return self._record_message("server", self._connection.error(call, InternalError()))

    async def ask(
        self, revision: Revision, asking: Sequence[Asking], interaction: Interaction
    ) -> dict[str, JSON]:
        """Send the questions and end the run (``ClientAsker``). Raise ``CallParked``."""
        asked = [(digest, written(revision, question)) for _, digest, question in asking]
        for _, one in asked:
            self._record_message("server", one.message)
        self._pending = {one.id: (digest, one.wire) for digest, one in asked}
        self._interaction, self._steps.is_parked = interaction, True
        raise CallParked

    def expect(self, *elicitations: str) -> None:
        """Do nothing: no connection is left to notify when the page is completed."""

    # The ``ClientSession`` of protocol methods.

    def log_level(self) -> str | None:
        return self._level

    async def set_log_level(self, level: str) -> None:
        self._level = level


# Event loops for views, which run in a thread without one.


@contextmanager
def _event_loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        try:
            yield runner
        finally:
            runner.run(_close_services())


async def _close_services() -> None:
    await current().close()


def run_in_new_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop of this thread, and return its result."""
    with _event_loop() as loop:
        return loop.run(work)


def iterate_in_new_loop(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield the items of an asynchronous generator, in a new event loop of this thread.

    The loop does not run while the caller handles an item.
    """

    async def following() -> tuple[T] | None:
        try:
            return (await anext(items),)
        except StopAsyncIteration:
            return None

    async def close() -> None:
        await items.aclose()

    with _event_loop() as loop:
        try:
            while (found := loop.run(following())) is not None:
                yield found[0]
        finally:
            loop.run(close())
