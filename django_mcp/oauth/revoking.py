"""
Ending what clients may do for people.

Rule: first codes, then refresh tokens until none is left that lives, then access tokens. Who issues
a token holds the code, or a living refresh token, that it comes of: so we wait for that, and then
find what was issued. Within a family its first row is held before any other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import router, transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from ..dispatch import standing
from ..protected.names import served
from .models import Binding, Consent
from .targets import is_ours

LOOKS = 10  # at what was issued while we waited


def end_family(family: uuid.UUID | None) -> None:
    """End every token that came of one consent."""
    if family is not None:
        with alone_in(family):
            tokens = get_refresh_token_model().objects.filter(token_family=family)
            if any(_end(tokens)):
                _tell(*tokens.values_list("user", flat=True)[:1])


@contextmanager
def alone_in(family: uuid.UUID | None) -> Iterator[None]:
    """A transaction in which nobody else issues tokens of a family, or ends it."""
    first = _first(family)
    with _at_once():
        while first is not None and not held(first):
            first = _first(family)
        yield


def held(pk: Any) -> bool:
    """Lock a refresh token, if it is there. By writing it: SQLite knows how to wait for that."""
    return bool(get_refresh_token_model().objects.filter(pk=pk).update(updated=F("updated")))


def _first(family: uuid.UUID | None) -> Any:
    """The row that is there the longest; without a family there is nothing to be alone in."""
    rows = get_refresh_token_model().objects.filter(token_family=family)
    return None if family is None else rows.order_by("pk").values_list("pk", flat=True).first()


def revoke_client(client_id: str) -> int:
    """End all that a client may do, for everybody; how many refresh tokens were not ended before.

    It may come again, and ask: whom it must not ask again is ``ClientProfile.blocked``.
    """
    client = get_application_model().objects.filter(client_id=client_id).first()
    with _at_once():
        Consent.objects.filter(client_id=client_id, revoked=None).update(revoked=timezone.now())
        return end_all(application=client) if client else 0


def revoke_consents(user: Any, client_id: str) -> int:
    """End all that a client may do for one user; how many refresh tokens that were."""
    client = get_application_model().objects.filter(client_id=client_id).first()
    with _at_once():
        given = Consent.objects.filter(user=user, client_id=client_id, revoked=None)
        given.update(revoked=timezone.now())
        return end_all(user=user, application=client) if client else 0


def revoke_user(user: Any) -> int:
    """End all that clients may do for a user at MCP servers; how many refresh tokens that were.

    Clients of the project's other APIs keep what they have.
    """
    with _at_once():
        _grants(user=user).delete()
        Consent.objects.filter(user=user, revoked=None).update(revoked=timezone.now())
        return end_all(user=user, application__in=_clients_of(user))


def end_account(account: str, user: Any = None) -> int:
    """End all that was let in by an account elsewhere; how many consents that were.

    To be called when it is disconnected, or is gone there: what is bound to another account of the
    same person stays. Of ``user`` alone, if one is named.
    """
    rows = Binding.objects.filter(account=account).exclude(account="")
    rows = rows if user is None else rows.filter(user=user)
    # Who redeems a code at this moment holds its row: we wait for that, and it has a family then.
    ended, _ = rows.filter(family=None).delete()
    for family in list(rows.values_list("family", flat=True)):
        end_family(family)
        ended += rows.filter(family=family).delete()[0]
    return ended


def _at_once() -> Any:
    return transaction.atomic(using=router.db_for_write(get_access_token_model()))


def _grants(**which: Any) -> QuerySet[Any]:
    found: QuerySet[Any] = get_grant_model().objects.filter(**which)
    return found


def end_all(**which: Any) -> int:
    """End codes and tokens, in the caller's transaction; how many refresh tokens that were.

    Nobody has to look where nothing was left to end.
    """
    _grants(**which).delete()
    ended, gone = _end(get_refresh_token_model().objects.filter(**which))
    others, _ = get_access_token_model().objects.filter(**which).delete()
    if ended or gone or others:
        _tell(*(which[name] for name in ("user",) if name in which))
    return ended


def _tell(*users: Any) -> None:
    """Every process looks what it may still go on with, when this is committed."""
    standing.ended(*users, using=router.db_for_write(get_access_token_model()))


def _end(refresh: QuerySet[Any]) -> tuple[int, int]:
    """End refresh tokens and the access tokens beside them; how many of both that were.

    An update that had to wait does not see what was issued meanwhile; the next look does. Where
    reads are repeatable it would not, however often.
    """
    ended, living = 0, refresh.filter(revoked=None)
    for now in (timezone.now() for _ in range(LOOKS)):
        if not living.exists():
            break
        ended += living.update(revoked=now, updated=now)
    beside = refresh.exclude(access_token=None).values_list("access_token", flat=True)
    gone, _ = get_access_token_model().objects.filter(pk__in=list(beside)).delete()
    return ended, gone


def _clients_of(user: Any) -> set[Any]:
    """The applications that may act for a user at a server of ours."""
    known = set(served())
    refresh = get_refresh_token_model().objects.filter(user=user, revoked=None)
    access = get_access_token_model().objects.filter(user=user).exclude(application=None)
    return {
        row.application_id
        for rows in (refresh, access)
        for row in rows.select_related("application").iterator()
        if is_ours(row, known)
    }
