"""Icons without files: one character each, as an SVG in a data URI."""

from urllib.parse import quote

import django_mcp as mcp


def emoji(character: str) -> mcp.Icon:
    """An icon of one character."""
    text = f'<text y=".9em" font-size="90">{character}</text>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 110 110">{text}</svg>'
    return mcp.Icon(f"data:image/svg+xml,{quote(svg)}", "image/svg+xml", ["any"])
