"""Content blocks: builders and validation."""

import pytest

from django_mcp.protocol import content

from ..oracle import conforms

ANNOTATIONS = content.annotations(["user"], 0.5, "2025-01-12T15:00:58Z")


@pytest.mark.parametrize(
    ("block", "type_name"),
    [
        (content.text("t"), "TextContent"),
        (content.text("t", annotations=ANNOTATIONS, _meta={"a.b/c": 1}), "TextContent"),
        (content.image(b"\x00", "image/png"), "ImageContent"),
        (content.audio("AA==", "audio/wav", annotations=None), "AudioContent"),
        (content.resource_link("a:b", "n", title="T", size=3, icons=[]), "ResourceLink"),
        (content.embedded_resource(content.text_contents("a:b", "t")), "EmbeddedResource"),
        (content.embedded_resource(content.blob_contents("a:b", b"t", "x/y")), "EmbeddedResource"),
        (content.tool_use("1", "t", {"a": 1}), "ToolUseContent"),
        (content.tool_result("1", [content.text("t")], isError=True), "ToolResultContent"),
    ],
)
def test_blocks_conform_to_the_schema(block, type_name):
    assert conforms("2026-07-28", type_name, block)
    assert None not in block.values()
    content.check(block)


def test_bytes_are_encoded_and_base64_is_kept():
    assert content.image(b"hi", "image/png")["data"] == "aGk="
    assert content.image("aGk=", "image/png")["data"] == "aGk="


def test_annotations_contain_only_given_values():
    assert content.annotations() == {}
    assert content.annotations(priority=0) == {"priority": 0}


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (content.text, {"text": 1}),
        (content.text, {"text": "t", "other": 1}),
        (content.text, {"text": "t", "_meta": []}),
        (content.image, {"data": "not base64", "mime_type": "image/png"}),
        (content.image, {"data": "é", "mime_type": "image/png"}),
        (content.image, {"data": b"", "mime_type": None}),
        (content.resource_link, {"uri": "a:b", "name": "n", "size": -1}),
        (content.resource_link, {"uri": "a:b", "name": "n", "size": True}),
        (content.embedded_resource, {"contents": {"uri": "a:b"}}),
        (content.embedded_resource, {"contents": {"uri": "a:b", "text": "", "blob": ""}}),
        (content.embedded_resource, {"contents": {"text": ""}}),
        (content.embedded_resource, {"contents": "a:b"}),
        (content.tool_use, {"id": "1", "name": "t", "input": []}),
        (content.tool_result, {"tool_use_id": "1", "content": [{"type": "text"}]}),
        (content.annotations, {"audience": ["nobody"]}),
        (content.annotations, {"priority": 1.1}),
        (content.annotations, {"priority": "1"}),
        (content.annotations, {"last_modified": 1}),
        (content.annotations, {"audience": [{}]}),
        (content.tool_use, {"id": 1, "name": "t", "input": {}}),
        (content.check, {"block": None}),
        (content.check, {"block": {"type": []}}),
        (content.check, {"block": {"type": "image", "data": b"", "mimeType": "image/png"}}),
        (content.check, {"block": {"type": "tool_result", "toolUseId": "1", "content": 1}}),
        (
            content.check,
            {"block": {"type": "text", "text": "", "annotations": {"audience": "user"}}},
        ),
        (content.resource_link, {"uri": "a:b", "name": "n", "icons": "i"}),
        (content.embedded_resource, {"contents": {"uri": "a:b", "blob": b""}}),
        (content.check, {"block": {"type": "video"}}),
        (content.check, {"block": {"type": "image", "data": ""}}),
        (content.check, {"block": {"type": "text", "text": "", "annotations": {"x": 1}}}),
        (content.check, {"block": {"type": "text", "text": "", "annotations": 1}}),
    ],
)
def test_invalid_content_is_rejected(make, arguments):
    with pytest.raises(ValueError):
        make(**arguments)
