"""Headers that mirror the body (method, name, version, parameters) must match it."""

import base64
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from django_mcp.protocol.http_rules import NAMED, check_parameters, check_routing, decoded, mirrored
from django_mcp.protocol.jsonrpc import HeaderMismatch, InvalidParams
from django_mcp.protocol.revisions import LATEST

VERSION = LATEST.name
SAFE = 2**53 - 1
PRINTABLE = string.digits + string.ascii_letters + string.punctuation + " "


def wrapped(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def as_specified(value) -> str:
    """Encode a value as a conforming client does ("Value Encoding" in the specification)."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    plain = all(character in PRINTABLE for character in text) and text == text.strip(" \t")
    sentinel = text.startswith("=?base64?") and text.endswith("?=")
    return text if plain and not sentinel else wrapped(text)


def headers(**values: str) -> dict[str, str | None]:
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in values.items()]
    return mirrored([(b"host", b"a"), *raw])


def routed(method="tools/list", params=None, **values):
    given = {"mcp_protocol_version": VERSION, "mcp_method": method} | values
    check_routing(headers(**given), VERSION, method, params or {})


def parameter(value, text, path=("a",), name="A"):
    arguments = value
    for step in reversed(path):
        arguments = {step: arguments}
    found = headers(**({} if text is None else {f"mcp_param_{name}": text}))
    check_parameters(found, arguments, [(path, name)])


# Reading headers.


def test_only_mirroring_headers_are_read():
    raw = [
        (b"MCP-Method", b" \ta b\t "),
        (b"mcp-param-x", b""),
        (b"mcp-name", b"\xc3\xa9"),
        (b"accept", b"a"),
        (b"xmcp-name", b"b"),
        (b"mc", b"c"),
    ]
    assert mirrored(raw) == {"mcp-method": "a b", "mcp-param-x": "", "mcp-name": None}


@pytest.mark.parametrize("values", [(b"a", b"a"), (b"a", b"b"), (b"a", b"b", b"a")])
def test_repeated_header_is_unreadable(values):
    names = [b"mcp-name", b"Mcp-Name", b"MCP-NAME"]
    assert mirrored(list(zip(names, values, strict=False))) == {"mcp-name": None}


@pytest.mark.parametrize("byte", [*range(0x20), *range(0x7F, 0x100)])
def test_invalid_characters_make_a_header_unreadable(byte):
    found = mirrored([(b"mcp-name", b"a%cb" % byte), (b"mcp-param-a", b"a%c" % byte)])
    tab = {"mcp-name": "a\tb", "mcp-param-a": "a"}
    assert found == (tab if byte == 9 else dict.fromkeys(tab))


# Method, name and version.


def test_matching_headers_are_accepted():
    routed()
    routed("ping/unheard-of")
    routed("tools/call", {"name": "add"}, mcp_name="add")
    routed("prompts/get", {"name": "p", "uri": "u"}, mcp_name="  p\t")
    routed("resources/read", {"uri": "a://é"}, mcp_name=wrapped("a://é"))
    routed("tasks/get", {"taskId": "t"}, mcp_name="t")
    routed(mcp_name="nobody's business")


def test_header_names_ignore_case():
    raw = [(b"Mcp-Protocol-VERSION", VERSION.encode()), (b"MCP-METHOD", b"tools/list")]
    check_routing(mirrored(raw), VERSION, "tools/list", {})


@pytest.mark.parametrize(
    ("title", "changed"),
    [
        ("MCP-Protocol-Version", {"mcp_protocol_version": "2025-11-25"}),
        ("MCP-Protocol-Version", {"mcp_protocol_version": wrapped(VERSION)}),
        ("MCP-Protocol-Version", {"mcp_protocol_version": ""}),
        ("Mcp-Method", {"mcp_method": "TOOLS/CALL"}),
        ("Mcp-Method", {"mcp_method": wrapped("tools/call")}),
        ("Mcp-Method", {"mcp_method": "tools/get"}),
        ("Mcp-Name", {"mcp_name": "Add"}),
        ("Mcp-Name", {"mcp_name": ""}),
        ("Mcp-Name", {"mcp_name": "add, add"}),
        ("Mcp-Name", {"mcp_name": wrapped("sub")}),
        ("Mcp-Name", {"mcp_name": "=?BASE64?YWRk?="}),
        ("Mcp-Name", {"mcp_name": wrapped(wrapped("add"))}),
    ],
)
def test_mismatch_names_the_header_and_not_its_value(title, changed):
    with pytest.raises(HeaderMismatch) as caught:
        routed("tools/call", {"name": "add"}, **({"mcp_name": "add"} | changed))
    (value,) = changed.values()
    assert title in caught.value.message
    assert not value or value not in caught.value.message


@pytest.mark.parametrize("gone", ["mcp-protocol-version", "mcp-method", "mcp-name"])
def test_missing_or_unreadable_header_is_rejected(gone):
    given = headers(mcp_protocol_version=VERSION, mcp_method="tools/call", mcp_name="add")
    with pytest.raises(HeaderMismatch, match=f"(?i){gone}.* repeated"):
        check_routing(given | {gone: None}, VERSION, "tools/call", {"name": "add"})
    del given[gone]
    with pytest.raises(HeaderMismatch, match=f"(?i){gone}.* missing"):
        check_routing(given, VERSION, "tools/call", {"name": "add"})


@pytest.mark.parametrize("method", NAMED)
@pytest.mark.parametrize("value", [None, 1, ["a"], {}])
def test_missing_name_in_the_body_is_reported_first(method, value):
    for params in ({}, {NAMED[method]: value}):
        with pytest.raises(InvalidParams, match=NAMED[method]):
            check_routing({}, VERSION, method, params)


@given(st.text())
def test_every_encoded_name_is_accepted(name):
    routed("tools/call", {"name": name}, mcp_name=as_specified(name))
    routed("tools/call", {"name": name}, mcp_name=wrapped(name))


@given(st.text(), st.text())
def test_different_name_is_rejected(name, other):
    assume(name != other)
    with pytest.raises(HeaderMismatch):
        routed("tools/call", {"name": name}, mcp_name=as_specified(other))


# Base64.


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("us-west1", "us-west1"),
        ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
        ("=?base64?IHBhZGRlZCA=?=", " padded "),
        ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
        ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        ("=?base64??=", ""),
        # Without the whole prefix and suffix the value is taken literally.
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("SGVsbG8=?=", "SGVsbG8=?="),
        ("=?Base64?SGVsbG8=?=", "=?Base64?SGVsbG8=?="),
        ("=?base64?=", "=?base64?="),
        ("x=?base64?SGVsbG8=?=", "x=?base64?SGVsbG8=?="),
    ],
)
def test_base64_values_are_decoded(value, plain):
    assert decoded(value) == plain


@pytest.mark.parametrize(
    "payload",
    [
        "SGVsbG8", "SGVsbG8==", "SGVsbG8=SGVsbG8=", "SGVs!!!bG8=", "SGVs bG8=", "SGVsbG8= ",
        "SGVs\nbG8=", "=", "====", "S", "SG===", "SGVsbG9=", "_-__", "/w==", "7aCA", "wIA=",
        "é", "\u0130",
    ],
)  # fmt: skip
def test_malformed_base64_is_rejected(payload):
    assert decoded(f"=?base64?{payload}?=") is None
    with pytest.raises(HeaderMismatch):
        parameter("Hello", f"=?base64?{payload}?=")


@given(st.text(st.sampled_from("ABgw/+=_ ")))
def test_only_canonical_base64_is_decoded(payload):
    plain = decoded(f"=?base64?{payload}?=")
    assert plain is None or wrapped(plain) == f"=?base64?{payload}?="


# Parameters.


@given(st.text() | st.booleans() | st.integers(-SAFE, SAFE))
def test_every_encoded_argument_is_accepted(value):
    parameter(value, as_specified(value))
    parameter(value, wrapped(as_specified(value)) if not isinstance(value, str) else wrapped(value))


SCALARS = st.booleans() | st.integers()


@given(
    # "1.0" and "1" are the same number: see test_equal_parameter_header_is_accepted.
    st.tuples(st.text(), st.text() | SCALARS) | st.tuples(SCALARS, SCALARS)
)
def test_different_argument_is_rejected(pair):
    value, other = pair
    assume(as_specified(value) != as_specified(other))
    with pytest.raises(HeaderMismatch):
        parameter(value, as_specified(other))


@given(st.integers(), st.integers(-3, 3).filter(bool))
def test_different_numbers_are_rejected(value, step):
    with pytest.raises(HeaderMismatch):
        parameter(value, str(value + step))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"), (42, "42.0"), (42.0, "42"), (42.0, "42.00"), (-7, "-7"), (0, "0"), (0, "-0"),
        (-0.0, "0"), (1.5, "1.5"), (0.1, "0.1"), (1e20, "100000000000000000000"),
        (2**53 + 1, "9007199254740993"), (2**53 + 1, "9007199254740993.0"), (10**63, f"{10**63}"),
        (True, "true"), (False, "false"), ("", ""), ("a\tb", "a\tb"), ("42.0", "42.0"),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
    ],
)  # fmt: skip
def test_equal_parameter_header_is_accepted(value, text):
    parameter(value, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42.1"), (42, "42."), (42, ".42e2"), (42, "4.2e1"), (42, "042"), (42, "+42"),
        (42, "4 2"), (42, "4_2"), (42, "0x2a"), (42, "٤٢"), (42, wrapped("٤٢")), (42, "42,42"),
        (42, wrapped("42\n")), (42, wrapped(" 42")), (42, ""), (42, "NaN"), (42, "Infinity"),
        (2**53, "9007199254740993"), (2**53 + 1, "9007199254740992"),
        (float(2**53), "9007199254740993"), (0.1, "0.1000000000000000055511151231257827"),
        (1, "1e999999999"), (0, "0e999999999"), (1, "1." + "0" * 10_000), (1, "9" * 100_000),
        (1, "true"), (0, "false"), (True, "1"), (True, "True"), (True, "TRUE"), (False, "0"),
        (True, "1.0"), ("1", "1.0"), ("true", "True"), ("", "null"), ("a", ""),
        ("é", "e\u0301".encode().decode("latin-1")), ("é", wrapped("e\u0301")),
    ],
)  # fmt: skip
def test_unequal_parameter_header_is_rejected(value, text):
    with pytest.raises(HeaderMismatch) as caught:
        parameter(value, text)
    assert "Mcp-Param-A" in caught.value.message
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("value", [None, [], ["x"], {}, {"x": 1}])
def test_header_for_an_absent_argument_is_rejected(value):
    parameter(value, None)
    for text in ("", "null", "x"):
        with pytest.raises(HeaderMismatch, match="Mcp-Param-A header is there"):
            parameter(value, text)


@pytest.mark.parametrize("value", ["", "x", 0, 1.5, False])
def test_missing_parameter_header_is_rejected(value):
    with pytest.raises(HeaderMismatch, match="Mcp-Param-A header is missing"):
        parameter(value, None)


def test_nested_arguments_are_compared():
    path = ("where", "region")
    parameter("north", "north", path, "Region")
    for arguments in ({}, None, {"where": "north"}, {"where": None}, {"region": "north"}):
        check_parameters({}, arguments, [(path, "Region")])
        with pytest.raises(HeaderMismatch, match=r"Mcp-Param-Region .* where\.region"):
            check_parameters({"mcp-param-region": "north"}, arguments, [(path, "Region")])
    with pytest.raises(HeaderMismatch, match=r"where\.region"):
        parameter("north", "south", path, "Region")


def test_other_parameter_headers_are_ignored():
    noise = headers(mcp_param_other="x") | {"mcp-param-unreadable": None}
    check_parameters(noise, {"a": "b"}, [])
    both = [(("a",), "A"), (("b",), "B-2")]
    check_parameters(noise | headers(mcp_param_a="1"), {"a": 1}, both)
    with pytest.raises(HeaderMismatch, match="Mcp-Param-B-2"):
        check_parameters(noise | headers(mcp_param_a="1"), {"a": 1, "b": 2}, both)


def test_unreadable_parameter_header_is_rejected():
    for value in ("b", None):
        with pytest.raises(HeaderMismatch, match="Mcp-Param-A"):
            check_parameters({"mcp-param-a": None}, {"a": value}, [(("a",), "A")])


def test_error_does_not_repeat_values():
    secret = "hunter2" * 100
    for value, text in ((secret, "x"), ("x", secret), (None, secret), (secret, None)):
        with pytest.raises(HeaderMismatch) as caught:
            parameter(value, text)
        assert "hunter2" not in caught.value.message
