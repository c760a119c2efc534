"""`python -m tools types`: mypy, as strict as pyproject.toml asks for."""

from tools.run import module


def main(arguments: list[str]) -> int:
    return module("mypy", *arguments)
