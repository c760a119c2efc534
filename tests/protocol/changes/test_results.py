import pytest

from django_mcp.protocol.revisions import REVISIONS, encode_result

from .. import corpus

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def result_of(revision, method, **more):
    return encode_result(revision, method, corpus.ENVELOPE | more)


def test_the_newest_says_all():
    for method, result in corpus.RESULTS:
        assert encode_result(LATEST, method, result) == result


@pytest.mark.parametrize("revision", [FIRST, SECOND, THIRD, FOURTH], ids=str)
def test_nothing_is_exactly_nothing(revision):
    assert result_of(revision, "ping") == result_of(revision, "logging/setLevel") == {}


def test_metadata_of_the_project_stays():
    assert encode_result(FIRST, "ping", corpus.OWN_META) == {"_meta": {"shop.x/trace": "t"}}


@pytest.mark.parametrize("revision", [FIRST, SECOND, THIRD, FOURTH], ids=str)
def test_only_the_newest_has_results_that_are_not_complete(revision):
    with pytest.raises(ValueError, match="not complete"):
        encode_result(revision, "tools/call", {"resultType": "input_required"})


@pytest.mark.parametrize(
    ("value", "written"),
    [([1], {"result": [1]}), (None, {"result": None}), (0, {"result": 0}), ({"a": 1}, {"a": 1})],
)
def test_structured_content_is_wrapped_for_those_who_know_only_objects(value, written):
    for revision in (THIRD, FOURTH):
        result = result_of(revision, "tools/call", content=[], structuredContent=value)
        assert result == {"content": [], "structuredContent": written}
    assert result_of(SECOND, "tools/call", content=[], structuredContent=value) == {"content": []}


def test_older_clients_read_what_they_cannot_show():
    result = result_of(FIRST, "tools/call", content=[corpus.LINK, corpus.BARE_LINK, corpus.AUDIO])
    heard = {"audience": ["user"], "priority": 0.5}
    assert result["content"] == [
        {"type": "text", "text": "T: model://shop/invoice/1", "annotations": heard},
        {"type": "text", "text": "n: model://shop/invoice/1"},
        {"type": "text", "text": "[audio: audio/wav]", "annotations": heard},
    ]


def test_a_tool_keeps_its_title_where_only_annotations_have_one():
    hints = {"readOnlyHint": True, "title": "Mine"}
    tools = [{"title": "T"}, {"title": "T", "annotations": hints}, {}]
    assert result_of(SECOND, "tools/list", tools=tools)["tools"] == [
        {"annotations": {"title": "T"}},
        {"annotations": hints},
        {},
    ]
    assert result_of(FIRST, "tools/list", tools=tools)["tools"] == [{}, {}, {}]


def test_the_server_introduces_itself_as_far_as_it_can():
    info = [
        result_of(revision, "initialize", serverInfo=corpus.INFO)["serverInfo"].keys()
        for revision in (SECOND, THIRD, FOURTH)
    ]
    assert info == [{"name", "version"}, {"name", "version", "title"}, corpus.INFO.keys()]


def test_what_definitions_lose_on_the_way_back():
    shown = corpus.SHOWN | {"name": "n", "arguments": [{"name": "a", "title": "A"}]}
    dated = shown | {"annotations": corpus.DATED}
    kept = [
        result_of(revision, "prompts/list", prompts=[shown])["prompts"][0]
        for revision in (SECOND, THIRD, FOURTH)
    ]
    bare = {"name": "n", "description": "d", "arguments": [{"name": "a"}]}
    assert kept == [bare, {k: v for k, v in shown.items() if k != "icons"}, shown]
    resources = result_of(SECOND, "resources/list", resources=[dated])["resources"]
    assert resources == [bare | {"annotations": {"audience": ["user"], "priority": 0.5}}]


def test_contents_lose_their_metadata():
    contents = [corpus.TEXT_CONTENTS]
    result = encode_result(SECOND, "resources/read", corpus.CACHE | {"contents": contents})
    assert result == {"contents": [{k: v for k, v in contents[0].items() if k != "_meta"}]}


def test_capabilities_are_those_that_the_revision_has():
    capabilities = {"completions": {}, "extensions": {}, "tools": {}}
    kept = [
        set(result_of(revision, "initialize", capabilities=capabilities)["capabilities"])
        for revision in (FIRST, SECOND, FOURTH)
    ]
    assert kept == [{"tools"}, {"tools", "completions"}, {"tools", "completions"}]


def test_schemas_of_tools_are_those_of_objects():
    tools = [{"inputSchema": {"properties": {"a": True}}, "outputSchema": {"type": "null"}}]
    (tool,) = result_of(FOURTH, "tools/list", tools=tools)["tools"]
    assert tool["inputSchema"]["properties"] == {"a": {}}
    assert tool["outputSchema"]["properties"] == {"result": {"type": "null"}}
    (tool,) = result_of(SECOND, "tools/list", tools=tools)["tools"]
    assert "outputSchema" not in tool
