"""Run other programs from the root of the checkout, with the standard library only."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tools import ROOT


def run(*command: str, into: IO[bytes] | None = None, **environ: str | None) -> int:
    """Run `command` and return its exit code. A variable that is None is removed.

    Its output is written to the file `into`, if there is one.
    """
    sys.stdout.flush()
    merged = {name: value for name, value in (os.environ | environ).items() if value is not None}
    errors = None if into is None else subprocess.STDOUT
    return subprocess.run(command, cwd=ROOT, env=merged, stdout=into, stderr=errors).returncode


def module(name: str, *arguments: str, into: IO[bytes] | None = None, **environ: str | None) -> int:
    """Run a Python module of the environment, such as pytest. Return its exit code."""
    return run(sys.executable, "-m", name, *arguments, into=into, **environ)


def manage(*arguments: str) -> int:
    """Run a management command of the example project."""
    return run(sys.executable, "manage.py", *arguments)


def replace_process(
    command: Sequence[str], cwd: Path = ROOT, environ: Mapping[str, str] = os.environ
) -> int:
    """Replace this process by `command`, so that signals reach the program directly.

    Windows cannot replace a process. There, wait for the program and return its exit code.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.chdir(cwd)
        os.execvpe(command[0], list(command), dict(environ))
    process = subprocess.Popen(command, cwd=cwd, env=environ)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the console sends Ctrl-C to the program, too
            continue
