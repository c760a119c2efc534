"""Read the pages of the documentation and their code blocks."""

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
    """Return the text outside of code blocks."""
    return BLOCK.sub("", text(page))


def fences(page: Path) -> list[tuple[str, str]]:
    """Yield the language and the contents of every fenced block."""
    return BLOCK.findall(text(page))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in ``language``."""
    return [code for kind, code in fences(page) if kind == language]


def typed(page: Path) -> Iterator[str]:
    """Yield the commands of a page, in console blocks and in indented code."""
    for code in [*blocks(page, "console"), *map(unindented, INDENTED.findall(prose(page)))]:
        code = code.lstrip("\n")
        if code.startswith(pages.PROMPT):
            yield from (command.text for command in pages.commands(code))
        else:
            yield from lines(code)


def unindented(block: str) -> str:
    return "".join(f"{line[4:]}\n" for line in block.splitlines())


def lines(block: str) -> Iterator[str]:
    """Yield the commands of a block. A command continues until it is complete."""
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
    """Yield the targets of the links of a page."""
    return ("".join(found) for found in LINK.findall(prose(page)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as code hosts and Sphinx make them."""
    bare = (re.sub(r"[^\w\- ]", "", heading).lower() for heading in HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in bare}
