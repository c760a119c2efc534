"""How a conversation is shown: with rich on a terminal, as plain lines anywhere else.

The rule: what is said is the same in both; only the looks differ.
"""

import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

Row = Sequence[str]
WIDTH = 100


class Teller(Protocol):
    """What a conversation is told with."""

    def heading(self, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def aside(self, text: str) -> None: ...
    def table(self, rows: Sequence[Row]) -> None: ...


class Plain:
    """Lines of text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def heading(self, text: str) -> None:
        self._write(f"\n== {text}")

    def say(self, text: str) -> None:
        self._write(text)

    def aside(self, text: str) -> None:
        self._write(f"   {text}")

    def table(self, rows: Sequence[Row]) -> None:
        wide = max((len(row[0]) for row in rows), default=0)
        for first, *rest in rows:
            self._write(shortened(f"   {first:<{wide}}  {'  '.join(rest)}".rstrip()))

    def _write(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Colourful:
    """The same through rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.rule(_escaped(text), align="left", style="cyan")

    def say(self, text: str) -> None:
        self._console.print(_escaped(text))

    def aside(self, text: str) -> None:
        self._console.print(_escaped(text), style="dim")

    def table(self, rows: Sequence[Row]) -> None:
        from rich.table import Table

        drawn = Table.grid(padding=(0, 2))
        drawn.add_column(style="bold green", no_wrap=True)
        for row in rows:
            drawn.add_row(*map(_escaped, row))
        self._console.print(drawn)


def _escaped(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def shortened(text: str, length: int = WIDTH) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def teller(stream: TextIO = sys.stdout) -> Teller:
    """Colours for a terminal, if rich is there."""
    if not stream.isatty():
        return Plain(stream)
    try:
        return Colourful(stream)
    except ImportError:
        return Plain(stream)
