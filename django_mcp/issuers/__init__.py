"""
Verifiers for tokens of external authorization servers: Auth0, Entra, Keycloak, Okta, Django.

This package needs neither the embedded authorization server nor django-oauth-toolkit. A project
creates one object per issuer and names it in ``VERIFIERS``. The classes are imported at first use,
so only projects with ``JWTTokens`` need PyJWT.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .introspection import IntrospectedTokens as IntrospectedTokens
    from .jwts import JWTTokens as JWTTokens

_PLACES = {"IntrospectedTokens": "introspection", "JWTTokens": "jwts"}

__all__ = ["IntrospectedTokens", "JWTTokens"]


if not TYPE_CHECKING:  # with __getattr__, type checkers would take any name

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_PLACES[name]}", __name__), name)
