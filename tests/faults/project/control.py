"""Views with which the campaign controls the project: users, tokens and effects of tools.

Each view does one thing and may be requested repeatedly.
"""

import io
import json
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import Count, F
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils import timezone

from django_mcp.models import Stream, Token
from django_mcp.verifiers.personal_tokens import revoke

from . import injection, mcp
from .mcp import GATES
from .models import Effect


def token(user: str, seconds: float | None = None, scopes: tuple[str, ...] = ()) -> Any:
    """Create a token, and its user if there is none."""
    person, _ = User.objects.get_or_create(username=user)
    expires = None if seconds is None else timezone.now() + timedelta(seconds=seconds)
    made, secret = Token.make(person, "faults", scopes=scopes, expires=expires)
    return {"secret": secret, "id": made.pk}


def extend(id: int, seconds: float | None = None) -> Any:
    """Extend a token, as a new one of the same grant would."""
    expires = None if seconds is None else timezone.now() + timedelta(seconds=seconds)
    return {"extended": Token.objects.filter(pk=id).update(expires=expires)}


def revoked(id: int) -> Any:
    return {"revoked": revoke(Token.objects.filter(pk=id))}


def deactivated(user: str) -> Any:
    return {"deactivated": User.objects.filter(username=user).update(is_active=False)}


def effects(keys: list[str]) -> Any:
    """Return how often each effect has happened."""
    found = Effect.objects.filter(key__in=keys).values_list("key").annotate(Count("pk"))
    return dict(found.order_by())


def released(gate: str) -> Any:
    """Open a gate, at which tools wait."""
    GATES.mkdir(parents=True, exist_ok=True)
    (GATES / gate.replace("/", "_")).touch()
    return {"released": gate}


def spared(seconds: float) -> Any:
    """Inject no fault into this process for a while."""
    injection.spare(seconds)
    return {"spared": seconds}


def threads() -> Any:
    """Return how many tool threads run a tool, and their maximum."""
    names = {one.ident: one.name for one in threading.enumerate()}
    frames = sys._current_frames().items()
    working = [frame for id, frame in frames if names.get(id, "").startswith("mcp-tool_")]
    most = settings.DJANGO_MCP["THREADS"]
    return {"working": sum(map(_is_in_tool, working)), "of": most}


def _is_in_tool(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != mcp.__file__:
        frame = frame.f_back
    return frame is not None


def forgotten() -> Any:
    """Age ended streams by two hours, and prune them."""
    over = Stream.objects.using(settings.DJANGO_MCP["DATABASE"]).filter(closed=True)
    aged = over.update(ended=F("ended") - timedelta(hours=2))
    call_command("mcp_prune", stdout=io.StringIO())
    return {"aged": aged}


def view(does: Callable[..., Any]) -> Callable[[HttpRequest], JsonResponse]:
    def answer(request: HttpRequest) -> JsonResponse:
        return JsonResponse(does(**json.loads(request.body)))

    return answer


VIEWS: dict[str, Callable[..., Any]] = {
    "token": token, "extend": extend, "revoke": revoked, "deactivate": deactivated,
    "effects": effects, "release": released, "spare": spared,
    "forget": forgotten, "threads": threads,
}  # fmt: skip
urlpatterns = [path(f"{name}/", view(does)) for name, does in VIEWS.items()]
