"""The plan of the house names the rooms that there are, at the levels that are enforced."""

from __future__ import annotations

import re

from tests.test_architecture import (
    LEVELS,
    LONG_FUNCTION,
    LONG_SHARE,
    LONGEST_MODULE,
    MEDIAN,
    PACKAGE,
    PARTIES,
)

from .pages import ROOT, text

PAGE = ROOT / "docs/explanation/house.md"
ROW = re.compile(r"^\| (\d) \| ([^|]+) \|", re.M)


def told():
    return [
        (int(level), {*re.findall(r"`(\w+)`", rooms)}) for level, rooms in ROW.findall(text(PAGE))
    ]


def there():
    """The rooms of the package, and not those that the table of levels keeps free for later."""
    names = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    return names & set(PARTIES)


def test_every_room_is_told_at_its_level():
    rooms = {room: level for level, named in told() for room in named}
    assert rooms == {room: PARTIES[room][0] for room in there()}


def test_rooms_that_share_a_line_may_know_each_other():
    parties = [party & there() for level in LEVELS for party in level]
    assert sorted(sorted(party) for party in parties if party) == sorted(
        sorted(named) for _, named in told()
    )


def test_the_sizes_are_those_that_are_enforced():
    said = " ".join(text(PAGE).split())
    assert f"more than {LONGEST_MODULE} lines" in said
    assert f"more than {MEDIAN} lines" in said
    assert f"more than {LONG_SHARE:.0%}".replace("%", " %") in said
    assert f"over {LONG_FUNCTION}" in said
