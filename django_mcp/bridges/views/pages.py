"""
A page of HTML, as text that a model reads.

Rule: what a person would read of it, and no more: no scripts, no styles, nothing hidden - the
tokens of forms are - and of a page with a ``<main>`` only that.
"""

from __future__ import annotations

import re
from typing import Any

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

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
    """The page as Markdown."""
    part = _readable(html)
    try:
        return _tidy(str(_markdown.convert_soup(part)))
    except RecursionError:  # elements within elements, without end
        return _tidy(part.get_text())


def text(html: str) -> str:
    """The page as plain text, a line for each piece."""
    return _tidy(_readable(html).get_text("\n", strip=True))


def _readable(html: str) -> Any:
    # With a new line, a short text is not mistaken for a path; XML says what it is, and is HTML.
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
    """Fields of forms by their values, which no text shows."""
    for field in part.find_all("input"):
        kind = str(field.get("type", "text")).lower()
        if kind in ("checkbox", "radio"):
            field.replace_with("[x] " if field.has_attr("checked") else "[ ] ")
        else:
            field.replace_with("" if kind in BUTTONS else str(field.get("value", "")))
    for option in part.select("option:not([selected])"):
        for words in option.find_all(string=True, recursive=False):  # the next may be within it
            words.extract()


def _tidy(written: str) -> str:
    return BLANK_LINES.sub("\n\n", written).strip()
