"""The state of a running call, and of one run of it.

``ActiveCall`` is a call from its arrival to its response. Its messages precede the response, and a
cancelled call sends nothing more, from whatever thread.

``CallRun`` has everything that a method needs for one run. Each run has a new request, checks
permissions and binds objects again. Only the answers of the client are kept from earlier runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..declarations.request import CallNotifier, KnownAnswers, Request
from ..protocol.capabilities import offered
from ..protocol.events import ClientCall
from ..protocol.headers import Mirrored
from ..protocol.jsonrpc import ProtocolError

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server
    from ..protocol.jsonrpc import JSON, Id
    from .execution import Invocation


class StopFlag:
    """A flag that any thread may set, once. It needs no lock, because nothing waits for it."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


def _unheard(message: JSON) -> None: ...


def _nothing() -> None: ...


@dataclass(eq=False)
class Batch:
    """Calls of a JSON-RPC batch: how many are open, and the responses so far."""

    open: int
    messages: list[JSON]


@dataclass(eq=False)
class ActiveCall:
    """A running call. ``stop`` is set when it is cancelled.

    ``_lock`` makes ``end`` wait for a ``send`` in another thread. Without it a message could follow
    the response, which the protocol forbids.
    """

    call: ClientCall
    send: Callable[[JSON], None]
    batch: Batch | None = None
    stop: StopFlag = field(default_factory=StopFlag)
    over: bool = False
    task: asyncio.Task[JSON | None] | None = None
    let_go: Callable[[], None] = _nothing  # ends the HTTP response, so that the client reconnects
    interrupt: Callable[[], object] | None = None  # stops it, if ``cancel`` alone is not enough
    refusal: ProtocolError | None = None  # the response to a call that ``refuse`` stopped
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, message: JSON) -> None:
        """Send a message before the response. Do nothing if the call is over or cancelled."""
        with self._lock:
            if not (self.over or self.stop.is_set()):
                self.send(message)

    def release(self) -> None:
        """End the HTTP response, if the client can reconnect to fetch the rest."""
        with self._lock:
            if not (self.over or self.stop.is_set()):
                self.let_go()

    def end(self) -> None:
        """Reject further messages, because the response comes next."""
        with self._lock:
            self.over = True
            # These functions often refer to this object. The reference cycle would keep the call in
            # memory until the garbage collector runs.
            self.send, self.let_go, self.interrupt = _unheard, _nothing, _nothing

    def refuse(self, error: ProtocolError) -> None:
        """Stop the call and respond with ``error``, unless it is over or cancelled already."""
        if not (self.over or self.stop.is_set()):
            self.refusal = error
            (self.interrupt or self.cancel)()

    def cancel(self) -> None:
        """Cancel the call's task, once: a second cancel would interrupt its cleanup."""
        if self.stop.is_set():
            return
        self.stop.set()
        if self.task is not None:
            self.task.cancel()


Conclusion = Callable[[dict[str, Any]], None]


class ClientSession(Protocol):
    """What methods may change in the client's session or connection."""

    async def set_log_level(self, level: str) -> None: ...

    async def subscribe(self, uri: str, place: str) -> None: ...

    async def unsubscribe(self, uri: str) -> None: ...

    async def listen(self, id: Id, wanted: dict[str, Any], places: Mapping[str, str]) -> None:
        """Acknowledge the subscription, then send the notifications that are ``wanted``.

        Return when the client or the server ends it. ``places`` are the rows of the URIs.
        """
        ...


@dataclass(eq=False)
class CallRun:
    """One run of ``call``, on ``server``, as ``principal``."""

    call: ClientCall
    server: Server
    principal: Principal
    session: ClientSession
    say: CallNotifier
    answers: KnownAnswers = field(default_factory=KnownAnswers)
    stop: StopFlag = field(default_factory=StopFlag)
    host: str | None = None
    mirrored: Mirrored | None = None  # headers that must equal the arguments
    conclude: Conclusion | None = None  # called with the result at the end of the transaction
    goes_on: bool = False  # a run came before, so it waits for a thread and is never rejected
    work: Invocation | None = None  # the declaration that is run, once it has been found

    def __post_init__(self) -> None:
        self.request = Request(
            self.principal,
            self.server,
            host=self.host,
            revision=self.call.revision.name,
            client_info=self.call.client_info,
            offered=offered(self.call.revision, self.call.capabilities),
            meta=self.call.meta,
            answers=self.answers,
            say=self.say,
            stopped=self.stop.is_set,
        )

    @property
    def params(self) -> dict[str, Any]:
        return self.call.params

    @property
    def subject(self) -> str:
        """Return the method and the name or URI, for log messages."""
        target = self.params.get("name") or self.params.get("uri") or ""
        # The client chooses the name. ``repr`` escapes line breaks, which would forge log lines.
        shown = repr(str(target)[:200])[1:-1]
        return f"{self.call.method} {shown}".strip()
