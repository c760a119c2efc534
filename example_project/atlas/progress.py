"""A progress bar of a few lines: it redraws one line of a terminal, and elsewhere tells quarters.

The rule: it writes to the stream it is given, never to standard output of its own accord.
"""

import time
from typing import TextIO

WIDTH = 30


class Bar:
    """How far a job of known size has come."""

    def __init__(self, total: int, label: str, stream: TextIO) -> None:
        self.total, self.label, self.stream = max(total, 1), label, stream
        self.redraws = stream.isatty()
        self.began = time.monotonic()
        self.told = 0

    def __call__(self, done: int) -> None:
        if self.redraws:
            self.stream.write(f"\r{self.line(done)}{chr(10) if done >= self.total else ''}")
            self.stream.flush()
        elif (quarter := 4 * done // self.total) > self.told:
            self.told = quarter
            self.stream.write(f"{self.line(done)}\n")

    def line(self, done: int) -> str:
        filled = WIDTH * done // self.total
        seconds = time.monotonic() - self.began
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"{self.label} [{bar}] {100 * done // self.total:3d} %  {done:,}  {seconds:.0f} s"
