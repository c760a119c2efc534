"""Resource limits for the package's public Django views: request bodies and database connections.

Django's ASGI handler receives a whole body before it looks for the view. An anonymous client could
make it write hundreds of megabytes to disk, or hold a request open by sending slowly. These views
take short forms and JSON, so ``pass_on`` reads their bodies first, within limits. The project's own
views are not affected.

Under ASGI Django answers each request in a thread of its own, which ends with the request. With
``CONN_MAX_AGE`` set, Django leaves the thread's connection open although no later request can use
it. It stays open until the garbage collector finds it, and under load the database runs out of
connections first. Anonymous clients can call these views, so ``closes_connections`` closes the
connections of the thread whatever that setting is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import resolve

from .runtime import environment

View = Callable[..., HttpResponseBase]


def closes_connections(view: View) -> View:
    """Decorate a view so that its thread keeps no connection under ASGI.

    Django calls ``request.close`` in the request's thread, after all middleware and whatever the
    view raised. Under WSGI a thread serves later requests too, and keeps its connection for them.
    """

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if isinstance(request, ASGIRequest):
            request.close = _then_close_connections(request.close)  # type: ignore[method-assign]
        return view(request, *args, **kwargs)

    return answer


def _then_close_connections(close: Callable[[], None]) -> Callable[[], None]:
    def close_all() -> None:
        close()
        # A connection in a transaction belongs to the code that called the application.
        if not _in_transaction():
            environment().discard_connections()

    return close_all


def _in_transaction() -> bool:
    return any(one.in_atomic_block for one in connections.all(initialized_only=True))


Application = Callable[[Any, Any, Any], Awaitable[None]]
MAX_BYTES = 65_536
MAX_SECONDS = 10.0  # for the whole body
NAMESPACES = {"django_mcp_oauth", "django_mcp_oauth_fallback", "django_mcp_verifiers"}
# Where views of these namespaces can be. The URLconf is asked only about such paths.
FIRST_SEGMENTS, WELL_KNOWN = {"oauth", "authorize", "token", "register"}, "/.well-known/"
TOO_LARGE = 413, f"The body has more than {MAX_BYTES} bytes."
TOO_SLOW = 408, f"The body took more than {MAX_SECONDS:.0f} seconds."


class Disconnected(Exception):
    """The client disconnected before it had sent the whole body."""


def is_limited(path: str) -> bool:
    """Whether a view of this package answers at a path below the mount point."""
    if path.removeprefix("/").partition("/")[0] not in FIRST_SEGMENTS and WELL_KNOWN not in path:
        return False
    try:
        match = resolve(path)
    except Exception:  # Django reports what is wrong with the path, or with the URLconf
        return False
    return not NAMESPACES.isdisjoint(match.app_names)


def limits_body(view: View) -> View:
    """Decorate a view so that it rejects long bodies under WSGI, where the view reads the body."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        length = request.META.get("CONTENT_LENGTH") or "0"
        # Reject anything but ASCII digits: the server and Django may parse it differently.
        digits = length.lstrip("0") or "0"
        is_number = length.isascii() and length.isdigit()
        if not is_number or len(digits) > 15 or int(digits) > MAX_BYTES:
            status, words = TOO_LARGE
            return JsonResponse(_error(words), status=status, headers={"Connection": "close"})
        return view(request, *args, **kwargs)

    return answer


async def pass_on(django: Application, scope: Any, receive: Any, send: Any) -> None:
    """Read the body within the limits, and let ``django`` answer; else answer 413 or 408."""
    try:
        async with asyncio.timeout(MAX_SECONDS):
            body = await _read(scope, receive)
    except Disconnected:
        return
    except OverflowError:
        await _refuse(scope, send, *TOO_LARGE)
        return
    except TimeoutError:
        await _refuse(scope, send, *TOO_SLOW)
        return
    first = iter(({"type": "http.request", "body": body, "more_body": False},))

    async def received() -> Any:
        return next(first, None) or await receive()

    await django(scope, received, send)


async def _read(scope: Any, receive: Any) -> bytes:
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 15 or int(declared) > MAX_BYTES):
        raise OverflowError
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        if len(body) > MAX_BYTES:
            raise OverflowError
        more = message.get("more_body", False)
    return body


def _error(words: str) -> dict[str, str]:
    return {"error": "invalid_request", "error_description": words}


async def _refuse(scope: Any, send: Any, status: int, words: str) -> None:
    body = json.dumps(_error(words)).encode()
    headers = [
        (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]  # fmt: skip
    if str(scope.get("http_version", "1.1")).startswith("1"):  # RFC 9113, 8.2.2
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
