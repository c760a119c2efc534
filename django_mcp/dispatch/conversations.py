"""
A whole conversation over one pipe, in memory: what stdio and any such transport is made of.

Rule: a transport gives lines and takes messages; everything between is here.
Calls run beside each other; what belongs to a call stops with it; the end of
the pipe ends everything. Nothing is stored: for a pipe, the process is the
session.

    conversation = Conversation(server, principal, send)
    for line in pipe:
        conversation.receive(line)
    await conversation.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..protocol.connection import Connection, Phase
from ..protocol.events import Answered, Call, Cancelled, Event, Notice
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
from .active import Active, Batch
from .announcements import listen, stop_listening
from .asking import Questions
from .bulletins import Bulletin
from .hearing import hearers, interest
from .listening import Listening
from .places import label_in
from .serving import Serving

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

logger = logging.getLogger("django_mcp")
DEFAULT_LOG_LEVEL = "info"
UNCOUNTED = frozenset(("ping", "subscriptions/listen"))  # beside the calls at once


class Conversation:
    """The server's side of one pipe.

    ``principal`` is awaited anew for every run of a call; ``send`` takes a
    message, or a batch of them, from any thread, and returns at once. Make and
    use it in one event loop.
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
        self.server, self.connection = server, Connection(transport="stdio")
        self._principal, self._send = principal, send
        self._loop = asyncio.get_running_loop()
        self._level = DEFAULT_LOG_LEVEL
        self._active: dict[Id, Active] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._questions = Questions(send)
        self._serving = Serving(
            server, self.connection, self._who, self, self._questions, self._log_level, host=host
        )
        self.listening = Listening(server, self.connection, self._who, send, host)
        listen(self)

    # Arriving.

    def receive(self, raw: bytes | str) -> None:
        """Take one message, or a batch, as it came. Never raises."""
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
        calls = sum(isinstance(event, Call) for event in events)
        batch = Batch(calls, replies)
        for event in events:
            self._take(event, batch)
        if not calls and replies:
            self._send(replies)

    def _take(self, event: Event, batch: Batch | None = None) -> None:
        match event:
            case Call():
                self._start(Active(event, self._send, batch))
            case Cancelled():
                self._cancel(event)
            case Answered():
                self._questions.answered(event)
            case Notice(method="notifications/initialized"):
                self._questions.ready.set()
                self._spawn(self._attend())
            case _:
                logger.debug("The client says %s", event.method)

    # Calls.

    def _start(self, active: Active) -> None:
        refused = self._refusal(active.call)
        if refused is not None:
            self._answer(active, self.connection.error(active.call, refused))
            return
        self._active[active.call.id] = active
        active.task = self._spawn(self._serving.response(active))
        active.task.add_done_callback(lambda task: self._ended(active, task))

    def _refusal(self, call: Call) -> ProtocolError | None:
        if call.id in self._active:
            return InvalidRequest("A request of this id is being worked on.")
        counted = [a for a in self._active.values() if a.call.method not in UNCOUNTED]
        if call.method not in UNCOUNTED and len(counted) >= settings.CONCURRENT_CALLS:
            return InternalError("Too many requests at once; try again in a moment.")
        return None

    def _ended(self, active: Active, task: asyncio.Task[JSON | None]) -> None:
        """Also for a call that was cancelled before it began."""
        self._active.pop(active.call.id, None)
        gone = active.stop.is_set() or task.cancelled()
        self._answer(active, self._refused(active) if gone else task.result())

    def _refused(self, active: Active) -> JSON | None:
        """What is said of a call that was stopped: nothing, unless it was not the client."""
        error = active.refusal
        return None if error is None else self.connection.error(active.call, error)

    def _answer(self, active: Active, message: JSON | None) -> None:
        """Write the response, or keep it until its batch is complete."""
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

    def _write(self, call: Call, message: JSON, write: Callable[[JSON], object]) -> None:
        """Write a response; what holds no JSON becomes an internal error."""
        try:
            write(message)
        except (TypeError, ValueError):
            logger.exception("The answer to %s cannot be written", call.method)
            message.clear()  # in place: a batch keeps it
            message.update(self.connection.error(call, InternalError()))
            write(message)

    def _log_level(self) -> str | None:
        return self._level

    def _cancel(self, event: Cancelled) -> None:
        active = self._active.get(event.id)
        if active is None or active.call.method == "initialize":
            return
        logger.info("%s was cancelled: %.200r", active.call.method, event.reason)
        active.cancel()

    async def _who(self) -> Principal:
        """Who the client is now."""
        principal = await self._principal()
        self.listening.recognise(principal)
        return principal

    # What methods may change (``runs.Session``).

    async def set_log_level(self, level: str) -> None:
        self._level = level

    async def subscribe(self, uri: str, place: str) -> None:
        await hearers().admit(self, {label_in(place)} if place else set(), lists=True)
        self.listening.subscribe(uri, place)

    async def unsubscribe(self, uri: str) -> None:
        self.listening.unsubscribe(uri)

    async def listen(self, id: Id, wanted: dict[str, Any], places: Mapping[str, str]) -> None:
        models, lists = interest(wanted, places)
        await hearers().admit(self, models, lists=lists)
        await self.listening.listen(id, wanted, places)

    # What comes from this side (``hearing.Ear``).

    principal = None

    def renew(self, principal: Principal) -> None:
        """It is asked each time."""

    async def is_welcome(self) -> bool:
        return True

    def end(self) -> None:
        """What ends it is the end of the pipe."""

    async def _attend(self) -> None:
        """Hear of changes of lists, as every client does that has shaken hands."""
        try:
            await hearers().admit(self, set(), lists=True)
        except Exception:
            logger.warning("Changes of lists are told by this process alone", exc_info=True)

    def hear(self, server: str, news: Bulletin) -> None:
        """Pass an announcement on; from any thread."""
        if server == self.server.name:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._heard, news)

    def _heard(self, news: Bulletin) -> None:
        for id in news.pages:
            self.complete(id)
        if self.listening.take(news):
            self._spawn(self.listening.tell())

    def complete(self, id: str) -> None:
        """A page that its client was sent to is done."""
        if id in self._questions.elicitations:
            del self._questions.elicitations[id]
            method = "notifications/elicitation/complete"
            told = encode_notification(self.connection.revision, method, {"elicitationId": id})
            if told is not None:
                self._send(told)

    async def ping(self, seconds: float = 10) -> bool:
        """Whether the client answers a ping within ``seconds``; True where there is none."""
        if self.connection.state.phase is not Phase.OPEN:
            return True
        return await self._questions.ping(self.connection.revision, seconds)

    async def finish(self, seconds: float) -> None:
        """Let calls come to their end, for as long as ``seconds``; listens are no calls."""
        calls = (a for a in self._active.values() if a.call.method != "subscriptions/listen")
        await _ending([active.task for active in calls], seconds)

    async def close(self, seconds: float = 1) -> None:
        """End every listen and call, and wait until they have ended.

        What does not end within ``seconds`` is left behind: code that is stuck
        in a thread, and that nothing can stop.
        """
        stop_listening(self)
        hearers().dismiss(self)
        self.connection.close()
        await _ending([self._active[id].task for id in self.listening.end()])
        for active in list(self._active.values()):
            active.cancel()
        stuck = await _ending(self._tasks, seconds)
        for task in stuck:
            task.cancel()
        await _ending(stuck, seconds)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _ending(
    tasks: Iterable[asyncio.Task[Any] | None], seconds: float | None = None
) -> set[asyncio.Task[Any]]:
    """Wait for tasks; those that have not ended after ``seconds``."""
    listed = [task for task in tasks if task is not None]
    return (await asyncio.wait(listed, timeout=seconds))[1] if listed else set()
