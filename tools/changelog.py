"""The changelog and the version tell the same story.

The rule: the newest heading of CHANGELOG.md is the version of pyproject.toml, every heading is
dated or unreleased, versions only descend, and a release is grouped as the first lines say.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise

from tools.environment import ROOT

GROUPS = ("Incompatible", "New", "Better", "Fixed", "Security")
RELEASE = re.compile(r"## (\d+\.\d+\.\d+) - (unreleased|\d{4}-\d\d-\d\d)")


def main(arguments: list[str]) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = problems((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), project["version"])
    for problem in found:
        print(f"CHANGELOG.md: {problem}", file=sys.stderr)
    return 1 if found else 0


def problems(text: str, version: str) -> list[str]:
    """What is wrong with a changelog, one sentence each."""
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
            yield f"{newer} stands above {older}"


def wrong_groups(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("### ") and line[4:] not in GROUPS:
            yield f"{line[4:]!r} is none of the groups {', '.join(GROUPS)}"


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
