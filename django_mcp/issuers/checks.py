"""
What ``manage.py check`` says of issuers elsewhere: what keeps clients away, or shows tokens around.

Rule: the project's URLconf is asked as a request would ask it. What cannot be imported is told of
already (``django_mcp.E096``), with the words of whoever refused it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.urls import Resolver404, resolve

from ..principal import verifiers
from ..protected.metadata import PATH, protected_resource
from .issued import IssuedTokens

HINT = 'path("", include("django_mcp.issuers.urls")), first in ROOT_URLCONF.'


def messages() -> Sequence[CheckMessage]:
    """Clients find the issuer, and no issuer is shown what is not its own."""
    try:
        asked = verifiers()
    except Exception:
        return []
    if not any(isinstance(one, IssuedTokens) for one in asked):
        return []
    return [*_hidden(), *_shown_around(asked)]


def _hidden() -> Iterator[CheckMessage]:
    if not getattr(django_settings, "ROOT_URLCONF", None):
        return
    try:
        found: Any = resolve(f"/{PATH}").func
    except Resolver404:
        found = None
    if found is not protected_resource:
        message = f"VERIFIERS name an issuer, and clients are not told of it: not by us at /{PATH}."
        yield Warning(message, hint=HINT, id="django_mcp.W170")


def _shown_around(asked: Sequence[Any]) -> Iterator[CheckMessage]:
    """What is not known is sent away, and the next is never asked while nobody answers there."""
    from .introspection import IntrospectedTokens

    kinds = [isinstance(one, IntrospectedTokens) for one in asked]
    if True in kinds and not all(kinds[kinds.index(True) :]):
        message = "VERIFIERS has others after an IntrospectedTokens: their tokens are sent away."
        hint = "Name those that introspect at the end."
        yield Error(message, hint=hint, id="django_mcp.E171")
