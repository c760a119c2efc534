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

from .http_rules import Mirrored, check_routing
from .jsonrpc import (
    ID,
    JSON,
    HeaderMismatch,
    Id,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ProtocolError,
    UnsupportedVersion,
    check_message,
    is_id,
)
from .revisions import (
    LATEST,
    LATEST_HANDSHAKE,
    LOG_LEVELS,
    REVISIONS,
    REVISIONS_OVER,
    STATELESS_ONLY,
    Revision,
    encode_error,
    encode_result,
    negotiate,
)

MAX_BATCH = 50
# Keys of ``_meta``.
META_PREFIX = "io.modelcontextprotocol/"
VERSION = META_PREFIX + "protocolVersion"
CLIENT_INFO = META_PREFIX + "clientInfo"
CAPABILITIES = META_PREFIX + "clientCapabilities"
LOG_LEVEL = META_PREFIX + "logLevel"
SERVER_INFO = META_PREFIX + "serverInfo"
SUBSCRIPTION_ID = META_PREFIX + "subscriptionId"
# Only requests without a handshake have these keys.
STATELESS_KEYS = frozenset((VERSION, CLIENT_INFO, CAPABILITIES, LOG_LEVEL))
# Parameters of such requests that are not the method's own.
STATELESS_PARAMS = frozenset(("_meta", "inputResponses", "requestState"))


# Events: the parsed messages of a client, as ``Connection.receive`` returns them. They are plain
# values, which can be stored, compared and sent to another process.


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A request of the client, or its retry with answers to the server's questions.

    ``params`` are only the method's own. ``_meta`` and the members of a retry have fields here.
    Those that may contain secrets are not in its ``repr()``, which error reports show.
    """

    id: Id
    method: str
    params: JSON = field(repr=False)
    revision: Revision
    client_info: JSON = field(default_factory=dict)
    capabilities: JSON = field(default_factory=dict)
    log_level: str | None = None  # of this request's ``_meta``; None if not given
    progress_token: Id | None = None
    input_responses: JSON | None = field(default=None, repr=False)
    request_state: str | None = None
    meta: JSON = field(default_factory=dict, repr=False)


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


_NEW = State()


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
        self.state = state or _NEW
        self.transport = transport
        # The negotiated revision; before that, the newest revision with a handshake.
        revisions = REVISIONS_OVER[transport]
        self.revision = revisions.get(self.state.revision) or revisions[LATEST_HANDSHAKE.name]
        self._lacks = lacks

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
        if not isinstance(message, list):
            return self._receive_one(message, header_revision, headers)
        try:
            self._check_batch(message)
        except ProtocolError as error:
            return Received(replies=(self.refuse(error),))
        entries = [
            self._receive_one(entry, header_revision, headers, in_batch=True) for entry in message
        ]
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

    def _receive_one(
        self, message: Any, header: str | None, headers: Mirrored | None, *, in_batch: bool = False
    ) -> Received:
        try:
            check_message(message)
        except InvalidRequest as error:
            # A notification is never answered. Over HTTP the reply is the body of the status 400.
            silent = _is_notification(message) and self.transport != "http"
            return Received(replies=() if silent else (self.refuse(error),))
        if "method" not in message or "id" not in message:
            return Received(events=tuple(self._events(message)))
        stateless = self._is_stateless(message, header)
        try:
            if stateless:
                call = self._read_stateless(message, header, headers, in_batch)
            else:
                call = self._read_stateful(message)
        except ProtocolError as error:
            revision = LATEST if stateless else self.revision
            return Received(replies=(self.error(message["id"], error, revision),))
        return Received(events=(call,))

    def _is_stateless(self, request: JSON, header: str | None) -> bool:
        """Whether the request is of a revision without a handshake."""
        if self.revision.one_stream:
            return False
        meta = request.get("params", {}).get("_meta")
        if not isinstance(meta, dict):
            meta = {}
        if not STATELESS_KEYS.isdisjoint(meta):
            return True
        if request["method"] == "initialize":
            return False
        if header is not None and (header not in REVISIONS or not REVISIONS[header].handshake):
            return True
        if self.state.phase is not Phase.NEW:
            return False
        # Extensions put keys with that prefix into requests of a session too, so the prefix is a
        # hint only before a handshake.
        return request["method"] in STATELESS_ONLY or any(
            key.startswith(META_PREFIX) for key in meta
        )

    def _read_stateless(
        self, request: JSON, header: str | None, headers: Mirrored | None, in_batch: bool
    ) -> ClientCall:
        if self.state.phase is Phase.CLOSED:
            raise InvalidRequest(_HINTS[Phase.CLOSED])
        if in_batch:
            raise InvalidRequest("A request that says its protocol version cannot be in a batch")
        method, params = request["method"], request.get("params", {})
        # The method is checked before the parameters: a missing method is the better error.
        revision = named_revision(params, header)
        if method not in revision.requests:
            raise _unknown(method)
        if self._lacks(method):
            raise MethodNotFound(f"This server has no {method.partition('/')[0]}.")
        meta = read_meta(params)
        for key in (VERSION, CAPABILITIES):
            if key not in meta:
                raise InvalidParams(f"_meta must have {key}")
        version, level = meta[VERSION], meta.get(LOG_LEVEL)
        if not isinstance(version, str):
            raise InvalidParams(f"{VERSION} must be a string")
        if level is not None and level not in LOG_LEVELS:
            raise InvalidParams(f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}")
        client_info = read_client_info(meta[CLIENT_INFO]) if CLIENT_INFO in meta else {}
        capabilities = read_capabilities(meta[CAPABILITIES])
        # A retry after questions of the server.
        responses, state = params.get("inputResponses"), params.get("requestState")
        if responses is not None:
            check_input_responses(responses)
        if state is not None and not isinstance(state, str):
            raise InvalidParams("requestState must be a string")
        if headers is not None:
            check_routing(headers, version, method, params)
        own = {key: value for key, value in params.items() if key not in STATELESS_PARAMS}
        return ClientCall(
            request["id"], method, own, revision,
            client_info=client_info, capabilities=capabilities, log_level=level,
            progress_token=meta.get("progressToken"), input_responses=responses,
            request_state=state, meta=meta,
        )  # fmt: skip

    def _read_stateful(self, request: JSON) -> ClientCall:
        method, params = request["method"], request.get("params", {})
        phase = self._next_phase(method)
        meta = read_meta(params)
        if method == "initialize":
            self.state = _opening(params)
            self.revision = REVISIONS_OVER[self.transport][self.state.revision]
        if method not in self.revision.requests:
            raise _unknown(method)
        if phase is not self.state.phase:
            self.state = replace(self.state, phase=phase)
        own = {key: value for key, value in params.items() if key != "_meta"}
        return ClientCall(
            request["id"], method, own, self.revision,
            client_info=self.state.client_info, capabilities=self.state.capabilities,
            progress_token=meta.get("progressToken"), meta=meta,
        )  # fmt: skip

    def _next_phase(self, method: str) -> Phase:
        legal = TRANSITIONS[self.state.phase]
        phase = legal.get(method) or (None if method in _ONCE else legal.get("*"))
        if phase is None:
            raise InvalidRequest(_HINTS[self.state.phase])
        return phase

    def _events(self, message: JSON) -> Iterator[Event]:
        """Yield the event of a notification or response; nothing if it is not allowed now."""
        if self.state.phase is Phase.CLOSED:
            return
        if "method" not in message:
            id = message.get("id")
            if id is not None and self.state.phase is not Phase.NEW:
                yield Answered(id, message.get("result"), message.get("error"))
            return
        method, params = message["method"], message.get("params", {})
        if method == "notifications/cancelled":
            yield from _cancelled(params)
        elif method in self.revision.notifications:
            yield from self._noticed(method, params)

    def _noticed(self, method: str, params: JSON) -> Iterator[Event]:
        try:
            phase = self._next_phase(method)
        except InvalidRequest:
            return
        self.state = replace(self.state, phase=phase)
        yield Notice(method, params)

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


def _unknown(method: str) -> MethodNotFound:
    return MethodNotFound(f"Method not found: {method[:200]}")


# The parameters of a request. A wrong value raises ``InvalidParams``, so all other code can rely on
# the types.


def read_meta(params: JSON) -> JSON:
    """Return the request's ``_meta`` or {}. Raise ``InvalidParams``, also for a progress token."""
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        raise InvalidParams("_meta must be an object")
    token = meta.get("progressToken")
    if token is not None and not is_id(token):
        raise InvalidParams(f"progressToken must be {ID}")
    return meta


