"""
The setting ``DJANGO_MCP["OAUTH"]`` with its defaults, and ``dot_settings`` for ``OAUTH2_PROVIDER``.

Options of django-oauth-toolkit stay in its own setting, where the project sees them.
``dot_settings`` returns the required values, and ``manage.py check`` verifies them.
"""

from __future__ import annotations

from typing import Any

from django.core.signals import setting_changed

from ..conf import settings as mcp

DAY_SECONDS = 86_400
DEFAULTS: dict[str, Any] = {
    # Whether clients may register themselves (RFC 7591): "open" or "off".
    "REGISTRATION": "open",
    # Registrations allowed from one network: "number/seconds".
    "REGISTRATION_RATE": "20/3600",
    # Seconds after which a client that registered itself and was never authorized is deleted.
    "UNUSED": DAY_SECONDS,
    # Schemes of redirect URIs beside https, and http to the user's own machine.
    "REDIRECT_SCHEMES": ["cursor"],
    # Name of the server for clients that name none, as those of 2025-03-26. With None and several
    # servers, the user chooses one on the consent page.
    "DEFAULT_SERVER": None,
    # Hosts whose client ID metadata documents are accepted, in the syntax of ALLOWED_HOSTS.
    "CLIENT_HOSTS": ["*"],
    # Seconds for which a client stays valid if its metadata document can no longer be fetched.
    "STALE": 7 * DAY_SECONDS,
    # Seconds within which a client may use a refresh token again.
    "REFRESH_GRACE": 60,
    # Dotted path of a function (user, server) -> bool: whether the user may authorize clients.
    "MAY_AUTHORIZE": None,
    # Dotted path of an ``Upstream``, which knows the upstream account that a user signed in with,
    # and whether it is still active.
    "UPSTREAM": None,
}
RFC9700_OPTIONS = (
    "IMPLICIT_GRANT",
    "PASSWORD_GRANT",
    "PKCE_METHOD",
    "ACCESS_TOKEN_TRANSPORT",
    "AUTHZ_RESPONSE_ISS",
    "TOKEN_STORAGE",
)
TOKEN_ENDPOINT_AUTH_METHODS = [
    "none",
    "client_secret_post",
    "client_secret_basic",
    "private_key_jwt",
]
# Algorithms of ``private_key_jwt`` (RFC 7523). HMAC is missing, because there is no shared secret.
ASSERTION_ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]


class OAuthSettings:
    """The keys of ``DJANGO_MCP["OAUTH"]``, with defaults. A change by a test clears the cache."""

    def __getattr__(self, name: str) -> Any:
        """Load all keys as attributes. Python calls this only for attributes that are not set."""
        if name not in DEFAULTS:
            raise AttributeError(f'DJANGO_MCP["OAUTH"] has no key {name!r}.')
        vars(self).update(DEFAULTS | mcp.OAUTH)
        return vars(self)[name]

    def reload(self, *, setting: str, **kwargs: Any) -> None:
        if setting == "DJANGO_MCP":
            vars(self).clear()


settings = OAuthSettings()
setting_changed.connect(settings.reload, dispatch_uid="django_mcp.oauth.conf")


def issuer() -> str:
    """Return the issuer identifier: the origin of ``DJANGO_MCP["URL"]``, without a slash."""
    return str(mcp.URL).rstrip("/")


def dot_settings(url: str, **over: Any) -> dict[str, Any]:
    """Return the value of ``OAUTH2_PROVIDER``, as in ``OAUTH2_PROVIDER = dot_settings(url)``.

    ``url`` is the public origin, as in ``DJANGO_MCP["URL"]``, for example "https://shop.example".
    ``over`` overrides or adds keys, as the project's own ``SCOPES``. ``manage.py check`` reports
    overrides that are not allowed.
    """
    return {
        "OIDC_ISS_ENDPOINT": url.rstrip("/"),
        "OAUTH2_VALIDATOR_CLASS": "django_mcp.oauth.validators.MCPOAuth2Validator",
        "SCOPES_BACKEND_CLASS": "django_mcp.oauth.scope_grants.MCPScopes",
        "PKCE_REQUIRED": True,
        "REQUEST_APPROVAL_PROMPT": "force",
        "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
        "REFRESH_TOKEN_EXPIRE_SECONDS": 30 * DAY_SECONDS,
        "ROTATE_REFRESH_TOKEN": True,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
        "ALLOW_LOCALHOST_LOOPBACK": True,
        "ALLOW_URI_WILDCARDS": False,
        "ALLOWED_REDIRECT_URI_SCHEMES": ["https", "http", "cursor"],
        **{f"COMPLIANT_BCP_RFC9700_{name}": True for name in RFC9700_OPTIONS},
        "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": TOKEN_ENDPOINT_AUTH_METHODS,
        "DCR_ENABLED": False,
        "CIMD_ENABLED": True,
        "CIMD_METADATA_FETCHER": "django_mcp.oauth.client_metadata_documents.MCPMetadataFetcher",
        "CIMD_REGISTRATION_PERMISSION_CLASSES": [
            "django_mcp.oauth.client_metadata_documents.CIMDPolicy"
        ],
        "CIMD_MAX_DOCUMENT_SIZE": 5120,
        **over,
    }
