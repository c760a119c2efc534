"""Malformed messages get the error of the revision or no response, and disturb no valid call."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import django_mcp as mcp
from tests.client import PREFIX

pytestmark = pytest.mark.slow

EXAMPLES = 100
UNBOUNDED = dict.fromkeys(("calls", "completions", "log", "progress"))
NOTHING: tuple[()] = ()
UNREADABLE = object()  # the id of an answer to what has none


@dataclass
class Step:
    """One line, and the answers it must get: (id, code), or (id, text) of a result."""

    raw: bytes
    expected: tuple[tuple[Any, Any], ...]
    methods: dict[Any, str] = field(default_factory=dict)


class MessageWriter:
    """Writes steps for a client of one revision; ids never repeat."""

    def __init__(self, client: Any) -> None:
        self.client, self.ids = client, itertools.count(1_000)

    def id(self, draw: Any) -> Any:
        number = next(self.ids)
        return draw(st.sampled_from([number, str(number), f"é{number}", -number]))

    def message(self, id: Any, method: str, params: Any) -> dict[str, Any]:
        meta = {} if self.client.revision.handshake else {"_meta": self.client.envelope()}
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": meta | params}


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
no_ids = anything.filter(lambda value: isinstance(value, bool) or not isinstance(value, str | int))
no_objects = anything.filter(lambda value: not isinstance(value, dict))
no_texts = anything.filter(lambda value: not isinstance(value, str))

GOOD = {
    "sync": ("tools/call", {"name": "sync", "arguments": {"text": "a"}}),
    "async": ("tools/call", {"name": "asynchronous", "arguments": {"text": "a"}}),
    "list": ("tools/list", {}),
    "read": ("resources/read", {"uri": "shop://x"}),
    "prompt": ("prompts/get", {"name": "prompt", "arguments": {"tone": "kind"}}),
    "complete": ("completion/complete", {"ref": {"type": "ref/prompt", "name": "prompt"},
                                         "argument": {"name": "tone", "value": "k"}}),
}  # fmt: skip
WRONG = [
    ("tools/call", {"name": "none"}), ("tools/call", {"name": 1}), ("tools/call", {}),
    ("tools/call", {"name": "sync", "arguments": []}), ("prompts/get", {"name": "none"}),
    ("prompts/get", {"name": "prompt", "arguments": {"tone": 1}}), ("tools/list", {"cursor": "x"}),
    ("resources/read", {}), ("completion/complete", {"ref": {}}), ("tools/list", {"_meta": 7}),
    ("tools/call", {"name": "sync", "_meta": {"progressToken": []}}),
]  # fmt: skip


def good(draw: Any, writer: MessageWriter) -> Step:
    id = writer.id(draw)
    method, params = draw(st.sampled_from(list(GOOD.values())))
    raw = json.dumps(writer.message(id, method, params), ensure_ascii=draw(st.booleans()))
    padding = draw(st.sampled_from(["", " ", "\t", "\r", "\r\n"]))
    return Step((padding + raw + padding).encode(), ((id, "result"),), {id: method})


def garbage(draw: Any, writer: MessageWriter) -> Step:
    line = json.dumps(writer.message(7, "tools/list", {})).encode()
    cut = draw(st.integers(1, len(line) - 1))
    raw = draw(
        st.sampled_from(
            [line[:cut], line[cut:], line + b"\xff", line[:-1] + b',"x":NaN}', b"{" * 1000,
             line[:-1] + b',"x":1e400}', b"\x00" + line, line.decode().encode("utf-16"),
             line[:-1] + b',"x":"\\ud800"}', line + line, b"'" + line]
        )
        | st.binary(min_size=1, max_size=20).map(lambda junk: b"\x80" + junk)
    )  # fmt: skip
    return Step(raw, ((UNREADABLE, -32700),))


def invalid_envelope(draw: Any, writer: MessageWriter) -> Step:
    id = writer.id(draw)
    message = writer.message(id, "tools/list", {})
    change, value, answered = draw(
        st.one_of(
            st.tuples(st.just("id"), no_ids, st.just(UNREADABLE)),
            st.tuples(st.just("method"), no_texts, st.just(id)),
            st.tuples(st.just("params"), no_objects, st.just(id)),
            st.tuples(st.just("jsonrpc"), anything.filter(lambda v: v != "2.0"), st.just(id)),
            st.tuples(st.sampled_from(["result", "error"]), anything, st.just(id)),
        )
    )
    return Step(json.dumps(message | {change: value}).encode(), ((answered, -32600),))


def not_a_message(draw: Any, writer: MessageWriter) -> Step:
    value = draw(anything.filter(lambda v: not isinstance(v, dict | list)))
    return Step(json.dumps(value).encode(), ((UNREADABLE, -32600),))


def unknown(draw: Any, writer: MessageWriter) -> Step:
    id = writer.id(draw)
    method = draw(
        st.sampled_from(["", "tools", "tools/List", "rpc.discover", "notifications/initialized!"])
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=9).map("x/".__add__)
    )
    raw = json.dumps(writer.message(id, method, {})).encode()
    return Step(raw, ((id, -32601),))


def wrong(draw: Any, writer: MessageWriter) -> Step:
    id = writer.id(draw)
    method, params = draw(st.sampled_from(WRONG))
    message = writer.message(id, method, params)
    if "_meta" in params and not writer.client.revision.handshake:
        message["params"]["_meta"] = writer.client.envelope() | {"progressToken": []}
    return Step(json.dumps(message).encode(), ((id, -32602),))


def premature(draw: Any, writer: MessageWriter) -> Step:
    """What is legal, and not here: a second handshake, or a request that says too little."""
    id = writer.id(draw)
    if writer.client.revision.handshake:
        params = {"protocolVersion": str(writer.client.revision), "capabilities": {},
                  "clientInfo": {"name": "x", "version": "1"}}  # fmt: skip
        return Step(json.dumps(writer.message(id, "initialize", params)).encode(), ((id, -32600),))
    message = writer.message(id, "tools/list", {})
    meta, key = message["params"]["_meta"], draw(st.sampled_from(["Version", "Capabilities"]))
    name = PREFIX + ("protocolVersion" if key == "Version" else "clientCapabilities")
    code = -32602
    if draw(st.booleans()):
        del meta[name]
    elif key == "Version":
        meta[name], code = draw(st.sampled_from(["2025-11-25", "1999-01-01", ""])), -32022
    else:
        meta[name] = draw(no_objects)
    return Step(json.dumps(message).encode(), ((id, code),))


def unanswered(draw: Any, writer: MessageWriter) -> Step:
    """Notifications and answers, well-formed or not, are never answered."""
    method = draw(st.sampled_from(["notifications/cancelled", "notifications/x", "tools/call", ""]))
    nobodys = st.integers(-999, 999) | st.text().map("x".__add__)  # no id that a call here has
    params = draw(anything | st.fixed_dictionaries({"requestId": nobodys}))
    message = draw(
        st.sampled_from(
            [
                {"jsonrpc": "2.0", "method": method, "params": params},
                {"jsonrpc": "2.0", "method": method},
                {"jsonrpc": "2.0", "id": "nobody asked", "result": {}},
                {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "x"}},
            ]
        )
    )
    return Step(json.dumps(message).encode(), NOTHING)


KINDS = (
    good,
    good,
    garbage,
    invalid_envelope,
    not_a_message,
    unknown,
    wrong,
    premature,
    unanswered,
)


def batch(draw: Any, writer: MessageWriter) -> Step:
    """Where there are batches each entry is answered, within one; elsewhere it is refused."""
    kinds = draw(st.lists(st.sampled_from([k for k in KINDS if k is not garbage]), max_size=6))
    steps = [kind(draw, writer) for kind in kinds]
    # An entry that does not shake hands again, which would spoil the whole.
    entries = [(step, step.raw) for step in steps if b'"initialize"' not in step.raw]
    raw = b"[" + b",".join(raw for _, raw in entries) + b"]"
    if not (writer.client.revision.batching and entries):
        return Step(raw, ((UNREADABLE, -32600),))
    expected = tuple(answer for step, _ in entries for answer in step.expected)
    methods = {id: name for step, _ in entries for id, name in step.methods.items()}
    return Step(raw, expected, methods)


@pytest.fixture
def pipe_client(connect, server, revision, settings):
    # However fast it goes, nothing is refused for its amount.
    settings.DJANGO_MCP = {"CONCURRENT_CALLS": 1000, "QUEUE": 1000, "THROTTLES": UNBOUNDED}

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def sync(request: mcp.Request, text: str) -> str:
        return text

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def asynchronous(request: mcp.Request, text: str) -> str:
        return text

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request, tone: Literal["kind", "firm"]) -> str:
        return tone

    @server.resource("shop://x", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> str:
        return "é"

    return connect(server=server, revision=revision)


def answers(client: Any, since: int) -> list[dict[str, Any]]:
    """Every response since, those within batches too."""
    found = []
    for message in client.received[since:]:
        found += message if isinstance(message, list) else [message]
    return [message for message in found if "method" not in message]


def summary(message: dict[str, Any]) -> tuple[Any, Any]:
    id = message.get("id")
    outcome = message["error"]["code"] if "error" in message else "result"
    return (repr(id) if id is not None else UNREADABLE), outcome


def test_malformed_messages_get_their_error_and_valid_calls_their_result(pipe_client):
    writer, sent = MessageWriter(pipe_client), Counter[str]()

    @settings(
        max_examples=EXAMPLES, deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(data=st.data())
    def conversation(data):
        kinds = data.draw(st.lists(st.sampled_from((*KINDS, batch)), min_size=5, max_size=25))
        steps = [kind(data.draw, writer) for kind in kinds]
        before = len(pipe_client.received)
        for step in steps:
            pipe_client._methods.update(step.methods)
        pipe_client._run(_written(pipe_client, steps))
        pipe_client._run(pipe_client.conversation.finish(60))
        pipe_client.settle()
        expected = Counter(
            (id if id is UNREADABLE else repr(id), outcome)
            for step in steps
            for id, outcome in step.expected
        )
        assert Counter(map(summary, answers(pipe_client, before))) == expected
        assert pipe_client.conversation._active == {}
        sent.update(kind.__name__ for kind in kinds)

    conversation()
    assert sent.total() > EXAMPLES * 5 and sent.keys() == {k.__name__ for k in (*KINDS, batch)}
    assert pipe_client.request("tools/list")["tools"]


async def _written(client: Any, steps: list[Step]) -> None:
    for step in steps:
        client.send(step.raw)
