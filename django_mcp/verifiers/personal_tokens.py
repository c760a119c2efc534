"""
Personal access tokens: a secret with which a program acts as a user.

``PersonalAccessTokens`` verifies them. Clients do not receive the reason why a token is invalid.
The log has it if the token exists. A text that cannot be a token costs no query. Only the SHA-256
digest is stored and looked up, so the time of a lookup does not show how much of a guess was right.
A lookup writes nothing: ``last_used`` is collected in memory and written later.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import router, transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .. import signals
from ..auth.last_used import LastUsedTimes
from ..auth.principal import Auth, Principal, RowVerifier, key_parts
from ..auth.scopes import NAME
from ..models import Token
from ..storage.compiled_queries import column_names, fetch, instance

if TYPE_CHECKING:
    from ..declarations.server import Server

SECRET = re.compile(r"mcp_[A-Za-z0-9_-]{43}")
VALID = "valid"
ROWS_PER_QUERY = 500  # rows per query: databases limit the number of parameters
logger = logging.getLogger("django_mcp.oauth")


class PersonalAccessTokens(RowVerifier):
    """The ``TokenVerifier`` for tokens made in the admin or by ``manage.py mcp_token``."""

    token_format = SECRET

    def find(self, tokens: Sequence[str]) -> list[Token | None]:
        """Return the token of each secret with its user, by one query, or None.

        A secret that occurs twice gets two instances, because the project's code may change the
        user.
        """
        user_model, alias = get_user_model(), router.db_for_read(Token)
        # A filter of the project's manager may depend on the time.
        is_constant = not user_model._default_manager.all().query.where
        digests = [Token.digest_of(secret) for secret in tokens]
        rows = fetch(alias, _by_digest, digests, user_model, is_constant=is_constant)
        return [_token(alias, user_model, row) for row in rows]

    def principal_of(self, row: Token, server: Server) -> Principal | None:
        """Return the principal of a token's row; None if the token is not valid at ``server``."""
        if reason := _rejection_reason(row, server, timezone.now()):
            logger.info("Access token rejected: token=%s reason=%s", row.pk, reason)
            return None
        uses.note(row.pk, row.last_used)
        auth = Auth(frozenset(row.scopes), key=row.auth_key, expires=row.expires)
        return Principal(row.user, auth)

    def still_valid(self, keys: Collection[str]) -> dict[str, bool]:
        """Return for each principal of a personal token whether the token is still valid.

        A key is left out if it is not of a personal token.
        """
        pairs = {key: pair for key in keys if (pair := _user_and_token_pk(key))}
        pks = sorted({pk for _user, pk in pairs.values()})
        rows = (
            row
            for start in range(0, len(pks), ROWS_PER_QUERY)
            for row in _valid_tokens(pks[start : start + ROWS_PER_QUERY])
        )
        valid = {(str(row.user_id), row.pk) for row in rows if row.user.is_active}
        return {key: pair in valid for key, pair in pairs.items()}


def _user_and_token_pk(key: str) -> tuple[str, int] | None:
    """Return the user's key and the token's primary key from a principal's key, or None."""
    user, application, token = key_parts(key) or ("", "", "")
    pk = Token.pk_of(token)
    return (user, pk) if pk is not None and not application else None


def _valid_tokens(pks: Collection[int]) -> QuerySet[Token]:
    # ``expires`` is not checked: a call that began before continues, and its client fetches the
    # response with a new token.
    return _with_visible_users(
        Token.objects.select_related("user").filter(pk__in=pks, revoked=None)
    )


def _by_digest(digests: Sequence[str], user_model: Any) -> QuerySet[Any]:
    users = (f"user__{name}" for name in column_names(user_model))
    found = _with_visible_users(Token.objects.filter(digest__in=digests))
    return found.values_list("digest", *column_names(Token), *users)


def _token(alias: str, user_model: Any, row: Sequence[Any] | None) -> Token | None:
    if row is None:
        return None
    values = iter(row)
    token: Any = instance(Token, alias, values)
    # Fills the cache of the foreign key: no further query. An assignment would ask the routers.
    Token._meta.get_field("user").set_cached_value(token, instance(user_model, alias, values))
    return cast(Token, token)


def _with_visible_users(tokens: QuerySet[Any]) -> QuerySet[Any]:
    """Leave out tokens of users that the project's default manager hides."""
    users = get_user_model()._default_manager.all()
    return tokens.filter(user__in=users) if users.query.where else tokens


def _rejection_reason(token: Token, server: Server, now: datetime) -> str | None:
    """Return why a token is not valid on ``server``, or None. Clients do not receive the reason."""
    if (reason := state(token, now)) != VALID:
        return reason
    if token.server not in ("", server.name):
        return f"for the server {token.server!r}, not for {server.name!r}"
    return None


def _write_uses(pks: Collection[Any]) -> None:
    Token.objects.filter(pk__in=pks).update(last_used=timezone.now())


uses = LastUsedTimes(_write_uses)


# Creating, checking and revoking tokens.


def state(token: Token, now: datetime | None = None) -> str:
    """Return ``VALID``, or the reason why the token is invalid, for the admin and the log."""
    if token.revoked is not None:
        return "revoked"
    if not token.is_valid(now):
        return "expired"
    return VALID if token.user.is_active else "user not active"


def revoke(tokens: QuerySet[Token]) -> int:
    """Revoke tokens and close what they opened. Return how many were not revoked before.

    The tokens are updated and the change is recorded in one transaction.
    """
    from ..changes import permission_changes  # commands import this module, and need no changes

    using, valid = router.db_for_write(Token), tokens.filter(revoked=None)
    with transaction.atomic(using=using):
        ended = list(valid.using(using)) if signals.token_revoked.has_listeners(Token) else []
        now = timezone.now()
        count = valid.using(using).update(revoked=now)
        if count:
            permission_changes.record_ended_credentials(using=using)
        for token in ended:
            token.revoked = now
            signals.send_row_signal(signals.token_revoked, Token, token=token)
    return count


def check_scopes(scopes: Iterable[str]) -> None:
    """Raise ``ValidationError`` for texts that cannot be a scope."""
    for scope in scopes:
        if not NAME.fullmatch(scope):
            message = _(
                "%(scope)r is not a valid scope: "
                "spaces, quotes, backslashes and accents are not allowed."
            )
            raise ValidationError(message, params={"scope": scope})
