"""
Turn a view's response into a tool result or resource contents.

The result is data (JSON), text, an image, audio, a file, or the URL that a redirect leads to.
Headers and cookies of the response are not passed on. Validation errors of a form become a
``ToolError`` with a line for each field.

HTML becomes Markdown or plain text. Only visible content is converted: no scripts, styles or hidden
elements, which include CSRF tokens. If the page has a ``<main>`` element, only that is converted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from bs4 import BeautifulSoup
from django.conf import settings as django_settings
from django.forms import BaseForm, BaseFormSet
from django.utils.html import escape
from markdownify import MarkdownConverter

from ...declarations.content import URI, Contents, ResourceLink
from ...exceptions import ToolError
from ...protocol.content import is_textual
from ..form_input import errors
from .execution import ViewResponse
from .response_bodies import body_of, decoded, file_of, is_html, is_json, media_type

UNREAD = ("script", "style", "template", "noscript", "head", "title", "iframe", "object", "svg")
AROUND = "nav, [role=navigation]"
HIDDEN = (
    '[hidden], [aria-hidden="true"], input[type=hidden], input[type=password], '
    '[style*="display:none" i], [style*="display: none" i]'
)
BUTTONS = ("submit", "reset", "button", "image", "file")
XML = re.compile(r"^\s*<\?xml[^>]*>")
BLANK_LINES = re.compile(r"\n\s*\n\s*\n+")
_markdown = MarkdownConverter(heading_style="ATX", bullets="-", strip=["img"])


def markdown(html: str) -> str:
    """Convert an HTML page to Markdown."""
    part = _readable(html)
    try:
        return _tidy(str(_markdown.convert_soup(part)))
    except RecursionError:  # The page is nested deeper than Python's recursion limit.
        return _tidy(part.get_text())


def text(html: str) -> str:
    """Convert an HTML page to plain text, with a line for each piece of text."""
    return _tidy(_readable(html).get_text("\n", strip=True))


def _readable(html: str) -> Any:
    # BeautifulSoup takes a short text without a newline for a file name. It warns of an XML
    # declaration that is parsed as HTML.
    soup = BeautifulSoup(XML.sub("", html) + "\n", "html.parser")
    title = soup.title.get_text(strip=True) if soup.title else ""
    part: Any = soup.select_one("main, [role=main]") or soup.body or soup
    for unread in [*part.find_all(UNREAD), *part.select(HIDDEN), *part.select(AROUND)]:
        unread.decompose()
    _show_fields(part)
    if title and part.find("h1") is None:
        heading = soup.new_tag("h1", string=title)
        part.insert(0, heading)
    return part


def _show_fields(part: Any) -> None:
    """Replace form fields by their values: an element's text does not contain them."""
    for field in part.find_all("input"):
        kind = str(field.get("type", "text")).lower()
        if kind in ("checkbox", "radio"):
            field.replace_with("[x] " if field.has_attr("checked") else "[ ] ")
        else:
            field.replace_with("" if kind in BUTTONS else str(field.get("value", "")))
    for option in part.select("option:not([selected])"):
        # Remove only the option's own text: html.parser nests options whose end tags are missing.
        for words in option.find_all(string=True, recursive=False):
            words.extract()


def _tidy(written: str) -> str:
    return BLANK_LINES.sub("\n\n", written).strip()


PAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "markdown": ("text/markdown", markdown),
    "text": ("text/plain", text),
}
TECHNICAL = (400, 413)  # Under DEBUG, Django answers these with a page that shows settings.
MAX_QUOTED_LENGTH = 2000  # characters of an error page that are quoted


