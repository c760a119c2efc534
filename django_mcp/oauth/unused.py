"""
Clients that nobody ever authorized: how many there may be, and when they are forgotten.

Rule: who was authorized, who has a token, a code or a consent, and who is blocked is never
forgotten here, at whatever moment that comes about. Who comes back after all registers again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, router, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_id_token_model,
    get_refresh_token_model,
)

from . import rates
from .conf import settings
from .models import ClientProfile, Consent, Source

AT_MOST = 10_000  # of them, of everybody
AT_ONCE = 20  # forgotten whenever one comes
SOON = 3600  # seconds after which they are forgotten where there are too many
BY_THEMSELVES = (Source.DCR, Source.CIMD)


def make_room() -> bool:
    """Forget some that are old; whether one more may come.

    Who registers asks in turn. A document is fetched after it was asked: of those that are fetched
    at the same moment a few more may come than there may be.
    """
    reap(expired())
    return not _is_full() or reap(timezone.now() - timedelta(seconds=SOON)) > 0


def expired() -> datetime:
    """Who came before that, and was not authorized since, is forgotten.

    Not before the rate is over that they count for.
    """
    _, seconds = rates.rate() or (0, 0)
    return timezone.now() - timedelta(seconds=max(settings.UNUSED, seconds))


def _is_full() -> bool:
    rows = ClientProfile.objects.using(router.db_for_write(ClientProfile))
    recent = rows.filter(last_authorized=None, created__gte=expired())
    return recent.filter(source__in=BY_THEMSELVES)[:AT_MOST].count() >= AT_MOST


def unused(before: datetime) -> QuerySet[ClientProfile]:
    """Those that came before that."""
    found = ClientProfile.objects.filter(
        source__in=BY_THEMSELVES,
        created__lt=before,
        last_authorized=None,
        last_used=None,
        blocked=None,
    ).exclude(Exists(Consent.objects.filter(client_id=OuterRef("client_id"))))
    for model in _holding():
        held = model._default_manager.filter(application__client_id=OuterRef("client_id"))
        found = found.exclude(Exists(held))
    return found.order_by("created")


def _holding() -> list[Any]:
    return [
        get_grant_model(),
        get_access_token_model(),
        get_refresh_token_model(),
        get_id_token_model(),
    ]


def reap(before: datetime, at_most: int = AT_ONCE) -> int:
    """Forget some that came before that; how many."""
    found = unused(before)
    return len(_reap(found, before, at_most)) if found.exists() else 0


def forget(client_ids: Collection[str]) -> list[str]:
    """Forget those of these clients that are unused, however new; which they were."""
    now = timezone.now()
    return _reap(unused(now).filter(client_id__in=client_ids), now, len(client_ids))


def _reap(found: QuerySet[ClientProfile], before: datetime, at_most: int) -> list[str]:
    database = router.db_for_write(ClientProfile)
    with transaction.atomic(using=database):
        skip = connections[database].features.has_select_for_update_skip_locked
        rows = found.using(database).select_for_update(skip_locked=skip)[:at_most]
        return _forget([row.client_id for row in rows], before)


def _forget(client_ids: list[str], before: datetime) -> list[str]:
    """A code or a token needs its application's row: once that is locked, none can come."""
    applications = get_application_model()._default_manager.filter(
        client_id__in=client_ids, registration_source__in=BY_THEMSELVES
    )
    list(applications.select_for_update().values_list("pk"))
    going = list(unused(before).filter(client_id__in=client_ids))
    gone = [profile.client_id for profile in going]
    applications.filter(client_id__in=gone).delete()
    ClientProfile.objects.filter(client_id__in=gone).delete()
    return gone
