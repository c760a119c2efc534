"""Revocation of codes, refresh tokens and access tokens, and the signals that cause it.

Codes are deleted first, then refresh tokens are revoked until none is left, then access tokens are
deleted. Issuing a token locks the code or the refresh token that it comes from. So a revocation
waits for that lock, and then finds the new token. Every transaction locks the first row of a family
before any other row of it, so that two of them cannot deadlock.

Saving a user who is inactive or has another password revokes all their clients.
``QuerySet.update()`` sends no signal. After an update that clears ``is_active``, tokens are
rejected at each use, but are valid again if it is set back. After an update that writes passwords,
call ``revocation.revoke_user``. The same applies to a hash that is assigned and saved with
``update_fields=["password"]`` alone, because Django rehashes an unchanged password in this way.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model
from django.db import router, transaction
from django.db.models import AutoField, F, Q, QuerySet
from django.db.models.signals import post_delete
from django.dispatch import receiver
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings

from .. import signals
from ..changes import permission_changes
from ..verifiers.protected_resource import served
from .models import Activity, ClientProfile, Consent, Source, TokenBinding
from .resource_indicators import is_mcp_token

MAX_PASSES = 10  # passes that look for refresh tokens issued during the previous pass


def end_family(family: uuid.UUID | None) -> None:
    """Revoke every token of a family: all tokens that were issued for one code."""
    if family is not None:
        with lock_family(family):
            tokens = get_refresh_token_model().objects.filter(token_family=family)
            if any(_revoke_tokens(tokens)):
                _notify_processes(*tokens.values_list("user", flat=True)[:1])


@contextmanager
def lock_family(family: uuid.UUID | None) -> Iterator[None]:
    """Open a transaction that locks a token family.

    No other transaction can issue or revoke its tokens meanwhile.
    """
    first = _first_pk(family)
    with _transaction():
        # The first row may be deleted while we wait for its lock: then the next one is first.
        while first is not None and not lock_token(first):
            first = _first_pk(family)
        yield


def lock_token(pk: Any) -> bool:
    """Lock a refresh token's row. Return False if it does not exist.

    It is an UPDATE, because SQLite has no ``SELECT ... FOR UPDATE``.
    """
    return bool(get_refresh_token_model().objects.filter(pk=pk).update(updated=F("updated")))


def _first_pk(family: uuid.UUID | None) -> Any:
    """Return the primary key of the family's oldest row; None without rows or a family."""
    if family is None:
        return None
    rows = get_refresh_token_model().objects.filter(token_family=family)
    # All transactions must choose the same row, so a new token must not become the first. Keys of a
    # project's own model may not ascend. Then the clocks of the servers must agree better than the
    # time between two refreshes.
    ascends = isinstance(rows.model._meta.pk, AutoField)
    ordering = ("pk",) if ascends else ("created", "pk")
    return rows.order_by(*ordering).values_list("pk", flat=True).first()


def revoke_client(client_id: str) -> int:
    """Revoke a client's consents, codes and tokens of all users.

    Return how many refresh tokens were revoked. The client may ask users again. To prevent that,
    set ``ClientProfile.blocked``.
    """
    client = get_application_model().objects.filter(client_id=client_id).first()
    with _transaction():
        Consent.objects.filter(client_id=client_id, revoked=None).update(revoked=timezone.now())
        return end_all(application=client) if client else 0


def revoke_consents(user: Any, client_id: str) -> int:
    """Revoke a client's consents, codes and tokens of one user.

    Return how many refresh tokens were revoked.
    """
    client = get_application_model().objects.filter(client_id=client_id).first()
    with _transaction():
        consents = Consent.objects.filter(user=user, client_id=client_id, revoked=None)
        consents.update(revoked=timezone.now())
        return end_all(user=user, application=client) if client else 0


def revoke_user(user: Any) -> int:
    """Revoke all consents, codes and tokens of a user that are for MCP servers.

    Return how many refresh tokens were revoked. Clients of the project's other APIs keep their
    tokens. All codes of the user are deleted.
    """
    with _transaction():
        _grants(user=user).delete()
        Consent.objects.filter(user=user, revoked=None).update(revoked=timezone.now())
        return end_all(user=user, application__in=_client_pks_of(user))


def end_account(account: str, user: Any = None) -> int:
    """Revoke all codes and tokens that are bound to an upstream account. Return how many bindings.

    Call it when a user disconnects the account, or when the provider has deleted it. Tokens that
    are bound to another account of the same user stay. With ``user``, only theirs are revoked.
    """
    rows = TokenBinding.objects.filter(account=account).exclude(account="")
    rows = rows if user is None else rows.filter(user=user)
    # A redemption that runs now has locked the row. The DELETE waits for it, and then does not
    # match, because the row has a family: the loop below finds it.
    ended, _ = rows.filter(family=None).delete()
    for family in list(rows.values_list("family", flat=True)):
        end_family(family)
        ended += rows.filter(family=family).delete()[0]
    return ended


def _transaction() -> Any:
    return transaction.atomic(using=router.db_for_write(get_access_token_model()))


def _grants(**lookups: Any) -> QuerySet[Any]:
    grants: QuerySet[Any] = get_grant_model().objects.filter(**lookups)
    return grants


