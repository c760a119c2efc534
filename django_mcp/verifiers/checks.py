"""
System checks of external issuers.

They check that clients can find the issuer, and that tokens of other issuers are not sent to an
introspection endpoint. URLs are resolved in the project's URLconf, as for a request. Verifiers that
cannot be imported are reported by ``django_mcp.E096``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.urls import Resolver404, resolve

from ..auth.principal import verifiers
from .external_tokens import ExternalTokens
from .protected_resource import PATH, protected_resource

HINT = 'path("", include("django_mcp.verifiers.urls")), first in ROOT_URLCONF.'


def messages() -> Sequence[CheckMessage]:
    """Return the warnings and errors. Return none if no verifier is an ``ExternalTokens``."""
    try:
        asked = verifiers()
    except Exception:
        return []
    if not any(isinstance(one, ExternalTokens) for one in asked):
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
    """Find verifiers after an ``IntrospectedTokens``, which sends unknown tokens to its issuer.

    If that issuer does not respond, the verifiers after it are not asked either.
    """
    from .introspection import IntrospectedTokens

    kinds = [isinstance(one, IntrospectedTokens) for one in asked]
    if True in kinds and not all(kinds[kinds.index(True) :]):
        message = "VERIFIERS has others after an IntrospectedTokens: their tokens are sent away."
        hint = "Name those that introspect at the end."
        yield Error(message, hint=hint, id="django_mcp.E171")
