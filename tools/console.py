"""Output of the demonstrations: with rich on a terminal, as plain lines elsewhere."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

Row = Sequence[str]
WIDTH = 100


class Console(Protocol):
    """Where a demonstration writes its steps."""

    def heading(self, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def aside(self, text: str) -> None: ...
    def table(self, rows: Sequence[Row]) -> None: ...


class PlainConsole:
    """A console that writes lines of text."""

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


class RichConsole:
    """A console that writes with rich."""

    def __init__(self, stream: TextIO) -> None:
        import rich.console

        self._console = rich.console.Console(file=stream, highlight=False)

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


def open_console(stream: TextIO = sys.stdout) -> Console:
    """Return a console with colours for a terminal if rich is installed, else a plain one."""
    if not stream.isatty():
        return PlainConsole(stream)
    try:
        return RichConsole(stream)
    except ImportError:
        return PlainConsole(stream)
