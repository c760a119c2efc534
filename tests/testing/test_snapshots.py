"""Snapshots of catalogs: writing, comparison and descriptions of differences."""

from __future__ import annotations

import copy
import io
import json

import pytest
from django.core.management import call_command
from hypothesis import given, settings
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.management.commands.mcp_inspect import _definitions
from django_mcp.testing import Client
from django_mcp.testing.snapshots import assert_matches, canonical, differences, text

ONE = {"tools": [{"name": "b", "description": "B"}, {"name": "a", "_meta": {"x": 1}}]}


@pytest.fixture(autouse=True)
def _unset_environment(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("MCP_UPDATE_SNAPSHOTS", raising=False)


def test_order_and_meta_are_ignored():
    assert canonical(ONE) == {"tools": [{"name": "a"}, {"name": "b", "description": "B"}]}
    reordered = {"tools": [{"description": "B", "name": "b"}, {"name": "a"}]}
    assert text(canonical(ONE)) == text(canonical(reordered))
    assert json.loads(text(canonical(ONE))) == canonical(ONE)


def test_snapshot_is_written_once_and_then_compared(tmp_path):
    path = tmp_path / "deep" / "catalog.json"
    assert_matches(ONE, path)
    assert_matches(ONE, path)
    with pytest.raises(
        AssertionError, match=r"(?s)has changed.*_SNAPSHOTS=1.*- the tool c is new.*\+ .*\"c\""
    ):
        assert_matches({"tools": [*ONE["tools"], {"name": "c"}]}, path)


def test_snapshot_is_overwritten_with_the_update_variable(tmp_path, monkeypatch):
    path = tmp_path / "catalog.json"
    assert_matches(ONE, path)
    monkeypatch.setenv("MCP_UPDATE_SNAPSHOTS", "1")
    assert_matches({"tools": []}, path)
    monkeypatch.delenv("MCP_UPDATE_SNAPSHOTS")
    assert_matches({"tools": []}, path)


def test_missing_snapshot_fails_in_ci(tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="There is no .*catalog.json: run the test once"):
        assert_matches(ONE, tmp_path / "catalog.json")


def test_catalog_depends_on_the_user(db, alice, server, tmp_path):
    with Client(alice) as client, Client() as anonymous:
        own, theirs = client.catalog(), anonymous.catalog()
        client.assert_catalog(tmp_path / "catalog.json")
        with pytest.raises(AssertionError, match="refund"):
            anonymous.assert_catalog(str(tmp_path / "catalog.json"))
    assert list(own) == ["tools", "resources", "templates", "prompts"]
    names = [[one["name"] for one in catalog["tools"]] for catalog in (own, theirs)]
    assert names[0] == sorted(names[0]) and set(names[1]) < set(names[0])
    with Client(server=server) as empty:
        assert empty.catalog() == {"tools": [], "resources": [], "templates": [], "prompts": []}


def test_command_writes_the_same_snapshot(alice, tmp_path):
    printed = io.StringIO()
    call_command("mcp_inspect", user="alice", format="snapshot", stdout=printed)
    with Client(alice) as client:
        client.assert_catalog(tmp_path / "catalog.json")
    assert (tmp_path / "catalog.json").read_text("utf-8") == printed.getvalue()


# Differences.


def tool(name="refund", **more):
    return {"tools": [{"name": name, "description": "Refund.", **more}]}


def taking(properties, required=(), **more):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return tool(inputSchema=schema, **more)


AMOUNT = {"type": "number", "exclusiveMinimum": 0}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
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
def test_differences_are_described(old, new, expected):
    assert differences(old, new) == expected


def paths(value, path=()):
    """Yield the path of each part of a value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*path, key))


@pytest.fixture(scope="module")
def shop():
    return canonical(json.loads(json.dumps(_definitions(mcp.server, None))))


@settings(deadline=None)
@given(data=st.data())
def test_every_change_is_reported(shop, data):
    """Any part of the shop's catalog is changed or removed."""
    changed = copy.deepcopy(shop)
    *parents, last = data.draw(st.sampled_from([path for path in paths(shop) if len(path) > 2]))
    where = changed
    for step in parents:
        where = where[step]
    if data.draw(st.booleans()):
        del where[last]
    else:
        where[last] = data.draw(st.sampled_from([None, True, 7, "other", [], {}, {"type": "null"}]))
    if canonical(changed) != shop:
        assert differences(shop, changed) and differences(changed, shop)
    else:
        assert differences(shop, changed) == []
