"""The keys of `_meta` and the extensions that a project may use, and what JSON is."""

import pytest

from django_mcp.declarations.content import extension_problem, json_problem, meta_problem


@pytest.mark.parametrize(
    "key",
    [
        "io.modelcontextprotocol/x",
        "com.mcp/x",
        "com.mcp.tools/x",
        "org.modelcontextprotocol.api/x",
        "modelcontextprotocol.io/x",
        "mcp.dev/x",
        "api.example.mcp.dev/x",
    ],
)
def test_what_is_the_protocols_in_any_revision(key):
    assert "reserved" in meta_problem(key)


@pytest.mark.parametrize(
    "key",
    [
        "1a/x",
        "a-/x",
        "-a/x",
        "a..b/x",
        "a./x",
        "/x",
        "a/b/c",
        "-x",
        "x-",
        "a b",
        "a\n",
        "ä",
        7,
        None,
    ],
)
def test_what_is_no_key(key):
    assert meta_problem(key) == f"{key!r} is not a valid key of _meta."


@pytest.mark.parametrize(
    "key", ["x", "a-b_c.d", "com.example/x", "com.example.mcp/x", "m/x", "a1-b.c/", "", "1"]
)
def test_what_is_a_key(key):
    assert meta_problem(key) is None


@pytest.mark.parametrize("key", ["progressToken", "traceparent", "tracestate", "baggage"])
def test_what_belongs_to_a_request(key):
    assert "reserved" in meta_problem(key)


@pytest.mark.parametrize("name", ["com.example/ui", "io.modelcontextprotocol/ui"])
def test_extensions(name):
    assert extension_problem(name, {"a": [1]}) is None


@pytest.mark.parametrize("name", ["ui", "com.example/", "a b/ui", 7])
def test_what_is_no_extension(name):
    assert repr(name) in extension_problem(name, {})


@pytest.mark.parametrize("settings", [True, None, [], "x", {"a": object()}])
def test_the_settings_of_an_extension_are_an_object(settings):
    assert extension_problem("com.example/ui", settings)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", [1, {"a": None}], {"a": []}])
def test_what_is_json(value):
    assert json_problem(value) is None


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {"a": {1}}, b"x"])
def test_what_is_no_json(value):
    assert json_problem(value).startswith("This cannot be written as JSON")


def test_what_has_no_end_is_no_json():
    value = []
    value.append(value)
    assert json_problem(value)
