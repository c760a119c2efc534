"""
Add a server to an MCP client's configuration file.

``write`` keeps everything else in the file. It refuses, before anything is written, if something
such as a comment would be lost. The file is replaced atomically, a backup is kept beside it, and a
file with a token is readable only by its owner.

``own_command`` is the command by which a client starts this project over stdio. It works in any
folder and environment, because paths and settings are absolute.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from django.conf import ENVIRONMENT_VARIABLE

from ..web.clients import AUTH_VARIABLE, ConfigFile, Entry, table

if TYPE_CHECKING:
    from ..declarations.server import Server


def own_command(user: str | None, server: Server) -> list[str]:
    """Return the command line of ``mcp_stdio`` for ``server`` and ``user``."""
    started = Path(sys.argv[0])
    manage = started.suffix == ".py" and started.name != "__main__.py" and started.exists()
    program = [str(started.resolve())] if manage else ["-m", "django"]
    settings_module = os.environ.get(ENVIRONMENT_VARIABLE)
    return [
        *(os.path.abspath(sys.executable), *program, "mcp_stdio"),
        *(["--user", user] if user else []),
        *(["--server", server.name] if server.name != "default" else []),
        *(["--settings", settings_module] if settings_module else []),
        *([] if manage else ["--pythonpath", os.getcwd()]),
    ]


# Keys that describe how to reach the server, in any client's format. They are overwritten.
OURS = frozenset((
    "type", "source", "command", "args", "env", "url", "serverUrl", "httpUrl", "headers",
    "http_headers",
))  # fmt: skip
PRIVATE = 0o077


class Unwritable(Exception):
    """The file cannot be changed and stays as it is."""


@dataclass(frozen=True)
class FileChange:
    """What was done to a file. ``keys`` are the entry's keys that changed."""

    path: Path
    kind: Literal["added", "replaced", "same"]
    keys: tuple[str, ...] = ()
    others: int = 0
    backup: Path | None = None


def write(file: ConfigFile, path: Path, name: str, entry: Entry, *, secret: bool) -> FileChange:
    """Put ``entry`` into the file at ``path``, which may not exist. Raise ``Unwritable``."""
    path = path.resolve()  # a symbolic link is not replaced
    try:
        before = path.read_bytes() if path.exists() else None
        after, servers = _merge_entry(file, before or b"", name, entry)
        change = _change(path, servers, name, entry)
        if change.kind == "same":
            _make_private(path, secret)
            return change
        backup = _back_up(path, before)
        _replace(path, before, after, secret)
    except OSError as error:
        raise Unwritable(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise Unwritable(f"{path} {error}; it stays as it is.") from None
    return FileChange(path, change.kind, change.keys, change.others, backup)


def _change(path: Path, servers: dict[str, Any], name: str, entry: Entry) -> FileChange:
    others = len(servers.keys() - {name})
    old = servers.get(name)
    if not isinstance(old, dict):
        return FileChange(path, "added", tuple(entry), others)
    new = keep_additions(old, entry)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return FileChange(path, "replaced" if keys else "same", tuple(keys), others)


# Merging.


def _merge_entry(
    file: ConfigFile, raw: bytes, name: str, entry: Entry
) -> tuple[bytes, dict[str, Any]]:
    """Return the new file and the servers of the old one. Raise ``ValueError``."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None
    load, dump = FORMATS[file.language]
    whole = load(text)
    servers = whole.get(file.root, {})
    if not isinstance(servers, dict):
        raise ValueError(f"has something else at {file.root!r}")
    old = servers.get(name)
    new = keep_additions(old, entry) if isinstance(old, dict) else entry
    merged = whole | {file.root: servers | {name: new}}
    made = dump(text, merged, file.root, name)
    if load(made) != merged:
        raise ValueError(f"cannot be changed without losing something of {name!r}")
    return made.encode(), servers


def keep_additions(old: Entry, entry: Entry) -> Entry:
    """Return ``entry`` with what people added to the old one, such as environment variables."""
    new = {key: value for key, value in old.items() if key not in OURS} | entry
    env = old.get("env") if "command" in entry else None
    if isinstance(env, dict):
        kept = {key: value for key, value in env.items() if key != AUTH_VARIABLE}
        new |= {"env": kept | entry.get("env", {})} if kept else {}
    return new


def _load_json(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        whole = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is not plain JSON (line {error.lineno}: {error.msg}), and comments would be lost"
        ) from None
    if not isinstance(whole, dict):
        raise ValueError("contains no JSON object")
    return whole


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("names something twice")
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"holds {name}, which is not JSON")


def _dump_json(text: str, whole: dict[str, Any], root: str, name: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    indent = found[1] if found else "  "
    made = json.dumps(whole, indent=indent, ensure_ascii=text.isascii(), allow_nan=False)
    return f"{made}\n"


def _load_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from None


def _dump_toml(text: str, whole: dict[str, Any], root: str, name: str) -> str:
    """Return the text without the server's old tables, and with its new table at the end."""
    lines = list(_without(text, root, name))
    rest = "\n".join(lines).rstrip("\n")
    try:
        made = table(root, name, whole[root][name])
    except TypeError:
        raise ValueError(f"has something in {name!r} that cannot be written again") from None
    return f"{rest}\n\n{made}\n" if rest else f"{made}\n"


def _without(text: str, root: str, name: str) -> Iterator[str]:
    own = re.compile(rf'\s*\[\s*{re.escape(root)}\s*\.\s*"?{re.escape(name)}"?\s*[.\]]')
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = own.match(line) is not None
        if not inside:
            yield line
        elif re.search(r"(^|\s)#", line):
            raise ValueError(f"has comments in {name!r}, which would be lost")


FORMATS: dict[str, tuple[Callable[[str], Any], Callable[[str, Any, str, str], str]]] = {
    "json": (_load_json, _dump_json),
    "toml": (_load_toml, _dump_toml),
}


# Files.


def _back_up(path: Path, before: bytes | None) -> Path | None:
    """Copy the file to a backup that only its owner may read."""
    if before is None:
        return None
    stamp = f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    backup = path.with_name(f"{path.name}.{stamp}.bak")
    descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as made:
        made.write(before)
    return backup


def _replace(path: Path, before: bytes | None, after: bytes, secret: bool) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as made:  # mkstemp creates it with mode 0600
            made.write(after)
            made.flush()
            os.fsync(made.fileno())
        if before is not None:
            mode = path.stat().st_mode & 0o777
            os.chmod(temporary, mode & ~PRIVATE if secret else mode)
        if (path.read_bytes() if path.exists() else None) != before:
            raise ValueError("was changed by another program just now")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _make_private(path: Path, secret: bool) -> None:
    mode = path.stat().st_mode & 0o777
    if secret and mode & PRIVATE:
        os.chmod(path, mode & ~PRIVATE)
