"""`python -m tools clients`: install the MCP clients that tests use and that need an environment.

mcp 1.x and 2.x are the same package, so 1.x gets its own environment. Tests that use it are skipped
without it. This module uses only the standard library.
"""

import os
import subprocess
import venv
from pathlib import Path

from tools import ROOT
from tools.processes import run

OLD_CLIENT = ROOT / ".venv-mcp1"
WANTED = "mcp>=1.25,<2"
VERSION = "from importlib.metadata import version; print(version('mcp'))"


def main(arguments: list[str]) -> int:
    python = str(OLD_CLIENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    if not installed(python) and (code := install(python)):
        return code
    print(f"Ready: mcp {installed(python)} at {python}")
    return 0


def installed(python: str) -> str:
    """The version of mcp that this interpreter has, or nothing."""
    if not Path(python).exists():
        return ""
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    return done.stdout.strip()


def install(python: str) -> int:
    print(f"Installing {WANTED} in {OLD_CLIENT.name} ...", flush=True)
    venv.create(OLD_CLIENT, with_pip=True, symlinks=os.name != "nt")
    return run(python, "-m", "pip", "--disable-pip-version-check", "-q", "install", WANTED)
