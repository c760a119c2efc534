"""sampling/createMessage: what the server sends, and which answers it accepts."""

from __future__ import annotations

import logging

import pytest

import django_mcp as mcp
from django_mcp.protocol.revisions import REVISIONS

from .helpers import error_member

pytestmark = pytest.mark.django_db
SAMPLE = "sampling/createMessage"
TOOLED = [name for name, one in REVISIONS.items() if one.sampling_tools]
WEATHER = {
    "name": "weather",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "outputSchema": {
        "type": "object",
        "properties": {"degrees": {"type": "number"}},
        "required": ["degrees"],
    },
}


def text(words):
    return {"type": "text", "text": words}


def use(id, name="weather"):
    return {"type": "tool_use", "id": id, "name": name, "input": {"city": "Paris"}}


def result(id, **more):
    return {"type": "tool_result", "toolUseId": id, "content": [text("20 degrees")]} | more


def user(*content):
    return {"role": "user", "content": list(content)}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


def says(content, **more):
    """An answer of the client's model."""
    return {"role": "assistant", "model": "m", "content": content, "stopReason": "endTurn"} | more


def answering(*answers):
    waiting = list(answers)
    return {SAMPLE: lambda params: waiting.pop(0)}


@pytest.fixture
def sample(server):
    """Declares a tool ``sample`` that samples what is given."""

    def declare(*given, **options):
        @server.tool(permission=mcp.PUBLIC, name="sample")
        def sampling(request: mcp.Request) -> str:
            found = request.sample(*given, **options)
            kinds = [block["type"] for block in found.content]
            return f"{found.role} {found.model} {found.stop_reason}: {found.text} {kinds}"

        return server

    return declare


def sent(client):
    """The parameters of the one question that was asked."""
    (question,) = client.asked
    assert question["method"] == SAMPLE
    return question["params"]


# What is taken from it.


BROKEN = [
    {},
    {"content": text("no model, no role")},
    says(None),
    says("words"),
    says({"type": "text"}),
    says({"type": "text", "text": 5}),
    says({"type": "image", "data": "?", "mimeType": "image/png"}),
    says({"type": "riddle", "text": "x"}),
    says({"text": "x"}),
    says(text("x"), role="system"),
    says(text("x"), model=None),
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_invalid_sampling_result_repeats_the_request(connect, revision, sample, broken):
    good = says(text("Hello."))
    client = connect(server=sample("Hi."), revision=revision, answers=answering(broken, good, good))
    assert client.text("sample") == "assistant m endTurn: Hello. ['text']"
    assert len(client.asked) == 2


def test_unknown_fields_of_content_blocks_are_dropped(connect, revision, server):
    @server.tool(permission=mcp.PUBLIC)
    def blocks(request: mcp.Request) -> str:
        return str(request.sample("Hi.").content)

    more = says(text("x") | {"vendor": 1}, vendor=2)
    client = connect(server=server, revision=revision, answers=answering(more))
    assert client.text("blocks") == "[{'type': 'text', 'text': 'x'}]"


@pytest.mark.parametrize(
    "reason", ["endTurn", "stopSequence", "maxTokens", "toolUse", "com.example/tired", "", None]
)
def test_every_stop_reason_is_accepted(connect, revision, sample, reason):
    answer = says(text("x"), stopReason=reason)
    answer = {name: value for name, value in answer.items() if value is not None}
    client = connect(server=sample("Hi."), revision=revision, answers=answering(answer))
    assert client.text("sample") == f"assistant m {reason}: x ['text']"


def test_sampling_messages_are_not_logged(connect, revision, sample, caplog):
    caplog.set_level(logging.DEBUG)
    server = sample("The diagnosis is gout.", system="Be discreet about gout.")
    given = answering(says({"type": "text"}), says(text("Poor man with gout.")))
    client = connect(server=server, revision=revision, answers=given)
    assert "Poor man" in client.text("sample")
    refused = answering({"code": -1, "message": "The gout is not my affair."})
    if REVISIONS[revision].handshake:
        connect(server=server, revision=revision, answers=refused).failure("sample")
    assert "gout" not in caplog.text


# What is sent to it.


@pytest.mark.parametrize(
    "messages",
    [
        "Hi.",
        ["Hi.", assistant(text("Hello.")), "How are you?"],
        [{"role": "user", "content": "Hi."}],
        [user(text("Look:"), {"type": "image", "data": "iVBORw==", "mimeType": "image/png"})],
    ],
    ids=str,
)
def test_sampling_messages_have_a_role_and_content(connect, revision, sample, messages):
    client = connect(server=sample(messages), revision=revision, answers=answering(says(text("x"))))
    assert client.text("sample")
    for message in sent(client)["messages"]:
        assert message["role"] in ("user", "assistant") and message["content"]


@pytest.mark.parametrize(
    "messages",
    [
        [{"content": "Hi."}],
        [{"role": "system", "content": "Hi."}],
        [{"role": "user"}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": {"type": "text"}}],
        [{"role": "user", "content": {"type": "riddle"}}],
        [{"role": "user", "content": [text("x"), 7]}],
    ],
    ids=str,
)
def test_message_without_role_or_content_is_not_sent(connect, revision, sample, messages):
    client = connect(server=sample(messages), revision=revision)
    assert "went wrong" in client.failure("sample")
    assert client.asked == []


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"max_tokens": "many"},
        {"include_context": "everything"},
        {"tool_choice": "perhaps"},
    ],
    ids=str,
)
def test_unknown_sampling_option_is_an_error(connect, sample, options):
    client = connect(server=sample("Hi.", **options))
    assert "went wrong" in client.failure("sample")
    assert client.asked == []


