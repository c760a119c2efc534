"""The signing key of this checkout, and files for the eyes of their owner.

The rule: no key is ever written in the code, so no two checkouts share one; what is secret is in a
file that is not committed, and that nobody else on the machine may read.
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


def keep(path: Path, text: str) -> None:
    """Write a secret into a new file, which has the mode that is asked for."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
