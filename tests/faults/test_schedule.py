"""What strikes is a function of the seed, and everything strikes once before any does twice."""

from __future__ import annotations

import asyncio
from itertools import islice
from types import SimpleNamespace

import pytest

from . import faults, schedule
from .campaign import Campaign, Options
from .project.points import POINTS

WHERE = [
    ("sqlite", "none"),
    ("sqlite", "redis"),
    ("postgres", "memory"),
    ("postgres", "postgres"),
    ("mariadb", "redis"),
]


def first(count: int, seed: int = 7, database: str = "sqlite", layer: str = "redis"):
    weights = schedule.kinds(database, layer)
    return list(islice(schedule.plan(seed, weights, workers=3, every=1.0), count))


def test_a_seed_is_a_schedule():
    assert first(300) == first(300)
    assert first(300) != first(300, seed=8)


@pytest.mark.parametrize(("database", "layer"), WHERE)
def test_everything_strikes_soon(database, layer):
    kinds = schedule.kinds(database, layer)
    found = first(len(POINTS) + len(kinds) + 1, database=database, layer=layer)
    assert {fault.kind for fault in found} == set(kinds)
    assert {fault.at for fault in found if fault.kind == "kill-at"} == set(POINTS)


def test_what_cannot_strike_has_a_reason():
    assert schedule.why_not("redis", "sqlite", "none") and not schedule.why_not(
        "redis", "sqlite", "redis"
    )
    assert "commit" not in schedule.kinds("sqlite", "redis")
    assert "commit" in schedule.kinds("postgres", "none")
    assert all(fault.kind != "redis" for fault in first(500, layer="memory"))


def test_every_kind_is_done_by_somebody():
    assert faults.KINDS.keys() == schedule.WEIGHTS.keys()
    assert set(schedule.HELD) <= POINTS.keys() and set(schedule.RARE) <= POINTS.keys()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_workers_stand_still_everywhere(database):
    """Within a transaction as well, where that leaves others room to go on."""
    at = {schedule.suspended_at(database, choice) for choice in range(100)}
    locked = set() if database == "sqlite" else set(schedule.LOCKED)
    assert at == set(schedule.SUSPENDED) | locked
    assert at - {""} <= POINTS.keys()


def test_a_long_campaign_has_its_shares():
    found = first(2500, database="postgres")
    count = {kind: sum(fault.kind == kind for fault in found) for kind in schedule.WEIGHTS}
    assert count["kill-at"] >= 400 and count["stop"] >= 200
    assert count["database"] >= 40 and count["redis"] >= 40 and count["commit"] >= 40
    assert all(0 < fault.wait < 2 for fault in found)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_clock_is_set_to_another_time_than_it_had(database):
    for choice in range(40):
        fault = schedule.Fault(1, 0.0, "clock", choice=choice)
        now = 0.0
        for _ in range(3):
            before, now = now, faults.offset(fault, now, database)
            assert now != before
    assert faults.offset(fault._replace(at="back"), 5.0, database) < 5.0


# What the checker is told of it.


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A campaign, its database, which only says what became of it, and what was told in turn."""
    words: list[str] = []
    kept = SimpleNamespace(
        port=0, fail=lambda: words.append("fails"), recover=lambda: words.append("is back")
    )
    made = Campaign(Options(1), tmp_path, kept, None)
    hear = lambda fault, at, worker=None: words.append(f"{fault.kind} {at}")  # noqa: E731
    monkeypatch.setattr(made._checker, "hear", hear)
    yield made, words
    made._notes.close()


async def test_a_commit_strikes_when_it_is_cut(told):
    made, words = told
    strike = asyncio.create_task(made._strike(schedule.Fault(1, 0.0, "commit")))
    made._proxy.tell = lambda **what: None
    await asyncio.sleep(0.05)
    assert words == ["commit begin"]
    made._was_cut({"cut": "f1", "happened": True})
    await strike
    assert words == ["commit begin", "commit struck", "commit end"]


async def test_the_database_strikes_when_its_turn_has_come(told):
    made, words = told
    async with made.alone("database"):
        strike = asyncio.create_task(made._strike(schedule.Fault(1, 0.0, "database")))
        await asyncio.sleep(0.05)
        assert words == ["database begin"]
    await strike
    assert words[1:] == ["database struck", "fails", "is back", "database end"]


def test_a_long_campaign_goes_on_until_enough_was_seen(told):
    """Kills at points that have a name among them."""
    made, _ = told
    made.options = Options(1, faults=2000)
    tally = made.tally
    tally.points.update(dict.fromkeys(POINTS, 50))
    tally.outages.update(database=200, redis=200)
    tally.seen["takeover"] = 200
    tally.outlived, tally.stopped["uvicorn"] = 20, 200
    tally.suspended[""] = 2000
    assert made._is_over
    tally.stopped["uvicorn"] = 199
    assert not made._is_over
    tally.stopped["uvicorn"] = 200
    tally.points.clear()
    tally.points.update(dict.fromkeys(POINTS, 10))
    tally.points["anywhere"] = 400
    assert not made._is_over
