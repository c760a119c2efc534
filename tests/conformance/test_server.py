"""The server of the conformance suite, in every revision, in this process.

Every message is validated by the schema of its revision.
"""

from __future__ import annotations

import ast
import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import django_mcp
from django_mcp.protocol.revisions import REVISIONS
from tests.client import PREFIX, RpcError

from .asking import CHOICES
from .samples import PNG, WAV

HERE = Path(__file__).parent
MODULES = ("asgi", "asking", "mcp", "reading", "samples", "settings", "urls")
JSON = dict[str, Any]

STATELESS = [name for name, revision in REVISIONS.items() if not revision.handshake]
HANDSHAKES = [name for name in REVISIONS if name not in STATELESS]
# The revisions that have the feature.
WITH_ELICITATION = [name for name in REVISIONS if name not in ("2024-11-05", "2025-03-26")]
WITH_TITLED_CHOICES = [
    name for name in WITH_ELICITATION if name != "2025-06-18"
]  # defaults, and titled choices
WITH_AUDIO = [name for name in REVISIONS if name != "2024-11-05"]
revisions = pytest.mark.parametrize("revision", REVISIONS)
eliciting = pytest.mark.parametrize("revision", WITH_ELICITATION)
stateless = pytest.mark.parametrize("revision", STATELESS)

FILLED = {
    "username": "testuser", "email": "test@example.com", "name": "Jane Smith", "age": 25,
    "score": 88, "status": "inactive", "verified": False, "color": "blue", "ok": True,
    "context": "the test", "untitledSingle": "option1", "titledSingle": "value1",
    "legacyEnum": "opt1", "untitledMulti": ["option1", "option2"],
    "titledMulti": ["value1", "value2"],
}  # fmt: skip


def fill(params: JSON) -> JSON:
    asked = params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: value_of_field(name) for name in asked}}


def value_of_field(name: str) -> Any:
    """Return the value of a field. ``name[choice]`` asks whether the choice is selected."""
    field, _, choice = name.rstrip("]").partition("[")
    return choice in FILLED[field] if choice else FILLED[field]


def say(params: JSON) -> JSON:
    said = {"type": "text", "text": "This is a test response from the client"}
    return {"role": "assistant", "content": said, "model": "test-model", "stopReason": "endTurn"}


def show(params: JSON) -> JSON:
    return {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}


ANSWERS = {"elicitation/create": fill, "sampling/createMessage": say, "roots/list": show}


# Imports and names.


