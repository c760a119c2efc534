"""The pages of the documentation, and the code they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tools import pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+")
LINK = re.compile(r"\]\(([^)\s]+)\)|<(https?://[^>\s]+)>")
HEADING = re.compile(r"^#+ (.+)$", re.M)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text(page: Path) -> str:
    return page.read_text("utf-8")


def prose(page: Path) -> str:
    """What is not in fences."""
    return BLOCK.sub("", text(page))


def fences(page: Path) -> list[tuple[str, str]]:
    """Every fenced block: the language that it says it is of, and what is in it."""
    return BLOCK.findall(text(page))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page that are of ``language``."""
    return [code for kind, code in fences(page) if kind == language]


def typed(page: Path) -> Iterator[str]:
    """The commands that a page shows: in its terminals, and in what is indented."""
    for code in [*blocks(page, "console"), *map(unindented, INDENTED.findall(prose(page)))]:
        code = code.lstrip("\n")
        if code.startswith(pages.PROMPT):
            yield from (command.text for command in pages.commands(code))
        else:
            yield from lines(code)


def unindented(block: str) -> str:
    return "".join(f"{line[4:]}\n" for line in block.splitlines())


def lines(block: str) -> Iterator[str]:
    """The commands of a block without prompts; one goes on while it is not whole."""
    command = ""
    for line in block.splitlines():
        command = f"{command}\n{line}" if command else line
        if command and is_whole(command):
            yield command
            command = ""
    assert not command.strip(), command


def is_whole(command: str) -> bool:
    if command.endswith("\\"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def links(page: Path) -> Iterator[str]:
    """Where the links of a page lead."""
    return ("".join(found) for found in LINK.findall(prose(page)))


def anchors(page: Path) -> set[str]:
    """The names by which headings are linked to, as code hosts and Sphinx make them."""
    bare = (re.sub(r"[^\w\- ]", "", heading).lower() for heading in HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in bare}
