"""What a client can be asked, as the project's code reads it."""

import pytest

from django_mcp.declarations.request import ClientCapabilities

NOTHING = {"elicit", "elicit_url", "sample", "sample_tools", "sample_context", "roots"}


@pytest.mark.parametrize(
    ("offered", "can"),
    [
        ({}, set()),
        ({"elicitation": {"form": {}}}, {"elicit"}),
        ({"elicitation": {"url": {}}}, {"elicit_url"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"elicit", "elicit_url"}),
        ({"sampling": {}}, {"sample"}),
        ({"sampling": {"tools": {}}}, {"sample", "sample_tools"}),
        ({"sampling": {"tools": {}, "context": {}}}, {"sample", "sample_tools", "sample_context"}),
        ({"roots": {"listChanged": True}}, {"roots"}),
        ({"elicitation": True, "sampling": None, "roots": []}, set()),
        ({"sampling": {"tools": True}}, {"sample"}),
    ],
)
def test_only_what_is_plainly_offered(offered, can):
    assert {name for name in NOTHING if getattr(ClientCapabilities(offered), name)} == can


def test_extensions():
    can = ClientCapabilities({"extensions": {"io.example/ui": {"a": 1}, "io.example/odd": True}})
    assert can.extension("io.example/ui") == {"a": 1}
    assert can.extension("io.example/odd") is None and can.extension("other") is None
    assert ClientCapabilities({}).extension("io.example/ui") is None
    assert ClientCapabilities({"extensions": None}).extension("io.example/ui") is None


def test_what_it_lacks():
    can = ClientCapabilities({"sampling": {}, "elicitation": {"url": {}}})
    assert can.lacks({"sampling": {}}) == {}
    assert can.lacks({"sampling": {"tools": {}}, "roots": {}, "elicitation": {"url": {}}}) == {
        "sampling": {"tools": {}}, "roots": {},
    }  # fmt: skip
