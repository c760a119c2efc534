"""
Pages of other origins may read the metadata and get tokens, as any other client may.

Rule: everybody's, and so never with credentials: what a browser keeps of somebody is not sent. A
preflight is answered before anything else is looked at. The page where people agree is for no
other page: nothing of this is ever on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase

View = Callable[..., HttpResponseBase]

SENDABLE = ("authorization", "content-type", "mcp-protocol-version")
EXPOSED = ("www-authenticate", "retry-after")
CREDENTIALS = "Access-Control-Allow-Credentials"
KEPT = 7200  # seconds for which a browser believes a preflight: no browser believes it longer


def cors(*methods: str) -> Callable[[View], View]:
    """``@cors("POST")``: a view that pages of any origin may call by these methods, and OPTIONS.

    The outermost decorator of a view. OPTIONS does not reach it.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method == "OPTIONS":
                return _open(_options(request, methods))
            return _open(view(request, *args, **kwargs))

        return answer

    return decorate


def _options(request: HttpRequest, methods: tuple[str, ...]) -> HttpResponse:
    response = HttpResponse(status=204, headers={"Allow": ", ".join((*methods, "OPTIONS"))})
    if "Access-Control-Request-Method" in request.headers:
        response["Access-Control-Allow-Methods"] = ", ".join(methods)
        response["Access-Control-Allow-Headers"] = ", ".join(SENDABLE)
        response["Access-Control-Max-Age"] = str(KEPT)
    return response


def _open(response: HttpResponseBase) -> HttpResponseBase:
    """Whatever the view allowed itself: to one origin, or with credentials."""
    response.headers.pop(CREDENTIALS, None)
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
    return response
