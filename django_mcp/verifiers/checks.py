"""
System checks of token verifiers, and of what clients are told about external issuers.

URLs are resolved in the project's URLconf, as for a request. Verifiers that cannot be imported are
reported by ``django_mcp.E096``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.urls import Resolver404, resolve

from ..auth.principal import RevokingVerifier, verifiers
from .external_tokens import ExternalTokens
from .protected_resource import PATH, protected_resource

INCLUDE = 'path("", include("django_mcp.verifiers.urls")), first in ROOT_URLCONF.'


def messages() -> Sequence[CheckMessage]:
    """Return the warnings and errors of the verifiers in the setting ``VERIFIERS``."""
    try:
        configured = verifiers()
    except Exception:  # a verifier may raise anything
        return []
    external = any(isinstance(verifier, ExternalTokens) for verifier in configured)
    return [
        *_renamed_method(configured),
        *(_unpublished_issuer() if external else ()),
        *_after_introspection(configured),
    ]


def _renamed_method(configured: Sequence[Any]) -> Iterator[CheckMessage]:
    """Find verifiers with ``standing``, which is now ``still_valid``.

    Nothing would call ``standing``, so revoked tokens would not close streams and calls.
    """
    for verifier in configured:
        if callable(getattr(verifier, "standing", None)) and not isinstance(
            verifier, RevokingVerifier
        ):
            name = type(verifier).__qualname__
            message = f"{name} has a method standing(), which is never called."
            hint = "Rename it to still_valid(). Otherwise revoked tokens do not close streams."
            yield Warning(message, hint=hint, id="django_mcp.W172")


def _unpublished_issuer() -> Iterator[CheckMessage]:
    if not getattr(django_settings, "ROOT_URLCONF", None):
        return
    try:
        view: Any = resolve(f"/{PATH}").func
    except Resolver404:
        view = None
    if view is not protected_resource:
        message = f"VERIFIERS has an issuer, and no view at /{PATH} tells clients about it."
        yield Warning(message, hint=INCLUDE, id="django_mcp.W170")


def _after_introspection(configured: Sequence[Any]) -> Iterator[CheckMessage]:
    """Find verifiers after an ``IntrospectedTokens``, which sends unknown tokens to its issuer.

    If that issuer does not respond, the verifiers after it are not asked either.
    """
    from .introspection import IntrospectedTokens

    introspects = [isinstance(verifier, IntrospectedTokens) for verifier in configured]
    if True in introspects and not all(introspects[introspects.index(True) :]):
        message = "VERIFIERS has others after an IntrospectedTokens: it sends their tokens away."
        hint = "Put verifiers that introspect at the end."
        yield Error(message, hint=hint, id="django_mcp.E171")
