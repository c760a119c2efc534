"""`python -m tools lint`: what a reader of the code should not have to look for."""

from tools import changelog
from tools.formatting import CODE_ALONE
from tools.run import module


def main(arguments: list[str]) -> int:
    found = [
        module("ruff", "check", ".", *arguments),
        module("ruff", "format", "--check", *CODE_ALONE, "."),
        changelog.main([]),
    ]
    return int(any(found))
