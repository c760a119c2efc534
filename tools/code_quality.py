"""Check and format the code (ruff), check types (mypy), and compare changelog and version."""

import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise

from tools import ROOT
from tools.processes import module

GROUPS = ("Incompatible", "New", "Better", "Fixed", "Security")
RELEASE = re.compile(r"## (\d+\.\d+\.\d+) - (unreleased|\d{4}-\d\d-\d\d)")


# Ruff would reformat the examples of the pages, whose comments are aligned for readers.
CODE_ONLY = ("--config", 'format.exclude = ["*.md"]')


def lint(arguments: list[str]) -> int:
    found = [
        module("ruff", "check", ".", *arguments),
        module("ruff", "format", "--check", *CODE_ONLY, "."),
        check_changelog(),
    ]
    return int(any(found))


def reformat(arguments: list[str]) -> int:
    fixed = module("ruff", "check", "--fix", ".", *arguments)
    return fixed | module("ruff", "format", *CODE_ONLY, ".")


def check_types(arguments: list[str]) -> int:
    return module("mypy", *arguments)


def check_changelog() -> int:
    """Compare CHANGELOG.md with the version of pyproject.toml. Return an exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = problems((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), project["version"])
    for problem in found:
        print(f"CHANGELOG.md: {problem}", file=sys.stderr)
    return 1 if found else 0


def problems(text: str, version: str) -> list[str]:
    """Return one sentence for each mistake in a changelog.

    Every heading has a version and a date or "unreleased", and versions descend.
    """
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    releases = [RELEASE.fullmatch(line) for line in headings]
    known = [release[1] for release in releases if release]
    odd = [line for line, release in zip(headings, releases, strict=True) if not release]
    return [
        *(f"{line!r} is not '## VERSION - DATE' or '## VERSION - unreleased'" for line in odd),
        *wrong_order(known),
        *wrong_version(known, version),
        *wrong_groups(text),
    ]


def wrong_version(known: list[str], version: str) -> Iterator[str]:
    if known[:1] != [version]:
        yield f"its newest release is {known[0] if known else 'none'}, the version is {version}"


def wrong_order(known: list[str]) -> Iterator[str]:
    for newer, older in pairwise(known):
        if number(newer) <= number(older):
            yield f"{newer} precedes {older}, which is not older"


def wrong_groups(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("### ") and line[4:] not in GROUPS:
            yield f"{line[4:]!r} is not one of the groups {', '.join(GROUPS)}"


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    raise SystemExit(check_changelog())
