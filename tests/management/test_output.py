"""Output of the commands: column widths, wrapping and control characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_mcp.management.output import MIN_COLUMN_WIDTH, printable, table

CELL = st.text(st.characters(codec="utf-8"), max_size=60)


def test_columns_fit_their_contents():
    rows = [("a", "long", "x"), ("longer", "b", "")]
    assert list(table(rows)) == ["a       long  x", "longer  b"]
    assert list(table([])) == []


def test_widest_column_is_wrapped_at_a_narrow_terminal():
    words = "one two three four five six seven eight"
    lines = list(table([("name", words)], width=24, indent="  "))
    assert lines == ["  name  one two three", "        four five six", "        seven eight"]


def test_styles_do_not_count_for_the_width():
    rows = [("a", "b"), ("aaa", "b")]
    assert list(table(rows, None, [lambda text: f"<{text}>"])) == ["<a>    b", "<aaa>  b"]


@given(st.lists(st.tuples(CELL, CELL), max_size=5), st.integers(2 * MIN_COLUMN_WIDTH + 2, 100))
def test_lines_are_not_wider_than_the_terminal(rows, width):
    for line in table(rows, width):
        assert len(line) <= width and line.isprintable()


@given(st.text())
def test_control_characters_are_replaced(text):
    assert printable(text).isprintable() and len(printable(text)) == len(text)
