"""
What a function returned, as the result of its method.

Rule: a result is canonical - the newest revision's - and written while the
call's transaction and connections are still there. A tool's data goes out
twice, as structured content and as the text of it, for clients that read only
text (server/tools, "Structured Content").
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.db.models import Model, QuerySet

from ..conf import settings
from ..declare.contents import Content, Contents, Message, ResourceLink
from ..declare.outputs import Mismatch
from ..exceptions import ToolError
from ..protocol import content

if TYPE_CHECKING:
    from ..declare.requests import Request
    from ..declare.resources import Resource
    from ..declare.tools import Tool

JSON = dict[str, Any]


def tool_result(tool: Tool, value: Any, request: Request) -> JSON:
    """The result of ``tools/call``. Raises ``Mismatch`` and, when too large, ``ToolError``."""
    if tool.output.schema is None and _is_content(value):
        result = {"content": blocks(value), "isError": False}
    else:
        data = tool.output.structured(value, request)
        result = {"content": _data_blocks(data, value), "structuredContent": data, "isError": False}
    return _bounded(result)


def error_result(message: str) -> JSON:
    """A tool's failure, in words for the model."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _is_content(value: Any) -> bool:
    """Whether a value is shown as it is, rather than as data."""
    if value is None or isinstance(value, str | Content | bytes):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and any(isinstance(one, Content | str) for one in value)
    return hasattr(value, "_proxy____cast")  # a lazy translation


def blocks(value: Any) -> list[JSON]:
    """The content blocks of a value that is content."""
    if value is None:
        return []
    values = value if isinstance(value, list | tuple) else [value]
    return [_block(one) for one in values]


def _block(value: Any) -> JSON:
    if isinstance(value, Content):
        return value.block()
    if isinstance(value, bytes):
        raise Mismatch("Bytes do not say what they are: return an Image or an Audio.")
    if isinstance(value, dict | list):
        return content.text(_text(value))
    return content.text(_words(value))


def _words(value: Any) -> str:
    """``value`` as text. Raises ``Mismatch`` for rows: no whitelist bounds their ``__str__``."""
    if isinstance(value, Model | QuerySet):
        raise Mismatch(f"A {type(value).__name__} is no content: return its text, or data of it.")
    return str(value)


_dump = json.JSONEncoder(ensure_ascii=False).encode


def _text(data: Any) -> str:
    return data if isinstance(data, str) else _dump(data)


def _data_blocks(data: Any, value: Any) -> list[JSON]:
    """The text of the data, and links to the rows in it."""
    links = _links(data) if isinstance(value, Model | QuerySet | list) else []
    return [content.text(_text(data)), *links]


def _links(data: Any) -> list[JSON]:
    rows = data if isinstance(data, list) else [data]
    uris = [row["_uri"] for row in rows if isinstance(row, dict) and "_uri" in row]
    return [ResourceLink(uri, mime_type="application/json").block() for uri in uris]


def _bounded(result: JSON) -> JSON:
    messages = [message["content"] for message in result.get("messages", ())]
    parts = result.get("content") or result.get("contents") or messages
    size = sum(map(_size, parts))
    if "structuredContent" in result:
        size *= 2  # the same again, as its text
    if size > settings.RESULT_SIZE:
        raise ToolError(
            f"The result has {size:,} bytes, more than the {settings.RESULT_SIZE:,} allowed. "
            "Ask for less at once."
        )
    return result


def _size(part: JSON) -> int:
    """About how many bytes a block has, without writing it once more."""
    inner = part.get("resource", part)
    return sum([len(value) for value in inner.values() if isinstance(value, str)])


def prompt_result(description: str | None, value: Any) -> JSON:
    """The result of ``prompts/get``. Raises ``ToolError`` when it is too large."""
    values = value if isinstance(value, list | tuple) else [value]
    messages = [_message(one) for one in values]
    about = {"description": description} if description else {}
    return _bounded(about | {"messages": messages})


def _message(value: Any) -> JSON:
    if isinstance(value, Message):
        return {"role": value.role, "content": _block(value.content)}
    return {"role": "user", "content": _block(value)}


def read_result(resource: Resource, uri: str, value: Any) -> JSON:
    """The result of ``resources/read``, with what a cache may do with it."""
    parts = value if isinstance(value, list) and _all_contents(value) else [value]
    contents = [_contents(part).write(uri, resource.mime_type) for part in parts]
    scope = "public" if resource.shared else "private"
    result = {"contents": contents, "ttlMs": resource.cache * 1000, "cacheScope": scope}
    return _bounded(result)


def _all_contents(values: Iterable[Any]) -> bool:
    return any(isinstance(value, Contents) for value in values)


def _contents(value: Any) -> Contents:
    return value if isinstance(value, Contents) else Contents(_plain(value))


def _plain(value: Any) -> Any:
    """What JSON has no form for, as pydantic would write it."""
    if isinstance(value, str | bytes):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=_words)