def end_all(**lookups: Any) -> int:
    """Revoke the codes and tokens that match ``lookups``, in the caller's transaction.

    Return how many refresh tokens were revoked. If there was nothing to revoke, other processes
    are not notified.
    """
    _grants(**lookups).delete()
    revoked, deleted = _revoke_tokens(get_refresh_token_model().objects.filter(**lookups))
    deleted += _delete_access_tokens(get_access_token_model().objects.filter(**lookups))
    if revoked or deleted:
        _notify_processes(*(lookups[name] for name in ("user",) if name in lookups))
    return revoked


def _notify_processes(*users: Any) -> None:
    """Make every process check its open streams and calls once the transaction commits."""
    permission_changes.record_ended_credentials(
        *users, using=router.db_for_write(get_access_token_model())
    )


def _revoke_tokens(refresh: QuerySet[Any]) -> tuple[int, int]:
    """Revoke refresh tokens and delete their access tokens. Return the numbers of both.

    An UPDATE that waited for a lock does not see tokens that were inserted meanwhile, so it is
    repeated until none is left. This does not help at isolation level REPEATABLE READ, where the
    transaction never sees them.
    """
    revoked, unrevoked = 0, refresh.filter(revoked=None)
    for _ in range(MAX_PASSES):
        if not unrevoked.exists():
            break
        now = timezone.now()
        revoked += unrevoked.update(revoked=now, updated=now)
    access = refresh.exclude(access_token=None).values_list("access_token", flat=True)
    deleted = _delete_access_tokens(get_access_token_model().objects.filter(pk__in=list(access)))
    return revoked, deleted


def _delete_access_tokens(tokens: QuerySet[Any]) -> int:
    """Delete access tokens and send ``token_revoked``. Return how many rows were deleted."""
    listens = signals.token_revoked.has_listeners(tokens.model)
    revoked = list(tokens) if listens else []
    count, _ = tokens.delete()
    for token in revoked:
        signals.send_row_signal(signals.token_revoked, tokens.model, token=token)
    return count


def _client_pks_of(user: Any) -> set[Any]:
    """Return the keys of the applications that have a user's tokens for an MCP server."""
    known = set(served())
    refresh = get_refresh_token_model().objects.filter(user=user, revoked=None)
    access = get_access_token_model().objects.filter(user=user).exclude(application=None)
    return {
        row.application_id
        for rows in (refresh, access)
        for row in rows.select_related("application").iterator()
        if is_mcp_token(row, known)
    }


_OLD_PASSWORD = "_mcp_old_password"


# Receivers for users. ``changes.receivers`` connects them to the user model, and to its proxies
# and child models.


def note_password(
    sender: Any, instance: Any, raw: bool, update_fields: Collection[str] | None, using: str,
    **kwargs: Any,
) -> None:  # fmt: skip
    """Remember the stored password hash before a user is saved.

    It runs a query only if the password is written and nothing else shows whether it changes.
    """
    if raw or not _is_saved_user(instance) or not _may_change_password(instance, update_fields):
        return
    rows = sender._base_manager.using(using).filter(pk=instance.pk)
    vars(instance)[_OLD_PASSWORD] = rows.values_list("password", flat=True).first()


def _is_saved_user(instance: Any) -> bool:
    return isinstance(instance, get_user_model()) and instance.pk is not None


def _may_change_password(user: Any, update_fields: Collection[str] | None) -> bool:
    if update_fields is not None and "password" not in update_fields:
        return False
    if not hasattr(user, "password") or _is_set_password_pending(user):
        return False
    return not _is_rehash(user, update_fields)


def _is_set_password_pending(user: Any) -> bool:
    """Whether ``set_password`` was called: it keeps ``_password`` until the row is saved."""
    return getattr(user, "_password", None) is not None


def _is_rehash(user: Any, update_fields: Collection[str] | None) -> bool:
    """Whether Django only rehashes the same password, as at login after the hasher changed."""
    is_only_field = update_fields is not None and set(update_fields) == {"password"}
    return is_only_field and bool(user.has_usable_password())


def revoke(
    sender: Any, instance: Any, created: bool, raw: bool,
    update_fields: Collection[str] | None, **kwargs: Any,
) -> None:  # fmt: skip
    if raw or created or not _is_saved_user(instance):
        return
    if not instance.is_active or _is_password_changed(instance, update_fields):
        revoke_user(instance)


def _is_password_changed(user: Any, update_fields: Collection[str] | None) -> bool:
    written = update_fields is None or "password" in update_fields
    old = vars(user).pop(_OLD_PASSWORD, None)
    is_changed = old is not None and old != user.password
    return written and (_is_set_password_pending(user) or is_changed)


@receiver(
    post_delete, sender=oauth2_settings.APPLICATION_MODEL, dispatch_uid="django_mcp_oauth.client"
)
def _delete_client_rows(sender: Any, instance: Any, using: str, **kwargs: Any) -> None:
    """Delete a client's rows with its application.

    A blocked metadata document client keeps its profile. Otherwise it would be fetched again under
    the same URL, and would no longer be blocked.
    """
    is_blocked = Q(source=Source.CIMD, blocked__isnull=False)
    ClientProfile.objects.filter(~is_blocked, client_id=instance.client_id).delete()
    Consent.objects.filter(client_id=instance.client_id).delete()
    permission_changes.record_ended_credentials(using=using)
    Activity.objects.filter(client_id=instance.client_id).delete()
