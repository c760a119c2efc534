"""
Read the body of a view's response, and turn files into content.

At most ``RESULT_SIZE`` bytes are read. A stream of events is not read at all, because it may never
end. This module needs no library that the extra ``views`` installs.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from email.message import Message
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from asgiref.sync import async_to_sync
from django.http import HttpResponseBase

from ...conf import settings
from ...declarations.content import MEDIA_TYPE, Audio, Content, EmbeddedResource, Image
from ...exceptions import Stopped, ToolError
from .execution import ViewResponse

ENDLESS = "text/event-stream"


def media_type(response: HttpResponseBase) -> str:
    """Return the media type without parameters."""
    found = response.get("Content-Type", "").partition(";")[0].strip().lower()
    return found if MEDIA_TYPE.match(found) else "application/octet-stream"


def is_html(kind: str) -> bool:
    return kind in ("text/html", "application/xhtml+xml")


def is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def decoded(body: bytes, response: Any) -> str:
    """Return ``body`` as text, with U+FFFD for bytes that are not valid in its charset."""
    try:
        return body.decode(response.charset, "replace")
    except LookupError:  # Python does not know the charset
        return body.decode("utf-8", "replace")


def body_of(answer: ViewResponse) -> bytes:
    """Return the whole body. Raise ``ToolError`` if it is endless or above ``RESULT_SIZE``."""
    response = answer.response
    if media_type(response) == ENDLESS:
        raise ToolError("This page goes on without end: nothing of it can be read.")
    if not response.streaming:
        return bytes(_check_size(response.content))
    parts = response.streaming_content
    if isinstance(parts, AsyncIterable):
        collect: Callable[..., bytes] = async_to_sync(_collect)
        return collect(parts, answer)
    collected = bytearray()
    for part in parts:
        _append(collected, part, answer)
    return bytes(collected)


async def _collect(parts: AsyncIterable[bytes], answer: ViewResponse) -> bytes:
    collected = bytearray()
    async for part in parts:
        _append(collected, part, answer)
    return bytes(collected)


def _append(collected: bytearray, part: bytes, answer: ViewResponse) -> None:
    if answer.request.mcp.cancelled:
        raise Stopped()
    collected += part
    _check_size(collected)


def _check_size(body: Any) -> Any:
    if len(body) > settings.RESULT_SIZE:
        raise ToolError(f"The answer has more than the {settings.RESULT_SIZE:,} bytes allowed.")
    return body


def file_of(answer: ViewResponse, body: bytes) -> Content:
    """Return the content for a body that is neither a page nor text: an image, audio or a file."""
    kind = media_type(answer.response)
    if kind.startswith("image/"):
        return Image(body, kind)
    if kind.startswith("audio/"):
        return Audio(body, kind)
    return EmbeddedResource(_file_uri(answer), body, kind)


def _file_uri(answer: ViewResponse) -> str:
    """Return a ``view://`` URI for a file, from the view's name and the file's name."""
    made = Message()
    made["Content-Disposition"] = answer.response.get("Content-Disposition", "")
    name = PurePath(made.get_filename() or answer.request.target.path).name or "file"
    return f"view://{answer.request.target.name.replace(':', '/')}/{quote(name, safe='')}"
