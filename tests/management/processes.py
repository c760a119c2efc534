"""Run commands in real processes, with pipes or at a terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.spec.process import ROOT, command, environment

SECONDS = 60  # however busy the machine is
# Makes a terminal the one whose keys are signals, before it becomes what it is to run.
CONTROLLED = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str = ""


def run(database: Path, *arguments: str, **environ: str) -> Done:
    """Run a command of a project without declarations."""
    settings = {"DJANGO_SETTINGS_MODULE": "tests.management.quiet"} | environ
    return _ran(command(*arguments), environment(database, **settings))


def run_atlas(database: Path, *arguments: str, input: str = "", **environ: str) -> Done:
    """Run ``manage.py`` of the example project."""
    return _ran(_manage(arguments), _atlas(database, environ), input)


def _manage(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "manage.py", *arguments]


def _atlas(database: Path, environ: dict[str, str]) -> dict[str, str]:
    own = {"DJANGO_SETTINGS_MODULE": "example_project.settings", "ATLAS_DATABASE": str(database)}
    return environment(database, **own) | {"COLUMNS": "80", "TERM": "xterm"} | environ


def _ran(line: list[str], environ: dict[str, str], input: str = "") -> Done:
    done = subprocess.run(
        line, cwd=ROOT, env=environ, input=input, capture_output=True, text=True, timeout=SECONDS
    )
    return Done(done.returncode, done.stdout, done.stderr)


def at_terminal(
    database: Path, *arguments: str, typed: Sequence[tuple[str, str]] = (), **environ: str
) -> Done:
    """Run a command at a terminal, and type each answer once its question is shown.

    ``stdout`` of the result is all that the terminal shows.
    """
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLED, *_manage(arguments)],
        cwd=ROOT, env=_atlas(database, environ), start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = _talk(ours, list(typed))
        return Done(process.wait(SECONDS), shown.replace("\r\n", "\n"))
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _talk(terminal: int, typed: list[tuple[str, str]]) -> str:
    shown, seen, until = b"", 0, time.monotonic() + SECONDS
    with suppress(OSError):  # the other end is closed
        while time.monotonic() < until:
            if select.select([terminal], [], [], 0.1)[0]:
                chunk = os.read(terminal, 65536)
                if not chunk:
                    break
                shown += chunk
            if typed and (at := shown.find(typed[0][0].encode(), seen)) >= 0:
                seen = at + 1
                os.write(terminal, typed.pop(0)[1].encode())
    assert not typed, (typed, shown)
    return shown.decode()
