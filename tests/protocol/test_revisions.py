"""Revisions: their facts, negotiation, and encoding of messages for each of them."""

import ast
from pathlib import Path

import pytest

import django_mcp
from django_mcp.protocol.jsonrpc import (
    InvalidParams,
    ParseError,
    ResourceNotFound,
    UnsupportedVersion,
)
from django_mcp.protocol.revisions import (
    LATEST,
    LATEST_HANDSHAKE,
    LOG_LEVELS,
    REVISIONS,
    REVISIONS_OVER,
    STATELESS_ONLY,
    SUPPORTED,
    decode_answer,
    encode_error,
    encode_input_requests,
    encode_notification,
    encode_request,
    encode_result,
    negotiate,
)

from ..oracle import REVISIONS as PUBLISHED

FIRST, SECOND, THIRD, FOURTH, FIFTH = REVISIONS.values()


def test_revisions_are_all_that_were_published_oldest_first():
    assert tuple(REVISIONS) == PUBLISHED == SUPPORTED[::-1]
    assert (LATEST, LATEST_HANDSHAKE) == (FIFTH, FOURTH)
    assert (str(FIRST), repr(FIRST)) == ("2024-11-05", "<Revision 2024-11-05>")
    assert {"server/discover", "subscriptions/listen"} == STATELESS_ONLY


@pytest.mark.parametrize("revision", [FIRST, SECOND, THIRD, FOURTH], ids=str)
def test_revision_over_legacy_sse_has_one_stream(revision):
    carried = REVISIONS_OVER["sse"][revision.name]
    assert (carried.name, carried.one_stream, carried.priming) == (revision.name, True, False)
    assert (carried.requests, carried.batching) == (revision.requests, revision.batching)
    for transport in ("http", "stdio"):
        assert REVISIONS_OVER[transport][revision.name] is revision
    assert REVISIONS_OVER["sse"][FIFTH.name] is FIFTH and not revision.one_stream


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [(revision.name, revision) for revision in (FIRST, SECOND, THIRD, FOURTH)]
    + [(FIFTH.name, FOURTH), ("1999-01-01", FOURTH), ("", FOURTH)],
)
def test_negotiation_agrees_on_a_handshake_revision(requested, agreed):
    assert negotiate(requested) is agreed


def test_facts_of_the_revisions():
    assert [r.handshake for r in REVISIONS.values()] == [True, True, True, True, False]
    assert [r for r in REVISIONS.values() if r.batching] == [SECOND]
    assert [r for r in REVISIONS.values() if not r.version_header] == [FIRST, SECOND]
    assert [r for r in REVISIONS.values() if r.priming] == [FOURTH]
    assert [r for r in REVISIONS.values() if r.null_id_errors("stdio")] == [FIRST, SECOND, THIRD]
    assert not any(r.null_id_errors("http") for r in REVISIONS.values())
    assert [r for r in REVISIONS.values() if r.url_elicitation_error] == [FOURTH]
    for revision in REVISIONS.values():
        complete = "notifications/elicitation/complete" in revision.sends
        assert revision.elicitation_complete == complete


def test_log_levels_are_those_of_syslog():
    assert (LOG_LEVELS[0], LOG_LEVELS[-1], len(LOG_LEVELS)) == ("debug", "emergency", 8)


def test_unsupported_messages_are_not_encoded():
    assert encode_notification(FIRST, "notifications/elicitation/complete", {}) is None
    assert encode_notification(FIFTH, "notifications/elicitation/complete", {}) is None
    assert encode_request(SECOND, 1, "elicitation/create", {"message": "m"}) is None
    assert encode_request(FIFTH, 1, "roots/list", {}) is None


def test_messages_are_encoded_for_the_revision():
    result = {"resultType": "complete", "completion": {"values": []}}
    assert encode_result(FIFTH, "completion/complete", result) == result
    assert encode_result(FOURTH, "completion/complete", result) == {"completion": {"values": []}}
    missing = {"message": "Resource not found", "data": {"uri": "a:b"}}
    assert encode_error(FIFTH, ResourceNotFound("a:b")) == {"code": -32602} | missing
    assert encode_error(FOURTH, ResourceNotFound("a:b")) == {"code": -32002} | missing
    assert encode_error(FIRST, ParseError()) == {"code": -32700, "message": "Parse error"}
    assert encode_error(FIFTH, UnsupportedVersion("x"))["data"]["supported"] == list(SUPPORTED)
    assert encode_notification(FIRST, "notifications/progress", {"progressToken": 1}) == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 1},
    }


