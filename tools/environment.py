"""Create the checkout's virtual environment and install what a command needs.

This module uses only the standard library, because it runs before anything is installed.
`TOOLS_ENVIRONMENT` names another folder than `.venv`, for a second interpreter.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from tools import ROOT
from tools.processes import replace_process

FOLDER = ROOT / os.environ.get("TOOLS_ENVIRONMENT", ".venv")
OLDEST = (3, 11)


def python() -> Path:
    """The interpreter of the environment, whether it is there or not."""
    return FOLDER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_ready() -> bool:
    """Whether this very process runs inside the environment."""
    return Path(sys.prefix).resolve() == FOLDER.resolve()


def prepare(extras: tuple[str, ...], packages: tuple[str, ...] = ()) -> None:
    """Make the environment if there is none, and install what this command needs and lacks."""
    if sys.version_info < OLDEST:
        raise SystemExit(f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed.")
    if not python().exists():
        say(f"Making {FOLDER.name} ...")
        venv.create(FOLDER, with_pip=True, symlinks=os.name != "nt")
    for wanted in [*(f".[{extra}]" for extra in extras or [""]), *packages]:
        if not stamp(wanted).exists():
            install(wanted)


def install(wanted: str) -> None:
    project = wanted.startswith(".")
    say(f"Installing {f'the project{wanted[1:]}' if project else wanted} ...")
    pip("install", *(["-e"] if project else []), wanted.removesuffix("[]"))
    stamp(wanted).touch()


def pip(*arguments: str) -> None:
    """Run pip in the environment; its words are shown only if it fails."""
    command = [str(python()), "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        raise SystemExit(f"pip {' '.join(arguments)} failed.")


def stamp(wanted: str) -> Path:
    """Return the file that records that `wanted` of this pyproject.toml was installed."""
    asked = (ROOT / "pyproject.toml").read_bytes() + wanted.encode()
    return FOLDER / f"installed-{hashlib.sha256(asked).hexdigest()[:16]}"


def report_ready(arguments: list[str]) -> int:
    """Print the environment's interpreter. ``prepare`` has run before."""
    print(f"Ready: {sys.executable}")
    return 0


def run_inside(arguments: list[str]) -> int:
    """Replace this process by `python -m tools` inside the environment."""
    return replace_process([str(python()), "-m", "tools", *arguments])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
