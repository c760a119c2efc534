"""
Files of a directory, as the contents of resources.

Rule: a path comes from a client. Nothing is opened that is not a regular file below the directory.
"""

from __future__ import annotations

import mimetypes
import os
import stat
from pathlib import Path

from django.http import Http404

from ..conf import settings
from ..exceptions import ToolError
from ..protocol.content import text_or_bytes
from .content import Contents


def read_file(directory: str | os.PathLike[str], path: str) -> Contents:
    """The file at ``path`` below ``directory``: text where it is UTF-8, bytes otherwise.

    ``path`` is relative, and its parts are separated by ``/``. Raises ``Http404`` for whatever is
    no file below the directory, also by a symbolic link, and for names that begin with a dot,
    such as ``.env``; ``ToolError`` for a file larger than ``DJANGO_MCP["RESULT_SIZE"]``.
    """
    try:
        return _contents(_read(_below(Path(directory), path)), path)
    except (OSError, ValueError):  # no such file, or a name that no file may have
        raise Http404(f"There is no file {path[:200]!r}.") from None


def _below(directory: Path, path: str) -> Path:
    """Where the file is. Raises ``OSError`` or ``ValueError`` if it is not below ``directory``."""
    parts = path.split("/")
    # A backslash or a drive would lead elsewhere on Windows. A part that is empty or begins with a
    # dot is the root, the directory itself, its parent, or something that is not meant to be seen.
    if any(not part or part.startswith(".") or "\\" in part for part in parts) or (
        os.name == "nt" and ":" in path
    ):
        raise ValueError("This is no path below a directory.")
    base = directory.resolve(strict=True)
    found = base.joinpath(*parts).resolve(strict=True)  # wherever symbolic links lead
    # A symbolic link must lead neither out of the directory nor to what is hidden in it.
    if not found.is_relative_to(base):
        raise ValueError("This leads out of the directory.")
    if any(part.startswith(".") for part in found.relative_to(base).parts):
        raise ValueError("This leads to a hidden file.")
    return found


def _read(file: Path) -> bytes:
    # The path has no links any more; one that was put there since is not followed. A pipe is
    # opened without waiting for who writes into it, and refused.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(file, flags | getattr(os, "O_BINARY", 0)), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("This is no regular file.")
        if status.st_size > settings.RESULT_SIZE:
            raise ToolError(
                f"The file has {status.st_size:,} bytes, "
                f"more than the {settings.RESULT_SIZE:,} allowed."
            )
        return opened.read(settings.RESULT_SIZE)


def _contents(data: bytes, path: str) -> Contents:
    guessed = mimetypes.guess_type(path.rpartition("/")[2])[0]
    found = text_or_bytes(data, guessed or "text/plain")  # a file of unknown type may be text
    default = "text/plain" if isinstance(found, str) else "application/octet-stream"
    return Contents(found, mime_type=guessed or default)
