"""The secret key of this checkout, and files that only their owner may read.

A key in the code would be the same in all checkouts. So it is made at first use, and kept in a file
that is not committed and that no other user of the machine may read.
"""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from django.core.management.utils import get_random_secret_key


def secret_key(path: Path) -> str:
    """Return the key in the file `path`, which is made at first use."""
    if not path.exists():
        make(path)
    return path.read_text()


def make(path: Path) -> None:
    """Write a key under another name, then link it: if processes start at once, one key wins."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(get_random_secret_key())
    with suppress(FileExistsError):
        os.link(file.name, path)
    os.unlink(file.name)


def keep(path: Path, text: str) -> None:
    """Write a secret into a new file, which has its permissions from the start."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
