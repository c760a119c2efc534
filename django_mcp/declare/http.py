"""
An ``HttpRequest`` made from a request, for code that wants one.

Rule: it names the server's public URL, carries the user, and has neither body
nor Authorization header: nothing of the wire leaks into it.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest

from ..conf import settings

if TYPE_CHECKING:
    from .requests import Request


def http_request(request: Request) -> HttpRequest:
    """A GET of the server's endpoint by the request's user."""
    made = WSGIRequest(environ(request))
    made.user = request.user
    return made


def environ(request: Request) -> dict[str, Any]:
    """A GET of the server's endpoint by nobody, as WSGI has it."""
    origin = urlsplit(settings.URL)
    secure = origin.scheme == "https"
    host = request.host or origin.netloc
    address = urlsplit(f"//{host}")
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": f"/{request.server.path}",
        "SCRIPT_NAME": "",
        "SERVER_NAME": address.hostname or "",
        "SERVER_PORT": str(address.port or (443 if secure else 80)),
        "HTTP_HOST": host,
        "wsgi.url_scheme": origin.scheme or "http",
        "wsgi.input": BytesIO(),
    }
