"""A campaign in which something was lost, or a class never struck, is not good."""

from __future__ import annotations

import pytest

from . import report

GOOD = {"events": 10, **{f"{name}_count": 0 for name in report.SUMS}}


def full(without: str = "") -> report.Tally:
    tally = report.Tally()
    for letter in report.CLASSES:
        tally.injected(letter)
        if letter != without:
            tally.observed(letter)
    return tally


def test_a_good_campaign():
    assert report.failures(full(), GOOD, {}) == []


@pytest.mark.parametrize("letter", report.CLASSES)
def test_a_class_that_never_struck_is_told(letter):
    (told,) = report.failures(full(without=letter), GOOD, {})
    assert told.startswith(f"never struck: {letter} ")
    assert report.failures(full(without=letter), GOOD, {letter: "There is none here."}) == []


@pytest.mark.parametrize("name", report.SUMS)
def test_what_clients_saw_counts(name):
    assert report.failures(full(), GOOD | {f"{name}_count": 2}, {}) == [f"{name}: 2"]


def test_a_checker_that_saw_nothing_proves_nothing():
    assert report.failures(full(), {}, {}) == ["the checker saw no event"]


def test_what_the_checker_counts_is_added():
    tally = report.Tally()
    tally.injected("c")
    tally.take({"classes": {"c": {"injected": 0, "observed": 3}, "a": {"observed": 1}}})
    assert tally.counts["c"] == {"injected": 1, "observed": 3}
    assert "a" not in report.unhit(tally, {}) and "b" in report.unhit(tally, {})


LOG = """\
WARNING django_mcp: tools/call #1 is taken over from a process that died
ERROR django_mcp: Nobody can be let in while a database cannot be reached
Traceback (most recent call last):
  File "x.py", line 1, in f
psycopg.OperationalError: server closed the connection unexpectedly

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "y.py", line 1, in g
django.db.utils.OperationalError: server closed the connection unexpectedly
ERROR django_mcp: A request failed
Traceback (most recent call last):
  File "x.py", line 1, in f
KeyError: 'x'
INFO uvicorn: fine
"""


def test_errors_that_no_fault_explains_are_told(tmp_path):
    (one,) = report.unexplained(LOG)
    assert "A request failed" in one and one.endswith("KeyError: 'x'\n")
    log = tmp_path / "w0.log"
    log.write_text(LOG * 2)
    told = "ERROR django_mcp: A request failed ... KeyError: 'x'"
    assert report.worker_errors([log]) == {told: 2}


OUTAGE = "django.db.utils.OperationalError: connection failed: refused\n\tIs it running?\n"
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
RECORDS = [
    (f"ERROR django_mcp: x\n{TRACE}{OUTAGE}", True),
    (f"ERROR django_mcp: x\n{TRACE}KeyError: 'x'\n", False),
    (f"ERROR django_mcp: x\n{TRACE}{OUTAGE}\nDuring it:\n\n{TRACE}KeyError: 'x'\n", False),
    (f"ERROR django_mcp: {OUTAGE}{TRACE}KeyError: 'x'\n", False),
    (f"WARNING django_mcp: x\n{TRACE}KeyError: 'x'\n", False),
    (f"WARNING django_mcp: x\n{TRACE}{OUTAGE}", True),
    ("WARNING django_mcp: KeyError\n", True),
    (f"ERROR x: y\n{TRACE}django.core.exceptions.RequestAborted\n", True),
]


@pytest.mark.parametrize(("text", "is_explained"), RECORDS)
def test_a_record_is_explained_by_how_it_ends(text, is_explained):
    assert (not report.unexplained(text)) is is_explained


def test_a_statement_that_is_wrong_is_no_outage():
    text = "ERROR django_mcp: x\ndjango.db.utils.OperationalError: no such column: y\n"
    assert report.unexplained(text) and report.unexplained("") == []


def test_who_stood_still_must_have_been_outlived_once():
    tally = full()
    tally.suspended["tool-working"] += 3
    assert report.failures(tally, GOOD, {}) == [
        "no worker that stood still was ever taken for dead"
    ]
    tally.outlived += 1
    assert report.failures(tally, GOOD, {}) == []


def test_points_are_named_ones():
    tally = full()
    tally.points.update(["anywhere", "accepted", "accepted", "first-written"])
    assert tally.has_points(2) and not tally.has_points(3)
    assert (tally.kills, tally.named) == (4, 3)


def test_all_is_told():
    tally = full()
    tally.points["accepted"] += 3
    checked = GOOD | {"counts": {"late": 3}, "excused": {"act: away": 2}, "shares": {"act": [7, 9]}}
    told = report.told(tally, checked, {"p": "There is no Redis."})
    assert "excused: act: away 2" in told and "successes: act 7 of 9" in told
    assert "kill -9: 3, at 1 points" in told and "not here: There is no Redis." in told
    assert "the machine stood still: 3 times" in told
    assert "events checked: 10; lost 0, duplicated 0, disordered 0, hanging 0, wrong 0" in told