@pytest.mark.parametrize("options", [{"tools": [WEATHER]}, {"tool_choice": "none"}], ids=str)
def test_tools_are_sent_to_clients_that_declare_them(connect, revision, sample, options):
    server = sample("What is the weather?", **options)
    for capabilities in ({"sampling": {}}, {"sampling": {"context": {}}}, {}):
        bare = connect(server=server, revision=revision, capabilities=capabilities)
        if REVISIONS[revision].handshake:
            assert "sampling" in bare.failure("sample")
        else:
            assert error_member(bare, "tools/call", name="sample")["code"] == -32021
        assert bare.asked == []
    client = connect(
        server=server, revision=revision, capabilities={"sampling": {"tools": {}}},
        answers=answering(says([text("x")] if revision in TOOLED else text("x"))),
    )  # fmt: skip
    if revision in TOOLED:
        assert client.text("sample")
        assert {"tools", "toolChoice"} & sent(client).keys()
    else:  # which has no such thing, whatever its client says
        assert "sampling" in client.failure("sample")
        assert client.asked == []


@pytest.mark.parametrize("name", TOOLED)
@pytest.mark.parametrize("context", ["thisServer", "allServers", "none", None])
def test_include_context_is_sent_to_clients_that_declare_it(connect, name, sample, context):
    server = sample("Hi.", include_context=context)
    bare = connect(
        server=server, revision=name, capabilities={"sampling": {"tools": {}}},
        answers=answering(says(text("x"))),
    )  # fmt: skip
    if context in ("none", None):
        assert bare.text("sample")
        assert sent(bare).get("includeContext") == context
        return
    if REVISIONS[name].handshake:
        assert bare.failure("sample")
    else:
        assert error_member(bare, "tools/call", name="sample")["code"] == -32021
    assert bare.asked == []
    able = connect(
        server=server, revision=name, capabilities={"sampling": {"context": {}}},
        answers=answering(says(text("x"))),
    )  # fmt: skip
    assert able.text("sample")
    assert sent(able)["includeContext"] == context


# Tools.