def imported() -> Iterator[str]:
    for name in MODULES:
        for node in ast.walk(ast.parse((HERE / f"{name}.py").read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_server_imports_only_public_modules():
    ours = {name for name in imported() if name.split(".")[0] == "django_mcp"}
    assert ours == {"django_mcp", "django_mcp.routing.mount", "django_mcp.oauth.dot_settings"}
    others = {name.split(".")[0] for name in imported()} - {"django_mcp"}
    assert others <= {*sys.stdlib_module_names, "django"}


def test_server_uses_only_public_names():
    sources = (HERE / f"{name}.py" for name in MODULES)
    trees = (ast.walk(ast.parse(source.read_text("utf-8"))) for source in sources)
    used = {
        node.attr
        for tree in trees
        for node in tree
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "mcp"
    }
    assert {"tool", "resource", "prompt", "register", "PUBLIC"} <= used <= {*django_mcp.__all__}


# Lists.


@pytest.mark.parametrize("named", ["tools", "resources", "prompts"])
@revisions
def test_lists_are_on_one_page(connect, revision, named):
    page = connect(revision=revision).request(f"{named}/list")
    assert "nextCursor" not in page
    assert all(one["name"] for one in page[named])
    assert named == "resources" or all(one["description"] for one in page[named])


@revisions
def test_first_tool_needs_no_arguments(connect, revision):
    client = connect(revision=revision)
    first = client.request("tools/list")["tools"][0]["name"]
    assert first == "test_simple_text"
    assert client.request("tools/call", name=first)["content"][0]["text"]  # without arguments


@revisions
def test_custom_schema_is_listed_unchanged(connect, revision):
    tools = connect(revision=revision).request("tools/list")["tools"]
    (shown,) = [tool["inputSchema"] for tool in tools if "2020_12" in tool["name"]]
    assert shown["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert shown["$defs"]["address"]["$anchor"] == "addressDef"
    assert shown["allOf"][0]["anyOf"] == [{"required": ["phone"]}, {"required": ["email"]}]
    assert {"if", "then", "else"} <= set(shown) and shown["additionalProperties"] is False


def test_custom_schema_is_enforced(connect):
    client, name = connect(), "json_schema_2020_12_tool"
    assert "12345" in client.text(name, contactMethod="phone", phone="12345")
    assert "phone" in client.failure(name, contactMethod="phone", email="a@example.com")


@stateless
def test_one_argument_is_copied_into_a_header(connect, revision):
    tools = connect(revision=revision).request("tools/list")["tools"]
    mirrored = [
        (tool["name"], prop)
        for tool in tools
        for prop in tool["inputSchema"].get("properties", {}).values()
        if "x-mcp-header" in prop
    ]
    ((name, prop),) = mirrored
    assert name == "test_x_mcp_header"
    assert (prop["type"], prop["x-mcp-header"]) == ("string", "Region")


# Results.


@revisions
def test_content_types(connect, revision):
    client = connect(revision=revision)
    (image,) = client.call("test_image_content")["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"]) == PNG
    (embedded,) = client.call("test_embedded_resource")["content"]
    assert embedded["resource"] == {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    }
    mixed = client.call("test_multiple_content_types")["content"]
    assert [one["type"] for one in mixed] == ["text", "image", "resource"]


@pytest.mark.parametrize("revision", WITH_AUDIO)
def test_audio_content(connect, revision):
    (audio,) = connect(revision=revision).call("test_audio_content")["content"]
    assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
    assert base64.b64decode(audio["data"]) == WAV


@revisions
def test_tool_error_is_a_result(connect, revision):
    told = connect(revision=revision).failure("test_error_handling")
    assert told == "This tool intentionally returns an error for testing"


@revisions
def test_progress_notifications(connect, revision):
    client = connect(revision=revision)
    meta = {"progressToken": "progress-test-1"}
    client.request("tools/call", name="test_tool_with_progress", arguments={}, _meta=meta)
    told = [note["params"] for note in client.notes]
    assert [params["progress"] for params in told] == [0, 50, 100]
    assert {(params["progressToken"], params["total"]) for params in told} == {
        ("progress-test-1", 100)
    }


@pytest.mark.parametrize("revision", HANDSHAKES)
def test_log_notifications(connect, revision):
    client = connect(revision=revision)
    assert client.request("logging/setLevel", level="debug") == {}
    client.call("test_tool_with_logging")
    assert [note["params"]["data"] for note in client.notes] == [
        "Tool execution started",
        "Tool execution processing data",
        "Tool execution completed",
    ]


@stateless
def test_log_notifications_are_not_sent_without_a_level(connect, revision):
    client = connect(revision=revision)
    client.call("test_logging_tool")
    assert client.notes == []


# Elicitation, sampling and roots.


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("test_elicitation", {"message": "Who?"}, "username='testuser', email='test@example.com'"),
        ("test_elicitation_sep1034_defaults", {}, "Jane Smith"),
        ("test_elicitation_sep1330_enums", {}, "'titledMulti': ['value1', 'value2']"),
        ("test_sampling", {"prompt": "Hi"}, "LLM response: This is a test response from the clien"),
        ("test_streaming_elicitation", {}, "Hello, Jane Smith!"),
        ("test_input_required_result_elicitation", {}, "Hello, Jane Smith!"),
        ("test_input_required_result_sampling", {}, "This is a test response from the client"),
        ("test_input_required_result_list_roots", {}, "file:///test/root"),
        ("test_input_required_result_request_state", {}, "state-ok: True"),
        ("test_input_required_result_multiple_inputs", {}, "Jane Smith, of 1 roots."),
        ("test_input_required_result_multi_round", {}, "Jane Smith likes blue."),
        ("test_input_required_result_tampered_state", {}, "Confirmed: True"),
        ("test_input_required_result_capabilities", {}, "user_name, greeting"),
        ("test_missing_capability", {}, "This is a test response from the client"),
    ],
)
@eliciting
def test_questions_are_asked_and_answered(connect, revision, tool, arguments, told):
    client = connect(revision=revision, answers=ANSWERS)
    assert told in client.text(tool, **arguments)
    assert client.asked


@eliciting
def test_prompt_can_elicit(connect, revision):
    client = connect(revision=revision, answers=ANSWERS)
    (message,) = client.request("prompts/get", name="test_input_required_result_prompt")["messages"]
    assert message["content"]["text"] == "Use this context: the test"


@eliciting
def test_declined_elicitation_is_reported(connect, revision):
    refuse = {"elicitation/create": lambda params: {"action": "decline"}}
    told = connect(revision=revision, answers=refuse).text("test_elicitation", message="Who?")
    assert told == "User response: action=decline, content=None"


