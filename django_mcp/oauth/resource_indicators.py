"""Resource indicators at the token endpoint (RFC 8707, 2.2), and notes on a request.

A token for MCP servers names at least one server, by its canonical URL. A request without a
``resource`` gets the server that the user chose at the consent, or the ``DEFAULT_SERVER``, or the
only server. Rejected values are not repeated in the error.

Clients that were registered by hand, and that ask for none of our scopes, belong to the project's
other APIs. django-oauth-toolkit handles them. Their tokens are not valid at MCP servers.

``RequestNotes`` pass data from one validator hook to the next. They are stored in
``vars(request)``, never read as attributes of the request: oauthlib answers missing attributes from
the parameters that the client sent, so a parameter ``family`` would be taken for a token family.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749 import errors

from ..auth.scopes import offered
from ..verifiers.protected_resource import canonical, served
from .conf import settings
from .models import ClientProfile, Source

if TYPE_CHECKING:
    from ..declarations.server import Server

_NOTES_ATTRIBUTE = "_mcp_notes"


@dataclass(slots=True)
class RequestNotes:
    """What the validator's hooks have found out about one request."""

    grant: Any = None  # row of the code that is redeemed
    targets: list[str] | None = None  # URLs of the servers that the token will be for
    scope: str = ""  # scope of the refresh token that is used
    family: uuid.UUID | None = None  # family of the refresh token that was issued
    unblocked_client_id: str | None = None  # client that was found not to be blocked
    profile: tuple[str, ClientProfile | None] | None = None  # the client's id and its profile


def notes(request: Any) -> RequestNotes:
    found: RequestNotes = vars(request).setdefault(_NOTES_ATTRIBUTE, RequestNotes())
    return found


def is_self_registered(client: Any) -> bool:
    """Whether a client was not registered by hand, but by itself or by its metadata document."""
    return str(client.registration_source) != Source.MANUAL


def is_for_mcp_servers(client: Any, scopes: Iterable[str]) -> bool:
    """Whether a client's token with these scopes is for MCP servers, not for another API."""
    requested = set(filter(None, scopes))
    return is_self_registered(client) or not requested or bool(requested & offered().keys())


def is_mcp_token(token: Any, known: Collection[str] | None = None) -> bool:
    """Whether an access or refresh token is for MCP servers.

    ``known`` are the servers' URLs, if the caller has them.
    """
    # Self-registered clients can get no tokens for other APIs.
    if token.application is not None and is_self_registered(token.application):
        return True
    targets = {canonical(uri) for uri in token.resource or () if isinstance(uri, str)}
    return not targets.isdisjoint(served() if known is None else known)


def decide_targets(requested: Iterable[Any], granted: Iterable[Any]) -> list[str]:
    """Return the URLs of the servers that a token is for, from the requested and granted ones.

    Raise ``invalid_target`` (RFC 8707, 2) for a URL that is no server, or that was not granted.
    """
    known = set(served())
    wanted, allowed = _canonical_uris(requested), _canonical_uris(granted)
    if not wanted <= known:
        raise _invalid_target()
    if allowed and not wanted <= allowed:  # the user did not consent to one of them
        raise _invalid_target()
    if allowed and not allowed & known:  # no other server replaces one that no longer exists
        raise _invalid_target()
    return sorted(wanted or allowed & known or _only_default_server())


def _canonical_uris(uris: Iterable[Any]) -> set[str]:
    """Return the canonical URLs. An invalid one becomes "", which matches no server."""
    return {(canonical(uri) if isinstance(uri, str) else None) or "" for uri in uris}


def default_servers() -> dict[str, Server]:
    """Return the servers that a request without a resource may be for, by URL.

    That is the ``DEFAULT_SERVER``, or else all servers.
    """
    known = served()
    default = {uri: found for uri, found in known.items() if found.name == settings.DEFAULT_SERVER}
    return default or known


def _only_default_server() -> Collection[str]:
    found = default_servers()
    if len(found) != 1:
        raise _invalid_target()
    return found


def _invalid_target() -> Exception:
    description = "The resource must be a server of this site that the user consented to."
    error: Exception = errors.CustomOAuth2Error(error="invalid_target", description=description)
    return error


def _requested_resources(request: Any) -> list[Any]:
    """Return each non-empty ``resource`` of a request: oauthlib itself keeps only the last one.

    Without a body, ``request.resource`` is what the authorization endpoint set: a list or a string.
    """
    in_body = [value for name, value in request.decoded_body or () if name == "resource"]
    found = in_body or request.resource or []
    return [uri for uri in ([found] if isinstance(found, str) else found) if uri]


class ResourceIndicators(OAuth2Validator):  # type: ignore[misc]
    """Validator mixin: bind tokens to the servers that they are for."""

    def set_targets(self, request: Any, granted: Iterable[Any], scopes: Iterable[str]) -> list[str]:
        """Decide which servers the token is for, and return their URLs. Raise ``invalid_target``.

        Call it in a validation hook, where the error still becomes a proper OAuth response.
        """
        if is_for_mcp_servers(request.client, scopes):
            request.resource = decide_targets(_requested_resources(request), granted)
        else:
            self._set_other_targets(request)
        notes(request).targets = request.resource
        found: list[str] = request.resource
        return found

    def _set_other_targets(self, request: Any) -> None:
        try:
            super()._check_and_set_request_resource(request)
        except ValueError:  # raised by urlsplit, as for "http://["
            raise _invalid_target() from None

    def _check_and_set_request_resource(self, request: Any) -> None:
        targets = notes(request).targets
        if targets is None:
            targets = self.set_targets(request, (), request.scopes)
        request.resource = targets
