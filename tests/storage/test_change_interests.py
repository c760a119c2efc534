"""Interests: for how long after a declaration of interest changes may be missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_mcp.models import Interest
from django_mcp.storage import change_log, databases
from django_mcp.storage.change_log import (
    CACHE_MARGIN_SECONDS,
    INTEREST_LIFETIME,
    INTERESTS_CACHE_SECONDS,
    store_interests,
)

pytestmark = pytest.mark.django_db
LONGEST = INTERESTS_CACHE_SECONDS + CACHE_MARGIN_SECONDS


class FrozenClock:
    """A clock that advances only while a statement waits for a lock."""

    def __init__(self) -> None:
        self.now, self.waits = datetime(2026, 1, 1, tzinfo=UTC), timedelta()

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def at(monkeypatch) -> FrozenClock:
    made = FrozenClock()
    monkeypatch.setattr(databases, "now", made)
    insert = change_log.rows(Interest).__class__.bulk_create

    def waiting(self, *args, **kwargs):
        made.now += made.waits
        return insert(self, *args, **kwargs)

    monkeypatch.setattr(change_log.rows(Interest).__class__, "bulk_create", waiting)
    return made


def test_first_interest_waits_for_caches_and_later_ones_wait_less(at):
    assert store_interests("one", ["shop.tag"]) == LONGEST
    at.now += timedelta(seconds=LONGEST / 2)
    assert store_interests("two", ["shop.tag"]) == pytest.approx(LONGEST / 2)
    assert store_interests("two", ["shop.tag", "shop.note"]) == LONGEST
    at.now += timedelta(seconds=LONGEST)
    assert store_interests("three", ["shop.tag", "shop.note"]) == 0


def test_wait_counts_from_the_commit_of_the_interest(at):
    """A process that saves a row does not see the interest before its insertion commits."""
    at.waits = timedelta(seconds=5)
    assert store_interests("one", ["shop.tag"]) == LONGEST
    at.waits = timedelta()
    assert store_interests("two", ["shop.tag"]) == LONGEST


def test_interest_with_a_future_start_prolongs_no_wait(at):
    store_interests("one", ["shop.tag"])
    Interest.objects.update(since=at.now + timedelta(days=1))
    assert store_interests("two", ["shop.tag"]) == LONGEST
    at.now += INTEREST_LIFETIME
    assert store_interests("two", ["shop.tag"]) == 0