def requested_schema(connect, tool, revision, **options) -> JSON:
    """Return the schema of the form that a tool asks its user to fill in."""
    client = connect(revision=revision, answers=ANSWERS, **options)
    client.call(tool)
    return client.asked[0]["params"]["requestedSchema"]["properties"]


@pytest.mark.parametrize("revision", WITH_TITLED_CHOICES)
def test_elicitation_schema_contains_defaults(connect, revision):
    shown = requested_schema(connect, "test_elicitation_sep1034_defaults", revision)
    assert {name: (prop["type"], prop["default"]) for name, prop in shown.items()} == {
        "name": ("string", "John Doe"),
        "age": ("integer", 30),
        "score": ("number", 95.5),
        "status": ("string", "active"),
        "verified": ("boolean", True),
    }
    assert shown["status"]["enum"] == ["active", "inactive", "pending"]


@pytest.mark.parametrize("revision", WITH_TITLED_CHOICES)
def test_elicitation_schema_contains_choices(connect, revision):
    shown = requested_schema(connect, "test_elicitation_sep1330_enums", revision)
    assert shown == CHOICES["properties"]


# Input required results.


def ask(client, name, method="tools/call", **params) -> JSON:
    return client.request(method, name=name, arguments={}, **params)


@pytest.mark.parametrize(
    ("tool", "keys"),
    [
        ("test_input_required_result_elicitation", {"user_name": "elicitation/create"}),
        ("test_input_required_result_sampling", {"capital_question": "sampling/createMessage"}),
        ("test_input_required_result_list_roots", {"client_roots": "roots/list"}),
        ("test_input_required_result_request_state", {"confirm": "elicitation/create"}),
        ("test_input_required_result_tampered_state", {"confirm": "elicitation/create"}),
        ("test_input_required_result_multi_round", {"step1": "elicitation/create"}),
        (
            "test_input_required_result_multiple_inputs",
            {
                "user_name": "elicitation/create",
                "greeting": "sampling/createMessage",
                "client_roots": "roots/list",
            },
        ),
    ],
)
@stateless
def test_input_requests_have_keys(connect, revision, tool, keys):
    result = ask(connect(revision=revision), tool)
    assert result["resultType"] == "input_required"
    assert {key: one["method"] for key, one in result["inputRequests"].items()} == keys
    assert isinstance(result["requestState"], str) and result["requestState"]


@stateless
def test_input_response_can_be_sent_first(connect, revision):
    accepted = {"action": "accept", "content": {"name": "Alice"}}
    extra = {"unknown": {"action": "accept", "content": {"foo": "bar"}}}
    client, name = connect(revision=revision), "test_input_required_result_elicitation"
    result = ask(client, name, inputResponses={"user_name": accepted} | extra)
    assert result["content"][0]["text"] == "Hello, Alice!"


@pytest.mark.parametrize("given", [{"wrong_key": {"action": "accept"}}, None])
@stateless
def test_missing_input_response_is_requested_again(connect, revision, given):
    client, name = connect(revision=revision), "test_input_required_result_elicitation"
    assert ask(client, name, inputResponses=given)["resultType"] == "input_required"


@stateless
def test_malformed_input_response_is_rejected(connect, revision):
    client, name = connect(revision=revision), "test_input_required_result_elicitation"
    with pytest.raises(RpcError) as raised:
        ask(client, name, inputResponses={"user_name": 12345})
    assert raised.value.code == -32602


@stateless
def test_each_round_has_its_own_state(connect, revision):
    client, name = connect(revision=revision), "test_input_required_result_multi_round"
    first = ask(client, name)
    accepted = {"action": "accept", "content": {"name": "Alice"}}
    responses, state = {"step1": accepted}, first["requestState"]
    second = ask(client, name, inputResponses=responses, requestState=state)
    assert list(second["inputRequests"]) == ["step2"]
    assert second["requestState"] != state


@stateless
def test_forged_state_is_rejected(connect, revision):
    client, name = connect(revision=revision), "test_input_required_result_tampered_state"
    state = ask(client, name)["requestState"] + "-TAMPERED"
    accepted = {"action": "accept", "content": {"ok": True}}
    with pytest.raises(RpcError) as raised:
        ask(client, name, inputResponses={"confirm": accepted}, requestState=state)
    assert raised.value.code == -32602


@stateless
def test_only_supported_inputs_are_requested(connect, revision):
    client = connect(revision=revision, capabilities={"sampling": {}})
    result = ask(client, "test_input_required_result_capabilities")
    assert [one["method"] for one in result["inputRequests"].values()] == ["sampling/createMessage"]


