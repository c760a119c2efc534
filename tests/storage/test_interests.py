"""Interest: how long it takes until nothing is passed over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_mcp.models import Interest
from django_mcp.storage import change_log, databases
from django_mcp.storage.change_log import (
    CACHE_MARGIN_SECONDS,
    INTEREST_LIFETIME,
    INTERESTS_CACHE_SECONDS,
    declare,
)

pytestmark = pytest.mark.django_db
LONGEST = INTERESTS_CACHE_SECONDS + CACHE_MARGIN_SECONDS


class Clock:
    """Stands still, but while a statement waits for a lock."""

    def __init__(self) -> None:
        self.now, self.waits = datetime(2026, 1, 1, tzinfo=UTC), timedelta()

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def at(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(databases, "now", made)
    insert = change_log.rows(Interest).__class__.bulk_create

    def waiting(self, *args, **kwargs):
        made.now += made.waits
        return insert(self, *args, **kwargs)

    monkeypatch.setattr(change_log.rows(Interest).__class__, "bulk_create", waiting)
    return made


def test_who_is_first_waits_and_who_comes_later_need_not(at):
    assert declare("one", ["shop.tag"]) == LONGEST
    at.now += timedelta(seconds=LONGEST / 2)
    assert declare("two", ["shop.tag"]) == pytest.approx(LONGEST / 2)
    assert declare("two", ["shop.tag", "shop.note"]) == LONGEST
    at.now += timedelta(seconds=LONGEST)
    assert declare("three", ["shop.tag", "shop.note"]) == 0


def test_it_counts_from_when_it_could_be_seen(at):
    """Until an insertion that waited for a lock is committed, whoever saves finds nothing."""
    at.waits = timedelta(seconds=5)
    assert declare("one", ["shop.tag"]) == LONGEST
    at.waits = timedelta()
    assert declare("two", ["shop.tag"]) == LONGEST


def test_one_that_died_before_it_knew_keeps_nobody_waiting_longer(at):
    declare("one", ["shop.tag"])
    Interest.objects.update(since=at.now + timedelta(days=1))
    assert declare("two", ["shop.tag"]) == LONGEST
    at.now += INTEREST_LIFETIME
    assert declare("two", ["shop.tag"]) == 0
