"""JSON-RPC messages: decoding, encoding and reading them."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp.protocol.jsonrpc import (
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_DIGITS,
    EncodedArray,
    InvalidRequest,
    ParseError,
    check_message,
    decode,
    encode,
)

JSON = {"jsonrpc": "2.0"}


def nested(depth):
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (
            b' {"a": [1, -2.5e3, "\xc3\xa9\\n", true, null]}\n',
            {"a": [1, -2500.0, "é\n", True, None]},
        ),
        ('{"a": 1}', {"a": 1}),
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (rb'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (rb'"\\ud83d"', r"\ud83d"),
        (b"1" * MAX_DIGITS, int("1" * MAX_DIGITS)),
        (b'["' + b"[" * 100 + b'"]', ["[" * 100]),
        (b'"' + b'[{\\"' * 100 + b'"', '[{"' * 100),
    ],
)
def test_valid_json_is_decoded(raw, value):
    assert decode(raw) == value


def test_decode_accepts_the_maximum_depth():
    assert str(decode(nested(MAX_DEPTH))).count("[") == MAX_DEPTH
    assert len(decode(b"[" + b"[]," * 1000 + b"{}]")) == 1001


def test_decode_limits_the_number_of_containers():
    few = b"[" + b"{}," * (MAX_CONTAINERS // 2 - 1) + b"[]," * (MAX_CONTAINERS // 2 - 1)
    brackets = b'"' + b"[{" * MAX_CONTAINERS + b'"'  # in a text they are text
    assert len(decode(few + brackets + b",[]]")) == MAX_CONTAINERS
    with pytest.raises(ParseError):
        decode(few + brackets + b",[],{}]")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b"{} {}",
        b"nul",
        b'"\n"',
        b'"a',
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"1" * (MAX_DIGITS + 1),
        b"\xff\xfe{\x00}\x00",
        b'"\xed\xa0\x80"',
        b'"\xc3"',
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        rb'"\ud800"',
        rb'{"\uDFff": 1}',
        rb'[["\ud800x"]]',
        '"\ud800"',
        nested(MAX_DEPTH + 1),
        b'{"a":' * 100_000,
        b'"' + b'\\"' * 100_000,
        b'["]"' + b"[" * 1000,
        b"[" * 1000 + b"\xc3\xa9",
        "[" * 1000 + "\ud800",
        b"[" + b"[]," * 70 + rb'"\ud800"]',
    ],
)
def test_invalid_json_is_rejected(raw):
    with pytest.raises(ParseError) as caught:
        decode(raw)
    assert (caught.value.code, caught.value.about) == (-32700, None)


@pytest.mark.parametrize("offset", range(16))
def test_length_of_integers_is_limited_at_every_offset(offset):
    before = b'{"' + b"k" * offset + b'": [0, '
    assert decode(before + b"1" * MAX_DIGITS + b"]}")
    with pytest.raises(ParseError):
        decode(before + b"1" * (MAX_DIGITS + 1) + b"]}")


@pytest.mark.parametrize("text", [rb'"\\"', rb'"\""', rb'"\\\""', rb'"a\n\\\\"'])
def test_brackets_after_escaped_quotes_are_counted(text):
    within = text[:-1] + b"[" * 2 * MAX_DEPTH + b'"'
    assert decode(b"[" + within + b"," + nested(MAX_DEPTH - 1) + b"]")
    with pytest.raises(ParseError):
        decode(b"[" + within + b"," + nested(MAX_DEPTH) + b"]")


def test_value_that_contains_itself_is_not_encoded():
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        encode(endless)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"a": [1, "é\n", None]}, '{"a":[1,"é\\n",null]}'),
        ("\u2028\u2029\x85", '"\\u2028\\u2029\\u0085"'),
        ("\ud800é\udfff", '"\ufffdé\ufffd"'),
        ({"a": math.nan, "b": (math.inf, 1.5)}, '{"a":null,"b":[null,1.5]}'),
    ],
)
def test_values_are_encoded(value, line):
    assert encode(value) == line


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\n\u2028"), inner),
    max_leaves=20,
)


@given(values)
def test_encoded_value_is_one_line_and_decodes_to_the_same(value):
    line = encode(value)
    assert len(line.splitlines()) == 1
    assert decode(line.encode()) == value


@given(st.text(st.characters()))
def test_every_string_is_encoded(text):
    assert len(decode(encode([text]).encode())[0]) == len(text)


def test_encoded_arrays_are_inserted_where_they_are():
    some, none = EncodedArray([encode({"a": "é"}), "2"]), EncodedArray([])
    message = {"first": some, "number": 1, "deep": [{"second": none}, some]}
    expected = {"first": [{"a": "é"}, 2], "number": 1, "deep": [{"second": []}, [{"a": "é"}, 2]]}
    assert json.loads(encode(message)) == expected
    assert json.loads(encode(message | {"number": math.inf})) == expected | {"number": None}
    assert encode([some]) == '[[{"a":"é"},2]]'


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": "m"},
        {"id": "", "method": "m", "params": {"a": 1}, "more": 1},
        {"method": "m", "params": {}},
        {"id": 0, "result": {}},
        {"id": 1, "error": {"code": 1, "message": ""}},
        {"id": None, "error": {"code": 1, "message": ""}},
        {"error": {"code": 1, "message": ""}},
    ],
)
def test_well_formed_message_is_accepted(message):
    check_message(JSON | message)


@pytest.mark.parametrize("message", [None, True, 1, 1.5, "", "m", [], [JSON]])
def test_message_that_is_no_object_is_rejected(message):
    with pytest.raises(InvalidRequest) as caught:
        check_message(message)
    assert caught.value.about is None


@pytest.mark.parametrize(
    ("message", "about"),
    [
        ({"jsonrpc": "2.0"}, None),
        ({"id": 1, "method": "m"}, 1),
        ({"jsonrpc": "1.0", "id": 1, "method": "m"}, 1),
        ({"jsonrpc": 2.0, "id": 1, "method": "m"}, 1),
        (JSON | {"id": None, "method": "m"}, None),
        (JSON | {"id": True, "method": "m"}, None),
        (JSON | {"id": 1.0, "method": "m"}, None),
        (JSON | {"id": [1], "method": "m"}, None),
        (JSON | {"id": {}, "method": "m"}, None),
        (JSON | {"id": "a", "method": 1}, "a"),
        (JSON | {"id": "a", "method": None}, "a"),
        (JSON | {"id": "a", "method": "m", "params": []}, "a"),
        (JSON | {"id": "a", "method": "m", "params": None}, "a"),
        (JSON | {"id": "a", "method": "m", "result": {}}, "a"),
        (JSON | {"id": 1, "result": {}, "error": {"code": 1, "message": ""}}, None),
        (JSON | {"id": 1, "result": []}, None),
        (JSON | {"result": {}}, None),
        (JSON | {"id": None, "result": {}}, None),
        (JSON | {"id": 1.5, "error": {"code": 1, "message": ""}}, None),
        (JSON | {"id": 1, "error": "m"}, None),
        (JSON | {"id": 1, "error": {"code": 1}}, None),
        (JSON | {"id": 1, "error": {"code": "1", "message": ""}}, None),
        (JSON | {"id": 1, "error": {"code": True, "message": ""}}, None),
    ],
    ids=json.dumps,
)
def test_malformed_message_is_rejected_with_its_id(message, about):
    with pytest.raises(InvalidRequest) as caught:
        check_message(message)
    assert caught.value.about == about
