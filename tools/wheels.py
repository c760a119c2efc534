"""Download packages before an installation, to measure download time separately.

pip reads the folder of packages from its environment variables, so the install commands of a page
are used unchanged.
"""

import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tools import ROOT

PROJECT = "django-modelcontext"


class Fetched(NamedTuple):
    """What was fetched, and how long that took."""

    files: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.files} files, {self.bytes / 1e6:.1f} MB, in {self.seconds:.1f} s"


def fetch(wanted: Iterable[str], folder: Path) -> Fetched:
    """Put a wheel of the project, of all that is wanted and of what builds it into the folder."""
    pip = [str(made(folder.parent / "fetching")), "-m", "pip", "-q", "--disable-pip-version-check"]
    folder.mkdir()
    began = time.monotonic()
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    # hatchling asks for `editables` when pip installs a clone with `-e`.
    call(*pip, "download", "-d", str(folder), "editables~=0.3", *tools)
    call(*pip, "wheel", "--no-deps", "-w", str(folder), str(cloned(folder.parent / "source")))
    call(*pip, "download", "-d", str(folder), "--find-links", str(folder), *wanted)
    seconds = time.monotonic() - began
    found = [path.stat().st_size for path in folder.iterdir()]
    return Fetched(len(found), sum(found), seconds)


def made(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def cloned(folder: Path) -> Path:
    """What is committed, in a place of its own: building leaves things behind."""
    call("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(folder))
    return folder


def call(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        raise SystemExit(f"{' '.join(command)} failed.")


def alone(folder: Path) -> dict[str, str]:
    """Return the environment variables of an installation from this folder alone."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
