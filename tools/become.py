"""Turn this process into another program.

The rule: no process stands between a program and whoever started it, so that a signal, sent to one
or to all of them, reaches the program and is its own to answer.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def become(command: Sequence[str], cwd: Path, environ: Mapping[str, str] = os.environ) -> int:
    """Go on as `command`. Windows has no such thing: there it is waited for."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.chdir(cwd)
        os.execvpe(command[0], list(command), dict(environ))
    return outlived(subprocess.Popen(command, cwd=cwd, env=environ))


def outlived(process: "subprocess.Popen[bytes]") -> int:
    """The exit code of a program that hears of Ctrl-C itself."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue
