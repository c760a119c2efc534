"""What changed between two catalogs: told in sentences, and nothing that changed is left out."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.management.commands.mcp_inspect import _definitions
from django_mcp.testing.snapshots import canonical, differences


def tool(name="refund", **more):
    return {"tools": [{"name": name, "description": "Refund.", **more}]}


def taking(properties, required=(), **more):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return tool(inputSchema=schema, **more)


AMOUNT = {"type": "number", "exclusiveMinimum": 0}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (tool(), tool(), []),
        (tool(), {}, ["the tool refund is gone"]),
        ({}, tool(), ["the tool refund is new"]),
        ({}, tool(permission="mcp.PUBLIC"), ["the tool refund is new, for mcp.PUBLIC"]),
        (
            tool("refund"), tool("repay"),
            ["the tool refund is gone", "the tool repay is new"],
        ),
        (
            tool(permission="shop.change_invoice"), tool(permission="mcp.PUBLIC"),
            ["the tool refund asks for mcp.PUBLIC, and asked for shop.change_invoice before"],
        ),
        (
            taking({}), taking({"amount": AMOUNT}, ["amount"]),
            ["the tool refund now takes amount (number above 0), which is required"],
        ),
        (taking({"amount": AMOUNT}), taking({}), ["the tool refund takes no more amount"]),
        (
            taking({"amount": AMOUNT}), taking({"amount": {"type": "integer"}}, ["amount"]),
            [
                "the tool refund: amount was number above 0 and is whole number",
                "the tool refund: amount is now required",
            ],
        ),
        (
            taking({"amount": AMOUNT | {"default": 1}}, ["amount"]), taking({"amount": AMOUNT}),
            [
                "the tool refund: amount is required no more",
                "the tool refund: amount is nothing by default, and was 1",
            ],
        ),
        (
            taking({"a": {"type": "string"}}),
            taking({"a": {"type": "string", "description": "In full."}}),
            ['the tool refund: a is now described as "In full."'],
        ),
        (
            taking({"a": {"type": "string", "pattern": "^a"}}),
            taking({"a": {"type": "string", "pattern": "^b"}}),
            ["the tool refund: inputSchema is another in its details"],
        ),
        (
            tool(annotations={"readOnlyHint": True}), tool(annotations={"destructiveHint": True}),
            [
                "the tool refund now has destructiveHint: true",
                "the tool refund has no readOnlyHint any more",
            ],
        ),
        (
            tool(title="A"), tool(title="B"),
            ['the tool refund: title was "A" and is "B"'],
        ),
        (
            {"templates": [{"name": "a", "rowSchema": {"properties": {"x": {}}}}]},
            {"templates": [{"name": "a", "rowSchema": {"properties": {"y": {}}}}]},
            ["the template a shows no more x", "the template a now shows y (anything)"],
        ),
        (
            {"prompts": [{"name": "p"}]},
            {"prompts": [{"name": "p", "arguments": [{"name": "x", "required": True}]}]},
            ["the prompt p now takes x (text), which is required"],
        ),
        (
            {"resources": [{"name": "a", "uri": "a:1"}, {"name": "a", "uri": "a:2"}]},
            {"resources": [{"name": "a", "uri": "a:1"}, {"name": "a", "uri": "a:3"}]},
            ["the resource a at a:2 is gone", "the resource a at a:3 is new"],
        ),
    ],
)  # fmt: skip
def test_what_changed(old, new, told):
    assert differences(old, new) == told


def places(value, path=()):
    """Every place in a value, by the way to it."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


@pytest.fixture(scope="module")
def shop():
    return canonical(json.loads(json.dumps(_definitions(mcp.server, None))))


@settings(deadline=None)
@given(data=st.data())
def test_no_change_is_left_out(shop, data):
    """Wherever something in the shop's catalog is changed or taken away."""
    changed = copy.deepcopy(shop)
    *way, last = data.draw(st.sampled_from([path for path in places(shop) if len(path) > 2]))
    where = changed
    for step in way:
        where = where[step]
    if data.draw(st.booleans()):
        del where[last]
    else:
        where[last] = data.draw(st.sampled_from([None, True, 7, "other", [], {}, {"type": "null"}]))
    if canonical(changed) != shop:
        assert differences(shop, changed) and differences(changed, shop)
    else:
        assert differences(shop, changed) == []
