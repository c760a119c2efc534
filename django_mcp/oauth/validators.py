"""
The decisions of the authorization server, at the hooks of django-oauth-toolkit.

Rule: every hook narrows what that would allow, none widens it. What is of clients that registered
themselves is as narrow as OAuth 2.1 is: one grant, S256, our own scopes, our own consent page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

from django.db import IntegrityError
from oauth2_provider.scopes import get_scopes_backend
from oauthlib.oauth2.rfc6749 import errors

from ..scopes import offered
from . import secrets
from .assertion import PrivateKeyJWT
from .by_hand import list_used
from .marks import OUR_VIEW
from .models import LONGEST_ID, ClientProfile
from .notes import notes
from .people import may_use
from .redeeming import S256, Redeeming
from .refreshing import Refreshing
from .targets import concerns_us, is_ours, registered_itself

GRANTS = frozenset(("authorization_code", "refresh_token"))
MACHINE = "client_credentials"
CONFIDENTIAL = "confidential"
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # a SHA-256 in base64url (RFC 7636, 4.2)
NONCE = re.compile(r"[^\0]{0,255}")  # what its column takes
# They write codes and tokens into the log, at DEBUG. Where the project says otherwise, it may.
for _name in ("oauthlib", "oauth2_provider"):
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(logging.INFO)


class MCPOAuth2Validator(PrivateKeyJWT, Redeeming, Refreshing):
    """What ``dot_settings`` gives django-oauth-toolkit as ``OAUTH2_VALIDATOR_CLASS``."""

    # Clients.

    def _load_application(self, client_id: Any, request: Any) -> Any:
        """A blocked one is as one that never was; its metadata document is not asked for."""
        if _is_id(client_id) and not _is_blocked(client_id, request):
            return super()._load_application(client_id, request)
        request.client = None
        return None

    def _check_secret(self, provided_secret: str, stored_secret: str) -> bool:
        """No secret is not a secret that both sides know."""
        if not (provided_secret and stored_secret):
            return False
        if secrets.is_kept(stored_secret):
            return secrets.is_same(provided_secret, stored_secret)
        return bool(super()._check_secret(provided_secret, stored_secret))

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        try:
            return bool(super().authenticate_client(request, *args, **kwargs))
        except ValueError:  # a header that is not ASCII
            return False

    def validate_client_id(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Asked at the authorization endpoint alone."""
        if not super().validate_client_id(client_id, request, *args, **kwargs):
            return False
        return not registered_itself(request.client) or bool(request.headers.get(OUR_VIEW))

    # What they may do.

    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        if registered_itself(client) and grant_type not in GRANTS:
            return False
        if grant_type == MACHINE and not self._may_act_alone(client, request):
            return False
        try:
            found = super().validate_grant_type(
                client_id, grant_type, client, request, *args, **kwargs
            )
        except AssertionError:  # "openid", which oauthlib knows and django-oauth-toolkit does not
            return False
        return bool(found)

    def _may_act_alone(self, client: Any, request: Any) -> bool:
        """Whether a client is a machine's, with a user to act as: of ours are none without."""
        scopes = request.scopes or ()
        if not concerns_us(client, scopes):
            return True
        if client.client_type != CONFIDENTIAL:
            return False
        return may_use(client.user, self.aim(request, (), scopes))

    def validate_response_type(
        self, client_id: str, response_type: str, client: Any, request: Any,
        *args: Any, **kwargs: Any,
    ) -> bool:  # fmt: skip
        if registered_itself(client) and response_type != "code":
            return False
        if not NONCE.fullmatch(request.nonce or ""):
            raise errors.InvalidRequestError("Such a nonce cannot be kept.", request=request)
        return bool(
            super().validate_response_type(
                client_id, response_type, client, request, *args, **kwargs
            )
        )

    def is_pkce_required(self, client_id: str, request: Any) -> bool:
        """Of every client, and before anybody is asked (OAuth 2.1, 4.1.1; RFC 9700, 2.1.1)."""
        challenge = request.code_challenge
        if challenge is not None and request.code_challenge_method != S256:
            raise errors.UnsupportedCodeChallengeMethodError(request=request)
        if challenge is not None and not CHALLENGE.fullmatch(challenge):
            raise errors.InvalidRequestError("It is no S256 code challenge.", request=request)
        return True

    def validate_scopes(
        self, client_id: str, scopes: Iterable[str], client: Any, request: Any,
        *args: Any, **kwargs: Any,
    ) -> bool:  # fmt: skip
        """Scopes that nobody knows are left out (RFC 6749, 3.3); something must remain.

        A parameter without a value is as one that was not sent (3.1).
        """
        asked = list(filter(None, scopes)) or self.get_default_scopes(client_id, request)
        known = _known_scopes(client, request)
        request.scopes = [scope for scope in dict.fromkeys(asked) if scope in known]
        return bool(request.scopes) and not _is_another_door(client, request)

    # Tokens.

    def save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        """For a client that was deleted since it said who it is, the database takes no token."""
        try:
            super().save_bearer_token(token, request, *args, **kwargs)
        except IntegrityError as error:
            if type(request.client)._default_manager.filter(pk=request.client.pk).exists():
                raise
            raise errors.InvalidClientError(request=request) from error

    def _create_access_token(self, expires: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """That of a machine is its service user's, and ends with it."""
        if request.grant_type == MACHINE and concerns_us(request.client, request.scopes):
            request.user = request.client.user
            list_used(request.client)
        return super()._create_access_token(expires, request, *args, **kwargs)

    def validate_bearer_token(self, token: str, scopes: Any, request: Any) -> bool:
        """At the project's other APIs, which ask django-oauth-toolkit.

        That takes a path below a server's for the server, and scopes are for each API to ask for.
        """
        if not super().validate_bearer_token(token, scopes, request):
            return False
        if request.user is not None and not request.user.is_active:
            return False
        return not is_ours(request.access_token)


def _is_id(client_id: Any) -> bool:
    return isinstance(client_id, str) and 0 < len(client_id) <= LONGEST_ID and "\0" not in client_id


def _is_blocked(client_id: str, request: Any) -> bool:
    """Asked once in a request."""
    if notes(request).checked == client_id:
        return False
    if ClientProfile.objects.filter(client_id=client_id, blocked__isnull=False).exists():
        return True
    notes(request).checked = client_id
    return False


def _is_another_door(client: Any, request: Any) -> bool:
    """Whether what is ours is asked for at an authorization endpoint that does not show our page.

    At the token endpoint there is no response type.
    """
    if not request.response_type or request.headers.get(OUR_VIEW):
        return False
    return concerns_us(client, request.scopes)


def _known_scopes(client: Any, request: Any) -> set[str]:
    """Those of the project's other APIs are not for clients that nobody of it registered."""
    known = set(get_scopes_backend().get_available_scopes(application=client, request=request))
    return known & offered().keys() if registered_itself(client) else known
