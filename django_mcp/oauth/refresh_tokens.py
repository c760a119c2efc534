"""
Refresh token rotation and the detection of reused tokens.

A client may send a token again shortly after its rotation: it runs in two processes, or did not
receive the response. It then gets another token pair, a *sibling* in the same family. The first
pair cannot be sent again, because only its digests are stored. A token gets at most
``MAX_SIBLINGS`` pairs. After ``REFRESH_GRACE`` seconds, or if the successor was used or revoked,
the token counts as stolen and its family is revoked.

Each token is checked twice. The first check has no lock. If it rejects the token or revokes its
family, that is final. If it accepts the token, the second check decides again with the row locked,
because other requests may use or revoke the token in between.
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
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)
from oauthlib.oauth2.rfc6749 import errors

from .conf import settings
from .resource_indicators import ResourceIndicators, is_for_mcp_servers, notes
from .revocation import end_family, lock_family, lock_token
from .scope_grants import may_use
from .upstream_accounts import may_refresh_family

MAX_SIBLINGS = 10  # refresh tokens of the family, from the successor of a token on
RefreshToken = get_refresh_token_model()
logger = logging.getLogger("django_mcp.oauth")


class RefreshTokenUse(enum.Enum):
    """What happens when a refresh token is used."""

    ROTATE = "it is rotated"
    ADD_SIBLING = "it gets a sibling"
    REJECT = "it is rejected"
    REVOKE_FAMILY = "it is rejected, and its family is revoked"


class _Stolen(errors.InvalidGrantError):  # type: ignore[misc]
    """The second check, with the row locked, found that the token counts as stolen."""


class RefreshTokenRotation(ResourceIndicators):
    """Validator mixin: rotate refresh tokens and revoke the family of a reused one."""

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        row = _row(refresh_token, client)
        use, scope = (RefreshTokenUse.REJECT, "") if row is None else decide_use(row)
        if use is RefreshTokenUse.REVOKE_FAMILY:
            _revoke_family(row)
        if use not in (RefreshTokenUse.ROTATE, RefreshTokenUse.ADD_SIBLING):
            return False
        notes(request).scope, request.user = scope, row.user
        request.refresh_token, request.refresh_token_instance = refresh_token, row
        if not may_use(row.user, self.set_targets(request, row.resource or (), scope.split())):
            return False
        ours = is_for_mcp_servers(client, scope.split())
        return not ours or may_refresh_family(row.token_family, row.user)

    def get_original_scopes(
        self, refresh_token: str, request: Any, *args: Any, **kwargs: Any
    ) -> list[str]:
        return notes(request).scope.split()

    def save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        # If an attribute is not set, oauthlib returns the request parameter of that name. So set
        # it, or a client could supply a parameter "refresh_token_instance".
        row = vars(request).setdefault("refresh_token_instance", None)
        try:
            # The family before any of its rows, as every revocation of a family locks them. Two
            # orders could cause a deadlock.
            with lock_family(row.token_family if row else None):
                super().save_bearer_token(token, request, *args, **kwargs)
        except _Stolen:
            # Revoke only here, after the exception has rolled back the transaction: a revocation
            # inside it would be rolled back too.
            _revoke_family(row)
            raise

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        row = request.refresh_token_instance
        if row is None:  # no refresh token was sent, but for example a code
            super()._save_bearer_token(token, request, *args, **kwargs)
            return
        use = _decide_use_locked(row)
        if use is RefreshTokenUse.ROTATE:
            super()._save_bearer_token(token, request, *args, **kwargs)
        elif use is RefreshTokenUse.ADD_SIBLING:
            self._save_sibling(token, request, row)
        elif use is RefreshTokenUse.REVOKE_FAMILY:
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
        for row in _refresh_tokens_of(token, request.client):
            end_family(row.token_family)
        super().revoke_token(token, token_type_hint, request, *args, **kwargs)


def decide_use(row: Any) -> tuple[RefreshTokenUse, str]:
    """Return how to treat a refresh token, and the scope of the next token ("" if none)."""
    now = timezone.now()
    if row.revoked is None:
        if _is_expired(row, now):
            return RefreshTokenUse.REJECT, ""
        return RefreshTokenUse.ROTATE, row.access_token.scope
    successor = _successor(row)
    grace = timedelta(seconds=settings.REFRESH_GRACE)
    if successor is None or row.revoked + grace <= now:
        return RefreshTokenUse.REVOKE_FAMILY, ""
    # Not by key, which need not ascend: the model may be the project's own.
    since = {"created__gte": successor.created}
    issued = RefreshToken.objects.filter(token_family=row.token_family, **since)
    if issued.count() >= MAX_SIBLINGS:
        return RefreshTokenUse.REJECT, ""
    return RefreshTokenUse.ADD_SIBLING, successor.access_token.scope


def _decide_use_locked(row: Any) -> RefreshTokenUse:
    """Decide again with the family, the row and its successor locked.

    The family's lock is not enough. A revocation of all tokens of a user or a client does not take
    it, and may revoke the row or its successor at this moment.
    """
    if not lock_token(row.pk):
        return RefreshTokenUse.REJECT
    use, _scope = decide_use(_tokens().get(pk=row.pk))
    if use is RefreshTokenUse.ADD_SIBLING and not _lock_successor(row):
        return RefreshTokenUse.REVOKE_FAMILY
    return use


def _lock_successor(row: Any) -> bool:
    """Lock the successor's row. Return False if it was used or revoked before it was locked."""
    found = _successor(row)
    return found is not None and lock_token(found.pk) and _successor(row) is not None


def _is_expired(row: Any, now: datetime) -> bool:
    lifetime = refresh_token_expire_timedelta()
    if row.access_token is None:
        return True
    return lifetime is not None and now >= row.access_token.expires + lifetime


def _successor(row: Any) -> Any:
    """Return the token that this one was rotated to; None if that was used or revoked."""
    if row.token_family is None:
        return None
    return _tokens().filter(revoked=None, access_token__source_refresh_token=row).first()


def _tokens() -> Any:
    return RefreshToken.objects.select_related("user", "access_token")


def _row(token: str, client: Any) -> Any:
    """Return a client's refresh token, or None.

    Tokens that do not rotate may have several rows: return the one that is not revoked.
    """
    found = _tokens().filter(token_checksum=_digest(token), application=client)
    return found.order_by(F("revoked").desc(nulls_first=True)).first()


def _refresh_tokens_of(token: str, client: Any) -> list[Any]:
    """Return the client's rows of a refresh token, or those issued with an access token."""
    if getattr(client, "pk", None) is None:
        return []
    own, digest = RefreshToken.objects.filter(application=client), _digest(token)
    return [*own.filter(token_checksum=digest), *own.filter(access_token__token_checksum=digest)]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _revoke_family(row: Any) -> None:
    logger.warning(
        "A revoked refresh token was sent, all tokens of its family are revoked: application=%s",
        row.application_id,
    )
    end_family(row.token_family)
