"""
What a token will be for: resource indicators at the token endpoint (RFC 8707, 2.2).

Rule: a token of ours names at least one server, each by its one spelling; who names none gets the
server that there is, if there is but one. What is refused is not repeated in the answer. Clients
that were registered by hand and ask for none of our scopes are of other APIs, which
django-oauth-toolkit goes on to judge; their tokens open no server, for they need not name one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749 import errors

from ..protected.names import canonical, served
from ..scopes import offered
from .models import Source
from .notes import notes


def registered_itself(client: Any) -> bool:
    """Whether nobody of the project looked at a client before it came."""
    return str(client.registration_source) != Source.MANUAL


def concerns_us(client: Any, scopes: Iterable[str]) -> bool:
    """Whether a token of these scopes is for servers of ours, not for another API's."""
    asked = set(filter(None, scopes))
    return registered_itself(client) or not asked or bool(asked & offered().keys())


def is_ours(token: Any, known: Collection[str] | None = None) -> bool:
    """Whether a token of either kind is for servers; for ``known`` ones, if they are known."""
    named = {canonical(uri) for uri in token.resource or () if isinstance(uri, str)}
    itself = token.application is not None and registered_itself(token.application)
    return itself or not named.isdisjoint(served() if known is None else known)


def targets_of(asked: Iterable[Any], granted: Iterable[Any]) -> list[str]:
    """The servers that a token is for, of those asked for and those that were granted before.

    Raises ``invalid_target`` (RFC 8707, 2) for what is no server of ours, or was not granted.
    """
    known = set(served())
    named, held = _spelled(asked), _spelled(granted)
    if not named <= known or (held and not named <= held) or (held and not held & known):
        raise _invalid_target()
    return sorted(named or held & known or _the_only(known))


def _spelled(uris: Iterable[Any]) -> set[str]:
    """Each in its one spelling. What has none stays as an empty name, which no server has."""
    return {(canonical(uri) if isinstance(uri, str) else None) or "" for uri in uris}


def _the_only(known: Collection[str]) -> Collection[str]:
    if len(known) != 1:
        raise _invalid_target()
    return known


def _invalid_target() -> Exception:
    error: Exception = errors.CustomOAuth2Error(
        error="invalid_target", description="Name a server of this site that was consented to."
    )
    return error


def _asked(request: Any) -> list[Any]:
    """Each ``resource`` of a request; oauthlib itself keeps the last one. Without a value is none.

    A list, or one name, where no body was sent: what the authorization endpoint found.
    """
    sent = [value for name, value in request.decoded_body or () if name == "resource"]
    found = sent or request.resource or []
    return [uri for uri in ([found] if isinstance(found, str) else found) if uri]


class Targeting(OAuth2Validator):  # type: ignore[misc]
    """Tokens are for servers that there are."""

    def aim(self, request: Any, granted: Iterable[Any], scopes: Iterable[str]) -> list[str]:
        """Decide what the token will be for, while an error can still be answered as it should."""
        if concerns_us(request.client, scopes):
            request.resource = targets_of(_asked(request), granted)
        else:
            self._aim_elsewhere(request)
        notes(request).targets = request.resource
        found: list[str] = request.resource
        return found

    def _aim_elsewhere(self, request: Any) -> None:
        try:
            super()._check_and_set_request_resource(request)
        except ValueError:  # of urlsplit, as for "http://["
            raise _invalid_target() from None

    def _check_and_set_request_resource(self, request: Any) -> None:
        decided = notes(request).targets
        request.resource = self.aim(request, (), request.scopes) if decided is None else decided
