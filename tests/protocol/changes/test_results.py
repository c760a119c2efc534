"""Results as each revision encodes them."""

import pytest

from django_mcp.protocol.revisions import REVISIONS, encode_result

from .. import corpus

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def result_of(revision, method, **more):
    return encode_result(revision, method, corpus.ENVELOPE | more)


def test_latest_revision_keeps_all_fields():
    for method, result in corpus.RESULTS:
        assert encode_result(LATEST, method, result) == result


@pytest.mark.parametrize("revision", [FIRST, SECOND, THIRD, FOURTH], ids=str)
def test_empty_result_is_an_empty_object(revision):
    assert result_of(revision, "ping") == result_of(revision, "logging/setLevel") == {}


def test_metadata_of_the_project_is_kept():
    assert encode_result(FIRST, "ping", corpus.OWN_META) == {"_meta": {"shop.x/trace": "t"}}


@pytest.mark.parametrize("revision", [FIRST, SECOND, THIRD, FOURTH], ids=str)
def test_incomplete_result_is_rejected_in_older_revisions(revision):
    with pytest.raises(ValueError, match="not complete"):
        encode_result(revision, "tools/call", {"resultType": "input_required"})


@pytest.mark.parametrize(
    ("value", "written"),
    [([1], {"result": [1]}), (None, {"result": None}), (0, {"result": 0}), ({"a": 1}, {"a": 1})],
)
def test_structured_content_is_wrapped_in_an_object_for_older_revisions(value, written):
    for revision in (THIRD, FOURTH):
        result = result_of(revision, "tools/call", content=[], structuredContent=value)
        assert result == {"content": [], "structuredContent": written}
    assert result_of(SECOND, "tools/call", content=[], structuredContent=value) == {"content": []}


def test_unsupported_content_becomes_text_in_older_revisions():
    result = result_of(FIRST, "tools/call", content=[corpus.LINK, corpus.BARE_LINK, corpus.AUDIO])
    heard = {"audience": ["user"], "priority": 0.5}
    assert result["content"] == [
        {"type": "text", "text": "T: model://shop/invoice/1", "annotations": heard},
        {"type": "text", "text": "n: model://shop/invoice/1"},
        {"type": "text", "text": "[audio: audio/wav]", "annotations": heard},
    ]


def test_tool_title_moves_to_annotations_in_older_revisions():
    hints = {"readOnlyHint": True, "title": "Mine"}
    tools = [{"title": "T"}, {"title": "T", "annotations": hints}, {}]
    assert result_of(SECOND, "tools/list", tools=tools)["tools"] == [
        {"annotations": {"title": "T"}},
        {"annotations": hints},
        {},
    ]
    assert result_of(FIRST, "tools/list", tools=tools)["tools"] == [{}, {}, {}]


def test_server_info_has_the_fields_of_the_revision():
    info = [
        result_of(revision, "initialize", serverInfo=corpus.INFO)["serverInfo"].keys()
        for revision in (SECOND, THIRD, FOURTH)
    ]
    assert info == [{"name", "version"}, {"name", "version", "title"}, corpus.INFO.keys()]


def test_definitions_lose_fields_that_the_revision_lacks():
    shown = corpus.DISPLAY | {"name": "n", "arguments": [{"name": "a", "title": "A"}]}
    dated = shown | {"annotations": corpus.ANNOTATIONS}
    kept = [
        result_of(revision, "prompts/list", prompts=[shown])["prompts"][0]
        for revision in (SECOND, THIRD, FOURTH)
    ]
    bare = {"name": "n", "description": "d", "arguments": [{"name": "a"}]}
    assert kept == [bare, {k: v for k, v in shown.items() if k != "icons"}, shown]
    resources = result_of(SECOND, "resources/list", resources=[dated])["resources"]
    assert resources == [bare | {"annotations": {"audience": ["user"], "priority": 0.5}}]


def test_resource_contents_lose_their_metadata_in_older_revisions():
    contents = [corpus.TEXT_CONTENTS]
    result = encode_result(SECOND, "resources/read", corpus.CACHE | {"contents": contents})
    assert result == {"contents": [{k: v for k, v in contents[0].items() if k != "_meta"}]}


def test_capabilities_are_limited_to_those_of_the_revision():
    capabilities = {"completions": {}, "extensions": {}, "tools": {}}
    kept = [
        set(result_of(revision, "initialize", capabilities=capabilities)["capabilities"])
        for revision in (FIRST, SECOND, FOURTH)
    ]
    assert kept == [{"tools"}, {"tools", "completions"}, {"tools", "completions"}]


def test_tool_schemas_become_object_schemas_in_older_revisions():
    tools = [{"inputSchema": {"properties": {"a": True}}, "outputSchema": {"type": "null"}}]
    (tool,) = result_of(FOURTH, "tools/list", tools=tools)["tools"]
    assert tool["inputSchema"]["properties"] == {"a": {}}
    assert tool["outputSchema"]["properties"] == {"result": {"type": "null"}}
    (tool,) = result_of(SECOND, "tools/list", tools=tools)["tools"]
    assert "outputSchema" not in tool
