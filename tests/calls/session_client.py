"""Calls of sessions, without HTTP: what the tests of ``durable`` and its neighbours share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import AnonymousUser

from django_mcp.auth.principal import Principal
from django_mcp.calls.session_calls import call_manager
from django_mcp.calls.session_output import PostResponse, connection_of
from django_mcp.models import Call, Event, Session, Stream
from django_mcp.protocol.connection import Answered, Cancelled
from django_mcp.storage import leases, sessions, streams

from ..storage.loops import Loop, Reader
from ..storage.rows import call, given

JSON = dict[str, Any]
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Desk:
    """The client of one session, and the process that works for it."""

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

    def fresh(self) -> Session:
        """The session as a request finds it."""
        return Session.objects.get(pk=self.session.pk)

    def start(self, *messages: JSON) -> PostResponse:
        """POST these, and do not wait."""
        session = self.fresh()
        received = connection_of(session).receive(
            list(messages) if len(messages) > 1 else messages[0]
        )
        return self.loop.do(
            lambda: call_manager().start(
                self.server, session, self.principal, received.events, received.replies
            )
        )

    def message(self, method: str, /, **params: Any) -> JSON:
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}

    def call(self, tool: str, /, _token: Any = None, **arguments: Any) -> JSON:
        meta = {} if _token is None else {"_meta": {"progressToken": _token}}
        return self.message("tools/call", name=tool, arguments=arguments, **meta)

    def post(self, *messages: JSON) -> PostResponse:
        """POST these, and wait until it is known how they are answered."""
        reply = self.start(*messages)
        self.loop.until(reply.answered.done)
        return reply

    def at_once(self, *messages: JSON) -> list[JSON]:
        """The responses that come as plain JSON."""
        with given(JSON_GRACE=60):  # however slow the machine is
            reply = self.post(*messages)
        assert reply.stream is None and not Call.objects.filter(stream__isnull=False).exists()
        return reply.responses

    def streamed(self, *messages: JSON) -> Reading:
        """The stream on which they are answered."""
        reply = self.post(*messages)
        assert reply.stream is not None, reply.responses
        return Reading(self, reply)

    def told(self, event: Answered | Cancelled) -> None:
        session = self.fresh()
        self.loop.run(_told(session, self.principal, event))

    def answer(self, asked: JSON, result: JSON | None = None, error: JSON | None = None) -> None:
        self.told(Answered(asked["id"], result, error))

    def cancel(self, id: Any) -> None:
        self.told(Cancelled(id, "no longer wanted"))


async def _told(session: Session, principal: Any, event: Any) -> None:
    await call_manager().receive(session, principal, event)


class Reading:
    """A stream, as its connection reads it."""

    def __init__(self, desk: Desk, reply: PostResponse) -> None:
        self.desk, self.reply = desk, reply
        self.row = reply.session.stream_set.get(pk=reply.stream)
        self.reader = Reader(desk.loop, self.row)

    @property
    def messages(self) -> list[JSON]:
        return [json.loads(text) for _, text in self.reader.events]

    def until(self, count: int) -> list[JSON]:
        self.reader.until(count)
        return self.messages

    def all(self) -> list[JSON]:
        """Everything, to the end of the stream; it is what was written down."""
        self.reader.ended()
        written = Event.objects.filter(stream=self.row).order_by("seq")
        assert self.reader.events == list(written.values_list("seq", "data"))
        return self.messages


def dead(stream: Stream, **changes: Any) -> Call:
    """Make the stream's call one of a process that has died."""
    leases.begin("dead")
    leases.leave("dead")
    Call.objects.filter(stream=stream).update(process="dead", **changes)
    return Call.objects.get(stream=stream)


def left_behind(desk: Desk, tool: str, _said: Sequence[JSON] = (), **changes: Any) -> Reading:
    """A call whose process died, and a connection that has come back for it."""
    made = call(1, params={"name": tool, "arguments": {}}, meta={"progressToken": "t"})
    stream = streams.open(desk.fresh(), calls=[made], messages=[json.dumps(one) for one in _said])
    dead(stream, **changes)
    desk.loop.do(call_manager)
    return reading(desk, stream)


def reading(desk: Desk, stream: Stream) -> Reading:
    """As by a connection that has come back for a stream."""
    reply = type("Reply", (), {"session": desk.session, "stream": stream.pk})()
    return Reading(desk, reply)


def text(response: JSON) -> str:
    """The text of a tool's result."""
    found: str = response["result"]["content"][0]["text"]
    return found