PAIRED = [
    [user(text("?")), assistant(use("a")), user(result("a"))],
    [user(text("?")), assistant(text("Two."), use("a"), use("b")), user(result("b"), result("a"))],
    [
        "?", assistant(use("a")), user(result("a")), assistant(use("b")), user(result("b")),
        assistant(text("Done.")), "And?",
    ],
]  # fmt: skip
MIXED = [
    ["?", assistant(use("a")), user(result("a"), text("there you are"))],
    ["?", assistant(use("a")), user(text("there you are"), result("a"))],
]
UNPAIRED = [
    ["?", assistant(use("a"))],
    ["?", assistant(use("a")), "What now?"],
    ["?", assistant(use("a")), "Wait.", user(result("a"))],
    ["?", assistant(use("a"), use("b")), user(result("a"))],
    ["?", assistant(use("a")), user(result("b"))],
    ["?", assistant(use("a")), user(result("a"), result("a"))],
    ["?", assistant(use("a")), user(result("a"), result("b"))],
    [user(result("a"))],
    ["?", assistant(use("a")), assistant(result("a"))],
    [user(use("a")), user(result("a"))],
]


@pytest.mark.parametrize("messages", PAIRED)
def test_tool_uses_and_tool_results_are_sent(connect, revision, sample, messages):
    client = connect(server=sample(messages), revision=revision, answers=answering(says(text("x"))))
    assert client.text("sample")
    kinds = set()
    for message in sent(client)["messages"]:
        said = message["content"]
        kinds |= {block["type"] for block in (said if isinstance(said, list) else [said])}
    assert kinds == ({"text", "tool_use", "tool_result"} if revision in TOOLED else {"text"})


@pytest.mark.parametrize("messages", MIXED)
def test_message_with_tool_results_contains_nothing_else(
    connect, revision, sample, messages, caplog
):
    client = connect(server=sample(messages), revision=revision)
    assert client.failure("sample") and client.asked == []
    assert "must not contain anything else" in caplog.text


@pytest.mark.parametrize("messages", UNPAIRED)
def test_every_tool_use_is_followed_by_its_result(connect, revision, sample, messages, caplog):
    client = connect(server=sample(messages), revision=revision)
    assert client.failure("sample") and client.asked == []
    assert "ValueError" in caplog.text


@pytest.mark.parametrize(
    ("more", "fits"),
    [
        ({"structuredContent": {"degrees": 20}}, True),
        ({"structuredContent": {"degrees": "20"}}, False),
        ({"structuredContent": {}}, False),
        ({"structuredContent": {}, "isError": True}, True),
        ({}, True),
    ],
)
@pytest.mark.parametrize("name", TOOLED)
def test_tool_result_must_match_its_schema(connect, name, sample, more, fits):
    messages = ["?", assistant(use("a")), user(result("a", **more))]
    server = sample(messages, tools=[WEATHER])
    client = connect(server=server, revision=name, answers=answering(says([text("x")])))
    if fits:
        assert client.text("sample") and sent(client)["tools"][0]["name"] == "weather"
    else:
        assert "went wrong" in client.failure("sample")
        assert client.asked == []


@pytest.fixture
def looping(server):
    """A tool that lets the model use tools for as long as it likes."""
    server._used = 0

    @server.tool(permission=mcp.PUBLIC)
    def ask_the_model(request: mcp.Request) -> str:
        messages = ["What is the weather?"]
        while True:
            found = request.sample(messages, tools=[WEATHER])
            if not found.tool_uses:
                return found.text
            server._used = len(messages) // 2 + 1
            messages.append({"role": "assistant", "content": found.content})
            messages.append(user(*(result(one["id"]) for one in found.tool_uses)))

    return server


@pytest.mark.parametrize("name", TOOLED)
def test_number_of_sampling_rounds_is_limited(connect, name, looping):
    rounds = [says([use(str(n))], stopReason="toolUse") for n in range(3)]
    client = connect(
        server=looping, revision=name, answers=answering(*rounds, says([text("Fine.")]))
    )
    assert client.text("ask_the_model") == "Fine."
    assert len(client.asked) == 4 and looping._used == 3
    eager = {SAMPLE: lambda params: says([use(str(len(params["messages"])))])}
    endless = connect(server=looping, revision=name, answers=eager)
    assert "asked more than 20 times" in endless.failure("ask_the_model")
    assert len(endless.asked) == 20
