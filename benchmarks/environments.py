"""
The virtual environments of the contenders, each with its packages and the same ASGI server.

Standard library only. An environment is made once, and again when its packages change.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from tools import ROOT
from tools.matrix import find

ENVIRONMENTS = ROOT / ".venv-benchmark"
# The same server for all, in the same version.
SERVER = ("uvicorn==0.54.*", "httptools==0.9.*", "uvloop==0.23.*")
INSTALL = ("-m", "pip", "--disable-pip-version-check", "-q", "install")


class NotInstallable(Exception):
    """A contender cannot run on this machine."""


def interpreter(name: str, packages: tuple[str, ...], oldest: tuple[int, int] = (3, 11)) -> Path:
    """Return the interpreter of the environment `name`, which has these packages."""
    wanted = (*SERVER, *packages)
    stamp = ENVIRONMENTS / name / f"installed-{digest(wanted)}"
    python = ENVIRONMENTS / name / "bin" / "python"
    if not stamp.exists():
        print(f"Installing {name}: {' '.join(packages)} ...", file=sys.stderr, flush=True)
        create(ENVIRONMENTS / name, oldest)
        install(python, wanted)
        stamp.touch()
    return python


def install(python: Path, wanted: tuple[str, ...]) -> None:
    # From the root, because the project itself may be one of the packages.
    command = [python, *INSTALL, *wanted]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise NotInstallable(f"{' '.join(wanted)} cannot be installed:\n{done.stdout.decode()}")


def digest(wanted: tuple[str, ...]) -> str:
    ours = (ROOT / "pyproject.toml").read_bytes() if "-e" in wanted else b""
    return hashlib.sha256("\n".join(wanted).encode() + ours).hexdigest()[:16]


def create(folder: Path, oldest: tuple[int, int]) -> None:
    """Create an environment of this Python, or of a newer one that is found."""
    if sys.version_info >= oldest:
        venv.create(folder, with_pip=True, clear=True, symlinks=True)
        return
    path = next(filter(None, map(find, ((3, 12), (3, 13)))), None)
    if path is None:
        raise NotInstallable(f"Python {oldest[0]}.{oldest[1]} is needed, and none was found")
    subprocess.run([path, "-m", "venv", "--clear", folder], check=True)


def version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