@stateless
def test_missing_capability_is_an_error(connect, revision):
    with pytest.raises(RpcError) as raised:
        ask(connect(revision=revision, capabilities={}), "test_missing_capability")
    assert raised.value.code == -32021
    assert raised.value.data["requiredCapabilities"] == {"sampling": {}}


# Notifications, resources and prompts.


@pytest.mark.parametrize("subject", ["tool", "prompt"])
@stateless
def test_list_change_is_sent_to_subscribers(connect, revision, subject):
    client = connect(revision=revision)
    client.start("subscriptions/listen", notifications={f"{subject}sListChanged": True})
    client.until(lambda: client.notes)  # the acknowledgement comes first
    for changed in {"tool", "prompt"} - {subject}, {subject}:
        client.call(f"test_trigger_{changed.pop()}_change")
    client.until(lambda: len(client.notes) > 1)
    _, *changes = [note["method"] for note in client.notes]
    assert changes == [f"notifications/{subject}s/list_changed"]


@revisions
def test_resources(connect, revision):
    client = connect(revision=revision)
    shown = client.request("resources/list")["resources"]
    assert [one["uri"] for one in shown] == [
        "test://static-text", "test://static-binary", "test://watched-resource",
    ]  # fmt: skip
    text, binary, _ = [client.request("resources/read", uri=one["uri"]) for one in shown]
    (text,), (binary,) = text["contents"], binary["contents"]
    assert text["text"] == "This is the content of the static text resource."
    assert (text["uri"], text["mimeType"]) == ("test://static-text", "text/plain")
    assert base64.b64decode(binary["blob"]) == PNG and binary["mimeType"] == "image/png"


@revisions
def test_resource_template(connect, revision):
    client = connect(revision=revision)
    (shown,) = client.request("resources/templates/list")["resourceTemplates"]
    assert shown["uriTemplate"] == "test://template/{id}/data"
    uri = "test://template/123/data"
    (contents,) = client.request("resources/read", uri=uri)["contents"]
    assert (contents["uri"], contents["mimeType"]) == (uri, "application/json")
    data = {"id": "123", "templateTest": True, "data": "Data for ID: 123"}
    assert json.loads(contents["text"]) == data


@revisions
def test_unknown_resource_is_an_error(connect, revision):
    uri = "test://nonexistent-resource-for-conformance-testing"
    with pytest.raises(RpcError) as raised:
        connect(revision=revision).request("resources/read", uri=uri)
    assert raised.value.data["uri"] == uri


@pytest.mark.parametrize("revision", HANDSHAKES)
def test_resource_can_be_subscribed_to(connect, revision):
    client = connect(revision=revision)
    for method in ("subscribe", "unsubscribe"):
        assert client.request(f"resources/{method}", uri="test://watched-resource") == {}


@revisions
def test_prompts(connect, revision):
    client = connect(revision=revision)

    def messages(name: str, **arguments: str) -> list[JSON]:
        given = {"arguments": arguments} if arguments else {}
        found = client.request("prompts/get", name=name, **given)["messages"]
        assert all(one["role"] == "user" for one in found)
        return [one["content"] for one in found]

    (simple,) = messages("test_simple_prompt")
    assert simple == {"type": "text", "text": "This is a simple prompt for testing."}
    (told,) = messages("test_prompt_with_arguments", arg1="testValue1", arg2="testValue2")
    assert told["text"] == "Prompt with arguments: arg1='testValue1', arg2='testValue2'"
    uri = "test://example-resource"
    embedded, words = messages("test_prompt_with_embedded_resource", resourceUri=uri)
    assert embedded["resource"]["uri"] == uri and words["text"].startswith("Please process")
    image, words = messages("test_prompt_with_image")
    assert image["mimeType"] == "image/png" and words["text"].startswith("Please analyze")


@revisions
def test_prompt_argument_is_completed(connect, revision):
    ref = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    argument = {"name": "arg1", "value": "test"}
    found = connect(revision=revision).request("completion/complete", ref=ref, argument=argument)
    assert found["completion"]["values"] == ["test", "testValue1", "testValue2"]


@stateless
def test_discover_lists_the_capabilities(connect, revision):
    found = connect(revision=revision).request("server/discover")
    shown = found["capabilities"]
    assert {"tools", "prompts", "resources", "completions"} <= set(shown)
    assert all(shown[named]["listChanged"] for named in ("tools", "prompts", "resources"))
    assert found["_meta"][f"{PREFIX}serverInfo"]["name"] == "tests"
