"""The oracle itself: it accepts what the specification shows, and nothing that differs."""

import json

import pytest

from tests.oracle import SCHEMAS, conforms, message_conforms, violations

EXAMPLES = sorted((SCHEMAS / "2026-07-28" / "examples").glob("*/*.json"))
# Two examples contradict the schema that they come with.
WRONG = {
    "list-roots-request": ["$.id: not declared"],
    "read-resource-result-response": ["$.result.contents: not declared"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_official_examples_conform(path):
    problems = violations("2026-07-28", path.parent.name, json.loads(path.read_text("utf-8")))
    assert problems == WRONG.get(path.stem, [])


def test_undeclared_keys_are_found_at_any_depth():
    tools = [{"name": "t", "inputSchema": {"type": "object", "any": 1}, "annotations": {"x": 1}}]
    assert violations("2025-03-26", "ListToolsResult", {"tools": tools, "extra": 1}) == [
        "$.tools[0].annotations.x: not declared",
        "$.extra: not declared",
    ]


def test_an_alternative_is_chosen_that_accepts_the_value():
    wrong = {"content": [{"type": "text", "text": "t", "data": "AA=="}]}
    assert violations("2025-06-18", "CallToolResult", wrong) == ["$.content[0].data: not declared"]


@pytest.mark.parametrize(
    ("revision", "type_name", "value"),
    [
        ("2025-06-18", "ImageContent", {"type": "image", "data": "#", "mimeType": "image/png"}),
        ("2025-06-18", "Resource", {"uri": "no address", "name": "n"}),
        ("2024-11-05", "Tool", {"name": "n", "inputSchema": {"type": "object", "required": 1}}),
        ("2026-07-28", "Tool", {"name": "n", "inputSchema": {"type": "object", "allOf": 1}}),
        ("2026-07-28", "Tool", {"name": "n", "inputSchema": {"type": "array"}}),
        ("2025-11-25", "EmptyResult", {"_meta": {"io.modelcontextprotocol/serverInfo": {}}}),
    ],
)
def test_what_is_invalid_is_found(revision, type_name, value):
    with pytest.raises(AssertionError):
        conforms(revision, type_name, value)


@pytest.mark.parametrize(
    ("revision", "message", "answers"),
    [
        ("2025-11-25", {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"}}, "ping"),
        ("2025-11-25", {"jsonrpc": "2.0", "id": None, "result": {}}, "ping"),
        ("2025-06-18", {"jsonrpc": "2.0", "error": {"code": -32600, "message": "m"}}, None),
        ("2025-06-18", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": ""}}, None),
        ("2026-07-28", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32021, "message": ""}}, None),
        ("2025-03-26", {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"}, None),
        ("2025-06-18", {"jsonrpc": "2.0", "id": 1, "method": "ping", "extra": 1}, None),
        ("2025-06-18", {"jsonrpc": "2.0", "method": "notifications/elicitation/complete"}, None),
    ],
)
def test_a_wrong_message_is_found(revision, message, answers):
    with pytest.raises(AssertionError):
        message_conforms(revision, message, answers)


def test_a_right_message_conforms():
    assert message_conforms("2024-11-05", {"jsonrpc": "2.0", "id": "a", "method": "ping"})
    assert message_conforms("2025-11-25", {"jsonrpc": "2.0", "id": 1, "result": {}}, "ping")
    refusal = {"jsonrpc": "2.0", "error": {"code": -32700, "message": "m"}}
    assert message_conforms("2025-11-25", refusal)
