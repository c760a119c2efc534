"""HTTP rules of the protocol: content negotiation, content types and status codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp.protocol import http_rules
from django_mcp.protocol.http_rules import (
    JSON_TYPE,
    NEEDED,
    SSE_TYPE,
    accepts,
    is_json,
    status,
    takes_page,
)
from django_mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)

BOTH = {JSON_TYPE, SSE_TYPE}


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (None, set()),
        ("", set()),
        (", ;,", set()),
        (";", set()),
        (";application/json, ;*/*", set()),
        ("text/html", set()),
        ("application/json, text/event-stream", BOTH),
        ("TEXT/Event-Stream,APPLICATION/JSON", BOTH),
        ("text/event-stream", {SSE_TYPE}),
        ("application/json", {JSON_TYPE}),
        ("*/*", BOTH),
        ("application/*", {JSON_TYPE}),
        ("text/*", {SSE_TYPE}),
        ("text/html, */*;q=0.1", BOTH),
        ("application/json;charset=utf-8 , text/event-stream; a=b", BOTH),
        # A weight of 0 excludes; the most specific range counts.
        ("*/*;q=0", set()),
        ("*/*, text/event-stream;q=0", {JSON_TYPE}),
        ("*/*, application/*;Q=0.000", {SSE_TYPE}),
        ("application/json;q=0, application/*", set()),
        ("application/json, application/*; q = 0", {JSON_TYPE}),
        ("application/json;q=0, application/json", {JSON_TYPE}),
        ("application/json, application/json;q=0", {JSON_TYPE}),
        ("application/json;q=0.001", {JSON_TYPE}),
        ("application/json;q=nonsense", {JSON_TYPE}),
        # Commas and semicolons in quotes are no separators.
        ('application/json;a=",text/event-stream,"', {JSON_TYPE}),
        ('application/json;a=",;\\"";q=0', set()),
        ('application/json;a="unclosed, text/event-stream', {JSON_TYPE}),
        # A longer name is a different name.
        ("application/json-seq, x-text/event-stream", set()),
        ("application/jsonapplication/json", set()),
    ],
)
def test_accepted_types_of_a_header(value, taken):
    assert accepts(value) == taken


def test_accept_header_must_allow_the_types_of_the_method():
    assert accepts("application/json, text/event-stream") >= NEEDED["POST"]
    assert accepts("*/*") >= NEEDED["POST"]
    assert not accepts("application/json") >= NEEDED["POST"]
    assert not accepts("text/event-stream") >= NEEDED["POST"]
    assert not accepts(None) >= NEEDED["POST"]
    assert accepts("text/event-stream") >= NEEDED["GET"]
    assert not accepts("application/json") >= NEEDED["GET"]
    assert not accepts(None) >= NEEDED["GET"]


@pytest.mark.parametrize(
    ("value", "is_page"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html", True), ("Text/HTML ; charset=utf-8", True), ("*/*, text/html;q=0.1", True),
        ("text/html, text/event-stream;q=0", True), (None, False), ("", False), ("*/*", False),
        ("text/*", False), ("text/html;q=0", False), ("text/html, text/event-stream", False),
        ("text/event-stream;q=0.1, text/html", False), ("text/htmlx", False),
        ('"text/html"', False), ("application/json, text/event-stream", False),
    ],
)  # fmt: skip
def test_accept_header_of_a_browser_asks_for_the_page(value, is_page):
    assert takes_page(value) == is_page


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        " Application/JSON ;",
        "application/json; charset=utf-8",
        'application/json;Charset="UTF-8"',
        "application/json;charset=utf8",
        "application/json; a=b; charset = utf-8; c",
    ],
)
def test_json_content_types_are_recognized(value):
    assert is_json(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        ";",
        ";application/json",
        "text/plain",
        "text/plain; application/json",
        "text/plain;a=application/json",
        "application/json, text/plain",
        "application/jsonp",
        "application/problem+json",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        "application/json; charset=utf-8; charset=utf-7",
        "application/json; charset",
    ],
)
def test_other_content_types_are_not_json(value):
    assert not is_json(value)


def test_long_header_values_are_not_cached():
    long_value = ", text/html" * 100
    for read, cache in ((accepts, http_rules._accepts), (is_json, http_rules._is_json)):
        cache.cache_clear()
        assert read("application/json")
        assert cache.cache_info().currsize == 1
        read("application/json" + long_value)
        assert cache.cache_info().currsize == 1
    assert accepts("application/json" + long_value) == {JSON_TYPE}
    assert is_json("application/json" + ";a=b" * 200)


@given(st.text(st.sampled_from(';,"\\= q0aj/*'), max_size=600))
def test_no_header_value_raises(value):
    assert accepts(value) <= BOTH
    assert is_json(value) in (True, False)


@given(st.text(st.characters(max_codepoint=255)), st.sampled_from([JSON_TYPE, SSE_TYPE]))
def test_listed_type_is_accepted_after_any_other_entry(noise, listed):
    balanced = noise.replace('"', "").replace(",", "")
    assert listed in accepts(f"x/y;{balanced}, {listed}")


def test_unclosed_quotes_take_linear_time():
    assert accepts('a;b="' + '\\"' * 50_000) == frozenset()
    assert accepts('"' * 50_001) == frozenset()


def response(code, id=1):
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": ""}}


@pytest.mark.parametrize(
    ("code", "refused", "answered"),
    [
        (PARSE_ERROR, 400, 200),
        (INVALID_REQUEST, 400, 200),
        (INVALID_PARAMS, 400, 200),
        (METHOD_NOT_FOUND, 404, 404),
        (HEADER_MISMATCH, 400, 400),
        (MISSING_CAPABILITY, 400, 400),
        (UNSUPPORTED_VERSION, 400, 400),
        (INTERNAL_ERROR, 200, 200),
        (1, 200, 200),
    ],
)
def test_status_of_errors_of_stateless_requests(code, refused, answered):
    assert status(response(code), handshake=False, called=False) == refused
    assert status(response(code), handshake=False, called=True) == answered


@pytest.mark.parametrize("code", [PARSE_ERROR, INVALID_REQUEST])
def test_status_of_malformed_messages_in_a_session(code):
    assert status(response(code), handshake=True, called=False) == 400
    assert status(response(code), handshake=True, called=True) == 200


@pytest.mark.parametrize("code", [INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL_ERROR, -32002, 1])
@pytest.mark.parametrize("called", [True, False])
def test_status_of_request_errors_in_a_session_is_200(code, called):
    assert status(response(code), handshake=True, called=called) == 200


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("called", [True, False])
def test_status_of_results_and_of_errors_without_an_id(handshake, called):
    facts = {"handshake": handshake, "called": called}
    assert status({"jsonrpc": "2.0", "id": 1, "result": {}}, **facts) == 200
    assert status(response(INVALID_PARAMS, None), **facts) == 400
    assert status({"jsonrpc": "2.0", "error": {"code": INVALID_REQUEST}}, **facts) == 400
