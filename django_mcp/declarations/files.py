"""Read a file of a directory as the contents of a resource.

The path comes from a client. Only regular files below the directory are opened.
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
    """Return the file at ``path`` below ``directory``: text if it is UTF-8, bytes otherwise.

    ``path`` is relative, with ``/`` between its parts. Raise ``Http404`` for everything that is not
    a file below the directory, also if a symbolic link leads out of it, and for names that start
    with a dot, such as ``.env``. Raise ``ToolError`` for a file larger than
    ``DJANGO_MCP["RESULT_SIZE"]``.
    """
    try:
        return _contents(_read(_resolved_path(Path(directory), path)), path)
    except (OSError, ValueError):  # no such file, or a path that is not allowed
        raise Http404(f"There is no file {path[:200]!r}.") from None


def _resolved_path(directory: Path, path: str) -> Path:
    """Return the resolved path.

    Raise ``OSError`` or ``ValueError`` if it is not below ``directory``.
    """
    parts = path.split("/")
    # On Windows a backslash or a drive letter leaves the directory. An empty part makes the path
    # absolute, "." and ".." are the directory and its parent, and other names with a dot are
    # hidden files.
    if any(not part or part.startswith(".") or "\\" in part for part in parts) or (
        os.name == "nt" and ":" in path
    ):
        raise ValueError("This is not a path below a directory.")
    base = directory.resolve(strict=True)
    found = base.joinpath(*parts).resolve(strict=True)  # follows symbolic links
    # A symbolic link must not lead out of the directory, nor to a hidden file in it.
    if not found.is_relative_to(base):
        raise ValueError("This leads out of the directory.")
    if any(part.startswith(".") for part in found.relative_to(base).parts):
        raise ValueError("This leads to a hidden file.")
    return found


def _read(file: Path) -> bytes:
    """Return the bytes of a regular file. Raise ``ToolError`` if it is too large."""
    # The resolved path has no symbolic links. O_NOFOLLOW rejects one that was created since.
    # O_NONBLOCK opens a named pipe without waiting for a writer. The pipe is then rejected below.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(file, flags | getattr(os, "O_BINARY", 0)), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("This is not a regular file.")
        if status.st_size > settings.RESULT_SIZE:
            raise ToolError(
                f"The file has {status.st_size:,} bytes. At most {settings.RESULT_SIZE:,} are "
                "allowed."
            )
        return opened.read(settings.RESULT_SIZE)


def _contents(data: bytes, path: str) -> Contents:
    guessed = mimetypes.guess_type(path.rpartition("/")[2])[0]
    found = text_or_bytes(data, guessed or "text/plain")  # a file of unknown type may be text
    default = "text/plain" if isinstance(found, str) else "application/octet-stream"
    return Contents(found, mime_type=guessed or default)
