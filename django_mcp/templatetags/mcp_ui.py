"""``{% load mcp_ui %}``: the script by which the page of a tool talks to the client that shows it.

The script is part of the page. The page has no origin of its own, and by default the client's
Content-Security-Policy lets it load nothing from another host, not even from the site.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django import template
from django.utils.safestring import SafeString, mark_safe

register = template.Library()
SCRIPT = Path(__file__).parent.parent / "templates/django_mcp/ui.js"


@register.simple_tag
def mcp_ui_script() -> SafeString:
    """Return the script element that defines ``mcp``, for the head of a page."""
    return _element()


@cache
def _element() -> SafeString:
    # Safe: the file is part of this package, contains no value, and does not end the element.
    return mark_safe(f"<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>")  # noqa: S308
