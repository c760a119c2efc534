"""`python -m tools clean`: remove files that the tools and the demonstration generated.

Only files that git ignores and that match the patterns below are removed.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tools import ROOT

MADE = (
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv*",
    "build",
    "dist",
    "example_project/*.sqlite3*",
    "example_project/secret_key*",
    "*/**/__pycache__",
)


def main(arguments: list[str]) -> int:
    for path in made(ROOT):
        print(path.relative_to(ROOT))
        remove(path)
    return 0


def made(root: Path) -> Iterator[Path]:
    for pattern in MADE:
        yield from sorted(root.glob(pattern))


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
