"""
Clients that nobody uses: how many nobody ever authorized there may be, and when they are forgotten.

Rule: who was authorized, who has a token, a code or a consent is forgotten only when none of it was
good for anything for ``DAYS``, and who is blocked never, at whatever moment that comes about. Who
comes back after all registers again. One that is known by its document stays once it was
authorized: it is one row, for however many people it acts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, router, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_id_token_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from . import rates
from .conf import settings
from .models import ClientProfile, Consent, Source

AT_MOST = 10_000  # of them, of everybody
AT_ONCE = 20  # forgotten whenever one comes
SOON = 3600  # seconds after which they are forgotten where there are too many
DAYS = 90  # without use, after which one is forgotten that was authorized
PAUSE = 600.0  # seconds in which a process looks for such once, where others register
BY_THEMSELVES = (Source.DCR, Source.CIMD)
_looked = float("-inf")  # when it last did


def make_room() -> bool:
    """Forget some that are old; whether one more may come.

    Who registers asks in turn. A document is fetched after it was asked: of those that are fetched
    at the same moment a few more may come than there may be.
    """
    reap(expired())
    _reap_idle_in_time()
    return not _is_full() or reap(timezone.now() - timedelta(seconds=SOON)) > 0


def _reap_idle_in_time() -> None:
    global _looked
    if time.monotonic() - _looked > PAUSE:
        _looked = time.monotonic()
        reap_idle()


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
    held = (model._default_manager.all() for model in (*_expiring(), get_refresh_token_model()))
    return _without(found, held).order_by("created")


def idle() -> QuerySet[ClientProfile]:
    """Those that registered themselves, were authorized, and were not used for ``DAYS`` since."""
    before = min(expired(), timezone.now() - timedelta(days=DAYS))
    found = ClientProfile.objects.filter(
        Q(last_used=None) | Q(last_used__lt=before),
        source=Source.DCR, last_authorized__lt=before, blocked=None,
    )  # fmt: skip
    return _without(found, _living()).order_by("last_authorized")


def _without(
    found: QuerySet[ClientProfile], holdings: Iterable[QuerySet[Any]]
) -> QuerySet[ClientProfile]:
    """Those that have none of these."""
    for rows in holdings:
        held = rows.filter(application__client_id=OuterRef("client_id"))
        found = found.exclude(Exists(held))
    return found


def _expiring() -> list[Any]:
    return [get_grant_model(), get_access_token_model(), get_id_token_model()]


def _living() -> Iterable[QuerySet[Any]]:
    """Codes and tokens that have not expired, and what new ones may be had for."""
    now, longest = timezone.now(), refresh_token_expire_timedelta()
    for model in _expiring():
        yield model._default_manager.filter(expires__gt=now)
    refresh = get_refresh_token_model()._default_manager.filter(revoked=None)
    yield refresh.exclude(access_token__expires__lte=now - longest) if longest else refresh


def reap(before: datetime, at_most: int = AT_ONCE) -> int:
    """Forget some that nobody authorized and that came before that; how many."""
    return _reap_if_any(unused(before), at_most)


def reap_idle(at_most: int = AT_ONCE) -> int:
    """Forget some that were authorized long ago; how many."""
    return _reap_if_any(idle(), at_most)


def _reap_if_any(found: QuerySet[ClientProfile], at_most: int) -> int:
    return len(_reap(found, at_most)) if found.exists() else 0


def forget(client_ids: Collection[str]) -> list[str]:
    """Forget those of these clients that are idle, or unused, however new; which they were."""
    found = (rows.filter(client_id__in=client_ids) for rows in (unused(timezone.now()), idle()))
    return [gone for rows in found for gone in _reap(rows, len(client_ids))]


def _reap(found: QuerySet[ClientProfile], at_most: int) -> list[str]:
    database = router.db_for_write(ClientProfile)
    with transaction.atomic(using=database):
        skip = connections[database].features.has_select_for_update_skip_locked
        rows = found.using(database).select_for_update(skip_locked=skip)[:at_most]
        return _forget(found, [row.client_id for row in rows])


def _forget(found: QuerySet[ClientProfile], client_ids: list[str]) -> list[str]:
    """A code or a token needs its application's row: once that is locked, none can come."""
    applications = get_application_model()._default_manager.filter(
        client_id__in=client_ids, registration_source__in=BY_THEMSELVES
    )
    list(applications.select_for_update().values_list("pk"))
    going = list(found.filter(client_id__in=client_ids))
    gone = [profile.client_id for profile in going]
    applications.filter(client_id__in=gone).delete()
    ClientProfile.objects.filter(client_id__in=gone).delete()
    Consent.objects.filter(client_id__in=gone).delete()
    return gone
