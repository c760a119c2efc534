"""
What ends the right of clients when a user or a client goes.

Rule: a user who may not sign in any more, or has another password, has no client left. That is seen
where a row is saved. ``QuerySet.update()`` tells nobody: after one that takes people's
``is_active`` their tokens are refused at each use, but stand again when it is given back, and
after one that writes passwords call ``revoking.revoke_user``. So it is with a hash that is assigned
and saved by ``update_fields=["password"]`` alone, which is how Django rehashes the same password.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q
from django.db.models.signals import post_delete, post_save, pre_save
from django.dispatch import receiver
from oauth2_provider.settings import oauth2_settings

from ..dispatch import standing
from .models import Activity, ClientProfile, Consent, Source
from .revoking import revoke_user

_OLD = "_mcp_old_password"


# Of any sender: a user may be saved as one of a proxy model.


@receiver(pre_save, dispatch_uid="django_mcp_oauth.password")
def _note_password(
    sender: Any, instance: Any, raw: bool, update_fields: Collection[str] | None, using: str,
    **kwargs: Any,
) -> None:  # fmt: skip
    """A query, but only where the password is written and nothing else tells whether it changed."""
    if raw or not _is_known(instance) or not _may_be_new(instance, update_fields):
        return
    rows = sender._base_manager.using(using).filter(pk=instance.pk)
    vars(instance)[_OLD] = rows.values_list("password", flat=True).first()


def _is_known(instance: Any) -> bool:
    return isinstance(instance, get_user_model()) and instance.pk is not None


def _may_be_new(user: Any, update_fields: Collection[str] | None) -> bool:
    if update_fields is not None and "password" not in update_fields:
        return False
    return hasattr(user, "password") and not _was_set(user) and not _is_rehashed(
        user, update_fields
    )  # fmt: skip


def _was_set(user: Any) -> bool:
    """By ``set_password``, which leaves the password there until the row is saved."""
    return getattr(user, "_password", None) is not None


def _is_rehashed(user: Any, update_fields: Collection[str] | None) -> bool:
    """At signing in, when the project's hasher has changed: it is the same password."""
    return update_fields is not None and set(update_fields) == {"password"} and bool(
        user.has_usable_password()
    )  # fmt: skip


@receiver(post_save, dispatch_uid="django_mcp_oauth.user")
def _revoke(
    sender: Any, instance: Any, created: bool, raw: bool,
    update_fields: Collection[str] | None, **kwargs: Any,
) -> None:  # fmt: skip
    if raw or created or not _is_known(instance):
        return
    if not instance.is_active or _has_another_password(instance, update_fields):
        revoke_user(instance)


def _has_another_password(user: Any, update_fields: Collection[str] | None) -> bool:
    written = update_fields is None or "password" in update_fields
    old = vars(user).pop(_OLD, None)
    return written and (_was_set(user) or (old is not None and old != user.password))


@receiver(
    post_delete, sender=oauth2_settings.APPLICATION_MODEL, dispatch_uid="django_mcp_oauth.client"
)
def _forget_client(sender: Any, instance: Any, using: str, **kwargs: Any) -> None:
    """But not that it was blocked: a client that is named by its URL can come again."""
    kept = Q(source=Source.CIMD, blocked__isnull=False)
    ClientProfile.objects.filter(~kept, client_id=instance.client_id).delete()
    Consent.objects.filter(client_id=instance.client_id).delete()
    standing.ended(using=using)
    Activity.objects.filter(client_id=instance.client_id).delete()
