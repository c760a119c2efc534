"""
``DJANGO_MCP["OAUTH"]`` and its defaults, and what django-oauth-toolkit is to be told.

Rule: what django-oauth-toolkit decides is written into its own setting by ``dot_settings``, where
the project sees it, and verified by ``manage.py check``; only what is ours stands here.
"""

from __future__ import annotations

from typing import Any

from ..conf import settings as mcp

DAY = 86_400
DEFAULTS: dict[str, Any] = {
    # Whether clients may register themselves (RFC 7591): "open" or "off".
    "REGISTRATION": "open",
    # How many may do so from one address: "number/seconds".
    "REGISTRATION_RATE": "20/3600",
    # Seconds after which a client that registered itself and was never authorized is forgotten.
    "UNUSED": DAY,
    # Schemes of redirect URIs beside https, and http to this very machine.
    "REDIRECT_SCHEMES": ["cursor"],
    # Hosts whose client ID metadata documents are taken, as in ALLOWED_HOSTS.
    "CLIENT_HOSTS": ["*"],
    # Seconds for which a client is let in whose metadata document cannot be had any more.
    "STALE": 7 * DAY,
    # Seconds within which a refresh token that was just used may be used by its client again.
    "REFRESH_GRACE": 60,
    # Dotted path of (user, server) -> bool: who may authorize clients at all.
    "MAY_AUTHORIZE": None,
    # Dotted path of an ``Upstream``: which account elsewhere people signed in by, and whether that
    # still stands.
    "UPSTREAM": None,
}
BEHAVIOUR = (
    "IMPLICIT_GRANT",
    "PASSWORD_GRANT",
    "PKCE_METHOD",
    "ACCESS_TOKEN_TRANSPORT",
    "AUTHZ_RESPONSE_ISS",
    "TOKEN_STORAGE",
)
SECRETS = ["none", "client_secret_post", "client_secret_basic", "private_key_jwt"]


class Settings:
    """``DJANGO_MCP["OAUTH"]`` over the defaults, read at the moment of use."""

    def __getattr__(self, name: str) -> Any:
        if name not in DEFAULTS:
            raise AttributeError(f'DJANGO_MCP["OAUTH"] has no key {name!r}.')
        return mcp.OAUTH.get(name, DEFAULTS[name])


settings = Settings()


def issuer() -> str:
    """The authorization server's name, which tokens and clients are bound to: the origin."""
    return str(mcp.URL).rstrip("/")


def dot_settings(url: str, **over: Any) -> dict[str, Any]:
    """What ``OAUTH2_PROVIDER`` is to be: ``OAUTH2_PROVIDER = dot_settings("https://shop.example")``.

    ``url`` is the public origin, that of ``DJANGO_MCP["URL"]``; ``over`` is what the project has
    otherwise, its own SCOPES among it. ``manage.py check`` tells what must not be otherwise.
    """
    return {
        "OIDC_ISS_ENDPOINT": url.rstrip("/"),
        "OAUTH2_VALIDATOR_CLASS": "django_mcp.oauth.validators.MCPOAuth2Validator",
        "SCOPES_BACKEND_CLASS": "django_mcp.oauth.scopes.MCPScopes",
        "PKCE_REQUIRED": True,
        "REQUEST_APPROVAL_PROMPT": "force",
        "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
        "REFRESH_TOKEN_EXPIRE_SECONDS": 30 * DAY,
        "ROTATE_REFRESH_TOKEN": True,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
        "ALLOW_LOCALHOST_LOOPBACK": True,
        "ALLOW_URI_WILDCARDS": False,
        "ALLOWED_REDIRECT_URI_SCHEMES": ["https", "http", "cursor"],
        **{f"COMPLIANT_BCP_RFC9700_{name}": True for name in BEHAVIOUR},
        "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": SECRETS,
        "DCR_ENABLED": False,
        "CIMD_ENABLED": True,
        "CIMD_METADATA_FETCHER": "django_mcp.oauth.cimd.MCPMetadataFetcher",
        "CIMD_REGISTRATION_PERMISSION_CLASSES": ["django_mcp.oauth.cimd.CIMDPolicy"],
        "CIMD_MAX_DOCUMENT_SIZE": 5120,
        **over,
    }
