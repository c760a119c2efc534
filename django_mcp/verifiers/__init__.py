"""
Token verifiers, for the setting ``VERIFIERS``, and the metadata that names their issuers.

``PersonalAccessTokens`` verifies tokens of this site. ``JWTTokens`` and ``IntrospectedTokens``
verify tokens of an external authorization server, such as Auth0, Entra, Keycloak or Okta. They need
neither ``django_mcp.oauth`` nor django-oauth-toolkit: a project creates one object per issuer. Each
class is imported when it is first used, so only projects with ``JWTTokens`` need its JWT library.

- ``personal_tokens``: ``PersonalAccessTokens``
- ``external_tokens``: the base class of the other two, and the claims of their tokens
- ``jwt_tokens``, ``jose``: ``JWTTokens``, and the signatures and keys that it verifies with
- ``introspection``: ``IntrospectedTokens``
- ``fetching``: HTTP requests to issuers
- ``protected_resource``, ``urls``: metadata on which issuers a server accepts (RFC 9728)
- ``checks``: system checks of verifiers
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .introspection import IntrospectedTokens as IntrospectedTokens
    from .jwt_tokens import JWTTokens as JWTTokens
    from .personal_tokens import PersonalAccessTokens as PersonalAccessTokens

_MODULES = {
    "IntrospectedTokens": "introspection",
    "JWTTokens": "jwt_tokens",
    "PersonalAccessTokens": "personal_tokens",
}

__all__ = ["IntrospectedTokens", "JWTTokens", "PersonalAccessTokens"]


if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
