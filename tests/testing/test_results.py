"""Results and their assertions, with the messages of failed assertions."""

from __future__ import annotations

import base64

import pytest

from django_mcp.testing import Prompted, ReadResult, Result, RpcError
from django_mcp.testing.results import RequestRecord


def text(*words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in words]


DATA = {"a": 1, "b": 2}
GOOD = Result("The tool t", {"content": text('{"a": 1, "b": 2}'), "structuredContent": DATA})
LINK = {"type": "resource_link", "uri": "a://b", "size": 3}
IMAGE = {"type": "image", "data": "aGVsbG8="}
PLAIN = Result("The tool t", {"content": [*text("one", "zwölf"), LINK, IMAGE]})
BAD = Result("The tool t", {"content": text("Not on a Sunday."), "isError": True})
REFUSED = Result("The tool t", {}, RpcError({"code": -32602, "message": "Unknown tool: t"}))
UNAUTHENTICATED = Result(
    "The tool t", {}, RpcError({"code": -32600, "message": "A token is needed."}, 401)
)
OTHER = Result(
    "The tool t", {}, RpcError({"code": -1, "message": "No.", "data": {"why": "because"}}, 400)
)

PASSING = [
    (GOOD, "assert_ok", ()),
    (GOOD, "assert_sees", ("a", 2)),
    (GOOD, "assert_does_not_see", ("c",)),
    (GOOD, "assert_data", ({"a": 1, "b": 2},)),
    (GOOD, "assert_num_queries", (0,)),
    (PLAIN, "assert_sees", ("one", "zwölf", "a://b")),
    (PLAIN, "assert_does_not_see", ("image", "content", "aGVsbG8=")),
    (BAD, "assert_error", ()),
    (BAD, "assert_error", ("Sunday",)),
    (BAD, "assert_sees", ("Sunday",)),
    (REFUSED, "assert_error", ("Unknown",)),
    (REFUSED, "assert_unknown", ()),
    (UNAUTHENTICATED, "assert_unknown", ()),
]
FAILING = [
    (BAD, "assert_ok", (), "(?s)The tool t failed.*Not on a Sunday"),
    (REFUSED, "assert_ok", (), "(?s)failed.*Error -32602: Unknown tool: t"),
    (OTHER, "assert_ok", (), r"(?s)Error -1 \(HTTP 400\): No\..*because"),
    (GOOD, "assert_error", (), '(?s)did not fail.*"a": 1'),
    (BAD, "assert_error", ("Monday",), "(?s)failed without saying 'Monday'.*Sunday"),
    (GOOD, "assert_sees", ("a", "c"), "does not show 'c'"),
    (GOOD, "assert_does_not_see", ("a",), "shows 'a'"),
    (GOOD, "assert_data", ({"a": 1},), r"gave other data than \{'a': 1\}"),
    (BAD, "assert_data", ({},), "failed"),
    (PLAIN, "assert_data", ({},), "gave no data"),
    (GOOD, "assert_unknown", (), "is there for this caller"),
    (BAD, "assert_unknown", (), "is there for this caller"),
    (OTHER, "assert_unknown", (), "is there for this caller"),
    (GOOD, "assert_num_queries", (1,), "took 0 queries, not 1"),
]


@pytest.mark.parametrize(("one", "name", "args"), PASSING)
def test_passing_assertion_returns_the_result(one, name, args):
    assert getattr(one, name)(*args) is one


@pytest.mark.parametrize(("one", "name", "args", "words"), FAILING)
def test_failing_assertion_shows_the_result(one, name, args, words):
    with pytest.raises(AssertionError, match=words):
        getattr(one, name)(*args)


def test_assert_data_compares_members():
    GOOD.assert_data(a=1).assert_data(a=1, b=2)
    for wrong in ({"a": 2}, {"c": None}):
        with pytest.raises(AssertionError, match="gave no"):
            GOOD.assert_data(**wrong)
    with pytest.raises(AssertionError, match="gave no a=1"):
        Result("t", {"content": text("[1]")}).assert_data(a=1)


@pytest.mark.parametrize(
    "raw",
    [
        {"content": text("[1, 2]"), "structuredContent": [1, 2]},
        {"content": text("[1, 2]"), "structuredContent": {"result": [1, 2]}},
        {"content": text("[1, 2]")},
    ],
    ids=["2026-07-28", "objects only", "text only"],
)
def test_data_is_the_same_in_every_revision(raw):
    assert Result("t", raw).data == [1, 2]


def test_object_with_a_result_member_is_not_unwrapped():
    raw = {"content": text('{"result": 1}'), "structuredContent": {"result": 1}}
    assert Result("t", raw).data == {"result": 1}


def test_data_of_a_failed_result_raises_with_its_message():
    with pytest.raises(AssertionError, match="Not on a Sunday"):
        _ = BAD.data


def test_failed_assertion_shows_the_traceback_of_the_server():
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError as bug:
        record = RequestRecord([bug])
    result = Result("The tool t", {"content": text("Something"), "isError": True}, None, record)
    with pytest.raises(AssertionError, match=r"(?s)The server logged:.*Traceback.*by nothing"):
        result.assert_ok()
    assert result.bugs == record.bugs


def test_contents_of_a_resource():
    blob = {"uri": "a://b", "blob": base64.b64encode(b"\x00").decode()}
    read = ReadResult("a://b", {"contents": [{"uri": "a://b", "text": '{"a": 1}'}, blob]})
    assert (read.text, read.data, read.blob) == ('{"a": 1}', {"a": 1}, b"\x00")
    words = ReadResult("a://b", {"contents": [{"text": "words"}]})
    with pytest.raises(AssertionError, match="a://b is no JSON"):
        _ = words.data
    with pytest.raises(AssertionError, match="a://b has no bytes"):
        _ = words.blob
    missing = ReadResult("a://b", {}, RpcError({"code": -32002, "message": "Resource not found"}))
    assert missing.assert_unknown().assert_error("not found").code == -32002


def test_messages_of_a_prompt():
    raw = {"messages": [{"role": "user", "content": text("Hello")[0]},
                        {"role": "assistant", "content": {"type": "image"}}]}  # fmt: skip
    assert Prompted("The prompt p", raw).assert_sees("Hello").messages == raw["messages"]
