"""
Deletion of unused OAuth clients, and the limit on clients that no user has authorized.

*Unused* clients registered themselves or were fetched as metadata documents, and nobody authorized
them. They are deleted when they expire, or when the table is full. *Idle* clients registered
themselves, were authorized, were not used for ``UNUSED_DAYS``, and have no valid code or token.
Clients with a metadata document are not deleted once they were authorized, because one row serves
all users. Blocked clients are never deleted. A deleted client can register again.

Deleting locks the profile and the application row first, and then evaluates the conditions again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, router, transaction
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet
from django.db.models.functions import Left
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_id_token_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from ..auth.networks import HALF_DIGEST_LENGTH
from . import registration_rates
from .conf import settings
from .models import ClientProfile, Consent, Source

MAX_UNAUTHORIZED_CLIENTS = 10_000  # clients that nobody has authorized, in total
CLIENTS_PER_REGISTRATION = 20  # clients deleted at each registration
MAX_SEARCHED_NETWORKS = 5  # networks that are searched for a client to evict
RETRY_SECONDS = 3600  # Retry-After, if no client can be evicted
UNUSED_DAYS = 90  # days without use after which an authorized client is deleted
SEARCH_INTERVAL_SECONDS = 600.0  # seconds between two searches for idle clients in a process
BY_THEMSELVES = (Source.DCR, Source.CIMD)
_looked = float("-inf")  # monotonic time of the last search for idle clients


def make_room() -> bool:
    """Delete some old clients. Return whether one more client may be added.

    Registrations call it one after another. Metadata documents are fetched after the call, so
    simultaneous fetches can exceed the limit by a few clients.
    """
    reap(expired())
    _reap_idle_in_time()
    return not _is_full() or _evict()


def _evict() -> bool:
    """Delete the oldest unused client of the network that has the most of them.

    A network that fills the table loses its own clients first. So it does not evict the client of
    another network whose user is just reading the consent page.
    """
    sites = _recent().annotate(site=Left("address", HALF_DIGEST_LENGTH)).values("site")
    busiest = sites.annotate(number=Count("pk"), first=Min("created")).order_by("-number", "first")
    theirs = (
        registration_rates.of_network(unused(timezone.now()), one["site"])
        for one in busiest[:MAX_SEARCHED_NETWORKS]
    )
    return any(_reap(found, 1) for found in theirs)


def _reap_idle_in_time() -> None:
    global _looked
    if time.monotonic() - _looked > SEARCH_INTERVAL_SECONDS:
        _looked = time.monotonic()
        reap_idle()


def expired() -> datetime:
    """Return the time before which unauthorized clients must have been created to be deleted.

    A client is kept at least as long as it counts for the registration rate of its network.
    """
    _, seconds = registration_rates.rate() or (0, 0)
    return timezone.now() - timedelta(seconds=max(settings.UNUSED, seconds))


def _is_full() -> bool:
    return _recent()[:MAX_UNAUTHORIZED_CLIENTS].count() >= MAX_UNAUTHORIZED_CLIENTS


def _recent() -> QuerySet[ClientProfile]:
    """Return the clients that count for the limit: not authorized and not expired.

    Blocked clients do not count. They cannot be evicted, so they would fill the table for good.
    """
    rows = ClientProfile.objects.using(router.db_for_write(ClientProfile))
    recent = rows.filter(last_authorized=None, blocked=None, created__gte=expired())
    return recent.filter(source__in=BY_THEMSELVES)


def unused(before: datetime) -> QuerySet[ClientProfile]:
    """Return the clients without authorization, use, consent, code or token, created before that.

    The oldest come first.
    """
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
    """Return self-registered clients that were authorized, then unused for ``UNUSED_DAYS``."""
    before = min(expired(), timezone.now() - timedelta(days=UNUSED_DAYS))
    found = ClientProfile.objects.filter(
        Q(last_used=None) | Q(last_used__lt=before),
        source=Source.DCR, last_authorized__lt=before, blocked=None,
    )  # fmt: skip
    return _without(found, _living()).order_by("last_authorized")


def _without(
    found: QuerySet[ClientProfile], holdings: Iterable[QuerySet[Any]]
) -> QuerySet[ClientProfile]:
    """Exclude the clients whose application has a row in one of ``holdings``."""
    for rows in holdings:
        held = rows.filter(application__client_id=OuterRef("client_id"))
        found = found.exclude(Exists(held))
    return found


def _expiring() -> list[Any]:
    return [get_grant_model(), get_access_token_model(), get_id_token_model()]


def _living() -> Iterable[QuerySet[Any]]:
    """Yield the unexpired codes and tokens, and the refresh tokens that can still be used."""
    now, longest = timezone.now(), refresh_token_expire_timedelta()
    for model in _expiring():
        yield model._default_manager.filter(expires__gt=now)
    refresh = get_refresh_token_model()._default_manager.filter(revoked=None)
    yield refresh.exclude(access_token__expires__lte=now - longest) if longest else refresh


def reap(before: datetime, at_most: int = CLIENTS_PER_REGISTRATION) -> int:
    """Delete some unused clients that were created before ``before``. Return how many."""
    return _reap_if_any(unused(before), at_most)


def reap_idle(at_most: int = CLIENTS_PER_REGISTRATION) -> int:
    """Delete some idle clients. Return how many."""
    return _reap_if_any(idle(), at_most)


def _reap_if_any(found: QuerySet[ClientProfile], at_most: int) -> int:
    return len(_reap(found, at_most)) if found.exists() else 0


def forget(client_ids: Collection[str]) -> list[str]:
    """Delete those of these clients that are idle or unused, of any age. Return their ids."""
    found = (rows.filter(client_id__in=client_ids) for rows in (unused(timezone.now()), idle()))
    return [gone for rows in found for gone in _reap(rows, len(client_ids))]


def _reap(found: QuerySet[ClientProfile], at_most: int) -> list[str]:
    database = router.db_for_write(ClientProfile)
    with transaction.atomic(using=database):
        # Skip locked rows: two processes that delete at the same moment need not wait.
        skip = connections[database].features.has_select_for_update_skip_locked
        rows = found.using(database).select_for_update(skip_locked=skip)[:at_most]
        return _forget(found, [row.client_id for row in rows])


def _forget(found: QuerySet[ClientProfile], client_ids: list[str]) -> list[str]:
    """Delete those of these clients that are still in ``found``. Return their ids.

    Codes and tokens have a foreign key to the application row. Once that row is locked, no new one
    can be inserted, so ``found`` is evaluated again after that.
    """
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
