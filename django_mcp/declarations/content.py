"""Content that tools and prompts may return apart from text and data: images, audio, resources.

A content is a frozen dataclass. ``block`` writes it as a content block of the newest revision, and
``protocol`` rewrites it for older clients. Bytes are written as base64.

``meta_problem`` checks keys of ``_meta``. A key that any revision reserves is rejected in all of
them, so that a declaration means the same to every client (basic, "_meta").

``read_file`` returns the contents of a file, for resources.
"""

from __future__ import annotations

import json
import mimetypes
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from django.core.serializers.json import DjangoJSONEncoder
from django.http import Http404
from django.templatetags.static import static as static_url
from django.utils.functional import Promise

from ..conf import settings
from ..exceptions import ToolError
from ..protocol import content
from ..protocol.content import text_or_bytes

_LABEL = r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
META_KEY = re.compile(
    rf"(?P<prefix>{_LABEL}(\.{_LABEL})*/)?"
    r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?\Z"
)
RESERVED = ("modelcontextprotocol", "mcp")
# Keys whose value belongs to one request. A declared value would be wrong for every other one.
RESERVED_KEYS = frozenset(("progressToken", "traceparent", "tracestate", "baggage"))


def meta_problem(key: Any) -> str | None:
    """Return what is wrong with a ``_meta`` key, or None."""
    match = META_KEY.match(key) if isinstance(key, str) else None
    if match is None:
        return f"{key!r} is not a valid key of _meta."
    if key in RESERVED_KEYS:
        return f"{key!r} is reserved for the protocol."
    labels = (match["prefix"] or "").rstrip("/").split(".")
    # The newest revision reserves the second label, older ones each label but the last.
    if any(label in RESERVED for label in (*labels[1:2], *labels[:-1])):
        return f"The prefix of {key!r} is reserved for the protocol."
    return None


def extension_problem(name: Any, settings: Any) -> str | None:
    """Return what is wrong with an extension that a server declares, or None.

    "Extension identifiers MUST follow the _meta key naming rules, with a mandatory prefix"
    (basic/versioning). Reserved prefixes are allowed, because official extensions have them.
    """
    match = META_KEY.match(name) if isinstance(name, str) else None
    if match is None or not match["prefix"] or name.endswith("/"):
        return f"{name!r} is not a valid identifier of an extension."
    if not isinstance(settings, Mapping):
        return f"The settings of {name!r} are not an object."
    return json_problem(settings)


