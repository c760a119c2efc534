"""
What the authorization server says of itself (RFC 8414).

Rule: the same to everybody, made from settings. There is one, and no OpenID document.
"""

from __future__ import annotations

from oauth2_provider.settings import oauth2_settings

from ..protected.documents import Document, listed, published
from ..protected.names import endpoint, served
from .conf import SECRETS, issuer, settings
from .scopes import default_scopes

# Below the issuer, of the members that name them.
ENDPOINTS = {
    "authorization_endpoint": "oauth/authorize",
    "token_endpoint": "oauth/token",
    "revocation_endpoint": "oauth/revoke",
}
REGISTRATION = {"registration_endpoint": "oauth/register"}
# By which a client may sign that it is itself (RFC 7523): keys of its own, no shared secret.
SIGNATURES = ["RS256", "PS256", "ES256", "EdDSA"]


def authorization_server_metadata() -> Document:
    """The document of the authorization server (RFC 8414, 2).

    A client may copy the grants into its registration, and gives up where it misses S256 or
    "none": all that is here is what every client may use.
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
    """The least there is: who asks for all that is listed asks for no more than that."""
    return listed(default_scopes())


def _authentication(at: str) -> Document:
    return {
        f"{at}_auth_methods_supported": SECRETS,
        f"{at}_auth_signing_alg_values_supported": SIGNATURES,
    }


# The views.


@published
def authorization_server(suffix: str) -> Document | None:
    """At the root of the origin, which the issuer is: no other issuer is told of."""
    return authorization_server_metadata() if suffix in ("", "/") else None


@published
def nothing(suffix: str) -> Document | None:
    """There is none. Some clients look there first, and stop at a page or an error 500."""
    return None


class NoOpenID:
    """In a path: wherever clients look for OpenID's document, unless the project serves one."""

    regex = r"(?:.+/)?\.well-known/openid-configuration(?:/.*)?"

    def to_python(self, value: str) -> str:
        """``ValueError`` is how Django is told to look further."""
        if oauth2_settings.OIDC_ENABLED:
            raise ValueError("The project has an OpenID document of its own.")
        return value

    def to_url(self, value: str) -> str:
        return value


class BelowServer:
    """In a path: documents below a server's, where some clients look. Nobody else's are hidden."""

    regex = r".+/\.well-known/oauth-(?:authorization-server|protected-resource)(?:/.*)?"

    def to_python(self, value: str) -> str:
        above = value.partition("/.well-known/")[0]
        if above not in {server.path.strip("/") for server in served().values()}:
            raise ValueError("That is below no server.")
        return value

    def to_url(self, value: str) -> str:
        return value
