"""The signing key of this checkout: made once, kept in a file that is not committed.

The rule: no key is ever written in the code, so no two checkouts share one.
"""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from django.core.management.utils import get_random_secret_key


def secret_key(path: Path) -> str:
    """The key kept in `path`, made on first use."""
    if not path.exists():
        make(path)
    return path.read_text()


def make(path: Path) -> None:
    """Write a key whole before it has its name: of processes that start at once, one wins."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(get_random_secret_key())
    with suppress(FileExistsError):
        os.link(file.name, path)
    os.unlink(file.name)
