"""
A client and a server's connection, wired back to back: every message goes through its bytes.
"""

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


class Pipe:
    """A connection that lives as long as the conversation."""

    def __init__(self, **options: Any) -> None:
        self.connection = Connection(**options)

    def send(self, raw: Any, header: str | None = None) -> Received:
        """What the server makes of it, given bytes or a message."""
        raw = raw if isinstance(raw, bytes) else encode(raw).encode()
        try:
            message = decode(raw)
        except ProtocolError as error:
            return Received(replies=(self.connection.refuse(error),))
        return self.connection.receive(message, header)

    def call(self, message: Any) -> ClientCall:
        """The one call that a message is."""
        received = self.send(message)
        assert received.replies == ()
        (call,) = received.events
        assert isinstance(call, ClientCall)
        return call

    def code(self, message: Any, header: str | None = None) -> int:
        """The code of the one reply that refuses a message."""
        received = self.send(message, header)
        assert received.events == ()
        (reply,) = received.replies
        assert reply["jsonrpc"] == "2.0"
        return reply["error"]["code"]

    def open(self, revision: Any) -> "Pipe":
        """Through the handshake, if the revision has one."""
        if REVISIONS[str(revision)].handshake:
            self.call(initialize(revision))
            self.send(notification("notifications/initialized"))
        return self


class Rows(Pipe):
    """A connection that is made anew for every message, by another process each time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.options = options
        self.row = encode(State().to_dict())

    def send(self, raw: Any, header: str | None = None) -> Received:
        self.connection = Connection(State.from_dict(decode(self.row)), **self.options)
        received = super().send(raw, header)
        self.row = encode(self.connection.state.to_dict())
        return received
