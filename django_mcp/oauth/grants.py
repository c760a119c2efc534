"""Grants that a client exchanges for tokens: authorization codes and refresh tokens.

An authorization code is redeemed once and with PKCE (S256). The request that deletes the code's row
redeems the code, in the transaction that issues the tokens. The code's digest and its token family
are stored for a day. A second redemption, later or at the same time, revokes that family
(RFC 6749, 4.1.2). A client that sends another client's code gets the same error as for an unknown
code, and revokes nothing.

A refresh token is rotated. A client may send a token again shortly after its rotation: it runs in
two processes, or did not receive the response. It then gets another token pair, a *sibling* in the
same family. The first pair cannot be sent again, because only its digests are stored. A token gets
at most ``MAX_SIBLINGS`` pairs. After ``REFRESH_GRACE`` seconds, or if the successor was used or
revoked, the token counts as stolen and its family is revoked.

Each refresh token is checked twice. The first check has no lock. If it rejects the token or revokes
its family, that is final. If it accepts the token, the second check decides again with the row
locked, because other requests may use or revoke the token in between.
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
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)
from oauthlib.oauth2.rfc6749 import errors

from .conf import settings
from .models import RedeemedCode
from .resource_indicators import ResourceIndicators, is_for_mcp_servers, notes
from .revocation import end_family, lock_family, lock_token
from .scope_grants import may_use
from .upstream_accounts import bind_family, may_redeem_code, may_refresh_family

RETENTION = timedelta(days=1)  # of digests; a code itself is valid for a minute
ROWS_PER_DELETE = 100  # rows deleted at each redemption
S256 = "S256"
Grant = get_grant_model()
RefreshToken = get_refresh_token_model()
logger = logging.getLogger("django_mcp.oauth")

MAX_SIBLINGS = 10  # refresh tokens of the family, from the successor of a token on


class _Replayed(errors.InvalidGrantError):  # type: ignore[misc]
    """Another request redeemed the code in the meantime."""


class CodeRedemption(ResourceIndicators):
    """Validator mixin: redeem each code at most once."""

    def validate_code(
        self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        grant = _grant(code, client)
        if grant is None:
            _revoke_issued_tokens(code, client)
            return False
        if not super().validate_code(client_id, code, client, request, *args, **kwargs):
            return False
        notes(request).grant = grant
        targets = self.set_targets(request, grant.resource or (), request.scopes)
        if not may_use(grant.user, targets):
            return False
        is_ours = is_for_mcp_servers(client, request.scopes)
        return not is_ours or may_redeem_code(code, grant.user)

    # The next hooks use the row that ``validate_code`` read. Another request may have deleted it
    # since. ``_save_bearer_token`` notices that and issues nothing.

    def get_code_challenge(self, code: str, request: Any) -> str | None:
        return notes(request).grant.code_challenge or None

    def get_code_challenge_method(self, code: str, request: Any) -> str | None:
        method: str = notes(request).grant.code_challenge_method
        return method if method == S256 else None

    def get_default_redirect_uri(self, client_id: str, request: Any, *args: Any, **kw: Any) -> Any:
        """Return the URI that the code was sent to; without a code, the client's only one.

        OAuth 2.1 clients do not repeat ``redirect_uri`` (10.2). The PKCE verifier proves that the
        code was issued to this client.
        """
        if (grant := notes(request).grant) is None:
            return super().get_default_redirect_uri(client_id, request, *args, **kw)
        return grant.redirect_uri

    def confirm_redirect_uri(
        self, client_id: str, code: str, redirect_uri: str, client: Any, request: Any,
        *args: Any, **kwargs: Any,
    ) -> bool:  # fmt: skip
        return bool(notes(request).grant.redirect_uri_allowed(redirect_uri))

    def save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        try:
            super().save_bearer_token(token, request, *args, **kwargs)
        except _Replayed:
            # Revoke only here, after the exception has rolled back the transaction: a revocation
            # inside it would be rolled back too.
            _revoke_issued_tokens(request.code, request.client)
            raise
        if notes(request).grant is not None:
            delete_old_codes()

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        """Delete the code and store the tokens, in the transaction of django-oauth-toolkit.

        Delete the code first. A concurrent request waits for the deleted row until this transaction
        ends, and then finds no row. So only one request can issue tokens for the code.
        """
        grant = notes(request).grant
        if grant is not None and not _delete_code(grant):
            raise _Replayed(request=request)
        super()._save_bearer_token(token, request, *args, **kwargs)
        if grant is None:
            return
        family = notes(request).family
        _store_digest(request.code, family)
        is_ours = is_for_mcp_servers(request.client, request.scopes)
        if is_ours and not bind_family(request.code, family):
            raise errors.InvalidGrantError(request=request)

    def _create_refresh_token(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        found = super()._create_refresh_token(request, *args, **kwargs)
        notes(request).family = found.token_family
        return found

    def invalidate_authorization_code(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the transaction that issued the tokens has deleted the code."""


def _grant(code: str, client: Any) -> Any:
    """Return the row of a client's code, or None."""
    if "\0" in code:  # PostgreSQL raises an error for it
        return None
    found = Grant.objects.filter(code=code, application=client).select_related("user").first()
    # A collation that ignores case finds a code that differs in case.
    return found if found is not None and found.code == code else None


def _delete_code(grant: Any) -> bool:
    """Delete the code's row. Return whether this transaction did it."""
    _, by_model = Grant.objects.filter(pk=grant.pk).delete()
    return bool(by_model.get(Grant._meta.label))


def _code_digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _store_digest(code: str, family: Any) -> None:
    if family is not None:
        expires = timezone.now() + RETENTION
        RedeemedCode.objects.create(digest=_code_digest(code), family=family, expires=expires)


def _revoke_issued_tokens(code: str, client: Any) -> None:
    """Revoke the token family of a code that this client has redeemed before, if any."""
    for row in RedeemedCode.objects.filter(digest=_code_digest(code)):
        if RefreshToken.objects.filter(token_family=row.family, application=client).exists():
            logger.warning(
                "Authorization code used twice, its tokens are revoked: application=%s",
                client.pk,
            )
            end_family(row.family)


def delete_old_codes() -> int:
    """Delete some digests of codes that were redeemed over a day ago. Return how many."""
    old = RedeemedCode.objects.filter(expires__lte=timezone.now()).order_by("expires")
    pks = list(old.values_list("pk", flat=True)[:ROWS_PER_DELETE])
    return RedeemedCode.objects.filter(pk__in=pks).delete()[0] if pks else 0


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
            # Lock the family before any of its rows, as every revocation does. Two orders could
            # cause a deadlock.
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
    # Compare the time and not the key: keys of a project's own model may not ascend.
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
    successor = _successor(row)
    return successor is not None and lock_token(successor.pk) and _successor(row) is not None


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
    found = _tokens().filter(token_checksum=_token_digest(token), application=client)
    return found.order_by(F("revoked").desc(nulls_first=True)).first()


def _refresh_tokens_of(token: str, client: Any) -> list[Any]:
    """Return the client's rows of a refresh token, or those issued with an access token."""
    if getattr(client, "pk", None) is None:
        return []
    own, digest = RefreshToken.objects.filter(application=client), _token_digest(token)
    return [*own.filter(token_checksum=digest), *own.filter(access_token__token_checksum=digest)]


def _token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _revoke_family(row: Any) -> None:
    logger.warning(
        "A revoked refresh token was sent, all tokens of its family are revoked: application=%s",
        row.application_id,
    )
    end_family(row.token_family)
