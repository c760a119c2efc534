"""
Personal access tokens: a secret by which a program acts for a user.

Rule: whatever is wrong with a token, the answer is the same nobody, and what
cannot be one costs no query. A token is found by its digest, so no time that
is taken tells how much of a guess was right. That it was used is noted in
memory and written later, by nobody who waits: a look-up writes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import router, transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .dispatch import standing
from .models import Token
from .principal import Auth, LookupVerifier, Principal, key_parts
from .scopes import NAME
from .uses import Uses

if TYPE_CHECKING:
    from .declare.servers import Server

SECRET = re.compile(r"mcp_[A-Za-z0-9_-]{43}")
KEY = re.compile(r"token-([1-9][0-9]{0,17})")
VALID = "valid"
AT_ONCE = 500  # rows in one query: databases limit what a statement may hold
logger = logging.getLogger("django_mcp")


class PersonalAccessTokens(LookupVerifier):
    """The ``TokenVerifier`` of tokens made in the admin or by ``manage.py mcp_token``."""

    def lookup(self, token: str, server: Server) -> Principal | None:
        row = _row(token) if SECRET.fullmatch(token) else None
        if row is None:
            return None
        now = timezone.now()
        if wrong := _wrong(row, server, now):
            logger.info("Access token %s was refused: %s", row.pk, wrong)
            return None
        uses.note(row.pk, row.last_used)
        auth = Auth(frozenset(row.scopes), key=f"token-{row.pk}", expires=row.expires)
        return Principal(row.user, auth)

    def standing(self, keys: Collection[str]) -> dict[str, bool]:
        """Of these principals, those of personal tokens: whether the token still is theirs."""
        named = {key: found for key in keys if (found := _named(key))}
        pks = sorted({pk for _, pk in named.values()})
        rows = (row for at in range(0, len(pks), AT_ONCE) for row in _rows(pks[at : at + AT_ONCE]))
        theirs = {(str(row.user_id), row.pk) for row in rows if row.user.is_active}
        return {key: found in theirs for key, found in named.items()}


def _named(key: str) -> tuple[str, int] | None:
    """The user and the token that a principal's key names."""
    user, application, token = key_parts(key) or ("", "", "")
    found = KEY.fullmatch(token)
    return (user, int(found[1])) if found and not application else None


def _rows(pks: Collection[int]) -> QuerySet[Token]:
    return _let_in(Token.objects.select_related("user").filter(pk__in=pks, revoked=None))


def _row(secret: str) -> Token | None:
    """One query, with the user. Whom the project's default manager hides may not come in."""
    found = Token.objects.select_related("user").filter(digest=Token.digest_of(secret))
    return next(iter(_let_in(found)[:1]), None)


def _let_in(tokens: QuerySet[Token]) -> QuerySet[Token]:
    users = get_user_model()._default_manager.all()
    return tokens.filter(user__in=users) if users.query.where else tokens


def _wrong(token: Token, server: Server, now: datetime) -> str | None:
    """Why a token is not valid on ``server``. Clients are not told."""
    if (found := state(token, now)) != VALID:
        return found
    if token.server not in ("", server.name):
        return f"for the server {token.server!r}, not for {server.name!r}"
    return None


def _used(pks: Collection[Any]) -> None:
    Token.objects.filter(pk__in=pks).update(last_used=timezone.now())


uses = Uses(_used)


# Making, judging and ending them.


def state(token: Token, now: datetime | None = None) -> str:
    """``VALID``, or why it is not, in words for the project's people."""
    if token.revoked is not None:
        return "revoked"
    if not token.is_valid(now):
        return "expired"
    return VALID if token.user.is_active else "user not active"


def revoke(tokens: QuerySet[Token]) -> int:
    """End tokens, and what goes on with them; how many were not ended before."""
    using = router.db_for_write(Token)
    with transaction.atomic(using=using):
        count = tokens.using(using).filter(revoked=None).update(revoked=timezone.now())
        if count:
            standing.ended(using=using)
    return count


def check_scopes(scopes: Iterable[str]) -> None:
    """Raises ``ValidationError`` for what no scope can be called."""
    for scope in scopes:
        if not NAME.fullmatch(scope):
            message = _("%(scope)r is no scope: it has no blanks, quotes, backslashes or accents.")
            raise ValidationError(message, params={"scope": scope})
