"""The page on guarantees: every promise has tests, and every diagram is described."""

from __future__ import annotations

import re
import string

from tests.faults.project.points import POINTS
from tests.faults.report import CLASSES
from tools import flows

from .pages import ROOT, text

PAGE = ROOT / "docs/explanation/guarantees.md"
PICTURE = re.compile(r"!\[([^\]]+)\]\(\.\./images/flow-(\w+)\.svg\)")
PROMISE = re.compile(r"^\d\. \*\*(?:.|\n)+?\((\w(?:, \w)*)\)$", re.M)
ROW = re.compile(r"^\| (?!class )(\w+) \| [^|]+ \| [^|]+ \| [^|]+ \|$", re.M)


def test_every_flow_is_shown_and_described():
    sources = {path.stem: path.read_text("utf-8") for path in flows.SOURCES.glob("*.txt")}
    told = {name: flows.read(source).about for name, source in sources.items()}
    assert {name: words for words, name in PICTURE.findall(text(PAGE))} == told


def test_every_promise_is_tested_by_existing_classes():
    promises = PROMISE.findall(text(PAGE))
    assert len(promises) == len(re.findall(r"^\d\. ", text(PAGE), re.M))
    assert {name for names in promises for name in names.split(", ")} == {*string.ascii_lowercase}


def test_every_class_has_a_row():
    assert ROW.findall(text(PAGE)) == [*CLASSES]


def test_every_fault_point_is_named():
    (told,) = re.findall(r"\n\nThe points at which.*?:\n\n(.*?)\n\n", text(PAGE), re.S)
    assert sorted(re.findall(r"`([\w-]+)`", told)) == sorted(POINTS)
