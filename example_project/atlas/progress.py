"""A small progress bar. It redraws a line of a terminal; elsewhere it prints each quarter."""

import time
from typing import TextIO

WIDTH = 30


class Bar:
    """The progress of a job of known size, written to `stream`."""

    def __init__(self, total: int, label: str, stream: TextIO) -> None:
        self.total, self.label, self.stream = max(total, 1), label, stream
        self.redraws = stream.isatty()
        self.began = time.monotonic()
        self.quarters = 0

    def __call__(self, done: int) -> None:
        if self.redraws:
            self.stream.write(f"\r{self.line(done)}{chr(10) if done >= self.total else ''}")
            self.stream.flush()
        elif (quarter := 4 * done // self.total) > self.quarters:
            self.quarters = quarter
            self.stream.write(f"{self.line(done)}\n")

    def line(self, done: int) -> str:
        filled = WIDTH * done // self.total
        seconds = time.monotonic() - self.began
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"{self.label} [{bar}] {100 * done // self.total:3d} %  {done:,}  {seconds:.0f} s"
