"""
The protocol state of one conversation, on the server's side and without I/O.

A connection has no socket, clock, lock, task or future. ``receive`` takes a decoded message and
returns events and immediate replies. ``result`` and ``error`` encode the response to a call. The
caller reads and writes.

Everything that decides whether a message is allowed in the current phase is in this module. The
state is an immutable value, which is replaced, so that another process can continue from a stored
one. A request of a revision without a handshake neither needs nor changes the state.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from .envelope import (
    PREFIX,
    STATELESS_KEYS,
    expect,
    named_revision,
    progress_token,
    read_capabilities,
    read_client_info,
    read_envelope,
    read_meta,
)
from .http_rules import Mirrored, check_routing
from .jsonrpc import (
    JSON,
    Id,
    InvalidRequest,
    MethodNotFound,
    NotificationMessage,
    ProtocolError,
    RequestMessage,
    ResponseMessage,
    is_id,
    read,
)
from .revisions import (
    LATEST,
    LATEST_HANDSHAKE,
    REVISIONS,
    STATELESS_ONLY,
    Revision,
    encode_error,
    encode_result,
    negotiate,
    over,
)

MAX_BATCH = 50


# Events: the parsed messages of a client, as ``Connection.receive`` returns them. They are plain
# values, which can be stored, compared and sent to another process.


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A request of the client, or its retry with answers to the server's questions.

    ``params`` are only the method's own. ``_meta`` and the members of a retry have fields here.
    """

    id: Id
    method: str
    params: JSON
    revision: Revision
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)
    log_level: str | None = None  # of this request's ``_meta``; None if not given
    progress_token: Id | None = None
    input_responses: JSON | None = None
    request_state: str | None = None
    meta: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification of the client that has no event class of its own."""

    method: str
    params: JSON


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client has cancelled the call with that id."""

    id: Id
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The client's response to a request of the server, with a result or an error."""

    id: Id
    result: JSON | None = None
    error: JSON | None = None


Event = ClientCall | Notice | Cancelled | Answered


# The phases of a connection.


class Phase(enum.StrEnum):
    """The phase of the handshake."""

    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


# Phase -> method that is allowed in it -> next phase. "*" is every other method of the revision.
TRANSITIONS: dict[Phase, dict[str, Phase]] = {
    Phase.NEW: {"initialize": Phase.OPENING, "ping": Phase.NEW},
    Phase.OPENING: {
        "notifications/initialized": Phase.OPEN,
        "*": Phase.OPENING,  # clients SHOULD NOT send these yet, but many do not wait
    },
    Phase.OPEN: {"*": Phase.OPEN},
    Phase.CLOSED: {},
}
# Methods that are allowed only where TRANSITIONS names them, so never by "*".
_ONCE = frozenset(("initialize", "notifications/initialized"))
_HINTS = {
    Phase.NEW: "Send initialize first, or say which protocol version you speak in _meta",
    Phase.OPENING: "This connection is initialized already",
    Phase.OPEN: "This connection is initialized already",
    Phase.CLOSED: "This connection is closed",
}


@dataclass(frozen=True, slots=True)
class State:
    """The state of a connection: plain values, which a row can store between messages."""

    revision: str = ""
    phase: Phase = Phase.NEW
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)

    def to_dict(self) -> JSON:
        return {
            "revision": self.revision,
            "phase": self.phase.value,
            "client_info": self.client_info,
            "capabilities": self.capabilities,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "phase": Phase(values["phase"])})


@dataclass(frozen=True, slots=True)
class Received:
    """The events of a received message, and the replies to send at once.

    The replies to a ``batch``, and the responses to its calls, are sent as one array.
    """

    events: tuple[Event, ...] = ()
    replies: tuple[JSON, ...] = ()
    batch: bool = False


