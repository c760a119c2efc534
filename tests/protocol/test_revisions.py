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
    STATELESS_ONLY,
    SUPPORTED,
    decode_answer,
    encode_error,
    encode_input_requests,
    encode_notification,
    encode_request,
    encode_result,
    negotiate,
    over,
)

from ..oracle import REVISIONS as PUBLISHED

FIRST, SECOND, THIRD, FOURTH, FIFTH = REVISIONS.values()


def test_revisions_are_all_that_were_published_oldest_first():
    assert tuple(REVISIONS) == PUBLISHED == SUPPORTED[::-1]
    assert (LATEST, LATEST_HANDSHAKE) == (FIFTH, FOURTH)
    assert (str(FIRST), repr(FIRST)) == ("2024-11-05", "<Revision 2024-11-05>")
    assert {"server/discover", "subscriptions/listen"} == STATELESS_ONLY


@pytest.mark.parametrize("revision", [FIRST, SECOND, THIRD, FOURTH], ids=str)
def test_what_is_fact_of_a_revision_may_be_another_over_an_older_transport(revision):
    carried = over("sse", revision)
    assert (carried.name, carried.one_stream, carried.priming) == (revision.name, True, False)
    assert (carried.requests, carried.batching) == (revision.requests, revision.batching)
    assert over("http", revision) is over("stdio", revision) is revision
    assert over("sse", FIFTH) is FIFTH and not revision.one_stream


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [(revision.name, revision) for revision in (FIRST, SECOND, THIRD, FOURTH)]
    + [(FIFTH.name, FOURTH), ("1999-01-01", FOURTH), ("", FOURTH)],
)
def test_negotiate(requested, agreed):
    assert negotiate(requested) is agreed


def test_facts():
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


def test_what_a_revision_lacks_is_not_sent():
    assert encode_notification(FIRST, "notifications/elicitation/complete", {}) is None
    assert encode_notification(FIFTH, "notifications/elicitation/complete", {}) is None
    assert encode_request(SECOND, 1, "elicitation/create", {"message": "m"}) is None
    assert encode_request(FIFTH, 1, "roots/list", {}) is None


def test_results_errors_and_notifications_are_written_as_the_revision_spells_them():
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


def test_a_question_without_words_is_not_asked():
    assert encode_request(THIRD, 1, "elicitation/create", {"mode": "url", "url": "a:b"}) is None


def test_empty_parameters_are_left_out():
    assert encode_request(FIRST, 1, "ping", {}) == {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_input_requests():
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
def test_sampled_content_is_a_list(revision, content):
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
def test_other_answers_stay_as_they_are(method, answer):
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
def test_what_is_no_answer_is_refused(method, answer):
    with pytest.raises(InvalidParams, match=method):
        decode_answer(LATEST, method, {}, answer)


ROOM = Path(django_mcp.__file__).parent
HERE = {ROOM / "protocol" / "revisions.py", *(ROOM / "protocol" / "changes").glob("*.py")}
ELSEWHERE = sorted(set(ROOM.rglob("*.py")) - HERE)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(ROOM)))
def test_no_other_module_names_or_compares_a_revision(path):
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
