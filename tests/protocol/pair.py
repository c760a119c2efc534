"""A client and a server connection in one process: every message is encoded and decoded."""

from typing import Any

from django_mcp.protocol.connection import ClientCall, Connection, Received, State
from django_mcp.protocol.jsonrpc import ProtocolError, decode, encode
from django_mcp.protocol.revisions import LATEST, REVISIONS

PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "client", "version": "1"}
CAPABILITIES = {"elicitation": {}, "roots": {"listChanged": True}}
ENVELOPE = {
    PREFIX + "protocolVersion": LATEST.name,
    PREFIX + "clientInfo": INFO,
    PREFIX + "clientCapabilities": CAPABILITIES,
}


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def initialize(revision: Any, id: Any = "init") -> dict[str, Any]:
    about = {"clientInfo": INFO, "capabilities": CAPABILITIES}
    return request(id, "initialize", protocolVersion=str(revision), **about)


class InMemoryConnection:
    """A connection that keeps its state in memory."""

    def __init__(self, **options: Any) -> None:
        self.connection = Connection(**options)

    def send(self, raw: Any, header: str | None = None) -> Received:
        """Pass bytes or a message to the server, and return what it received."""
        raw = raw if isinstance(raw, bytes) else encode(raw).encode()
        try:
            message = decode(raw)
        except ProtocolError as error:
            return Received(replies=(self.connection.refuse(error),))
        return self.connection.receive(message, header)

    def call(self, message: Any) -> ClientCall:
        """Send a message and return the one call that it results in."""
        received = self.send(message)
        assert received.replies == ()
        (call,) = received.events
        assert isinstance(call, ClientCall)
        return call

    def code(self, message: Any, header: str | None = None) -> int:
        """Send a message and return the code of the one error reply."""
        received = self.send(message, header)
        assert received.events == ()
        (reply,) = received.replies
        assert reply["jsonrpc"] == "2.0"
        return reply["error"]["code"]

    def open(self, revision: Any) -> "InMemoryConnection":
        """Initialize the connection, if the revision has a handshake."""
        if REVISIONS[str(revision)].handshake:
            self.call(initialize(revision))
            self.send(notification("notifications/initialized"))
        return self


class StoredConnection(InMemoryConnection):
    """A connection that is restored from its stored state for every message."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.options = options
        self.row = encode(State().to_dict())

    def send(self, raw: Any, header: str | None = None) -> Received:
        self.connection = Connection(State.from_dict(decode(self.row)), **self.options)
        received = super().send(raw, header)
        self.row = encode(self.connection.state.to_dict())
        return received
