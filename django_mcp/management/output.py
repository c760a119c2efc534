"""
Output of the commands: tables that fit the terminal, colours, and help with examples.

In a pipe, output has no colour, and each row of a table is one line. On a terminal, control
characters are replaced, because text from tools or rows could contain escape sequences. The
environment variable NO_COLOR turns colours off (no-color.org).
"""

from __future__ import annotations

import argparse
import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
)

GAP, MIN_COLUMN_WIDTH = "  ", 14
Style = Callable[[str], str]
Row = Sequence[str]


class Formatter(DjangoHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """A help formatter that keeps the line breaks of the examples."""


class HelpfulCommand(BaseCommand):
    """Base of commands for people. Its ``--help`` ends with ``examples``."""

    requires_system_checks: list[str] = []  # the command reports errors of declarations itself
    examples: Sequence[tuple[str, str]] = ()  # arguments, and what the command does with them

    def __init__(
        self, stdout: Any = None, stderr: Any = None, no_color: bool = False,
        force_color: bool = False,
    ) -> None:  # fmt: skip
        plain = bool(os.environ.get("NO_COLOR")) and not force_color
        super().__init__(stdout, stderr, no_color or plain, force_color)

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        lines = [f"  {prog_name} {subcommand} {line}\n      {does}" for line, does in self.examples]
        epilog = "\n".join(["examples:", *lines]) if lines else None
        parser = super().create_parser(
            prog_name, subcommand, epilog=epilog, formatter_class=Formatter, **options
        )
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute(*args, **options)
        except CommandError as error:  # the message may contain text of a tool, a row or a server
            error.args = (printable(str(error), keep="\n\t"),)
            raise

    @property
    def width(self) -> int | None:
        """The number of columns of the terminal. None in a pipe, where lines are not wrapped."""
        return shutil.get_terminal_size().columns if self.stdout.isatty() else None

    def write_table(self, rows: Sequence[Row], *styles: Style, indent: str = GAP) -> None:
        for line in table(rows, self.width, styles, indent):
            self.stdout.write(line)

    def show(self, text: str) -> None:
        """Write the command's result to stdout. On a terminal, control characters are replaced."""
        self.stdout.write(printable(text, keep="\n\t") if self.stdout.isatty() else text)

    def note(self, words: str, style: Style | None = None) -> None:
        """Write a message to stderr that is not part of the result."""
        text = printable(words, keep="\n")
        self.stderr.write(text, style if style and self.stderr.isatty() else str)


def table(
    rows: Sequence[Row], width: int | None = None, styles: Sequence[Style] = (), indent: str = ""
) -> Iterator[str]:
    """Yield rows as lines in columns. Cells wrap if there is a ``width``."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        return
    natural = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = natural if width is None else _fit_widths(natural, width - len(indent))
    for row in cells:
        yield from _lines(row, widths, styles, indent)


def _fit_widths(widths: Sequence[int], total: int) -> list[int]:
    """Return column widths, the widest narrowed until the row fits or becomes unreadable."""
    fitted, gaps = list(widths), len(GAP) * (len(widths) - 1)
    while sum(fitted) + gaps > total and max(fitted) > MIN_COLUMN_WIDTH:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _lines(row: Row, widths: Sequence[int], styles: Sequence[Style], indent: str) -> Iterator[str]:
    cells = [
        textwrap.wrap(cell, width) or [""] if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        yield (indent + GAP.join(_style_row(parts, widths, styles))).rstrip()


def _style_row(parts: Row, widths: Sequence[int], styles: Sequence[Style]) -> Iterator[str]:
    for index, (part, width) in enumerate(zip(parts, widths, strict=True)):
        padding = " " * (width - len(part))
        yield (styles[index](part) if index < len(styles) and part else part) + padding


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint with known names that resemble ``name``, or ""."""
    close = get_close_matches(name, list(known), 3)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def printable(text: str, keep: str = "") -> str:
    """Return ``text`` with unprintable characters replaced, except those in ``keep``."""
    return "".join(one if one.isprintable() or one in keep else "?" for one in text)
