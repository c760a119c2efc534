"""The comparison with other packages: the page shows what was measured. No package is needed."""

from __future__ import annotations

import json

import pytest

from tools.compare import (
    BEGIN,
    PACKAGES,
    PAGE,
    RESULTS,
    TITLES,
    Reply,
    names,
    outcome,
    parsed,
    with_tables,
)

MEASURED = json.loads(RESULTS.read_text("utf-8"))


def test_page_shows_the_stored_results():
    page = PAGE.read_text("utf-8")
    assert with_tables(page, MEASURED) == page
    assert page.count("<!-- RESULTS") == len(TITLES)


def test_results_are_those_of_the_pinned_versions():
    assert set(MEASURED) == {package.module for package in PACKAGES}
    for package in PACKAGES:
        pinned = package.wanted[0].partition("==")[2]
        found = MEASURED[package.module]
        assert found.get("skipped") or found["version"].startswith(pinned)


def test_page_names_a_package_that_did_not_run():
    page = PAGE.read_text("utf-8")
    skipped = MEASURED | {"django_admin_mcp": {"skipped": "It cannot be installed."}}
    changed = with_tables(page, skipped)
    assert "django-admin-mcp did not run: It cannot be installed." in changed
    assert "| django-admin-mcp 0" not in changed


def test_page_without_a_place_for_a_table_is_an_error():
    page = PAGE.read_text("utf-8").replace(BEGIN.format("admin"), "")
    with pytest.raises(LookupError, match="admin"):
        with_tables(page, MEASURED)


def test_outcome_has_the_rows_or_the_fields_of_an_error():
    shown = {"result": {"content": [{"text": '{"number": "A-2"}'}, {"text": "B-1, ZA-10"}]}}
    assert outcome(Reply(200, shown))["rows"] == ["A-2", "B-1"]
    refused = {"error": {"code": -32602, "message": "status: wrong. -1 is not of type 'number'"}}
    found = outcome(Reply(200, refused))
    assert found["is_error"] and found["fields"] == ["status"]
    assert outcome(Reply(500, {}))["is_error"]


def test_responses_may_be_streams_of_events():
    assert parsed('event: message\ndata: {"id": 1}\n\n') == {"id": 1}
    assert parsed('{"id": 2}') == {"id": 2}
    assert parsed("<html>") == parsed("[1]") == {}


def test_arguments_in_an_object_are_named_with_it():
    body = {"properties": {"status": {"type": "string"}}}
    assert names({"properties": {"body": body, "page": {}}}) == ["body.status", "page"]
