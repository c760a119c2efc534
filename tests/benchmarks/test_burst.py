"""A burst of which anything is lost, twice or out of order is no result; figures are judged."""

import json

import pytest

from benchmarks import burst
from benchmarks.burst import COUNT, Lane, check
from benchmarks.following import Came
from benchmarks.wires import Wrong


@pytest.fixture
def came():
    """All of a burst, as it should come."""
    told = [{"params": {"progress": n}} for n in range(1, COUNT + 1)]
    told.append({"result": {"content": [{"type": "text", "text": str(COUNT)}]}})
    return [Came(5.01, f"7-{n}", json.dumps(one)) for n, one in enumerate(told, 1)]


def test_all_of_it_once_and_in_order_is_right(came):
    check(came, 1)
    check(came[100:], 101)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda came: came.pop(17),
        lambda came: came.pop(),
        lambda came: came.insert(17, came[17]),
        lambda came: came.insert(17, came.pop(18)),
        lambda came: came.insert(17, came.pop(17)._replace(id="7-1")),
        lambda came: came.append(came.pop()._replace(data='{"result": {"content": [{}]}}')),
    ],
    ids=["lost", "no answer", "twice", "swapped", "a wrong id", "a wrong answer"],
)
def test_anything_else_is_wrong(came, spoil):
    spoil(came)
    with pytest.raises((Wrong, KeyError)):
        check(came, 1)


def test_figures_are_medians_of_what_the_worker_and_the_reader_saw(came):
    lane = Lane("sqlite", "burst")
    groups = [
        {"first": 1, "last": 6_000, "begun": 5.0, "ended": 5.3},
        {"first": 6_001, "last": COUNT, "begun": 5.34, "ended": 5.5},
    ]
    said = [5.0] * 6_000 + [5.3] * (COUNT - 6_000)
    lane.take(came, {"said": said, "groups": groups}, {"in groups": 0.4, "in one": 0.25})
    assert [round(found[0], 6) for _, found, _ in lane.figures] == [1.25, 40, 10]
    assert lane.is_met and "met: 1.25 times" in str(lane) and "UNMET" not in str(lane)


@pytest.mark.parametrize(("name", "most"), [("ratios", burst.RATIO), ("held", burst.HELD)])
def test_what_is_not_met_is_told(name, most):
    lane = Lane("sqlite", "burst", [1.0], [1.0], [1.0], [1.0], [1.0], [1], [1])
    setattr(lane, name, [most, most + 1, most + 2])
    assert not lane.is_met and "UNMET" in str(lane)
