"""
Make the result of a method from what the project's function returned.

Results have the form of the newest revision. They are made before the call's transaction ends,
because querysets and lazy rows are evaluated here. A tool's data is sent twice, as structured
content and as its JSON text, for clients that read only text (server/tools, "Structured Content").
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model, QuerySet

from ..auth import kill_switches
from ..conf import settings
from ..declarations.content import Content, Contents, Message, ResourceLink
from ..declarations.outputs import HiddenRows, Mismatch, Output, Trusted, is_lazy
from ..exceptions import ToolError
from ..protocol import content
from ..storage.event_log import size_of

if TYPE_CHECKING:
    from ..declarations.prompts import Prompt
    from ..declarations.request import Request
    from ..declarations.resources import Resource
    from ..declarations.tools import Tool

JSON = dict[str, Any]
logger = logging.getLogger("django_mcp.calls")


def tool_result(tool: Tool, request: Request, value: Any) -> JSON:
    """Return the result of ``tools/call``. Raise ``Mismatch``, or ``ToolError`` if too large."""
    value = value._proxy____cast() if is_lazy(value) else value
    try:
        if tool._output.schema is None and _is_content(value):
            return _bounded({"content": blocks(value, request), "isError": False})
        data = tool._output.structured(value, request)
    except HiddenRows as error:
        _log_hidden_rows(error, "tool", tool.name, request)
        raise
    text = {"type": "text", "text": _text(data)}
    value = value.rows if isinstance(value, Trusted) else value
    links = _links(data) if isinstance(value, Model | QuerySet | list) else ()
    return _bounded({"content": [text, *links], "structuredContent": data, "isError": False})


def _log_hidden_rows(error: HiddenRows, kind: str, name: str, request: Request) -> None:
    # The caller gets "Not found.", as for all rows they cannot see. The log has the reason.
    logger.error(
        "%s returned rows that its caller cannot see: %s=%s user=%s %s; "
        "query get_queryset(request) of the resource, or return mcp.trusted(rows)",
        kind.title(), kind, name, request.user.pk, error.detail,
    )  # fmt: skip


def error_result(message: str) -> JSON:
    """Return the result of a tool that failed, with a message for the model."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _is_content(value: Any) -> bool:
    """Whether a value is sent as content blocks, and not as structured data."""
    if value is None or isinstance(value, str | Content | bytes):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and any(isinstance(one, Content | str) for one in value)
    return False


def _evaluated(value: Any) -> Any:
    """Return ``value``, or the text or row behind it if it is a lazy object."""
    return value._proxy____cast() if is_lazy(value) else value


def blocks(value: Any, request: Request) -> list[JSON]:
    """Return the content blocks of a value."""
    value = _evaluated(value)
    if value is None:
        return []
    return _blocks(value if isinstance(value, list | tuple) else [value], request)


def _blocks(values: Sequence[Any], request: Request) -> list[JSON]:
    """Return a block for each value. Values other than text and content are sent as JSON text.

    The visibility of all rows in them is checked together, to save queries.
    """
    values = [_evaluated(value) for value in values]
    data = [value for value in values if not isinstance(value, str | Content | bytes)]
    written = iter(Output().structured(data, request) if data else ())
    return [
        _block(value)
        if isinstance(value, str | Content | bytes)
        else content.text(_text(next(written)))
        for value in values
    ]


def _block(value: str | Content | bytes) -> JSON:
    if isinstance(value, Content):
        return value.block()
    if isinstance(value, bytes):
        raise Mismatch("Bytes do not say what they are: return an Image or an Audio.")
    return content.text(str(value))


_dump = json.JSONEncoder(ensure_ascii=False).encode


def _text(data: Any) -> str:
    return data if isinstance(data, str) else _dump(data)


def _links(data: Any) -> list[JSON]:
    rows = data if isinstance(data, list) else [data]
    uris = [row["_uri"] for row in rows if isinstance(row, dict) and "_uri" in row]
    return [ResourceLink(uri, mime_type="application/json").block() for uri in uris]


def _bounded(result: JSON) -> JSON:
    """Return the result. Raise ``ToolError`` if it is too large.

    The size is estimated from the texts in it, without encoding it again.
    """
    messages = [message["content"] for message in result.get("messages", ())]
    parts = result.get("content") or result.get("contents") or messages
    values = [value for part in parts for value in part.get("resource", part).values()]
    size = sum([size_of(value) for value in values if isinstance(value, str)])
    if "structuredContent" in result:
        size *= 2  # the data is sent twice: as structured content and as text
    if size > settings.RESULT_SIZE:
        raise ToolError(
            f"The result has {size:,} bytes, more than the {settings.RESULT_SIZE:,} allowed. "
            "Ask for less at once."
        )
    return result


def prompt_result(prompt: Prompt, request: Request, value: Any) -> JSON:
    """Return the result of ``prompts/get``. Raise ``Mismatch``, or ``ToolError`` if too large."""
    value = prompt._messages(value, request)
    values = value if isinstance(value, list | tuple) else [value]
    sent = [value if isinstance(value, Message) else Message(value) for value in values]
    try:
        contents = _blocks([message.content for message in sent], request)
    except HiddenRows as error:
        _log_hidden_rows(error, "prompt", prompt.name, request)
        raise
    messages = [
        {"role": message.role, "content": block}
        for message, block in zip(sent, contents, strict=True)
    ]
    about = {"description": str(prompt.description)} if prompt.description else {}
    return _bounded(about | {"messages": messages})


def read_result(resource: Resource, uri: str, request: Request, value: Any) -> JSON:
    """Return the result of ``resources/read``, with its cache hints."""
    parts = value if isinstance(value, list) and _all_contents(value) else [value]
    try:
        contents = [_contents(part, request).write(uri, resource.mime_type) for part in parts]
    except HiddenRows as error:
        _log_hidden_rows(error, "resource", uri, request)
        raise
    is_shared = resource.shared and not kill_switches.has_audiences(request.server.name)
    scope = "public" if is_shared else "private"
    result = {"contents": contents, "ttlMs": resource.cache * 1000, "cacheScope": scope}
    return _bounded(result)


def _all_contents(values: Iterable[Any]) -> bool:
    return any(isinstance(value, Contents) for value in values)


def _contents(value: Any, request: Request) -> Contents:
    if isinstance(value, Contents):
        return value
    value = _evaluated(value)
    return Contents(
        value if isinstance(value, str | bytes) else Output().structured(value, request)
    )
