"""`python -m tools install`: make the environment, which is done before any command runs in it."""

import sys


def main(arguments: list[str]) -> int:
    print(f"Ready: {sys.executable}")
    return 0
