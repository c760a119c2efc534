"""
Where servers are, as clients are told.

Rule: of the setting's origin, whatever host was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import get_script_prefix
from django.utils.encoding import escape_uri_path

from ..conf import settings

if TYPE_CHECKING:
    from .servers import Server


def address(server: Server) -> str:
    """The URL of ``server``: below ``DJANGO_MCP["URL"]`` and where the site is mounted."""
    return _url(server.path)


def sse_address(server: Server) -> str | None:
    """The URL for clients that know HTTP+SSE alone; None where that is off."""
    return _url(server.sse_path) if server.sse else None


def _url(path: str) -> str:
    return f"{settings.URL.rstrip('/')}{escape_uri_path(get_script_prefix() + path)}"
