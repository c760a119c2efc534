"""
Refresh token rotation and the detection of reused tokens.

A client may send a token again shortly after its rotation: it runs in two processes, or did not
receive the response. It then gets another token pair, a *sibling* in the same family. The first
pair cannot be sent again, because only its digests are stored. A token gets at most
``MAX_SIBLINGS`` pairs. After ``REFRESH_GRACE`` seconds, or if the successor was used or revoked,
the token counts as stolen and its family is revoked.

Each token is judged twice: first without a lock, to choose the response, and again with the row
locked. Only the second judgement decides.
"""

from __future__ import annotations

import enum
import hashlib
import logging
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)
from oauthlib.oauth2.rfc6749 import errors

from .conf import settings
from .resource_indicators import ResourceIndicators, concerns_us, notes
from .revocation import alone_in, end_family, held
from .scope_grants import may_use
from .upstream_accounts import is_good_family

MAX_SIBLINGS = 10  # token pairs that may be issued for one token, including its successor
AccessToken, RefreshToken = get_access_token_model(), get_refresh_token_model()
logger = logging.getLogger("django_mcp")


class RefreshTokenUse(enum.Enum):
    """What happens when a refresh token is used."""

    LIVE = "it is rotated"
    AGAIN = "it gets a sibling"
    DEAD = "nothing"
    STOLEN = "nothing, and its family ends"


class _Stolen(errors.InvalidGrantError):  # type: ignore[misc]
    """The second judgement, with the row locked, found that the token counts as stolen."""


class RefreshTokenRotation(ResourceIndicators):
    """Validator mixin: rotate refresh tokens and revoke the family of a reused one."""

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        row = _row(refresh_token, client)
        verdict, scope = (RefreshTokenUse.DEAD, "") if row is None else judged(row)
        if verdict is RefreshTokenUse.STOLEN:
            _end(row)
        if verdict not in (RefreshTokenUse.LIVE, RefreshTokenUse.AGAIN):
            return False
        notes(request).scope, request.user = scope, row.user
        request.refresh_token, request.refresh_token_instance = refresh_token, row
        if not may_use(row.user, self.aim(request, row.resource or (), scope.split())):
            return False
        ours = concerns_us(client, scope.split())
        return not ours or is_good_family(row.token_family, row.user)

    def get_original_scopes(
        self, refresh_token: str, request: Any, *args: Any, **kwargs: Any
    ) -> list[str]:
        return notes(request).scope.split()

    def save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        # oauthlib answers missing attributes from the request's parameters. So a parameter
        # "refresh_token_instance" would be taken for the row if the attribute were not set.
        row = vars(request).setdefault("refresh_token_instance", None)
        try:
            with alone_in(row.token_family if row else None):
                super().save_bearer_token(token, request, *args, **kwargs)
        except _Stolen:
            _end(row)  # here, because the exception has rolled back the transaction
            raise

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        row = request.refresh_token_instance
        verdict = RefreshTokenUse.LIVE if row is None else _judged_alone(row)
        if verdict is RefreshTokenUse.LIVE:
            super()._save_bearer_token(token, request, *args, **kwargs)
        elif verdict is RefreshTokenUse.AGAIN:
            self._save_sibling(token, request, row)
        elif verdict is RefreshTokenUse.STOLEN:
            raise _Stolen(request=request)
        else:
            raise errors.InvalidGrantError(request=request)

    def _save_sibling(self, token: Any, request: Any, row: Any) -> None:
        """Issue a sibling.

        It has no ``source_refresh_token``, because that column is unique and the successor has it.
        """
        self._check_and_set_request_resource(request)
        expires = timezone.now() + timedelta(seconds=token["expires_in"])
        access_token = self._create_access_token(expires, request, token)
        self._create_refresh_token(request, token["refresh_token"], access_token, row)

    def revoke_token(
        self, token: str, token_type_hint: Any, request: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Revoke the whole family of a token that a client revokes (RFC 7009, 2.1)."""
        for row in _beside(token, request.client):
            end_family(row.token_family)
        super().revoke_token(token, token_type_hint, request, *args, **kwargs)


def judged(row: Any) -> tuple[RefreshTokenUse, str]:
    """Return the verdict on a refresh token, and the scope of the next token ("" if none)."""
    now = timezone.now()
    if row.revoked is None:
        return (
            (RefreshTokenUse.LIVE, row.access_token.scope)
            if _lives(row, now)
            else (RefreshTokenUse.DEAD, "")
        )
    successor = _successor(row)
    grace = timedelta(seconds=settings.REFRESH_GRACE)
    if successor is None or row.revoked + grace <= now:
        return RefreshTokenUse.STOLEN, ""
    since = RefreshToken.objects.filter(token_family=row.token_family, pk__gte=successor.pk)
    if since.count() >= MAX_SIBLINGS:
        return RefreshTokenUse.DEAD, ""
    return RefreshTokenUse.AGAIN, successor.access_token.scope


def _judged_alone(row: Any) -> RefreshTokenUse:
    """Judge again with the family, the row and its successor locked.

    The family's lock is not enough. A revocation of all tokens of a user or a client does not take
    it, and may revoke the row or its successor at this moment.
    """
    if not held(row.pk):
        return RefreshTokenUse.DEAD
    verdict, _ = judged(_loaded().get(pk=row.pk))
    if verdict is RefreshTokenUse.AGAIN and not _successor_held(row):
        return RefreshTokenUse.STOLEN
    return verdict


def _successor_held(row: Any) -> bool:
    found = _successor(row)
    return found is not None and held(found.pk) and _successor(row) is not None


def _lives(row: Any, now: datetime) -> bool:
    longest = refresh_token_expire_timedelta()
    if row.access_token is None:
        return False
    return longest is None or now < row.access_token.expires + longest


def _successor(row: Any) -> Any:
    """Return the token that this one was rotated to; None if that was used or revoked."""
    if row.token_family is None:
        return None
    return _loaded().filter(revoked=None, access_token__source_refresh_token=row).first()


def _loaded() -> Any:
    return RefreshToken.objects.select_related("user", "access_token")


def _row(token: str, client: Any) -> Any:
    """Return a client's refresh token, or None.

    Tokens that do not rotate may have several rows: return the one that is not revoked.
    """
    found = _loaded().filter(token_checksum=_digest(token), application=client)
    return found.order_by(F("revoked").desc(nulls_first=True)).first()


def _beside(token: str, client: Any) -> list[Any]:
    """Return the client's refresh tokens that ``token`` is, or that its access token came with."""
    if getattr(client, "pk", None) is None:
        return []
    own, digest = RefreshToken.objects.filter(application=client), _digest(token)
    return [*own.filter(token_checksum=digest), *own.filter(access_token__token_checksum=digest)]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _end(row: Any) -> None:
    logger.warning(
        "A refresh token of client %s was used twice: all tokens of its family are revoked",
        row.application_id,
    )
    end_family(row.token_family)
