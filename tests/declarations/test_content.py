"""Content blocks, annotations and the contents of resources, as the newest revision has them."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.content import (
    Content,
    extension_problem,
    json_problem,
    meta_problem,
    written,
)
from django_mcp.protocol.revisions import LATEST
from tests.oracle import message_conforms

ICON = mcp.Icon("https://shop.example/i.png", "image/png", ("48x48",), "light")
ANNOTATIONS = mcp.Annotations(("user",), 0.5, datetime(2026, 1, 2, tzinfo=UTC))
WRITTEN = {
    "audience": ["user"],
    "priority": 0.5,
    "lastModified": "2026-01-02T00:00:00+00:00",
}


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (mcp.Text("hi"), {"type": "text", "text": "hi"}),
        (
            mcp.Text("hi", annotations=ANNOTATIONS, meta={"com.example/a": 1}),
            {"type": "text", "text": "hi", "annotations": WRITTEN, "_meta": {"com.example/a": 1}},
        ),
        (mcp.Image(b"\x89"), {"type": "image", "data": "iQ==", "mimeType": "image/png"}),
        (
            mcp.Image(b"", "image/svg+xml"),
            {"type": "image", "data": "", "mimeType": "image/svg+xml"},
        ),
        (mcp.Audio(b"R"), {"type": "audio", "data": "Ug==", "mimeType": "audio/wav"}),
        (mcp.ResourceLink("a://b"), {"type": "resource_link", "uri": "a://b", "name": "a://b"}),
        (
            mcp.ResourceLink("a://b", "n", "T", "D", "text/plain", 0, [ICON]),
            {"type": "resource_link", "uri": "a://b", "name": "n", "title": "T",
             "description": "D", "mimeType": "text/plain", "size": 0, "icons": [ICON.write()]},
        ),
        (
            mcp.EmbeddedResource("a://b", "hi"),
            {"type": "resource",
             "resource": {"uri": "a://b", "mimeType": "text/plain", "text": "hi"}},
        ),
        (
            mcp.EmbeddedResource("a://b.png", b"\x89", annotations=ANNOTATIONS),
            {"type": "resource", "annotations": WRITTEN,
             "resource": {"uri": "a://b.png", "mimeType": "image/png", "blob": "iQ=="}},
        ),
    ],
)  # fmt: skip
def test_content_blocks_conform_to_the_schema(content, block):
    assert content.block() == block
    result = {"resultType": "complete", "content": [block], "isError": False}
    message_conforms(LATEST, {"jsonrpc": "2.0", "id": 1, "result": result}, "tools/call")


def test_block_of_the_base_class_is_not_implemented():
    with pytest.raises(NotImplementedError):
        Content().block()


def test_contents_are_immutable_and_comparable():
    assert mcp.Text("a") == mcp.Text("a") != mcp.Text("b")
    with pytest.raises(AttributeError):
        mcp.Text("a").text = "b"


def test_image_data_must_be_bytes():
    with pytest.raises(TypeError):
        mcp.Image("not bytes").block()
    data = bytes(range(256))
    assert base64.b64decode(mcp.Image(data).block()["data"]) == data


@pytest.mark.parametrize(
    ("annotations", "shown"),
    [
        (mcp.Annotations(), {}),
        (mcp.Annotations([]), {"audience": []}),
        (mcp.Annotations(priority=0), {"priority": 0}),
        (mcp.Annotations(last_modified="2026"), {"lastModified": "2026"}),
    ],
)  # fmt: skip
def test_annotations_contain_only_given_values(annotations, shown):
    assert annotations.write() == shown


@pytest.mark.parametrize(
    "given",
    [
        {"audience": "user"}, {"audience": ["robot"]}, {"priority": -0.1}, {"priority": 1.1},
        {"priority": float("nan")},
    ],
)  # fmt: skip
def test_invalid_annotations_raise(given):
    with pytest.raises(ValueError, match="audience|priority"):
        mcp.Annotations(**given)


@pytest.mark.parametrize(
    "made",
    [
        lambda: mcp.ResourceLink("no uri"),
        lambda: mcp.ResourceLink("/relative"),
        lambda: mcp.EmbeddedResource("a://b c", "x"),
        lambda: mcp.EmbeddedResource("", "x"),
        lambda: mcp.EmbeddedResource("a://%zz", "x"),
        lambda: mcp.ResourceLink("a://b\n"),
        lambda: mcp.Contents("x", "not a uri"),
        lambda: mcp.Image(b"", "png"),
        lambda: mcp.Image(b"", "image/png\r\nX: y"),
        lambda: mcp.Contents("x", mime_type="text"),
        lambda: mcp.Text("x", meta={"com.mcp/x": 1}),
        lambda: mcp.Contents("x", meta={"a b": 1}),
        lambda: mcp.Message("x", role="system"),
    ],
)
def test_content_that_no_revision_allows_raises(made):
    with pytest.raises(ValueError, match="is not|reserved|role"):
        made()


def test_mime_type_may_have_parameters():
    assert mcp.Text("x").block()
    assert mcp.Contents("x", mime_type='text/html; charset="utf-8"; a=b').mime_type


def test_role_of_a_message_is_user_by_default():
    assert mcp.Message("hi").role == "user"
    assert mcp.Message("hi", role="assistant").role == "assistant"


# Contents of resources.


def test_text_and_bytes_are_written_with_a_mime_type():
    assert written("a://b", "hi", None) == {"uri": "a://b", "mimeType": "text/plain", "text": "hi"}
    assert written("a://b", "# hi", "text/markdown")["mimeType"] == "text/markdown"
    blob = written("a://b", b"hi", None)
    assert blob == {"uri": "a://b", "mimeType": "application/octet-stream", "blob": "aGk="}
    assert written("a://b.pdf", b"", None)["mimeType"] == "application/pdf"
    assert written("a://b.pdf", b"", "image/png")["mimeType"] == "image/png"


def test_data_is_written_as_readable_json():
    data = {
        "ä": Decimal("1.50"), "b": [date(2026, 1, 2), UUID(int=1), None],
        "c": gettext_lazy("Yes"), "d": datetime(2026, 1, 2, tzinfo=UTC),
    }  # fmt: skip
    found = written("a://b", data, None)
    assert found["mimeType"] == "application/json" and '"ä": "1.50"' in found["text"]
    assert json.loads(found["text"]) == {
        "ä": "1.50", "b": ["2026-01-02", str(UUID(int=1)), None], "c": "Yes",
        "d": "2026-01-02T00:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize("data", [object(), {"a": float("nan")}, {1j}])
def test_data_without_a_json_form_raises(data):
    with pytest.raises((TypeError, ValueError)):
        written("a://b", data, None)


def test_contents_may_have_their_own_uri_and_mime_type():
    assert mcp.Contents("x").write("a://b", "text/css")["mimeType"] == "text/css"
    own = mcp.Contents("x", "a://c", "text/html", {"com.example/a": 1}).write("a://b", "text/css")
    assert own == {
        "uri": "a://c", "mimeType": "text/html", "text": "x", "_meta": {"com.example/a": 1},
    }  # fmt: skip


# Keys of ``_meta``, extensions and JSON values.


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
def test_key_reserved_for_the_protocol_is_refused(key):
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
def test_invalid_key_of_meta_is_refused(key):
    assert meta_problem(key) == f"{key!r} is not a valid key of _meta."


@pytest.mark.parametrize(
    "key", ["x", "a-b_c.d", "com.example/x", "com.example.mcp/x", "m/x", "a1-b.c/", "", "1"]
)
def test_valid_key_of_meta(key):
    assert meta_problem(key) is None


@pytest.mark.parametrize("key", ["progressToken", "traceparent", "tracestate", "baggage"])
def test_key_reserved_for_requests_is_refused(key):
    assert "reserved" in meta_problem(key)


@pytest.mark.parametrize("name", ["com.example/ui", "io.modelcontextprotocol/ui"])
def test_valid_extension(name):
    assert extension_problem(name, {"a": [1]}) is None


@pytest.mark.parametrize("name", ["ui", "com.example/", "a b/ui", 7])
def test_invalid_extension_name_is_refused(name):
    assert repr(name) in extension_problem(name, {})


@pytest.mark.parametrize("settings", [True, None, [], "x", {"a": object()}])
def test_extension_settings_that_are_no_object_are_refused(settings):
    assert extension_problem("com.example/ui", settings)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", [1, {"a": None}], {"a": []}])
def test_json_value_is_valid(value):
    assert json_problem(value) is None


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {"a": {1}}, b"x"])
def test_value_without_a_json_form_is_a_problem(value):
    assert json_problem(value).startswith("This cannot be written as JSON")


def test_recursive_value_is_a_problem():
    value = []
    value.append(value)
    assert json_problem(value)