def named_revision(params: JSON, header: str | None = None) -> Revision:
    """Return the revision that a request without a handshake names, in ``_meta`` or ``header``.

    If it names none, return the newest, and ``Connection`` reports what is missing.
    Raise ``HeaderMismatch`` if the two differ, and ``UnsupportedVersion``.
    """
    meta = params.get("_meta")
    version = meta.get(VERSION) if isinstance(meta, dict) else None
    named = version if isinstance(version, str) else header
    if named is None:
        return LATEST
    if header is not None and header != named:
        raise HeaderMismatch("MCP-Protocol-Version differs from the body's protocol version")
    revision = REVISIONS.get(named)
    if revision is None or revision.handshake:
        raise UnsupportedVersion(named[:100])
    return revision


def read_client_info(value: Any) -> JSON:
    """Return ``clientInfo``. Raise ``InvalidParams`` if its name or version is missing."""
    if not isinstance(value, dict):
        raise InvalidParams("clientInfo must be an object")
    for key in ("name", "version"):
        if not isinstance(value.get(key), str):
            raise InvalidParams(f"clientInfo.{key} must be a string")
    return value


def read_capabilities(value: Any) -> JSON:
    """Return the client's capabilities, objects by name, without those that are null."""
    if not isinstance(value, dict):
        raise InvalidParams("capabilities must be an object")
    for name, capability in value.items():
        if not isinstance(capability, dict | None):
            raise InvalidParams(f"capabilities.{name} must be an object")
    return {name: item for name, item in value.items() if item is not None}


def check_input_responses(responses: Any) -> None:
    """Raise ``InvalidParams`` unless ``inputResponses`` is an object of objects."""
    if not isinstance(responses, dict):
        raise InvalidParams("inputResponses must be an object")
    for key, response in responses.items():
        if not isinstance(response, dict):
            raise InvalidParams(f"inputResponses[{key!r}] must be an object")


def _opening(params: JSON) -> State:
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise InvalidParams("protocolVersion must be a string")
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
