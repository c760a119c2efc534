"""`python -m tools format`: put the code into the shape that `lint` asks for."""

from tools.run import module

# The examples of a page are set for its reader, with what they say in one column.
CODE_ALONE = ("--config", 'format.exclude = ["*.md"]')


def main(arguments: list[str]) -> int:
    mended = module("ruff", "check", "--fix", ".", *arguments)
    return mended | module("ruff", "format", *CODE_ALONE, ".")
