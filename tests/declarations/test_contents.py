"""Contents write themselves as the newest revision's blocks, or refuse to be made."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.content import Content, written
from django_mcp.protocol.revisions import LATEST
from tests.oracle import message_conforms

ICON = mcp.Icon("https://shop.example/i.png", "image/png", ("48x48",), "light")
SEEN = mcp.Annotations(("user",), 0.5, datetime(2026, 1, 2, tzinfo=UTC))
SHOWN = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (mcp.Text("hi"), {"type": "text", "text": "hi"}),
        (
            mcp.Text("hi", annotations=SEEN, meta={"com.example/a": 1}),
            {"type": "text", "text": "hi", "annotations": SHOWN, "_meta": {"com.example/a": 1}},
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
            mcp.EmbeddedResource("a://b.png", b"\x89", annotations=SEEN),
            {"type": "resource", "annotations": SHOWN,
             "resource": {"uri": "a://b.png", "mimeType": "image/png", "blob": "iQ=="}},
        ),
    ],
)  # fmt: skip
def test_blocks(content, block):
    assert content.block() == block
    result = {"resultType": "complete", "content": [block], "isError": False}
    message_conforms(LATEST, {"jsonrpc": "2.0", "id": 1, "result": result}, "tools/call")


def test_a_content_of_no_kind():
    with pytest.raises(NotImplementedError):
        Content().block()


def test_contents_are_values():
    assert mcp.Text("a") == mcp.Text("a") != mcp.Text("b")
    with pytest.raises(AttributeError):
        mcp.Text("a").text = "b"


def test_bytes_are_bytes():
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
def test_annotations_say_what_was_given(annotations, shown):
    assert annotations.write() == shown


@pytest.mark.parametrize(
    "given",
    [
        {"audience": "user"}, {"audience": ["robot"]}, {"priority": -0.1}, {"priority": 1.1},
        {"priority": float("nan")},
    ],
)  # fmt: skip
def test_annotations_there_are_not(given):
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
def test_what_no_revision_allows_is_not_made(made):
    with pytest.raises(ValueError, match="is not|reserved|role"):
        made()


def test_media_types_may_have_parameters():
    assert mcp.Text("x").block()
    assert mcp.Contents("x", mime_type='text/html; charset="utf-8"; a=b').mime_type


def test_a_message_is_the_users_unless_it_is_not():
    assert mcp.Message("hi").role == "user"
    assert mcp.Message("hi", role="assistant").role == "assistant"


# What a resource reads as.


def test_text_and_bytes_and_data():
    assert written("a://b", "hi", None) == {"uri": "a://b", "mimeType": "text/plain", "text": "hi"}
    assert written("a://b", "# hi", "text/markdown")["mimeType"] == "text/markdown"
    blob = written("a://b", b"hi", None)
    assert blob == {"uri": "a://b", "mimeType": "application/octet-stream", "blob": "aGk="}
    assert written("a://b.pdf", b"", None)["mimeType"] == "application/pdf"
    assert written("a://b.pdf", b"", "image/png")["mimeType"] == "image/png"


def test_data_becomes_json_that_a_person_can_read():
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
def test_data_without_a_json_form(data):
    with pytest.raises((TypeError, ValueError)):
        written("a://b", data, None)


def test_a_part_may_have_a_uri_and_type_of_its_own():
    assert mcp.Contents("x").write("a://b", "text/css")["mimeType"] == "text/css"
    own = mcp.Contents("x", "a://c", "text/html", {"com.example/a": 1}).write("a://b", "text/css")
    assert own == {
        "uri": "a://c", "mimeType": "text/html", "text": "x", "_meta": {"com.example/a": 1},
    }  # fmt: skip
