"""
Where the contenders live: an environment for each, with what it asks for and the same server.

The rule: standard library alone; made once, kept until what it holds should be another thing.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from tools import ROOT
from tools.matrix import find

PLACES = ROOT / ".venv-benchmark"
# One server for all, in the same shape.
SERVER = ("uvicorn==0.54.*", "httptools==0.9.*", "uvloop==0.23.*")
INSTALL = ("-m", "pip", "--disable-pip-version-check", "-q", "install")


class Missing(Exception):
    """A contender cannot run on this machine."""


def place(name: str, packages: tuple[str, ...], oldest: tuple[int, int] = (3, 11)) -> Path:
    """The interpreter of the environment called `name`, with these packages installed."""
    wanted = (*SERVER, *packages)
    stamp = PLACES / name / f"holds-{digest(wanted)}"
    python = PLACES / name / "bin" / "python"
    if not stamp.exists():
        print(f"Installing {name}: {' '.join(packages)} ...", file=sys.stderr, flush=True)
        create(PLACES / name, oldest)
        install(python, wanted)
        stamp.touch()
    return python


def install(python: Path, wanted: tuple[str, ...]) -> None:
    # From the root, for the project is one of the packages.
    command = [python, *INSTALL, *wanted]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Missing(f"{' '.join(wanted)} cannot be installed:\n{done.stdout.decode()}")


def digest(wanted: tuple[str, ...]) -> str:
    ours = (ROOT / "pyproject.toml").read_bytes() if "-e" in wanted else b""
    return hashlib.sha256("\n".join(wanted).encode() + ours).hexdigest()[:16]


def create(folder: Path, oldest: tuple[int, int]) -> None:
    """An environment of this Python, or of the next newer one that is found."""
    if sys.version_info >= oldest:
        venv.create(folder, with_pip=True, clear=True, symlinks=True)
        return
    path = next(filter(None, map(find, ((3, 12), (3, 13)))), None)
    if path is None:
        raise Missing(f"Python {oldest[0]}.{oldest[1]} is needed, and none was found")
    subprocess.run([path, "-m", "venv", "--clear", folder], check=True)


def version(python: Path, package: str) -> str:
    tell = f"from importlib.metadata import version; print(version({package!r}))"
    told = subprocess.run([python, "-c", tell], capture_output=True, text=True, check=True)
    return told.stdout.strip()
