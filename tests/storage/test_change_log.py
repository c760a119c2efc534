"""The change log: changes are numbered when they become visible, read in that order, and pruned."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.utils import timezone

from django_mcp.models import Change
from django_mcp.storage import change_log
from django_mcp.storage.change_log import FLOOR, LAST, URI

from .rows import queries, together

pytestmark = pytest.mark.django_db
ALIAS = "default"


def record(*names: str, alias: str = ALIAS) -> None:
    for name in names:
        change_log.record(alias, (URI, name))


def subjects(cursor: int, alias: str = ALIAS) -> list[str]:
    page = change_log.after(alias, cursor, change_log.number_changes(alias).last)
    assert page.is_whole
    return [one.subject for one in page.changes]


def test_changes_numbered_together_share_one_number():
    record("a", "b")
    assert change_log.read_state(ALIAS).last == 0
    assert change_log.number_changes(ALIAS).last == 1
    record("c")
    assert change_log.number_changes(ALIAS) == (2, 0, [])
    assert subjects(0) == ["a", "b", "c"] and subjects(1) == ["c"] and subjects(2) == []
    numbers = Change.objects.using(ALIAS).filter(pk__gt=0).values_list("seq", flat=True)
    assert sorted(numbers) == [1, 1, 2]


def test_numbering_without_new_changes_is_one_query():
    record("a")
    change_log.number_changes(ALIAS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.storage.rows.settings.DJANGO_MCP", {"DATABASE": ALIAS})
        with queries() as done:
            change_log.number_changes(ALIAS)
    assert len(done()) == 1


def test_several_changes_are_recorded_by_one_statement():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.storage.rows.settings.DJANGO_MCP", {"DATABASE": ALIAS})
        with queries() as done:
            change_log.record(ALIAS, (URI, "a"), (URI, "b"))
    assert len([sql for sql in done() if sql.startswith("INSERT")]) == 1


def test_page_contains_whole_batches(monkeypatch):
    monkeypatch.setattr(change_log, "CHANGES_PER_NUMBER", 3)
    for batch in ("ab", "cd", "e"):
        record(*batch)
        change_log.number_changes(ALIAS)
    page = change_log.after(ALIAS, 0, 3)
    assert (page.until, [one.subject for one in page.changes]) == (1, ["a", "b"])
    page = change_log.after(ALIAS, 1, 3)
    assert (page.until, [one.subject for one in page.changes]) == (3, ["c", "d", "e"])
    assert change_log.after(ALIAS, 0, 1).changes[-1].subject == "b"


def test_many_changes_are_numbered_in_parts(monkeypatch):
    monkeypatch.setattr(change_log, "CHANGES_PER_NUMBER", 2)
    record("a", "b", "c")
    found = change_log.number_changes(ALIAS)
    assert found.last == 1 and len(found.waiting) == 1
    assert change_log.number_changes(ALIAS) == (2, 0, [])


@pytest.mark.django_db(transaction=True)
def test_changes_are_ordered_by_commit(shared_db):
    """A row that is inserted first and committed last has the higher number."""
    if connections[ALIAS].vendor == "sqlite":
        pytest.skip("SQLite has one writer, so nothing is inserted concurrently")
    inserted, seen = threading.Event(), threading.Event()

    def late() -> None:
        with transaction.atomic():
            record("first")
            inserted.set()
            assert seen.wait(20)

    def early() -> None:
        assert inserted.wait(20)
        record("second")
        assert subjects(0) == ["second"]
        seen.set()

    together(late, early)
    assert subjects(1) == ["first"]


@pytest.mark.django_db(transaction=True)
def test_concurrent_numbering_numbers_each_change_once(shared_db):
    record(*"abcdefgh")
    together(*[lambda: change_log.number_changes(ALIAS)] * 4)
    record("i")
    assert sorted(subjects(0)) == sorted("abcdefghi")
    assert Change.objects.using(ALIAS).filter(pk__in=(LAST, FLOOR)).count() == 2


# Pruning.


def test_reader_behind_pruned_changes_gets_an_incomplete_page():
    record("a", "b")
    change_log.number_changes(ALIAS)
    now = timezone.now()
    assert change_log.prune_changes(ALIAS, now) == 0
    record("c")
    assert (
        change_log.prune_changes(ALIAS, now + timedelta(hours=2)) == 3
    )  # pruning numbered the last one
    page = change_log.after(ALIAS, 1, change_log.number_changes(ALIAS).last)
    assert not page.is_whole and page.until == 2 and not page.changes
    assert change_log.after(ALIAS, 2, 2).is_whole


def test_changes_are_pruned_in_small_statements(monkeypatch):
    monkeypatch.setattr(change_log, "CHANGES_PER_STATEMENT", 2)
    monkeypatch.setattr(change_log, "CHANGES_PER_NUMBER", 2)
    record(*"abcde")
    assert [change_log.number_changes(ALIAS).last for _ in range(3)] == [1, 2, 3]
    assert change_log.prune_changes(ALIAS, timezone.now() + timedelta(hours=2)) == 5
    assert Change.objects.using(ALIAS).filter(pk__gt=0).count() == 0
    assert change_log.read_state(ALIAS) == (3, 3, [])


def test_number_of_kept_changes_is_limited(monkeypatch):
    monkeypatch.setattr(change_log, "MAX_CHANGES_PER_DATABASE", 3)
    record(*"abcdef")
    assert change_log.prune_changes(ALIAS, timezone.now()) == 2
    assert (
        subjects(change_log.read_state(ALIAS).floor) == []
        and Change.objects.using(ALIAS).filter(pk__gt=0).count() == 4
    )