class Connection:
    """One conversation; ``transport`` is ``"stdio"`` for any pipe, ``"http"`` or ``"sse"``.

    ``lacks`` returns whether the server lacks a method that the revision defines.
    """

    def __init__(
        self,
        state: State | None = None,
        *,
        transport: str = "stdio",
        lacks: Callable[[str], bool] = lambda method: False,
    ) -> None:
        self.state = state or State()
        self.transport = transport
        self._lacks = lacks
        self._headers: Mirrored | None = None

    @property
    def revision(self) -> Revision:
        """The negotiated revision; before that, the newest revision with a handshake."""
        return over(self.transport, REVISIONS.get(self.state.revision, LATEST_HANDSHAKE))

    def close(self) -> None:
        """Close the connection: all later messages are rejected or ignored."""
        self.state = replace(self.state, phase=Phase.CLOSED)

    # Receiving.

    def receive(
        self, message: Any, header_revision: str | None = None, headers: Mirrored | None = None
    ) -> Received:
        """Return the events and replies of one decoded message, or of a batch. Never raises.

        ``header_revision`` is the value of the header MCP-Protocol-Version. ``headers`` are the
        headers that must mirror a request without a handshake; None if there are no headers.
        """
        self._headers = headers
        if not isinstance(message, list):
            return self._one(message, header_revision)
        try:
            self._check_batch(message)
        except ProtocolError as error:
            return Received(replies=(self.refuse(error),))
        entries = [self._one(entry, header_revision, batch=True) for entry in message]
        events = tuple(event for entry in entries for event in entry.events)
        replies = tuple(reply for entry in entries for reply in entry.replies)
        return Received(events, replies, batch=True)

    def _check_batch(self, entries: list[Any]) -> None:
        if not (self.state.revision and self.revision.batching):
            raise InvalidRequest("This revision has no batches")
        if not 0 < len(entries) <= MAX_BATCH:
            raise InvalidRequest(f"A batch has 1 to {MAX_BATCH} messages")
        if any(isinstance(e, dict) and e.get("method") == "initialize" for e in entries):
            raise InvalidRequest("initialize must not be part of a batch")

    def _one(self, message: Any, header: str | None, *, batch: bool = False) -> Received:
        try:
            parsed = read(message)
            if isinstance(parsed, RequestMessage):
                return self._requested(parsed, header, batch)
            return Received(events=tuple(self._told(parsed)))
        except ProtocolError as error:
            return Received(replies=self._unheeded(message, error))

    def _unheeded(self, message: Any, error: ProtocolError) -> tuple[JSON, ...]:
        # A notification is never answered. Over HTTP the reply is the body of the status 400.
        silent = _is_notification(message) and self.transport != "http"
        return () if silent else (self.refuse(error),)

    def _requested(self, request: RequestMessage, header: str | None, batch: bool) -> Received:
        stateless = self._is_stateless(request, header)
        try:
            call = self._stateless(request, header, batch) if stateless else self._stateful(request)
        except ProtocolError as error:
            revision = LATEST if stateless else self.revision
            return Received(replies=(self.error(request.id, error, revision),))
        return Received(events=(call,))

    def _is_stateless(self, request: RequestMessage, header: str | None) -> bool:
        """Whether the request is of a revision without a handshake."""
        if self.revision.one_stream:
            return False
        meta = request.params.get("_meta")
        keys = meta.keys() if isinstance(meta, dict) else frozenset[str]()
        if not keys.isdisjoint(STATELESS_KEYS):
            return True
        if request.method == "initialize":
            return False
        if header is not None and (header not in REVISIONS or not REVISIONS[header].handshake):
            return True
        # Extensions put keys with that prefix into requests of a session too, so the prefix is a
        # hint only before a handshake.
        hinted = request.method in STATELESS_ONLY or any(key.startswith(PREFIX) for key in keys)
        return hinted and self.state.phase is Phase.NEW

    def _stateless(self, request: RequestMessage, header: str | None, batch: bool) -> ClientCall:
        if self.state.phase is Phase.CLOSED:
            raise InvalidRequest(_HINTS[Phase.CLOSED])
        if batch:
            raise InvalidRequest("A request that says its protocol version cannot be in a batch")
        # The method is checked before the parameters: a missing method is the better error.
        revision = named_revision(request.params, header)
        _check_method(request.method, revision)
        if self._lacks(request.method):
            kind = request.method.partition("/")[0]
            raise MethodNotFound(f"This server has no {kind}.")
        meta = read_meta(request.params)
        envelope = read_envelope(meta, request.params, revision, self._mirrored(request))
        params = _own(request.params, "_meta", "inputResponses", "requestState")
        return ClientCall(
            request.id, request.method, params, envelope.revision,
            client_info=envelope.client_info, capabilities=envelope.capabilities,
            log_level=envelope.log_level, progress_token=progress_token(meta),
            input_responses=envelope.input_responses, request_state=envelope.request_state,
            meta=meta,
        )  # fmt: skip

    def _mirrored(self, request: RequestMessage) -> Callable[[str], None] | None:
        """Return a function that compares the headers with the request; None without headers."""
        headers = self._headers
        if headers is None:
            return None
        return lambda version: check_routing(headers, version, request.method, request.params)

    def _stateful(self, request: RequestMessage) -> ClientCall:
        phase = self._next_phase(request.method)
        meta = read_meta(request.params)
        params = _own(request.params, "_meta")
        if request.method == "initialize":
            self.state = _opening(params)
        _check_method(request.method, self.revision)
        self.state = replace(self.state, phase=phase)
        return ClientCall(
            request.id, request.method, params, self.revision,
            client_info=self.state.client_info, capabilities=self.state.capabilities,
            progress_token=progress_token(meta), meta=meta,
        )  # fmt: skip

    def _next_phase(self, method: str) -> Phase:
        legal = TRANSITIONS[self.state.phase]
        phase = legal.get(method) or (None if method in _ONCE else legal.get("*"))
        if phase is None:
            raise InvalidRequest(_HINTS[self.state.phase])
        return phase

    def _told(self, message: NotificationMessage | ResponseMessage) -> Iterator[Event]:
        """Yield the event of a notification or response; nothing if it is not allowed now."""
        if self.state.phase is Phase.CLOSED:
            return
        if isinstance(message, ResponseMessage):
            if message.id is not None and self.state.phase is not Phase.NEW:
                yield Answered(message.id, message.result, message.error)
        elif message.method == "notifications/cancelled":
            yield from _cancelled(message.params)
        elif message.method in self.revision.notifications:
            yield from self._noticed(message)

    def _noticed(self, message: NotificationMessage) -> Iterator[Event]:
        try:
            phase = self._next_phase(message.method)
        except InvalidRequest:
            return
        self.state = replace(self.state, phase=phase)
        yield Notice(message.method, message.params)

    # Sending.

    def result(self, call: ClientCall, result: JSON) -> JSON:
        """Return the response to ``call`` with its canonical ``result``."""
        body = encode_result(call.revision, call.method, {"resultType": "complete"} | result)
        return {"jsonrpc": "2.0", "id": call.id, "result": body}

    def error(
        self, about: ClientCall | Id, error: ProtocolError, revision: Revision | None = None
    ) -> JSON:
        """Return the error response to a call, or to the request with that id."""
        id = about.id if isinstance(about, ClientCall) else about
        spoken = about.revision if isinstance(about, ClientCall) else self.revision
        return {"jsonrpc": "2.0", "id": id, "error": encode_error(revision or spoken, error)}

    def refuse(self, error: ProtocolError) -> JSON:
        """Return the error response to an invalid message, with its id if that could be read."""
        if error.about is not None:
            return self.error(error.about, error)
        id = {"id": None} if self.revision.null_id_errors(self.transport) else {}
        return {"jsonrpc": "2.0", **id, "error": encode_error(self.revision, error)}


def _is_notification(message: Any) -> bool:
    return isinstance(message, dict) and "method" in message and "id" not in message


def _check_method(method: str, revision: Revision) -> None:
    if method not in revision.requests:
        raise MethodNotFound(f"Method not found: {method[:200]}")


def _own(params: JSON, *others: str) -> JSON:
    return {key: value for key, value in params.items() if key not in others}


def _opening(params: JSON) -> State:
    requested = expect(params.get("protocolVersion"), str, "protocolVersion")
    return State(
        negotiate(requested).name,
        Phase.OPENING,
        read_client_info(params.get("clientInfo")),
        read_capabilities(params.get("capabilities")),
    )


def _cancelled(params: JSON) -> Iterator[Cancelled]:
    """Yield the event, or nothing: "Invalid cancellation notifications SHOULD be ignored"."""
    reason = params.get("reason")
    if is_id(params.get("requestId")):
        yield Cancelled(params["requestId"], reason if isinstance(reason, str) else None)


__all__ = [
    "MAX_BATCH", "TRANSITIONS", "Answered", "Cancelled", "ClientCall", "Connection", "Event",
    "Notice", "Phase", "Received", "State",
]  # fmt: skip
