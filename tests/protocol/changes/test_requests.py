"""Requests to the client as each revision encodes them."""

import pytest

from django_mcp.protocol.changes.requests import options_of
from django_mcp.protocol.revisions import REVISIONS, encode_request

from .. import corpus

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()


def params_of(revision, method, params, id="ask-1"):
    message = encode_request(revision, id, method, params)
    return None if message is None else message["params"]


def fields_of(revision):
    params = params_of(revision, "elicitation/create", corpus.ELICITATION)
    return params["requestedSchema"]


@pytest.mark.parametrize(("id", "written"), [("ask-1", "ask-1"), (7, "7")])
def test_url_elicitation_has_an_id_where_required(id, written):
    params = params_of(FOURTH, "elicitation/create", corpus.PAGE, id)
    assert params == corpus.PAGE | {"elicitationId": written}


def test_url_elicitation_does_not_exist_in_older_revisions():
    assert params_of(THIRD, "elicitation/create", corpus.PAGE) is None


def test_form_is_unchanged_in_newer_revisions():
    assert params_of(FOURTH, "elicitation/create", corpus.ELICITATION) == corpus.ELICITATION


def test_only_boolean_fields_have_defaults_in_older_revisions():
    fields = fields_of(THIRD)["properties"]
    defaults = {name: schema["default"] for name, schema in fields.items() if "default" in schema}
    assert defaults == {
        "agree": True,
        "toppings[c]": True,
        "toppings[h]": False,
        "extras[x]": False,
        "extras[y]": False,
    }


def test_titled_options_become_an_enum_in_older_revisions():
    assert fields_of(THIRD)["properties"]["size"] == {
        "type": "string",
        "enum": ["s", "l"],
        "enumNames": ["Small", "Large"],
    }


def test_multiple_choice_becomes_boolean_fields_in_older_revisions():
    form = fields_of(THIRD)
    assert form["properties"]["toppings[c]"] == {
        "type": "boolean",
        "title": "Toppings: Cheese",
        "description": "d",
        "default": True,
    }
    assert form["properties"]["extras[y]"]["title"] == "extras: y"
    assert "description" not in form["properties"]["extras[y]"]
    assert form["required"] == ["name"]
    order = list(form["properties"])
    assert order.index("size") < order.index("toppings[c]") < order.index("legacy")


def test_form_without_required_fields_is_unchanged():
    params = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    assert params_of(THIRD, "elicitation/create", params) == params


def test_options_of_returns_values_and_titles():
    assert options_of({"items": {"enum": ["a"]}}) == {"a": "a"}
    assert options_of({"items": {"anyOf": [{"const": "a", "title": "A"}]}}) == {"a": "A"}


def test_sampling_content_becomes_text_in_older_revisions():
    params = params_of(FIRST, "sampling/createMessage", corpus.SAMPLING)
    heard = {"audience": ["user"], "priority": 0.5}
    text = {"type": "text", "text": "t", "annotations": heard}
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": heard}
    sound = {"type": "text", "text": "[audio: audio/wav]", "annotations": heard}
    used = {"type": "text", "text": '[tool({"a": 1})]'}
    gave = {"type": "text", "text": "t\n[image]\n[resource_link]"}
    assert [(m["role"], m["content"]) for m in params["messages"]] == [
        ("user", text),
        ("user", text),
        ("user", image),
        ("user", sound),
        ("assistant", used),
        ("user", gave),
        ("user", sound),
    ]
    assert not {"tools", "toolChoice"} & params.keys()


def test_structured_content_in_sampling_is_wrapped_in_older_revisions():
    params = params_of(FOURTH, "sampling/createMessage", corpus.SAMPLING)
    assert params["messages"][3]["content"][0]["structuredContent"] == {"result": ["a"]}
    assert params["messages"][0] == corpus.SAMPLING["messages"][0]
