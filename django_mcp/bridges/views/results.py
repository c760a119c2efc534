"""
What a view answered, as a result: data, text, a picture, a file, or where it leads.

Rule: no more is read of an answer than a result may have, and headers and cookies are a
browser's: nothing of them is told. A refused form is an error, with words for each field.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable
from email.message import Message
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.forms import BaseForm, BaseFormSet
from django.http import HttpResponseBase
from django.utils.html import escape

from ...conf import settings
from ...declare.contents import (
    MEDIA_TYPE,
    URI,
    Audio,
    Contents,
    EmbeddedResource,
    Image,
    ResourceLink,
)
from ...exceptions import Stopped, ToolError
from ..forms.input import errors
from . import pages
from .calls import Answer

PAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "markdown": ("text/markdown", pages.markdown),
    "text": ("text/plain", pages.text),
}
HTML = ("text/html", "application/xhtml+xml")
TEXTUAL = ("application/xml", "application/javascript", "application/yaml", "application/csv")
ENDLESS = "text/event-stream"
TECHNICAL = (400, 413)  # what under DEBUG is answered by a page with settings on it
MOST_WORDS = 2000  # of a page that says what was wrong


def tool_value(answer: Answer, pages: str, doubted: BaseForm | None = None) -> Any:
    """What a tool returns for ``answer``. Raises ``ToolError`` for what the view refused.

    ``doubted`` is a form that is probably the one the view refused, if it refused any.
    """
    refusal(answer, pages, doubted)
    told = list(answer.messages)
    if answer.leads_to is not None:
        return [*told, *_way(answer)]
    value = _value(answer, pages)
    fresh = [one for one in told if not (isinstance(value, str) and one in value)]
    if value == "":
        return fresh or ["Done." if answer.request.method == "POST" else "The page is empty."]
    return [*fresh, value] if fresh else value


def contents(answer: Answer, pages: str) -> Contents:
    """What a resource reads as."""
    refusal(answer, pages)
    if answer.leads_to is not None:
        raise ToolError(f"This page leads elsewhere: {answer.leads_to}")
    kind, body = _kind(answer.response), _body(answer)
    if kind in HTML:
        mime_type, convert = PAGES[pages]
        return Contents(convert(_text(body, answer.response)), mime_type=mime_type)
    textual = _is_text(kind) or _is_json(kind)
    return Contents(_text(body, answer.response) if textual else body, mime_type=kind)


def _way(answer: Answer) -> list[Any]:
    """Where a redirect leads that is not followed."""
    url = str(answer.leads_to)
    done = "Done. It leads" if answer.request.method == "POST" else "This page leads"
    if url.startswith(answer.request.build_absolute_uri("/")):
        return [f"{done} to {url}"]
    link = quote(url, safe=":/?#[]@!$&'()*+,;=%")
    usable = link.startswith(("https:", "http:")) and URI.match(link)
    return [f"{done} to another site.", *([ResourceLink(link)] if usable else [])]


# Refusals.


def refusal(answer: Answer, pages: str, doubted: BaseForm | None = None) -> None:
    """Raises ``ToolError`` for what the view refused: a form, or all of it."""
    forms = _forms(answer.response)
    if doubted is not None and _shows_errors(answer, doubted):
        forms.append(doubted)
    if wrong := [errors(form) for form in forms if form.errors]:
        raise ToolError("\n".join(wrong))
    if answer.status >= 400:
        said = _said(answer, pages)
        raise ToolError(f"{answer.status} {answer.response.reason_phrase}. {said}".strip())


def _forms(response: Any) -> list[BaseForm]:
    shown = [*(getattr(response, "context_data", None) or {}).values()]
    shown += [one for several in shown if isinstance(several, BaseFormSet) for one in several]
    return [one for one in shown if isinstance(one, BaseForm) and one.is_bound]


def _shows_errors(answer: Answer, form: BaseForm) -> bool:
    """Whether the page that answers a form says what is wrong with it."""
    if answer.response.streaming or answer.status != 200:
        return False
    page = _text(answer.response.content, answer.response)
    return any(escape(words) in page for said in form.errors.values() for words in said)


def _said(answer: Answer, pages: str) -> str:
    """The view's own words on what was wrong; never those of Django's page for developers."""
    kind = _kind(answer.response)
    for_developers = django_settings.DEBUG and answer.status in TECHNICAL and not _is_json(kind)
    if answer.request.failed is not None or not answer.request.arrived or for_developers:
        return ""
    body = _text(_body(answer), answer.response)
    if kind in HTML:
        body = PAGES[pages][1](body)
    return body[:MOST_WORDS] if kind in HTML or _is_json(kind) or _is_text(kind) else ""


# Bodies.


def _value(answer: Answer, pages: str) -> Any:
    response = answer.response
    kind, body = _kind(response), _body(answer)
    if kind in HTML:
        return PAGES[pages][1](_text(body, response))
    if _is_json(kind):
        return _data(_text(body, response))
    if _is_text(kind) or not body:
        return _text(body, response)
    if kind.startswith("image/"):
        return Image(body, kind)
    if kind.startswith("audio/"):
        return Audio(body, kind)
    return EmbeddedResource(_address(answer), body, kind)


def _kind(response: HttpResponseBase) -> str:
    """The media type, without parameters."""
    found = response.get("Content-Type", "").partition(";")[0].strip().lower()
    return found if MEDIA_TYPE.match(found) else "application/octet-stream"


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in TEXTUAL or kind.endswith("+xml")


def _data(text: str) -> Any:
    """JSON as data where it is an object, for structured content is; as text otherwise."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) else text


def _text(body: bytes, response: Any) -> str:
    try:
        return body.decode(response.charset, "replace")
    except LookupError:  # a charset that is none
        return body.decode("utf-8", "replace")


def _body(answer: Answer) -> bytes:
    """All of it, if that is not too much. Raises ``ToolError``."""
    response = answer.response
    if _kind(response) == ENDLESS:
        raise ToolError("This page goes on without end: nothing of it can be read.")
    if not response.streaming:
        return bytes(_bounded(response.content))
    parts = response.streaming_content
    if isinstance(parts, AsyncIterable):
        collect: Callable[..., bytes] = async_to_sync(_collected)
        return collect(parts, answer)
    collected = bytearray()
    for part in parts:
        _go_on(collected, part, answer)
    return bytes(collected)


async def _collected(parts: AsyncIterable[bytes], answer: Answer) -> bytes:
    collected = bytearray()
    async for part in parts:
        _go_on(collected, part, answer)
    return bytes(collected)


def _go_on(collected: bytearray, part: bytes, answer: Answer) -> None:
    if answer.request.mcp.cancelled:
        raise Stopped()
    collected += part
    _bounded(collected)


def _bounded(body: Any) -> Any:
    if len(body) > settings.RESULT_SIZE:
        raise ToolError(f"The answer has more than the {settings.RESULT_SIZE:,} bytes allowed.")
    return body


def _address(answer: Answer) -> str:
    """A name for a file that has no address of its own: the view's, and what it calls it."""
    made = Message()
    made["Content-Disposition"] = answer.response.get("Content-Disposition", "")
    name = PurePath(made.get_filename() or answer.request.target.path).name or "file"
    return f"view://{answer.request.target.name.replace(':', '/')}/{quote(name, safe='')}"
