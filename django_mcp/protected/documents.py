"""
Views of documents about the servers and who lets people into them.

Rule: the same to everybody: no host and no header of a request is in one. What there is no document
of is a 404 in JSON: clients that look at all places in turn go on, and take no page for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse

from ..scopes import OFFLINE
from .cors import cors

Document = dict[str, Any]

GETTING = ("GET", "HEAD")
FRESH = 3600  # seconds for which a document may be kept


def published(
    find: Callable[[str], Document | None],
) -> Callable[[HttpRequest, str], HttpResponseBase]:
    """A view of what ``find`` makes of the path after the well-known one; None is a 404."""

    @login_not_required
    @cors(*GETTING)
    @wraps(find)
    def view(request: HttpRequest, suffix: str | None = None) -> HttpResponseBase:
        if request.method not in GETTING:
            return _refusal(405, "method_not_allowed", Allow=", ".join((*GETTING, "OPTIONS")))
        if (found := find(suffix or "")) is None:
            return _refusal(404, "not_found")
        return JsonResponse(found, headers={"Cache-Control": f"public, max-age={FRESH}"})

    return view


def _refusal(status: int, error: str, **headers: str) -> JsonResponse:
    kept = {"Cache-Control": "no-store", **headers}
    return JsonResponse({"error": error}, status=status, headers=kept)


def listed(scopes: Iterable[str]) -> list[str]:
    """Those that clients are told of, each once."""
    return [scope for scope in dict.fromkeys(scopes) if scope != OFFLINE]