def test_url_elicitation_is_not_encoded_for_older_revisions():
    assert encode_request(THIRD, 1, "elicitation/create", {"mode": "url", "url": "a:b"}) is None


def test_empty_params_are_omitted():
    assert encode_request(FIRST, 1, "ping", {}) == {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_input_requests_are_encoded_for_the_latest_revision_only():
    asked = {"a": {"method": "roots/list"}, "b": {"method": "roots/list", "params": {}}}
    written = {"a": {"method": "roots/list"}, "b": {"method": "roots/list"}}
    assert encode_input_requests(FIFTH, asked) == written
    with pytest.raises(ValueError, match="requests of its own"):
        encode_input_requests(FOURTH, asked)
    with pytest.raises(ValueError, match="cannot ask ping"):
        encode_input_requests(FIFTH, {"a": {"method": "ping"}})


BLOCK = {"type": "text", "text": "t"}
SAMPLED = {"role": "assistant", "model": "m", "content": BLOCK}


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=str)
@pytest.mark.parametrize("content", [BLOCK, [BLOCK]])
def test_sampling_content_is_decoded_to_a_list(revision, content):
    answer = decode_answer(revision, "sampling/createMessage", {}, SAMPLED | {"content": content})
    assert answer == SAMPLED | {"content": [BLOCK]}


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("elicitation/create", {"action": "accept", "content": {"a": 1}}),
        ("elicitation/create", {"action": "decline", "content": None}),
        ("roots/list", {"roots": []}),
        ("roots/list", {"roots": [{"uri": "file:///a", "name": "a"}]}),
        ("ping", {}),
    ],
)
def test_other_answers_are_unchanged(method, answer):
    assert decode_answer(LATEST, method, {}, answer) == answer


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("elicitation/create", {}),
        ("elicitation/create", {"action": "yes"}),
        ("elicitation/create", {"action": ["accept"]}),
        ("elicitation/create", {"action": "accept", "content": []}),
        ("sampling/createMessage", {}),
        ("sampling/createMessage", SAMPLED | {"role": "system"}),
        ("sampling/createMessage", SAMPLED | {"model": None}),
        ("sampling/createMessage", SAMPLED | {"content": "t"}),
        ("sampling/createMessage", SAMPLED | {"content": [{}]}),
        ("sampling/createMessage", SAMPLED | {"content": [BLOCK, None]}),
        ("roots/list", {}),
        ("roots/list", {"roots": {}}),
        ("roots/list", {"roots": [{"uri": 1}]}),
        ("roots/list", {"roots": ["file:///a"]}),
        ("ping", []),
        ("ping", None),
    ],
)
def test_malformed_answer_is_rejected(method, answer):
    with pytest.raises(InvalidParams, match=method):
        decode_answer(LATEST, method, {}, answer)


PACKAGE = Path(django_mcp.__file__).parent
REVISION_MODULES = {
    PACKAGE / "protocol" / "revisions.py",
    *(PACKAGE / "protocol" / "changes").glob("*.py"),
}
OTHER_MODULES = sorted(set(PACKAGE.rglob("*.py")) - REVISION_MODULES)


@pytest.mark.parametrize("path", OTHER_MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_revision_modules_name_or_compare_revisions(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert [node.value for node in constants if node.value in REVISIONS] == []
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    assert not [ast.unparse(node) for node in compared if _compares_a_revision(node)]


def _compares_a_revision(node):
    sides = {ast.unparse(side).rsplit(".", 1)[-1] for side in (node.left, *node.comparators)}
    absent = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) and "None" in sides
    member = all(isinstance(op, ast.In | ast.NotIn) for op in node.ops) and "REVISIONS" in sides
    return bool(sides & {"revision", "LATEST", "LATEST_HANDSHAKE"}) and not (absent or member)
