import io
import sys

import pytest

from tools import telling

TOLD = ["A heading", "what is said", "an aside", "first", "second"]


def tell(teller):
    teller.heading(TOLD[0])
    teller.say(TOLD[1])
    teller.aside(TOLD[2])
    teller.table([(TOLD[3], TOLD[4])])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_same_is_told_in_both_ways(stream):
    told = stream()
    tell(telling.teller(told))
    assert all(text in told.getvalue() for text in TOLD)


def test_looks_are_for_terminals():
    assert isinstance(telling.teller(io.StringIO()), telling.Plain)
    assert isinstance(telling.teller(Terminal()), telling.Colourful)


def test_without_rich_a_terminal_is_told_plainly(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(telling.teller(Terminal()), telling.Plain)


def test_what_is_said_is_no_markup():
    told = Terminal()
    telling.teller(told).say("[bold]not so[/bold]")
    assert "[bold]not so[/bold]" in told.getvalue()


def test_long_rows_are_cut():
    assert telling.shortened("x" * 200).endswith("x…")
    assert len(telling.shortened("x" * 200)) == telling.WIDTH
    assert telling.shortened("short") == "short"
