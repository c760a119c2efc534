"""Catalogs that are kept: written once, compared from then on."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from django_mcp.testing import Client
from django_mcp.testing.snapshots import assert_matches, canonical, text

ONE = {"tools": [{"name": "b", "description": "B"}, {"name": "a", "_meta": {"x": 1}}]}


@pytest.fixture(autouse=True)
def _at_home(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("MCP_UPDATE_SNAPSHOTS", raising=False)


def test_the_order_does_not_matter():
    assert canonical(ONE) == {"tools": [{"name": "a"}, {"name": "b", "description": "B"}]}
    turned = {"tools": [{"description": "B", "name": "b"}, {"name": "a"}]}
    assert text(canonical(ONE)) == text(canonical(turned))
    assert json.loads(text(canonical(ONE))) == canonical(ONE)


def test_written_once_and_compared_from_then_on(tmp_path):
    path = tmp_path / "deep" / "catalog.json"
    assert_matches(ONE, path)
    assert_matches(ONE, path)
    with pytest.raises(
        AssertionError, match=r"(?s)has changed.*_SNAPSHOTS=1.*- the tool c is new.*\+ .*\"c\""
    ):
        assert_matches({"tools": [*ONE["tools"], {"name": "c"}]}, path)


def test_written_anew_if_it_is_said(tmp_path, monkeypatch):
    path = tmp_path / "catalog.json"
    assert_matches(ONE, path)
    monkeypatch.setenv("MCP_UPDATE_SNAPSHOTS", "1")
    assert_matches({"tools": []}, path)
    monkeypatch.delenv("MCP_UPDATE_SNAPSHOTS")
    assert_matches({"tools": []}, path)


def test_where_nobody_commits_it_has_to_be_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="There is no .*catalog.json: run the test once"):
        assert_matches(ONE, tmp_path / "catalog.json")


def test_the_catalog_of_a_client(db, alice, server, tmp_path):
    with Client(alice) as client, Client() as nobody:
        own, theirs = client.catalog(), nobody.catalog()
        client.assert_catalog(tmp_path / "catalog.json")
        with pytest.raises(AssertionError, match="refund"):
            nobody.assert_catalog(str(tmp_path / "catalog.json"))
    assert list(own) == ["tools", "resources", "templates", "prompts"]
    names = [[one["name"] for one in catalog["tools"]] for catalog in (own, theirs)]
    assert names[0] == sorted(names[0]) and set(names[1]) < set(names[0])
    with Client(server=server) as empty:
        assert empty.catalog() == {"tools": [], "resources": [], "templates": [], "prompts": []}


def test_the_command_writes_the_same(alice, tmp_path):
    printed = io.StringIO()
    call_command("mcp_inspect", user="alice", format="snapshot", stdout=printed)
    with Client(alice) as client:
        client.assert_catalog(tmp_path / "catalog.json")
    assert (tmp_path / "catalog.json").read_text("utf-8") == printed.getvalue()