def json_problem(value: Any) -> str | None:
    """Return why ``value`` cannot be sent as JSON, or None."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"This cannot be written as JSON: {error}."
    return None


URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:([!#$&-;=?-Z\[\]_a-z~]|%[0-9A-Fa-f]{2})*\Z")  # RFC 3986
_TOKEN = r"[A-Za-z0-9!#$&^_.+-]+"
MEDIA_TYPE = re.compile(
    rf'{_TOKEN}/{_TOKEN}(\s*;\s*{_TOKEN}=({_TOKEN}|"[^"\r\n]*"))*\Z'  # RFC 6838, RFC 9110
)


def _check(part: Any) -> None:
    """Raise ``ValueError`` for invalid text, URIs, media types and metadata."""
    uri, mime_type = getattr(part, "uri", None), getattr(part, "mime_type", None)
    if uri is not None and not URI.match(uri):
        raise ValueError(f"{uri!r} is not a URI.")
    if mime_type is not None and not MEDIA_TYPE.match(mime_type):
        raise ValueError(f"{mime_type!r} is not a media type.")
    for name in ("text", "name", "title", "description"):
        # str() of another object may show anything, for example all columns of a row.
        if not isinstance(text := getattr(part, name, None), str | Promise | None):
            raise ValueError(f"{name} must be text, not a value of type {type(text).__name__}.")
    for wrong in filter(None, map(meta_problem, part.meta or ())):
        raise ValueError(wrong)


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True)
class Annotations:
    """Who a content is for, its importance from 0 to 1, and when it was last modified."""

    audience: Sequence[str] | None = None
    priority: float | None = None
    last_modified: datetime | str | None = None

    def __post_init__(self) -> None:
        self.write()  # raises for wrong values here, where the traceback shows the cause

    def write(self) -> dict[str, Any]:
        changed = self.last_modified
        when = changed.isoformat() if isinstance(changed, datetime) else changed
        return content.annotations(self.audience, self.priority, when)


@dataclass(frozen=True)
class Icon:
    """An icon for people.

    ``src`` is an https or data URL. ``static`` is the path of a static file instead, as in
    ``{% static %}``. ``sizes`` are texts such as "48x48", or "any" for a picture that scales.
    ``theme`` is "light" or "dark".
    """

    src: str = ""
    mime_type: str | None = None
    sizes: Sequence[str] | None = None
    theme: str | None = None
    static: str = field(default="", kw_only=True)

    @property
    def url(self) -> str | None:
        """The URL of the picture. None for a static file that is not in the manifest.

        A static file has the site's origin, ``DJANGO_MCP["URL"]``, unless ``STATIC_URL`` has one.
        """
        if not self.static:
            return self.src
        try:
            return str(urljoin(settings.URL, static_url(self.static)))
        except ValueError:  # ManifestStaticFilesStorage, before ``collectstatic`` has seen the file
            return None

    def write(self) -> dict[str, Any]:
        guessed = mimetypes.guess_type(self.static)[0] if self.static else None
        return _without_none(
            src=self.url,
            mimeType=self.mime_type or guessed,
            sizes=self.sizes and list(self.sizes),
            theme=self.theme,
        )


def write_icons(icons: Iterable[Icon]) -> list[dict[str, Any]]:
    """Return icons as the protocol has them, without static files that have no URL."""
    return [icon.write() for icon in icons if icon.url]


@dataclass(frozen=True, kw_only=True)
class Content:
    """One content block of a result."""

    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check(self)

    def block(self) -> dict[str, Any]:
        """Return the block in the form of the newest revision."""
        annotations = self.annotations and self.annotations.write()
        return self._body() | _without_none(
            annotations=annotations, _meta=self.meta and dict(self.meta)
        )

    def _body(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class Text(Content):
    """Text with annotations or ``_meta``. Otherwise return a plain ``str``."""

    text: str

    def _body(self) -> dict[str, Any]:
        return content.text(self.text)


@dataclass(frozen=True)
class Image(Content):
    """An image: its bytes and media type."""

    data: bytes
    mime_type: str = "image/png"
    write = staticmethod(content.image)

    def _body(self) -> dict[str, Any]:
        return self.write(bytes(memoryview(self.data)), self.mime_type)


@dataclass(frozen=True)
class Audio(Image):
    """Audio: its bytes and media type."""

    mime_type: str = "audio/wav"
    write = staticmethod(content.audio)


@dataclass(frozen=True)
class ResourceLink(Content):
    """A link to a resource that the client may read."""

    uri: str
    name: str = ""
    title: str | Promise | None = None
    description: str | Promise | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: Sequence[Icon] | None = None

    def _body(self) -> dict[str, Any]:
        return content.resource_link(
            self.uri,
            self.name or self.uri,
            title=self.title and str(self.title),
            description=self.description and str(self.description),
            mimeType=self.mime_type,
            size=self.size,
            icons=self.icons and write_icons(self.icons),
        )


@dataclass(frozen=True)
class EmbeddedResource(Content):
    """The contents of a resource inside a result: text, bytes, or data that becomes JSON.

    If a tool's return annotation contains it, the server declares the capability ``resources``.
    """

    uri: str
    data: Any
    mime_type: str | None = None

    def _body(self) -> dict[str, Any]:
        return content.embedded_resource(written(self.uri, self.data, self.mime_type))


@dataclass(frozen=True)
class Contents:
    """One part of a resource's contents that has its own URI or media type."""

    data: Any
    uri: str | None = None
    mime_type: str | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check(self)

    def write(self, uri: str, mime_type: str | None) -> dict[str, Any]:
        body = written(self.uri or uri, self.data, self.mime_type or mime_type)
        return body | _without_none(_meta=self.meta and dict(self.meta))


@dataclass(frozen=True)
class Message:
    """One message of a prompt. ``role`` is "user" or "assistant"."""

    content: Any
    role: str = "user"

    def __post_init__(self) -> None:
        if self.role not in content.ROLES:
            raise ValueError(f"The role must be one of {content.ROLES}, not {self.role!r}.")


def written(uri: str, data: Any, mime_type: str | None) -> dict[str, Any]:
    """Return ``data`` as resource contents: str as text, bytes as a blob, anything else as JSON."""
    if isinstance(data, str):
        return content.text_contents(uri, data, mime_type or "text/plain")
    if isinstance(data, bytes):
        guessed = mimetypes.guess_type(uri.rsplit("/", 1)[-1])[0] or "application/octet-stream"
        return content.blob_contents(uri, data, mime_type or guessed)
    text = json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2, allow_nan=False)
    return content.text_contents(uri, text, mime_type or "application/json")


# Files of a directory. The path comes from a client, and only regular files below the directory are
# opened.


def read_file(directory: str | os.PathLike[str], path: str) -> Contents:
    """Return the file at ``path`` below ``directory``: text if it is UTF-8, bytes otherwise.

    ``path`` is relative, with ``/`` between its parts. Raise ``Http404`` for everything that is not
    a file below the directory, also if a symbolic link leads out of it, and for names that start
    with a dot, such as ``.env``. Raise ``ToolError`` for a file larger than
    ``DJANGO_MCP["RESULT_SIZE"]``.
    """
    try:
        return _contents(_read_regular(_resolved_path(Path(directory), path)), path)
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


def _read_regular(file: Path) -> bytes:
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
