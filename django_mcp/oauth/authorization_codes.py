"""
Redemption of authorization codes at the token endpoint, once and with PKCE (S256).

The request that deletes the code's row redeems the code, in the transaction that issues the tokens.
The code's digest and its token family are stored for a day. A second redemption, later or at the
same time, revokes that family (RFC 6749, 4.1.2). A client that sends another client's code gets the
same error as for an unknown code, and revokes nothing.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta
from typing import Any

from django.utils import timezone
from oauth2_provider.models import get_grant_model, get_refresh_token_model
from oauthlib.oauth2.rfc6749 import errors

from .models import RedeemedCode
from .resource_indicators import ResourceIndicators, is_for_mcp_servers, notes
from .revocation import end_family
from .scope_grants import may_use
from .upstream_accounts import bind_family, may_redeem_code

RETENTION = timedelta(days=1)  # of digests; a code itself is valid for a minute
ROWS_PER_DELETE = 100  # rows deleted at each redemption
S256 = "S256"
Grant, RefreshToken = get_grant_model(), get_refresh_token_model()
logger = logging.getLogger("django_mcp.oauth")


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

        The code goes first. A concurrent request waits for the deleted row until this transaction
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


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _store_digest(code: str, family: Any) -> None:
    if family is not None:
        expires = timezone.now() + RETENTION
        RedeemedCode.objects.create(digest=_digest(code), family=family, expires=expires)


def _revoke_issued_tokens(code: str, client: Any) -> None:
    """Revoke the token family of a code that this client has redeemed before, if any."""
    for row in RedeemedCode.objects.filter(digest=_digest(code)):
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
