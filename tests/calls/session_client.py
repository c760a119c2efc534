"""A client of one session without HTTP, for tests of session calls."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import AnonymousUser

from django_mcp.auth.principal import Principal
from django_mcp.calls.interaction import connection_of
from django_mcp.calls.session_calls import call_manager
from django_mcp.calls.session_output import PostResponse
from django_mcp.models import Call, Event, Session, Stream
from django_mcp.protocol.connection import Answered, Cancelled
from django_mcp.storage import leases, sessions, streams

from ..storage.loops import Loop, Reader
from ..storage.rows import call, given

JSON = dict[str, Any]
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class SessionClient:
    """The client of one session, and the worker that runs its calls."""

    def __init__(
        self, loop: Loop, server: Any, user: Any = None, *, revision: str = "2025-11-25",
        initialized: bool = True, capabilities: JSON | None = None,
    ) -> None:  # fmt: skip
        self.loop, self.server = loop, server
        server.ready()
        self.principal = Principal(user or AnonymousUser())
        self.session = sessions.create(
            server=server.name, owner=self.principal.key,
            user=str(user.pk) if user else None, revision=revision,
            client_info={"name": "tests", "version": "1"},
            capabilities=EVERYTHING if capabilities is None else capabilities,
        )[1]  # fmt: skip
        if initialized:
            sessions.initialize(self.session)
        self.ids = itertools.count(1)

    def load_session(self) -> Session:
        """Load the session, as each request does."""
        return Session.objects.get(pk=self.session.pk)

    def start(self, *messages: JSON) -> PostResponse:
        """Send messages as one POST, without waiting."""
        session = self.load_session()
        connection = connection_of(session)
        received = connection.receive(list(messages) if len(messages) > 1 else messages[0])
        return self.loop.do(
            lambda: call_manager().start(
                self.server, session, connection, self.principal, received.events, received.replies
            )
        )

    def message(self, method: str, /, **params: Any) -> JSON:
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}

    def call(self, tool: str, /, _token: Any = None, **arguments: Any) -> JSON:
        meta = {} if _token is None else {"_meta": {"progressToken": _token}}
        return self.message("tools/call", name=tool, arguments=arguments, **meta)

    def post(self, *messages: JSON) -> PostResponse:
        """Send messages as one POST, and wait until the kind of response is known."""
        reply = self.start(*messages)
        self.loop.until(reply.answered.done)
        return reply

    def json_responses(self, *messages: JSON) -> list[JSON]:
        """Send messages, and return the responses, which must be JSON and not a stream."""
        with given(JSON_GRACE=60):  # however slow the machine is
            reply = self.post(*messages)
        assert reply.stream is None and not Call.objects.filter(stream__isnull=False).exists()
        return reply.responses

    def open_stream(self, *messages: JSON) -> ClientStream:
        """Send messages, and return the stream of their responses."""
        reply = self.post(*messages)
        assert reply.stream is not None, reply.responses
        return ClientStream(self, reply)

    def send_event(self, event: Answered | Cancelled) -> None:
        session = self.load_session()
        self.loop.run(_receive(session, self.principal, event))

    def answer(self, asked: JSON, result: JSON | None = None, error: JSON | None = None) -> None:
        self.send_event(Answered(asked["id"], result, error))

    def cancel(self, id: Any) -> None:
        self.send_event(Cancelled(id, "no longer wanted"))


async def _receive(session: Session, principal: Any, event: Any) -> None:
    await call_manager().receive(session, principal, event)


class ClientStream:
    """A stream as one connection of the client reads it."""

    def __init__(self, client: SessionClient, reply: PostResponse) -> None:
        self.client, self.reply = client, reply
        self.row = reply.session.stream_set.get(pk=reply.stream)
        self.reader = Reader(client.loop, self.row)

    @property
    def messages(self) -> list[JSON]:
        return [json.loads(text) for _, text in self.reader.events]

    def until(self, count: int) -> list[JSON]:
        self.reader.until(count)
        return self.messages

    def all(self) -> list[JSON]:
        """Read to the end of the stream, and compare the messages with the stored events."""
        self.reader.ended()
        written = Event.objects.filter(stream=self.row).order_by("seq")
        assert self.reader.events == list(written.values_list("seq", "data"))
        return self.messages


def abandon_call(stream: Stream, **changes: Any) -> Call:
    """Make a process that died the owner of the stream's call."""
    leases.begin("dead")
    leases.leave("dead")
    Call.objects.filter(stream=stream).update(process="dead", **changes)
    return Call.objects.get(stream=stream)


def abandoned_call(
    client: SessionClient, tool: str, _sent: Sequence[JSON] = (), **changes: Any
) -> ClientStream:
    """Store a call of a process that died, and resume its stream."""
    made = call(1, params={"name": tool, "arguments": {}}, meta={"progressToken": "t"})
    stream = streams.open(
        client.load_session(), calls=[made], messages=[json.dumps(one) for one in _sent]
    )
    abandon_call(stream, **changes)
    client.loop.do(call_manager)
    return resume_stream(client, stream)


def resume_stream(client: SessionClient, stream: Stream) -> ClientStream:
    """Read a stream as a connection that resumes it."""
    reply = type("Reply", (), {"session": client.session, "stream": stream.pk})()
    return ClientStream(client, reply)


def text(response: JSON) -> str:
    """The text of a tool's result."""
    found: str = response["result"]["content"][0]["text"]
    return found
