"""
The ``OAuth2Validator`` of the embedded authorization server (``OAUTH2_VALIDATOR_CLASS``).

The hooks are stricter than django-oauth-toolkit's, except that ``validate_scopes`` drops unknown
scopes instead of rejecting the request. Clients that were not registered by hand are limited to
OAuth 2.1: the authorization code grant, S256, the scopes of the MCP servers, and our consent page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any

from django.db import IntegrityError
from oauth2_provider.scopes import get_scopes_backend
from oauthlib.oauth2.rfc6749 import errors

from .. import signals
from ..auth.principal import HALF_DIGEST_LENGTH
from ..auth.scopes import offered
from . import client_authentication, registration_limits
from .authorization_request import OUR_TOKEN_VIEW, OUR_VIEW
from .client_authentication import PrivateKeyJWT, TooManyAttempts, check_hashed_secret
from .client_registry import ensure_profile
from .grants import S256, CodeRedemption, RefreshTokenRotation
from .resource_indicators import is_for_mcp_servers, is_mcp_token, is_self_registered
from .scope_grants import may_use

SELF_REGISTERED_GRANTS = frozenset(("authorization_code", "refresh_token"))
CLIENT_CREDENTIALS = "client_credentials"
CONFIDENTIAL = "confidential"
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # a SHA-256 in base64url (RFC 7636, 4.2)
NONCE = re.compile(r"[^\0]{0,255}")  # limits of the database column
logger = logging.getLogger("django_mcp.oauth")
# Network of the current request: django-oauth-toolkit does not pass it to ``_check_secret``.
_network: ContextVar[str] = ContextVar("network", default="")
# These loggers write codes and tokens at DEBUG. A level that the project has set is kept.
for _name in ("oauthlib", "oauth2_provider"):
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(logging.INFO)


class MCPOAuth2Validator(PrivateKeyJWT, CodeRedemption, RefreshTokenRotation):
    """The validator that ``dot_settings`` sets as ``OAUTH2_VALIDATOR_CLASS``."""

    # Clients.

    def _check_secret(self, provided_secret: str, stored_secret: str) -> bool:
        """Whether the secrets match. If either is empty, they do not."""
        if not (provided_secret and stored_secret):
            return False
        if client_authentication.is_digest(stored_secret):
            return client_authentication.matches_digest(provided_secret, stored_secret)
        compare = partial(super()._check_secret, provided_secret, stored_secret)
        return check_hashed_secret(provided_secret, stored_secret, _network.get(), compare)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        remote = str(request.headers.get("REMOTE_ADDR") or "")
        token = _network.set(registration_limits.address_digest(remote)[:HALF_DIGEST_LENGTH])
        try:
            return bool(super().authenticate_client(request, *args, **kwargs))
        except ValueError:  # raised for a header that is not ASCII
            return False
        except TooManyAttempts:
            logger.warning(
                "Too many wrong secrets of an OAuth client: client_id=%s", request.client_id
            )
            # Only our token view turns the exception into a response. A client may send the
            # parameter grant_type to any endpoint, so it does not identify the token endpoint.
            # django-oauth-toolkit passes request.META as headers, and our view sets this key.
            if not request.headers.get(OUR_TOKEN_VIEW):
                return False
            message = "There were too many wrong secrets. Try again in a minute."
            raise errors.TemporarilyUnavailableError(message, status_code=503) from None
        finally:
            _network.reset(token)

    def validate_client_id(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Reject self-registered clients at authorization views other than ours.

        Only the authorization endpoint calls this hook.
        """
        if not super().validate_client_id(client_id, request, *args, **kwargs):
            return False
        return not is_self_registered(request.client) or bool(request.headers.get(OUR_VIEW))

    # Grants, PKCE and scopes.

    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        if is_self_registered(client) and grant_type not in SELF_REGISTERED_GRANTS:
            return False
        if grant_type == CLIENT_CREDENTIALS and not self._may_use_client_credentials(
            client, request
        ):
            return False
        try:
            found = super().validate_grant_type(
                client_id, grant_type, client, request, *args, **kwargs
            )
        # django-oauth-toolkit does not know the grant "openid": a KeyError with ``python -O``.
        except (AssertionError, KeyError):
            return False
        return bool(found)

    def _may_use_client_credentials(self, client: Any, request: Any) -> bool:
        """Whether a client may use the client credentials grant.

        For MCP servers it must be confidential and have a user to act as.
        """
        scopes = request.scopes or ()  # a request without scopes counts as one for MCP servers
        if not is_for_mcp_servers(client, scopes):
            return True
        if client.client_type != CONFIDENTIAL:
            return False
        return may_use(client.user, self.set_targets(request, (), scopes))

    def validate_response_type(
        self, client_id: str, response_type: str, client: Any, request: Any,
        *args: Any, **kwargs: Any,
    ) -> bool:  # fmt: skip
        if is_self_registered(client) and response_type != "code":
            return False
        if not NONCE.fullmatch(request.nonce or ""):
            raise errors.InvalidRequestError(
                "The nonce is longer than 255 characters or has a NUL.", request=request
            )
        return bool(
            super().validate_response_type(
                client_id, response_type, client, request, *args, **kwargs
            )
        )

    def is_pkce_required(self, client_id: str, request: Any) -> bool:
        """Require PKCE with S256 of every client (OAuth 2.1, 4.1.1; RFC 9700, 2.1.1).

        Wrong challenges are rejected here, before the user is asked for consent.
        """
        challenge = request.code_challenge
        if challenge is not None and request.code_challenge_method != S256:
            raise errors.UnsupportedCodeChallengeMethodError(request=request)
        if challenge is not None and not CHALLENGE.fullmatch(challenge):
            raise errors.InvalidRequestError(
                "The code_challenge is not that of S256.", request=request
            )
        return True

    def validate_scopes(
        self, client_id: str, scopes: Iterable[str], client: Any, request: Any,
        *args: Any, **kwargs: Any,
    ) -> bool:  # fmt: skip
        """Drop unknown scopes (RFC 6749, 3.3), and reject the request if none is left.

        An empty parameter counts as omitted (3.1).
        """
        asked = list(filter(None, scopes)) or self.get_default_scopes(client_id, request)
        known = _known_scopes(client, request)
        request.scopes = [scope for scope in dict.fromkeys(asked) if scope in known]
        return bool(request.scopes) and not _bypasses_consent_page(client, request)

    # Tokens.

    def save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        """Store the tokens. Raise ``InvalidClientError`` if the client was deleted meanwhile."""
        try:
            super().save_bearer_token(token, request, *args, **kwargs)
        except IntegrityError as error:
            if type(request.client)._default_manager.filter(pk=request.client.pk).exists():
                raise
            raise errors.InvalidClientError(request=request) from error

    def _create_access_token(self, expires: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Set the user of a client credentials token to the client's user.

        So the token is revoked with that user.
        """
        is_ours = is_for_mcp_servers(request.client, request.scopes)
        if request.grant_type == CLIENT_CREDENTIALS and is_ours:
            request.user = request.client.user
            ensure_profile(request.client)
        token = super()._create_access_token(expires, request, *args, **kwargs)
        signals.send_row_signal(signals.token_created, type(token), token=token)
        return token

    def validate_bearer_token(self, token: str, scopes: Any, request: Any) -> bool:
        """Reject tokens for MCP servers at the project's other APIs.

        django-oauth-toolkit would accept them at paths below a server's path, and leaves scopes to
        each API.
        """
        if not super().validate_bearer_token(token, scopes, request):
            return False
        if request.user is not None and not request.user.is_active:
            return False
        return not is_mcp_token(request.access_token)


def _bypasses_consent_page(client: Any, request: Any) -> bool:
    """Whether a request for MCP servers comes to an authorization view other than ours.

    Requests to the token endpoint have no response type.
    """
    if not request.response_type or request.headers.get(OUR_VIEW):
        return False
    return is_for_mcp_servers(client, request.scopes)


def _known_scopes(client: Any, request: Any) -> set[str]:
    """Return the scopes that a client may request.

    Scopes of the project's other APIs are only for clients that were registered by hand.
    """
    known = set(get_scopes_backend().get_available_scopes(application=client, request=request))
    return known & offered().keys() if is_self_registered(client) else known
