"""
Authorization server metadata (RFC 8414).

The document is made from settings only, and is the same for every client. There is one issuer.
This app publishes no OpenID document; a project may have its own.
"""

from __future__ import annotations

import re

from oauth2_provider.settings import oauth2_settings

from ..verifiers.protected_resource import (
    Document,
    endpoint,
    is_server_path,
    published,
    published_scopes,
)
from .conf import ASSERTION_ALGORITHMS, TOKEN_ENDPOINT_AUTH_METHODS, issuer, settings
from .scope_grants import default_scopes

PATH = ".well-known/oauth-authorization-server"
# URL paths, by the member of the metadata document.
ENDPOINTS = {
    "authorization_endpoint": "oauth/authorize",
    "token_endpoint": "oauth/token",
    "revocation_endpoint": "oauth/revoke",
}
REGISTRATION = {"registration_endpoint": "oauth/register"}


def authorization_server_metadata() -> Document:
    """Return the metadata document (RFC 8414, 2).

    It lists only what every client may use. Some clients copy the grants into their registration,
    and some stop if S256 or "none" is missing.
    """
    return {
        "issuer": issuer(),
        **{member: endpoint(path) for member, path in _endpoints().items()},
        "scopes_supported": _scopes(),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        **_authentication("token_endpoint"),
        **_authentication("revocation_endpoint"),
        "client_id_metadata_document_supported": bool(oauth2_settings.CIMD_ENABLED),
        "authorization_response_iss_parameter_supported": True,
    }


def _endpoints() -> dict[str, str]:
    return ENDPOINTS | (REGISTRATION if settings.REGISTRATION == "open" else {})


def _scopes() -> list[str]:
    """Return only the default scopes, because some clients request every scope in this list."""
    return published_scopes(default_scopes())


def _authentication(at: str) -> Document:
    return {
        f"{at}_auth_methods_supported": TOKEN_ENDPOINT_AUTH_METHODS,
        f"{at}_auth_signing_alg_values_supported": ASSERTION_ALGORITHMS,
    }


# The views.


@published
def authorization_server(suffix: str) -> Document | None:
    """Return the document. The issuer has no path, so only an empty suffix has a document."""
    return authorization_server_metadata() if suffix in ("", "/") else None


@published
def not_found(suffix: str) -> Document | None:
    """Return no document, so that the view answers 404 as JSON.

    Some clients request these URLs first, and stop at an HTML page or a 500 error.
    """
    return None


OPENID = ".well-known/openid-configuration"


class MissingOpenID:
    """Path converter: matches OpenID URLs of the site and of MCP servers if OIDC_ENABLED is off.

    URLs that belong to other paths do not match: they may be the project's own.
    """

    regex = rf"(?:.+/)?{re.escape(OPENID)}(?:/.*)?"

    def to_python(self, value: str) -> str:
        """Raise ``ValueError`` if the project has OpenID, so that Django tries the next route."""
        if oauth2_settings.OIDC_ENABLED:
            raise ValueError("The project has an OpenID document of its own.")
        prefix, _, suffix = value.partition(OPENID)
        paths = (prefix.removesuffix("/"), suffix.removeprefix("/").removesuffix("/"))
        if not all(path == "" or is_server_path(path) for path in paths):
            raise ValueError("This is not the path of an MCP server.")
        return value

    def to_url(self, value: str) -> str:
        return value


class BelowServer:
    """Path converter: metadata URLs below the path of an MCP server. The answer is always 404.

    Some clients request these URLs. Metadata URLs below other paths do not match.
    """

    regex = r".+/\.well-known/oauth-(?:authorization-server|protected-resource)(?:/.*)?"

    def to_python(self, value: str) -> str:
        if not is_server_path(value.partition("/.well-known/")[0]):
            raise ValueError("This is not the path of an MCP server.")
        return value

    def to_url(self, value: str) -> str:
        return value
