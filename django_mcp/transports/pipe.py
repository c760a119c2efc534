"""
A whole MCP conversation over one pipe, in memory: the base of stdio and similar transports.

The transport passes the client's lines to ``receive``, and ``send`` takes the server's messages.
Calls run concurrently, as tasks of one event loop. The end of the pipe ends all calls and
subscriptions.
Nothing is stored in the database, because the process is the session.

    conversation = Conversation(server, principal, send)
    for line in pipe:
        conversation.receive(line)
    await conversation.close()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..calls.call_state import ActiveCall, Batch, CallOutput
from ..calls.interaction import PendingQuestions
from ..calls.methods import lacks
from ..calls.runner import CallRunner, overloaded
from ..calls.throttling import UNCOUNTED
from ..calls.visibility import label_in
from ..changes.permission_rechecks import permission_rechecker
from ..changes.subscriptions import ClientSubscriptions, followed_models, listener_registry
from ..conf import settings
from ..protocol.connection import Answered, Cancelled, ClientCall, Connection, Event, Notice, Phase
from ..protocol.jsonrpc import (
    JSON,
    Id,
    InternalError,
    InvalidRequest,
    ProtocolError,
    decode,
    encode,
)
from ..protocol.revisions import encode_notification

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.sessions")
DEFAULT_LOG_LEVEL = "info"


class PipeOutput(CallOutput):
    """Sends the messages of calls over the pipe."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def send(self, message: JSON) -> None:
        self._send(message)


