"""The page on security: its protections are those that the canary campaign removes."""

from __future__ import annotations

import re

from tests.canaries.defences import DEFENCES

from .pages import ROOT, text

PAGE = ROOT / "docs/explanation/security.md"
ROW = re.compile(r"^\| (?!protection |---)([^|]+) \| ([^|]+) \|$", re.M)
# What the page names, and what the campaign removes to see whether anything leaks.
REMOVED_PROTECTIONS: dict[str, list[str]] = {
    "permission": ["permission"],
    "`get_queryset(request)`": [
        "the project's queryset",
        "binding through the resource",
        "completion through the resource",
        "rows of forms through the resource",
        "rows of questions through the resource",
        "the page as who visits",
    ],
    "`has_object_permission`": ["object permission", "pages filled from further on"],
    "same errors": ["the same words for hidden and missing"],
    "whitelist of fields": [
        "the whitelist of fields",
        "the whitelist of filters",
        "the whitelist of orders",
    ],
    "related rows": [],  # tests/leaks removes it, as "rows of" and "filters by" to-many relations
    "sealed cursors": [],  # cut, forged and foreign cursors are attempts of every campaign
    "encrypted event ids": [],  # no attempt of the campaign reads streams: test_event_ids.py does
    "files": ["no paths of files"],
    # A tool that returns hidden rows fails by it, and so differs from one that found none:
    # tests/declarations/test_returned_rows.py.
    "returned rows": [],
    "checks before and after a write": ["rows to write through the resource"],
    "masked bugs": ["masked bugs"],
    "views": ["views as who calls", "the whitelist of redirects"],
    # tests/bridges/rest_framework/test_attacks.py attacks these.
    "views of Django REST framework": [],
    # tests/bridges/ninja/test_attacks.py attacks these.
    "operations of django-ninja": [],
    # tests/bridges/admin_site/test_attacks.py attacks these.
    "Django's admin": [],
    "subscribers": ["what subscribers may see", "lists of what they may see"],
}
UNAVOIDABLE = (
    "unique value", "Dependent rows", "Keys", "Object permissions of related rows",
    "your admin and your APIs", "your own code", "Time", "log",
)  # fmt: skip


def test_page_lists_every_protection_that_the_campaign_removes():
    rows = ROW.findall(text(PAGE))
    assert [protection for protection, _ in rows] == [*REMOVED_PROTECTIONS]
    assert all(len(explained.split()) >= 8 for _, explained in rows)
    removed = [defence for defences in REMOVED_PROTECTIONS.values() for defence in defences]
    assert sorted(removed) == sorted(DEFENCES)


def test_page_explains_what_exposing_a_row_reveals():
    (hidden,) = re.findall(r"\n## What cannot be hidden\n(.+?)\n## ", text(PAGE), re.S)
    points = re.findall(r"^- \*\*(.+?)\.\*\* (.+?)(?=^- |\Z)", hidden, re.M | re.S)
    assert len(points) == len(UNAVOIDABLE)
    for words, (point, explained) in zip(UNAVOIDABLE, points, strict=True):
        assert words in point and len(explained.split()) >= 8


def test_page_explains_how_the_protections_are_tested():
    tested = text(PAGE).partition("\n## How this is tested\n")[2]
    assert len(tested.split()) > 100 and "tests/canaries" in tested
