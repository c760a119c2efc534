"""
Authorization codes at the token endpoint: good once, with the verifier of an S256 challenge.

Rule: a code is redeemed by whoever deletes its row, in the transaction that issues the tokens. What
was issued for it is written down for a while, by its digest: who brings it again, whether a moment
later or at the same time, ends all of that (RFC 6749, 4.1.2). Of another client's codes none is
ever told a thing, nor can it end anything by them.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta
from typing import Any

from django.utils import timezone
from oauth2_provider.models import get_grant_model, get_refresh_token_model
from oauthlib.oauth2.rfc6749 import errors

from .bindings import is_good_code, redeemed
from .models import RedeemedCode
from .notes import notes
from .people import may_use
from .revoking import end_family
from .targets import Targeting, concerns_us

REMEMBERED = timedelta(days=1)  # a code itself is good for a minute
AT_ONCE = 100  # rows forgotten by one who adds one
S256 = "S256"
Grant, RefreshToken = get_grant_model(), get_refresh_token_model()
logger = logging.getLogger("django_mcp")


class _Replayed(errors.InvalidGrantError):  # type: ignore[misc]
    """Somebody else redeemed the code in the meantime."""


class Redeeming(Targeting):
    """Codes are redeemed once."""

    def validate_code(
        self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        grant = _grant(code, client)
        if grant is None:
            _end_what_was_issued(code, client)
            return False
        if not super().validate_code(client_id, code, client, request, *args, **kwargs):
            return False
        notes(request).grant = grant
        if not may_use(grant.user, self.aim(request, grant.resource or (), request.scopes)):
            return False
        return not concerns_us(client, request.scopes) or is_good_code(code, grant.user)

    # The row is that which was found at first: it may be gone by now, and then nothing is issued.

    def get_code_challenge(self, code: str, request: Any) -> str | None:
        return notes(request).grant.code_challenge or None

    def get_code_challenge_method(self, code: str, request: Any) -> str | None:
        method: str = notes(request).grant.code_challenge_method
        return method if method == S256 else None

    def get_default_redirect_uri(self, client_id: str, request: Any, *args: Any, **kw: Any) -> Any:
        """Where the code was sent: clients of OAuth 2.1 do not say it again (10.2).

        Who has it by right is known by the verifier. Without a code, the client's only one.
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
            _end_what_was_issued(request.code, request.client)
            raise
        if notes(request).grant is not None:
            forget_codes()

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        grant = notes(request).grant
        if grant is not None and not _taken(grant):
            raise _Replayed(request=request)
        super()._save_bearer_token(token, request, *args, **kwargs)
        if grant is not None:
            _remember(request.code, notes(request).family)
            if concerns_us(request.client, request.scopes) and not redeemed(
                request.code, notes(request).family
            ):
                raise errors.InvalidGrantError(request=request)

    def _create_refresh_token(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        found = super()._create_refresh_token(request, *args, **kwargs)
        notes(request).family = found.token_family
        return found

    def invalidate_authorization_code(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to do: it went with the transaction that issued the tokens."""


def _grant(code: str, client: Any) -> Any:
    """The row of a code. Databases take no NUL, and some take a letter for another's capital."""
    if "\0" in code:
        return None
    found = Grant.objects.filter(code=code, application=client).select_related("user").first()
    return found if found is not None and found.code == code else None


def _taken(grant: Any) -> bool:
    """Whether it is we who delete the row: whoever else tries to waits until that is settled."""
    _, by_model = Grant.objects.filter(pk=grant.pk).delete()
    return bool(by_model.get(Grant._meta.label))


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _remember(code: str, family: Any) -> None:
    if family is not None:
        expires = timezone.now() + REMEMBERED
        RedeemedCode.objects.create(digest=_digest(code), family=family, expires=expires)


def _end_what_was_issued(code: str, client: Any) -> None:
    """If the client has redeemed this code before."""
    for row in RedeemedCode.objects.filter(digest=_digest(code)):
        if RefreshToken.objects.filter(token_family=row.family, application=client).exists():
            logger.warning("A code of client %s came twice: its tokens are revoked", client.pk)
            end_family(row.family)


def forget_codes() -> int:
    """Forget some that were redeemed long ago; how many."""
    old = RedeemedCode.objects.filter(expires__lte=timezone.now()).order_by("expires")
    pks = list(old.values_list("pk", flat=True)[:AT_ONCE])
    return RedeemedCode.objects.filter(pk__in=pks).delete()[0] if pks else 0
