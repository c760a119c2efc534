"""A shell session that runs commands one after the other.

A command sees the folder and environment that the previous one left. Nothing answers prompts.
Commands that still run at the end are stopped.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PATIENCE = 300  # seconds for one command
ENDING = 15
REMEMBER = (
    "import json, os, sys; json.dump([os.getcwd(), dict(os.environ)], open(sys.argv[1], 'w'))"
)


class Failed(Exception):
    """A command did not do what the page says; the words are for who reads the log."""


class Printed(NamedTuple):
    """The result of a command."""

    code: int
    text: str


class Running:
    """A command that is left running."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self.log = process, log

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def until(self, phrase: str, times: int, seconds: float) -> bool:
        """Whether it has printed this so often, within a time."""
        last = time.monotonic() + seconds
        while self.text().count(phrase) < times:
            if self.process.poll() is not None:
                raise Failed(f"It ended with exit code {self.process.returncode}:\n{self.text()}")
            if time.monotonic() > last:
                return False
            time.sleep(0.05)
        return True

    def end(self) -> None:
        """By Ctrl-C, as the person at the keyboard would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"Ctrl-C did not end it:\n{self.text()}") from None

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Terminal:
    """Begins in a folder, with an environment; `logs` is where what is printed is kept."""

    def __init__(self, folder: Path, environ: dict[str, str], logs: Path) -> None:
        self.folder, self.environ, self._logs = folder, environ, logs

    def run(self, command: str) -> Printed:
        """Type a command, and wait for its end."""
        running = self.start(command)
        try:
            code = running.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            raise Failed(f"It runs for more than {PATIENCE} seconds:\n{running.text()}") from None
        self._go_on()
        return Printed(code, running.text())

    def start(self, command: str) -> Running:
        """Type a command that does not end by itself."""
        log = self._logs / f"{len(list(self._logs.glob('*.log')))}.log"
        script = (
            f'{command}\ncode=$?\n"{sys.executable}" -Ic "{REMEMBER}" "{self._state}"\nexit $code'
        )
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", script], cwd=self.folder, env=self.environ,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        return Running(process, log)

    @property
    def _state(self) -> Path:
        return self._logs / "state.json"

    def _go_on(self) -> None:
        """Where the last command left off; one that ended the shell itself left nothing."""
        if self._state.exists():
            folder, self.environ = json.loads(self._state.read_text("utf-8"))
            self.folder = Path(folder)
            self._state.unlink()


@contextmanager
def ended(running: list[Running]) -> Iterator[None]:
    """Whatever is in the list by then is ended, the last one first; after a failure, at once."""
    try:
        yield
        while running:
            running.pop().end()
    finally:
        while running:
            running.pop().kill()