class Conversation:
    """The server's side of one pipe. Create and use it in one event loop.

    ``principal`` is awaited for every run of a call, so that permissions are current. ``send``
    takes a message, or a list of messages (a batch). It is called from any thread and must return
    at once.
    """

    def __init__(
        self,
        server: Server,
        principal: Callable[[], Awaitable[Principal]],
        send: Callable[[Any], None],
        *,
        host: str | None = None,
    ) -> None:
        server.ready()
        self.server = server
        self.connection = Connection(transport="stdio", lacks=partial(lacks, server))
        self._principal, self._send = principal, send
        self._output = PipeOutput(send)
        self._loop = asyncio.get_running_loop()
        self._level = DEFAULT_LOG_LEVEL
        self._active: dict[Id, ActiveCall] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._questions = PendingQuestions(send)
        self._serving = CallRunner(
            server, self.connection, self._get_principal, self, self._questions, host=host,
            transport="stdio",
        )  # fmt: skip
        self.subscriptions = ClientSubscriptions(
            server, self.connection, self._get_principal, send, host
        )
        listener_registry().add(self)
        permission_rechecker()  # ends calls whose caller loses a permission

    # Receiving.

    def receive(self, raw: bytes | str) -> None:
        """Handle one message, or a batch, as received. Never raises."""
        try:
            message = decode(raw)
        except ProtocolError as error:
            self._send(self.connection.refuse(error))
            return
        received = self.connection.receive(message)
        if received.batch:
            self._receive_batch(received.events, list(received.replies))
            return
        for reply in received.replies:
            self._send(reply)
        for event in received.events:
            self._take(event)

    def _receive_batch(self, events: tuple[Event, ...], replies: list[JSON]) -> None:
        calls = sum(isinstance(event, ClientCall) for event in events)
        batch = Batch(calls, replies)
        for event in events:
            self._take(event, batch)
        if not calls and replies:
            self._send(replies)

    def _take(self, event: Event, batch: Batch | None = None) -> None:
        match event:
            case ClientCall():
                self._start(ActiveCall(event, self._output, batch))
            case Cancelled():
                self._cancel(event)
            case Answered():
                self._questions.answered(event)
            case Notice(method="notifications/initialized"):
                self._questions.ready.set()
                self._spawn(self._follow_lists())
            case _:
                logger.debug("Notification ignored: method=%s", event.method)

    # Calls.

    def _start(self, active: ActiveCall) -> None:
        refused = self._refusal(active.call)
        if refused is not None:
            self._answer(active, self.connection.error(active.call, refused))
            return
        self._active[active.call.id] = active
        active.task = self._spawn(self._serving.response(active))
        active.task.add_done_callback(lambda task: self._ended(active, task))

    def _refusal(self, call: ClientCall) -> ProtocolError | None:
        if call.id in self._active:
            return InvalidRequest("A request of this id is being worked on.")
        counted = [a for a in self._active.values() if a.call.method not in UNCOUNTED]
        if call.method not in UNCOUNTED and len(counted) >= settings.CONCURRENT_CALLS:
            return overloaded("Too many requests at once.")
        return None

    def _ended(self, active: ActiveCall, task: asyncio.Task[JSON | None]) -> None:
        """Send the response to a call, also if it was cancelled before its task began."""
        self._active.pop(active.call.id, None)
        is_stopped = active.stop.is_set or task.cancelled()
        self._answer(active, self._stop_response(active) if is_stopped else task.result())

    def _stop_response(self, active: ActiveCall) -> JSON | None:
        """Return the error for a stopped call; None if the client cancelled it."""
        error = active.refusal
        return None if error is None else self.connection.error(active.call, error)

    def _answer(self, active: ActiveCall, message: JSON | None) -> None:
        """Send the response, or keep it until all calls of its batch have ended."""
        active.end()
        if active.batch is None:
            if message is not None:
                self._write(active.call, message, self._send)
            return
        active.batch.open -= 1
        if message is not None:
            self._write(active.call, message, encode)
            active.batch.messages.append(message)
        if not active.batch.open and active.batch.messages:
            self._send(active.batch.messages)

    def _write(self, call: ClientCall, message: JSON, write: Callable[[JSON], object]) -> None:
        """Write a response; replace one that cannot be encoded as JSON by an internal error."""
        try:
            write(message)
        except (TypeError, ValueError):
            logger.exception("Response cannot be encoded: method=%s", call.method)
            message.clear()  # in place, because the list of a batch holds this dict
            message.update(self.connection.error(call, InternalError()))
            write(message)

    def _cancel(self, event: Cancelled) -> None:
        active = self._active.get(event.id)
        if active is None or active.call.method == "initialize":
            return
        logger.info("Call cancelled: method=%s reason=%.200r", active.call.method, event.reason)
        active.cancel()

    async def _get_principal(self) -> Principal:
        """Return the client's current principal."""
        principal = await self._principal()
        self.subscriptions.set_principal(principal)
        return principal

    # The ``ClientSession`` of protocol methods.

    def log_level(self) -> str | None:
        return self._level

    async def set_log_level(self, level: str) -> None:
        self._level = level

    async def subscribe(self, uri: str, row_ref: str) -> None:
        await listener_registry().follow(
            self, {label_in(row_ref)} if row_ref else set(), lists=True
        )
        self.subscriptions.subscribe(uri, row_ref)

    async def unsubscribe(self, uri: str) -> None:
        self.subscriptions.unsubscribe(uri)

    async def listen(self, id: Id, wanted: dict[str, Any], row_refs: Mapping[str, str]) -> None:
        models, lists = followed_models(wanted, row_refs)
        await listener_registry().follow(self, models, lists=lists)
        await self.subscriptions.listen(id, wanted, row_refs)

    # What a listener of ``changes.subscriptions`` implements.

    principal = None

    def renew(self, principal: Principal) -> None:
        """Do nothing: ``principal`` is awaited for every use."""

    async def is_token_valid(self) -> bool:
        return True

    def end(self) -> None:
        """Do nothing: only the end of the pipe ends a conversation."""

    async def _follow_lists(self) -> None:
        """Follow changes of lists: every client is notified of them after the handshake."""
        try:
            await listener_registry().follow(self, set(), lists=True)
        except Exception:
            logger.warning(
                "The client is notified of list changes of this process only", exc_info=True
            )

    def complete(self, id: str) -> None:
        """Notify the client that the page of a URL elicitation is completed."""
        if id in self._questions.elicitations:
            del self._questions.elicitations[id]
            method = "notifications/elicitation/complete"
            notification = encode_notification(
                self.connection.revision, method, {"elicitationId": id}
            )
            if notification is not None:
                self._send(notification)

    async def ping(self, seconds: float = 10) -> bool:
        """Whether the client answers a ping within ``seconds``; True before the handshake."""
        if self.connection.state.phase is not Phase.OPEN:
            return True
        return await self._questions.ping(self.connection.revision, seconds)

    async def finish(self, seconds: float) -> None:
        """Wait for running calls, for at most ``seconds``; ``subscriptions/listen`` is excluded."""
        calls = (a for a in self._active.values() if a.call.method != "subscriptions/listen")
        await _wait_for([active.task for active in calls], seconds)

    async def close(self, seconds: float = 1) -> None:
        """End all subscriptions and calls, and wait up to twice ``seconds`` for their tasks.

        Code that is blocked in a thread cannot be stopped; it is left running.
        """
        listener_registry().remove(self)
        self.connection.close()
        await _wait_for([self._active[id].task for id in self.subscriptions.end_listens()])
        for active in list(self._active.values()):
            active.cancel()
        stuck = await _wait_for(self._tasks, seconds)
        for task in stuck:
            task.cancel()
        await _wait_for(stuck, seconds)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _wait_for(
    tasks: Iterable[asyncio.Task[Any] | None], seconds: float | None = None
) -> set[asyncio.Task[Any]]:
    """Wait for tasks. Return those that have not ended after ``seconds``."""
    listed = [task for task in tasks if task is not None]
    return (await asyncio.wait(listed, timeout=seconds))[1] if listed else set()
