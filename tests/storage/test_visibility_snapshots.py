"""Visibility snapshots: which rows of a list a principal could see, kept while sessions exist."""

from __future__ import annotations

import pytest

from django_mcp.models import VisibilitySnapshot
from django_mcp.storage import change_log, sessions
from django_mcp.storage.change_log import VisibleUris

from .rows import queries, session


@pytest.mark.parametrize(
    ("before", "seen", "changed", "kept"),
    [
        ((), (), False, ()),
        ((), ("a",), True, ("a",)),
        (("a",), ("a",), True, ("a",)),
        (("a", "b"), ("c",), True, ("b", "c")),
        (("b",), (), False, ("b",)),
    ],
)
def test_comparison_reports_rows_that_are_or_were_visible(before, seen, changed, kept):
    _, digests = change_log.compare_visible((), before, before)
    assert change_log.compare_visible(digests, ["a", "c"], seen) == (
        changed,
        change_log.compare_visible((), kept, kept)[1],
    )


def test_oldest_uris_of_a_snapshot_are_dropped(monkeypatch):
    monkeypatch.setattr(change_log, "MAX_URIS_PER_PRINCIPAL", 2)
    _, kept = change_log.compare_visible((), "abc", "abc")
    assert change_log.compare_visible((), "bc", "bc")[1] == kept
    assert change_log.compare_visible(kept, "a", ()) == (False, kept)


@pytest.mark.django_db
def test_snapshots_are_stored_by_name():
    change_log.store_snapshots({"x": VisibleUris("1::", ["a"]), "y": VisibleUris("2::", ["b"])})
    change_log.store_snapshots(
        {
            "x": VisibleUris("1::", ["a", "c"]),
            "y": VisibleUris("2::", []),
            "z": VisibleUris("2::", []),
        }
    )
    assert change_log.snapshots(["x", "y", "z"]) == {"x": ["a", "c"]}


@pytest.mark.django_db
def test_thousand_snapshots_take_few_statements():
    names = [str(number) for number in range(1_000)]
    with queries() as found:
        change_log.store_snapshots(dict.fromkeys(names, VisibleUris("1::", ["a"])))
        assert len(change_log.snapshots(names)) == 1_000
    assert len(found()) <= 25


@pytest.mark.django_db
def test_snapshots_without_a_session_are_pruned():
    made = session()
    change_log.store_snapshots(
        {"x": VisibleUris(made.owner, ["a"]), "y": VisibleUris("nobody", ["a"])}
    )
    assert change_log.prune_snapshots() == 1 and [
        one.name for one in VisibilitySnapshot.objects.all()
    ] == ["x"]
    sessions.end(made)
    assert change_log.prune_snapshots() == 1 and change_log.prune_snapshots() == 0
