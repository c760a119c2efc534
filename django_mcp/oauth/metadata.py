"""
What the authorization server and the servers say of themselves (RFC 8414, RFC 9728).

Rule: the same to everybody, made from settings: no host and no header of a request is in it, and
of its path only the slash at the end of a server that is there. What there is no document of is a
404 in JSON: clients that look at all places in turn go on, and take no page for an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.encoding import escape_uri_path
from oauth2_provider.settings import oauth2_settings

from ..conf import project
from .conf import SECRETS, settings
from .cors import cors
from .resources import issuer, resource, served
from .scopes import default_scopes

if TYPE_CHECKING:
    from ..declare.servers import Server

Document = dict[str, Any]

AUTHORIZATION_SERVER = ".well-known/oauth-authorization-server"
PROTECTED_RESOURCE = ".well-known/oauth-protected-resource"
OPENID_CONFIGURATION = ".well-known/openid-configuration"

# Below the issuer, of the members that name them.
ENDPOINTS = {
    "authorization_endpoint": "oauth/authorize",
    "token_endpoint": "oauth/token",
    "revocation_endpoint": "oauth/revoke",
}
REGISTRATION = {"registration_endpoint": "oauth/register"}
# By which a client may sign that it is itself (RFC 7523): keys of its own, no shared secret.
SIGNATURES = ["RS256", "PS256", "ES256", "EdDSA"]
OFFLINE = "offline_access"  # what a client asks for by itself, and is told nowhere to
GETTING = ("GET", "HEAD")
FRESH = 3600  # seconds for which a document may be kept


def authorization_server_metadata() -> Document:
    """The document of the authorization server (RFC 8414, 2).

    A client may copy the grants into its registration, and gives up where it misses S256 or
    "none": all that is here is what every client may use.
    """
    return {
        "issuer": issuer(),
        **{member: _endpoint(path) for member, path in _endpoints().items()},
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


def protected_resource_metadata(server: Server) -> Document:
    """The document of a server (RFC 9728, 2)."""
    return {
        "resource": resource(server),
        "authorization_servers": [issuer()],
        "scopes_supported": _scopes(),
        "bearer_methods_supported": ["header"],
        "resource_name": str(server.title or server.public_name),
    }


def resource_metadata_url(server: Server) -> str:
    """Where the document of a server is: its path after the well-known one (RFC 9728, 3.1)."""
    return f"{issuer()}/{PROTECTED_RESOURCE}{urlsplit(resource(server)).path}"


def _endpoints() -> dict[str, str]:
    return ENDPOINTS | (REGISTRATION if settings.REGISTRATION == "open" else {})


def _endpoint(path: str) -> str:
    root = (project.FORCE_SCRIPT_NAME or "").rstrip("/")
    return f"{issuer()}{root}/{path}"


def _scopes() -> list[str]:
    """The least there is: who asks for all that is listed asks for no more than that."""
    return [scope for scope in default_scopes() if scope != OFFLINE]


def _authentication(endpoint: str) -> Document:
    return {
        f"{endpoint}_auth_methods_supported": SECRETS,
        f"{endpoint}_auth_signing_alg_values_supported": SIGNATURES,
    }


# The views.


def _published(
    find: Callable[[str], Document | None],
) -> Callable[[HttpRequest, str], HttpResponseBase]:
    """A view of what ``find`` makes of the path after the well-known one; None is a 404."""

    @login_not_required
    @cors(*GETTING)
    @wraps(find)
    def view(request: HttpRequest, suffix: str | None = None) -> HttpResponseBase:
        if request.method not in GETTING:
            return _refusal(405, "method_not_allowed", Allow=", ".join((*GETTING, "OPTIONS")))
        if (found := find(suffix or "")) is None:
            return _refusal(404, "not_found")
        return JsonResponse(found, headers={"Cache-Control": f"public, max-age={FRESH}"})

    return view


def _refusal(status: int, error: str, **headers: str) -> JsonResponse:
    kept = {"Cache-Control": "no-store", **headers}
    return JsonResponse({"error": error}, status=status, headers=kept)


@_published
def authorization_server(suffix: str) -> Document | None:
    """At the root of the origin, which the issuer is: no other issuer is told of."""
    return authorization_server_metadata() if suffix in ("", "/") else None


@_published
def protected_resource(suffix: str) -> Document | None:
    """By the path of each server; at the root, for whoever knows no path, the only one there is.

    Clients hold ``resource`` against the URL that they were given, which may end in a slash.
    """
    found = {urlsplit(name).path: server for name, server in served().items()}
    server = found.get(escape_uri_path(suffix.removesuffix("/")))
    if server is not None:
        document = protected_resource_metadata(server)
        slash = "/" if suffix.endswith("/") else ""
        return document | {"resource": document["resource"] + slash}
    alone = list(found.values()) if suffix in ("", "/") else []
    return protected_resource_metadata(alone[0]) if len(alone) == 1 else None


@_published
def openid_configuration(suffix: str) -> Document | None:
    """There is none. Some clients look for it first, and stop at a page or an error 500."""
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
