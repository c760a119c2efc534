"""Sights: what somebody could see in lists is known until it is gone."""

from __future__ import annotations

import pytest

from django_mcp.delivery import sessions, sights
from django_mcp.delivery.sights import Seen
from django_mcp.models import Sight

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
def test_what_is_seen_or_was(before, seen, changed, kept):
    _, digests = sights.looked((), before, before)
    assert sights.looked(digests, ["a", "c"], seen) == (changed, sights.looked((), kept, kept)[1])


def test_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr(sights, "MOST", 2)
    _, kept = sights.looked((), "abc", "abc")
    assert sights.looked((), "bc", "bc")[1] == kept
    assert sights.looked(kept, "a", ()) == (False, kept)


@pytest.mark.django_db
def test_they_are_kept_by_name():
    sights.keep({"x": Seen("1::", ["a"]), "y": Seen("2::", ["b"])})
    sights.keep({"x": Seen("1::", ["a", "c"]), "y": Seen("2::", []), "z": Seen("2::", [])})
    assert sights.of(["x", "y", "z"]) == {"x": ["a", "c"]}


@pytest.mark.django_db
def test_a_thousand_are_few_statements():
    names = [str(number) for number in range(1_000)]
    with queries() as found:
        sights.keep(dict.fromkeys(names, Seen("1::", ["a"])))
        assert len(sights.of(names)) == 1_000
    assert len(found()) <= 25


@pytest.mark.django_db
def test_what_nobody_with_a_session_saw_is_forgotten():
    made = session()
    sights.keep({"x": Seen(made.owner, ["a"]), "y": Seen("nobody", ["a"])})
    assert sights.prune() == 1 and [one.name for one in Sight.objects.all()] == ["x"]
    sessions.end(made)
    assert sights.prune() == 1 and sights.prune() == 0
