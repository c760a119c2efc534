"""
Refresh tokens: used once, and what a second use means.

Rule: a token that was just rotated may come again, for its client may run twice, or not have heard
the answer. It then gets a pair of its own, a sibling in the same family: only digests of what the
first was told are stored. After the grace it is taken for stolen, and the family ends; so does a
token whose successor is gone. What was revoked is dead at once. All this is judged twice: at first
to answer well, and again under the lock of the row, where it counts.
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

from .bindings import is_good_family
from .conf import settings
from .notes import notes
from .people import may_use
from .revoking import alone_in, end_family, held
from .targets import Targeting, concerns_us

SIBLINGS = 10  # of one token, its successor among them
AccessToken, RefreshToken = get_access_token_model(), get_refresh_token_model()
logger = logging.getLogger("django_mcp")


class Verdict(enum.Enum):
    """What a refresh token that is brought is good for."""

    LIVE = "it is rotated"
    AGAIN = "it gets a sibling"
    DEAD = "nothing"
    STOLEN = "nothing, and its family ends"


class _Stolen(errors.InvalidGrantError):  # type: ignore[misc]
    """It was no more what it had been when it was found."""


class Refreshing(Targeting):
    """Refresh tokens rotate, and who brings an old one gives itself away."""

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        row = _row(refresh_token, client)
        verdict, scope = (Verdict.DEAD, "") if row is None else judged(row)
        if verdict is Verdict.STOLEN:
            _end(row)
        if verdict not in (Verdict.LIVE, Verdict.AGAIN):
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
        # A parameter of this name would be taken for the row.
        row = vars(request).setdefault("refresh_token_instance", None)
        try:
            with alone_in(row.token_family if row else None):
                super().save_bearer_token(token, request, *args, **kwargs)
        except _Stolen:
            _end(row)
            raise

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        row = request.refresh_token_instance
        verdict = Verdict.LIVE if row is None else _judged_alone(row)
        if verdict is Verdict.LIVE:
            super()._save_bearer_token(token, request, *args, **kwargs)
        elif verdict is Verdict.AGAIN:
            self._save_sibling(token, request, row)
        elif verdict is Verdict.STOLEN:
            raise _Stolen(request=request)
        else:
            raise errors.InvalidGrantError(request=request)

    def _save_sibling(self, token: Any, request: Any, row: Any) -> None:
        """Beside the successor: that alone has ``source_refresh_token``, which is unique."""
        self._check_and_set_request_resource(request)
        expires = timezone.now() + timedelta(seconds=token["expires_in"])
        access_token = self._create_access_token(expires, request, token)
        self._create_refresh_token(request, token["refresh_token"], access_token, row)

    def revoke_token(
        self, token: str, token_type_hint: Any, request: Any, *args: Any, **kwargs: Any
    ) -> None:
        """A client that revokes one token of a consent revokes all (RFC 7009, 2.1)."""
        for row in _beside(token, request.client):
            end_family(row.token_family)
        super().revoke_token(token, token_type_hint, request, *args, **kwargs)


def judged(row: Any) -> tuple[Verdict, str]:
    """What a refresh token is good for, and the scope of what it was issued with."""
    now = timezone.now()
    if row.revoked is None:
        return (Verdict.LIVE, row.access_token.scope) if _lives(row, now) else (Verdict.DEAD, "")
    successor = _successor(row)
    grace = timedelta(seconds=settings.REFRESH_GRACE)
    if successor is None or row.revoked + grace <= now:
        return Verdict.STOLEN, ""
    since = RefreshToken.objects.filter(token_family=row.token_family, pk__gte=successor.pk)
    if since.count() >= SIBLINGS:
        return Verdict.DEAD, ""
    return Verdict.AGAIN, successor.access_token.scope


def _judged_alone(row: Any) -> Verdict:
    """Judge again, with nobody else in the family, and the row held, which may end by itself.

    So may its successor, which is among the first to go when all of a user or a client ends.
    """
    if not held(row.pk):
        return Verdict.DEAD
    verdict, _ = judged(_loaded().get(pk=row.pk))
    if verdict is Verdict.AGAIN and not _successor_held(row):
        return Verdict.STOLEN
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
    """What the token was rotated to; None once that was used itself, or revoked."""
    if row.token_family is None:
        return None
    return _loaded().filter(revoked=None, access_token__source_refresh_token=row).first()


def _loaded() -> Any:
    return RefreshToken.objects.select_related("user", "access_token")


def _row(token: str, client: Any) -> Any:
    """A client's refresh token. Those that do not rotate may be there twice: the one that lives."""
    found = _loaded().filter(token_checksum=_digest(token), application=client)
    return found.order_by(F("revoked").desc(nulls_first=True)).first()


def _beside(token: str, client: Any) -> list[Any]:
    """The refresh tokens of a client that a token names: itself, or those beside it."""
    if getattr(client, "pk", None) is None:
        return []
    own, digest = RefreshToken.objects.filter(application=client), _digest(token)
    return [*own.filter(token_checksum=digest), *own.filter(access_token__token_checksum=digest)]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _end(row: Any) -> None:
    logger.warning(
        "A refresh token of client %s came again: its family is revoked", row.application_id
    )
    end_family(row.token_family)