def tool_value(answer: ViewResponse, pages: str, rejected_form: BaseForm | None = None) -> Any:
    """Return the tool's result for ``answer``. Raise ``ToolError`` if the view refused.

    ``rejected_form`` is a form that probably caused a refusal, if there was one.
    """
    refusal(answer, pages, rejected_form)
    messages = list(answer.messages)
    if answer.leads_to is not None:
        return [*messages, *_redirect_result(answer)]
    value = _value(answer, pages)
    fresh = [one for one in messages if not (isinstance(value, str) and one in value)]
    if value == "":
        return fresh or ["Done." if answer.request.method == "POST" else "The page is empty."]
    return [*fresh, value] if fresh else value


def contents(answer: ViewResponse, pages: str) -> Contents:
    """Return the contents of a resource. Raise ``ToolError`` if the view refused or redirects."""
    refusal(answer, pages)
    if answer.leads_to is not None:
        raise ToolError(f"This page leads elsewhere: {answer.leads_to}")
    kind, body = media_type(answer.response), body_of(answer)
    if is_html(kind):
        mime_type, convert = PAGES[pages]
        return Contents(convert(decoded(body, answer.response)), mime_type=mime_type)
    textual = is_textual(kind) or is_json(kind)
    return Contents(decoded(body, answer.response) if textual else body, mime_type=kind)


def _redirect_result(answer: ViewResponse) -> list[Any]:
    """Return where a redirect leads that was not followed."""
    url = str(answer.leads_to)
    done = "Done. It leads" if answer.request.method == "POST" else "This page leads"
    if url.startswith(answer.request.build_absolute_uri("/")):
        return [f"{done} to {url}"]
    link = quote(url, safe=":/?#[]@!$&'()*+,;=%")
    usable = link.startswith(("https:", "http:")) and URI.match(link)
    return [f"{done} to another site.", *([ResourceLink(link)] if usable else [])]


# Refusals.


def refusal(answer: ViewResponse, pages: str, rejected_form: BaseForm | None = None) -> None:
    """Raise ``ToolError`` if a form on the page is invalid or the status is 400 or above."""
    forms = _forms(answer.response)
    if rejected_form is not None and _shows_errors(answer, rejected_form):
        forms.append(rejected_form)
    if wrong := [errors(form) for form in forms if form.errors]:
        raise ToolError("\n".join(wrong))
    if answer.status >= 400:
        text = _error_text(answer, pages)
        raise ToolError(f"{answer.status} {answer.response.reason_phrase}. {text}".strip())


def _forms(response: Any) -> list[BaseForm]:
    shown = [*(getattr(response, "context_data", None) or {}).values()]
    shown += [one for several in shown if isinstance(several, BaseFormSet) for one in several]
    return [one for one in shown if isinstance(one, BaseForm) and one.is_bound]


def _shows_errors(answer: ViewResponse, form: BaseForm) -> bool:
    """Whether the page contains an error message of the form."""
    if answer.response.streaming or answer.status != 200:
        return False
    page = decoded(answer.response.content, answer.response)
    return any(escape(words) in page for messages in form.errors.values() for words in messages)


def _error_text(answer: ViewResponse, pages: str) -> str:
    """Return the view's error text, but never that of Django's debug pages."""
    kind = media_type(answer.response)
    for_developers = django_settings.DEBUG and answer.status in TECHNICAL and not is_json(kind)
    if answer.request.failed is not None or not answer.request.reached or for_developers:
        return ""
    body = decoded(body_of(answer), answer.response)
    if is_html(kind):
        body = PAGES[pages][1](body)
    return body[:MAX_QUOTED_LENGTH] if is_html(kind) or is_json(kind) or is_textual(kind) else ""


# Bodies.


def _value(answer: ViewResponse, pages: str) -> Any:
    response = answer.response
    kind, body = media_type(response), body_of(answer)
    if is_html(kind):
        return PAGES[pages][1](decoded(body, response))
    if is_json(kind):
        return _data(decoded(body, response))
    if is_textual(kind) or not body:
        return decoded(body, response)
    return file_of(answer, body)


def _data(text: str) -> Any:
    """Return a JSON object as a dict, because structured content is an object; else the text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) else text
