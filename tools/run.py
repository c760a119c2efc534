"""Run a program from the root of the checkout.

The rule: what a program prints is shown as it prints it, unless it is kept, and its exit code is
the answer.
"""

import os
import subprocess
import sys
from typing import IO

from tools.environment import ROOT


def run(*command: str, **environ: str | None) -> int:
    """Run `command` with these environment variables (None takes one away); its exit code."""
    sys.stdout.flush()
    merged = {name: value for name, value in (os.environ | environ).items() if value is not None}
    return subprocess.run(command, cwd=ROOT, env=merged).returncode


def run_into(printed: IO[bytes], *command: str) -> int:
    """Run `command`, and have what it prints written there; its exit code."""
    done = subprocess.run(command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT)
    return done.returncode


def module(name: str, *arguments: str, **environ: str | None) -> int:
    """Run a Python module of the environment, such as pytest or ruff."""
    return run(sys.executable, "-m", name, *arguments, **environ)


def manage(*arguments: str) -> int:
    """Run a management command of the example project."""
    return run(sys.executable, "manage.py", *arguments)
