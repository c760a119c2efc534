"""
Tokens of authorization servers elsewhere: Auth0, Entra, Keycloak, Okta, another Django.

Rule: none of the embedded authorization server is needed, nor django-oauth-toolkit. Each issuer is
an object of the project's own, which ``VERIFIERS`` names. What a class needs is imported when it is
named: who has no JWTs needs no PyJWT.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .introspection import IntrospectedTokens as IntrospectedTokens
    from .jwts import JWTTokens as JWTTokens

_PLACES = {"IntrospectedTokens": "introspection", "JWTTokens": "jwts"}

__all__ = ["IntrospectedTokens", "JWTTokens"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
