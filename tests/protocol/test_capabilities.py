"""Capabilities of the client: which a request needs, and which are missing."""

import pytest

from django_mcp.protocol.capabilities import lacking, needed, offered
from django_mcp.protocol.revisions import REVISIONS

FIRST, SECOND, THIRD, FOURTH, LATEST = REVISIONS.values()
ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
FORM, URL = {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}
TOOLS, CONTEXT = {"sampling": {"tools": {}}}, {"sampling": {"context": {}}}


@pytest.mark.parametrize(
    ("method", "params", "capabilities"),
    [
        (ELICIT, {}, FORM),
        (ELICIT, {"mode": "form"}, FORM),
        (ELICIT, {"mode": "url"}, URL),
        (SAMPLE, {"includeContext": "none"}, {"sampling": {}}),
        (SAMPLE, {"tools": []}, TOOLS),
        (
            SAMPLE,
            {"toolChoice": {}, "includeContext": "thisServer"},
            TOOLS | {"sampling": {"tools": {}, "context": {}}},
        ),
        (ROOTS, {}, {"roots": {}}),
        ("ping", {}, {}),
    ],
)
def test_needed_capabilities_of_a_request(method, params, capabilities):
    assert needed(method, params) == capabilities


@pytest.mark.parametrize("revision", [FOURTH, LATEST], ids=str)
@pytest.mark.parametrize(
    ("declared", "method", "params", "missing"),
    [
        ({}, ELICIT, {}, FORM),
        ({"elicitation": {}}, ELICIT, {}, None),
        ({"elicitation": {"form": {}}}, ELICIT, {"mode": "form"}, None),
        ({"elicitation": {"url": {}}}, ELICIT, {}, FORM),
        ({"elicitation": {}}, ELICIT, {"mode": "url"}, URL),
        ({"elicitation": {"form": {}, "url": {}}}, ELICIT, {"mode": "url"}, None),
        ({"elicitation": {"url": None}}, ELICIT, {"mode": "url"}, URL),
        ({"elicitation": None}, ELICIT, {}, FORM),
        ({"sampling": {}}, SAMPLE, {}, None),
        ({"sampling": {}}, SAMPLE, {"tools": []}, TOOLS),
        ({"sampling": {"tools": {}}}, SAMPLE, {"tools": []}, None),
        ({"sampling": {}}, SAMPLE, {"includeContext": "thisServer"}, CONTEXT),
        ({"roots": {"listChanged": True}}, ROOTS, {}, None),
        ({}, ROOTS, {}, {"roots": {}}),
        ({}, "ping", {}, None),
    ],
)
def test_missing_capabilities_of_a_client(revision, declared, method, params, missing):
    assert lacking(offered(revision, declared), needed(method, params)) == (missing or {})


@pytest.mark.parametrize(
    ("revision", "method", "params", "missing"),
    [
        (FIRST, ELICIT, {}, FORM),
        (SECOND, ELICIT, {}, FORM),
        (THIRD, ELICIT, {}, None),
        (THIRD, ELICIT, {"mode": "url"}, URL),
        (THIRD, SAMPLE, {"tools": []}, TOOLS),
        (THIRD, SAMPLE, {"includeContext": "thisServer"}, None),
        (FIRST, SAMPLE, {}, None),
        (FIRST, "ping", {}, None),
    ],
)
def test_capability_unknown_to_the_revision_is_missing_even_if_declared(
    revision, method, params, missing
):
    declared = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
    assert lacking(offered(revision, declared), needed(method, params)) == (missing or {})
