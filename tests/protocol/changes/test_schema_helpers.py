"""Helpers that copy messages with changed or removed keys."""

import pytest

from django_mcp.protocol.changes.schemas import each, meta_without, text, within, without


def test_without_removes_keys():
    assert without({"a": 1, "b": 2}, "a", "c") == {"b": 2}


def test_within_and_each_change_existing_keys_only():
    assert within({"a": 1, "b": 2}, "a", str) == {"a": "1", "b": 2}
    assert within({"b": 2}, "a", str) == {"b": 2}
    assert each({"a": [{"x": 1}]}, "a", lambda item: item | {"y": 2}) == {"a": [{"x": 1, "y": 2}]}
    assert each({}, "a", lambda item: item) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"v": 1}, {"v": 1}),
        ({"v": 1, "_meta": {"k": 1}}, {"v": 1}),
        ({"v": 1, "_meta": {"k": 1, "l": 2}}, {"v": 1, "_meta": {"l": 2}}),
        ({"v": 1, "_meta": {}}, {"v": 1}),
    ],
)
def test_meta_without_removes_a_key_and_empty_metadata(before, after):
    assert meta_without(before, "k") == after


def test_text_keeps_the_annotations():
    assert text("t", {"type": "audio"}) == {"type": "text", "text": "t"}
    assert text("t", {"annotations": {"priority": 1}, "_meta": {}}) == {
        "type": "text",
        "text": "t",
        "annotations": {"priority": 1},
    }
