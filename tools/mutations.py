"""`python -m tools mutations [SUBJECT ...]`: apply defects that tests must detect.

    python -m tools mutations [SUBJECT ...] [--sample N [--seed N]] [--jobs N] [--database NAME]

Without a SUBJECT it tries one mutation each of 150 requirements, chosen at random, in two copies of
the project at once. `--help` explains the options.
"""

from tests.mutations.__main__ import parser
from tools.processes import module

SAMPLE = ("requirements", "--sample", "150", "--jobs", "2")


def main(arguments: list[str]) -> int:
    is_named = bool(parser().parse_args(arguments).subjects)
    return module("tests.mutations", *(() if is_named else SAMPLE), *arguments)
