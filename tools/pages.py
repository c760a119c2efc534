"""Commands, expected output and files in a page of the documentation.

In a `console` block a line that begins with `$ ` is a command, and the lines after it are its
output, where `...` matches anything. Any other block whose first line is a comment with a path is
that file, or, with `, at the end` after the path, is appended to it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
HEADING = re.compile(r"^##+ (.+)$", re.M)
PATH = re.compile(r"^# ([\w./-]+\.\w+)(, at the end)?$")
PROMPT = "$ "
COMMAND = re.compile(r"\$ ((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", re.S)
ANYTHING = "..."


class Command(NamedTuple):
    """A line of a terminal, and what the page says that it prints; nothing, where it says none."""

    text: str
    shown: str = ""


class File(NamedTuple):
    """What is written to a file, or added to it."""

    path: str
    text: str
    at_end: bool = False


Step = Command | File


def steps(page: str, section: str | None = None) -> Iterator[Step]:
    """What is typed, in the page's order; of one section alone, if it is named."""
    for language, code in FENCE.findall(page if section is None else of_section(page, section)):
        if language == "console":
            yield from commands(code)
        elif file := file_of(code):
            yield file


def of_section(page: str, title: str) -> str:
    """The text below a heading, up to the next. Raises `LookupError` where there is none."""
    without_code = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page)
    found = list(HEADING.finditer(without_code))
    for heading, following in zip(found, [*found[1:], None], strict=True):
        if heading[1] == title:
            return page[heading.end() : following.start() if following else len(page)]
    raise LookupError(f"The page has no section {title!r}.")


def commands(block: str) -> Iterator[Command]:
    """The commands of a terminal; one that ends with a backslash goes on in the next line."""
    for part in re.split(r"^(?=\$ )", block, flags=re.M):
        if part.startswith(PROMPT):
            text, shown = COMMAND.findall(part)[0]
            yield Command(text, shown)


def file_of(block: str) -> File | None:
    """The file that a block is, without the line that names it."""
    first, _, rest = block.partition("\n")
    named = PATH.match(first)
    return File(named[1], rest.lstrip("\n"), bool(named[2])) if named else None


def write(file: File, folder: Path) -> None:
    """Write the file into its folder, which must exist, as for a person with an editor."""
    path = folder / file.path
    before = path.read_text("utf-8") + "\n\n" if file.at_end else ""
    path.write_text(before + file.text, "utf-8")


def is_shown(shown: str, printed: str, *, going_on: bool = False) -> bool:
    """Whether this was printed, line for line; of a command that is going on, up to there."""
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    text = "".join(f"{line}\n" for line in lines)
    pattern = "".join(map(as_pattern, shown.strip().splitlines()))
    return bool((re.match if going_on else re.fullmatch)(pattern, text))


def as_pattern(line: str) -> str:
    if line.strip() == ANYTHING:
        return r"(?:.*\n)*?"
    return r".*?".join(map(re.escape, line.rstrip().split(ANYTHING))) + r"\n"
