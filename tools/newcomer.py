"""`python -m tools newcomer readme|tutorial`: run the commands of a page as a new user would.

    readme     "Try it" of the README, in a clone: at most 180 seconds without downloads
    tutorial   the whole tutorial, in an empty folder: at most ten minutes

Commands and expected output are read from the page. Four values are replaced: the repository's URL
for the URL of the repository, the port if 8000 is taken, this Python for `python3`, and a folder of
downloaded packages for pip, so that download time is measured separately. This module uses only
the standard library.
"""

import argparse
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools import ROOT, pages, serving, wheels
from tools.ports import free_port
from tools.terminal import Failed, Running, Terminal, ended


class Script(NamedTuple):
    """A page, what of it is typed, and how long that may take."""

    page: str
    section: str | None
    wanted: tuple[str, ...] = ()  # what is installed by commands that do not say so
    seconds: int = 180


SCRIPTS = {
    "readme": Script("README.md", "Try it", (f"{wheels.PROJECT}[demo]",)),
    "tutorial": Script("docs/tutorial.md", None, seconds=600),
}
REPOSITORY = "https://github.com/django-modelcontext/django-modelcontext"
PORT = str(serving.PORT)
SERVES = re.compile(r"manage\.py runserver\b|^make demo$")
READY = "Quit the server with"
OF_TOOLS = re.compile(r"PYTHON|VIRTUAL_ENV|DJANGO_|MAKE|MFLAGS|TOOLS_|ATLAS_")
PATIENCE = 300  # seconds until a server that was started serves
RELOADING = "reloading."
AN_ERROR = re.compile(r"Error\b")  # where the page shows one, the command is to fail
NOTICED = 10  # seconds within which a busy server sees that a file of its own has changed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools newcomer")
    parser.add_argument("script", choices=SCRIPTS)
    parser.add_argument(
        "--keep", type=Path, help="a folder that is not there yet, to look at after"
    )
    options = parser.parse_args(arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        serving.accept_ctrl_c()
    if options.keep:
        options.keep.mkdir()
        return typed(SCRIPTS[options.script], options.keep)
    with tempfile.TemporaryDirectory() as folder:
        return typed(SCRIPTS[options.script], Path(folder))


def typed(script: Script, folder: Path) -> int:
    """Fetch the project, type the commands, and print how long both took."""
    page = (ROOT / script.page).read_text("utf-8")
    steps = list(pages.steps(page, script.section))
    fetched = wheels.fetch([*script.wanted, *installed(steps)], folder / "wheels")
    began = time.monotonic()
    try:
        Typist(folder, own_port()).type(steps)
    except (Failed, serving.Failed) as failed:
        print(f"\n{script.page}: {failed}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    print(f"\nFetched before, and not counted: {fetched}.")
    print(f"{script.page}: {len(steps)} steps in {seconds:.1f} s, of {script.seconds} s.")
    return int(seconds > script.seconds)


def installed(steps: Iterable[pages.Step]) -> Iterator[str]:
    """What the page's own `pip install` asks for."""
    for step in steps:
        if isinstance(step, pages.Command) and step.text.startswith("pip install "):
            yield from (word for word in shlex.split(step.text)[2:] if not word.startswith("-"))


def own_port() -> str:
    return str(free_port()) if serving.is_taken(serving.PORT) else PORT


class Typist:
    """Types into terminals that are open in one folder."""

    def __init__(self, folder: Path, port: str) -> None:
        self._home, self._logs, self._port = folder / "home", folder / "logs", port
        self._environ = environment() | wheels.alone(folder / "wheels")
        self._home.mkdir()
        self._logs.mkdir()
        self._running: list[Running] = []
        self._open()

    def _open(self) -> None:
        """Another terminal, in which nothing was typed yet."""
        self._terminal = Terminal(self._home, self._environ, self._logs)

    def type(self, steps: Iterable[pages.Step]) -> None:
        """Raises `Failed` at the first that is not as the page says."""
        with ended(self._running):
            for step in steps:
                if isinstance(step, pages.File):
                    self._write(step)
                else:
                    self._command(step._replace(shown=self._here(step.shown)))

    def _command(self, command: pages.Command) -> None:
        text = self._here(command.text)
        print(f"$ {text}", flush=True)
        if SERVES.search(command.text):
            self._serve(command)
            return
        code, printed = self._terminal.run(text)
        if code and not AN_ERROR.search(command.shown):
            raise Failed(f"{text}\nends with exit code {code}:\n{printed}")
        compare(text, command.shown, printed)

    def _serve(self, command: pages.Command) -> None:
        """Leave a server running, and go on in another terminal."""
        text = self._here(on_port(command.text, self._port))
        self._running.append(running := self._terminal.start(text))
        self._wait(running, starts=1)
        compare(text, command.shown, running.text(), going_on=True)
        self._open()

    def _write(self, file: pages.File) -> None:
        print(f"# {file.path}", flush=True)
        reloaded = [(server, server.text().count(RELOADING)) for server in self._running]
        pages.write(file._replace(text=self._here(file.text)), self._terminal.folder)
        for server, times in reloaded:
            if server.until(RELOADING, times + 1, NOTICED):
                self._wait(server, starts=times + 2)

    def _wait(self, server: Running, starts: int) -> None:
        """Until it has started so often, and listens."""
        if not server.until(READY, starts, PATIENCE):
            raise Failed(f"It does not serve:\n{server.text()}")
        serving.wait_for(server.process, int(self._port))

    def _here(self, text: str) -> str:
        """What the page shows, as it is on this machine."""
        return text.replace(PORT, self._port).replace(REPOSITORY, shlex.quote(str(ROOT)))


def environment() -> dict[str, str]:
    """This process's own, without what belongs to the environment or the tools it runs in."""
    kept = {name: value for name, value in os.environ.items() if not OF_TOOLS.match(name)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept | {"PATH": path, "PYTHONUNBUFFERED": "1"}


def on_port(command: str, port: str) -> str:
    """How a server is started on another port than its own."""
    if port == PORT:
        return command
    return f'{command} ARGS="--port {port}"' if command.startswith("make ") else f"{command} {port}"


def compare(command: str, shown: str, printed: str, *, going_on: bool = False) -> None:
    if shown and not pages.is_shown(shown, printed, going_on=going_on):
        raise Failed(f"{command}\nshould print\n\n{shown}\nand printed\n\n{printed}")
