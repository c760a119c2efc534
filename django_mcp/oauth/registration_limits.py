"""
Limits on clients that register themselves: rates by network address, and a total number.

*Rates.* The address is that of the connection, ``REMOTE_ADDR``, as the ASGI server sets it. No
request header is read here: only the server knows which proxies it may trust. The address is stored
as a digest with the project's key. An IPv6 customer owns a whole /64 and often a /48, so IPv6 is
limited by both. Registrations are counted by their rows in the database, for all processes
together. Fetches of metadata documents are counted in the cache.

*Total.* The number of clients that no user has authorized is limited, and stale ones are deleted:

- *Unused* clients registered themselves or have a metadata document, and nobody authorized them.
  They are deleted when they expire, or when the table is full.
- *Idle* clients registered themselves, were authorized, were not used for ``UNUSED_DAYS``, and have
  no valid code or token. Clients with a metadata document are never idle, because one row serves
  all users.

Blocked clients are never deleted. A deleted client can register again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from django.core.cache import cache
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

from ..auth.principal import HALF_DIGEST_LENGTH, SITE_BITS, SUBNET_BITS, network_digest
from ..storage.databases import retry_collisions
from .conf import settings
from .models import ClientProfile, Consent, Lock, Source

MAX_UNAUTHORIZED_CLIENTS = 10_000  # clients that nobody has authorized, in total
CLIENTS_PER_REGISTRATION = 20  # clients deleted at each registration
MAX_SEARCHED_NETWORKS = 5  # networks that are searched for a client to evict
RETRY_SECONDS = 3600  # Retry-After, if no client can be evicted
UNUSED_DAYS = 90  # days without use after which an authorized client is deleted
SEARCH_INTERVAL_SECONDS = 600.0  # seconds between two searches for idle clients in a process
SELF_REGISTERED = (Source.DCR, Source.CIMD)
_last_search = float("-inf")  # monotonic time of the last search for idle clients
# Factor from the limit of a subnet to that of its site: 20 an hour become 80 for a /48.
SITE_FACTOR = 4
LOCK_NAME = "registering"


def address_digest(remote: str) -> str:
    """Return the digest under which the client's network is stored, 64 hex digits.

    The first half identifies the site (the /48 of IPv6), the second half the subnet (the /64). For
    IPv4 the halves are equal. Requests without an address count as one network.
    """
    return "".join(
        network_digest(remote, bits, "oauth.address") for bits in (SITE_BITS, SUBNET_BITS)
    )


def rate() -> tuple[int, int] | None:
    """Return the allowed registrations and the window in seconds; None without a limit."""
    if not settings.REGISTRATION_RATE:
        return None
    number, _, seconds = settings.REGISTRATION_RATE.partition("/")
    return int(number), int(seconds or 1)


def wait_to_register(address: str) -> int:
    """Return 0, or the seconds until a client of that network may register.

    One query for IPv4, two for IPv6.
    """
    if (limit := rate()) is None:
        return 0
    number, seconds = limit
    if number < 1:
        return seconds
    now, window = timezone.now(), timedelta(seconds=seconds)
    recent = ClientProfile.objects.using(router.db_for_write(ClientProfile)).filter(
        source=Source.DCR, created__gt=now - window
    )
    waits = []
    for network, allowed in _limits(address, number):
        newest = (
            clients_of_network(recent, network)
            .order_by("-created")
            .values_list("created", flat=True)
        )
        # The limit is reached until this registration leaves the window.
        blocking = next(iter(newest[allowed - 1 : allowed]), None)
        seconds_left = 0.0 if blocking is None else (blocking + window - now).total_seconds()
        waits.append(0 if blocking is None else int(seconds_left) + 1)
    return max(waits)


def clients_of_network(clients: QuerySet[ClientProfile], network: str) -> QuerySet[ClientProfile]:
    """Filter for clients whose address digest starts with ``network``.

    Clients with a metadata document have an empty address.
    """
    if not network:
        return clients.filter(address="")
    # Every database can use its index for a range, with any collation. "g" sorts after every hex
    # digit.
    return clients.filter(address__gte=network, address__lt=f"{network}g")


def _limits(address: str, number: int) -> list[tuple[str, int]]:
    """Return the networks of an address, each with the number of clients that it may register."""
    site, subnet = address[:HALF_DIGEST_LENGTH], address[HALF_DIGEST_LENGTH:]
    return [(address, number)] + ([(site, number * SITE_FACTOR)] if site != subnet else [])


@contextmanager
def registration_lock() -> Iterator[None]:
    """Open a transaction in which no other client can register.

    Without it, simultaneous registrations would all count the same rows and exceed the limit.
    """
    alias = router.db_for_write(Lock)
    features = connections[alias].features
    with transaction.atomic(using=alias):
        # A write to one row blocks other writers on every database, also on SQLite, which has no
        # ``SELECT ... FOR UPDATE``.
        Lock.objects.using(alias).bulk_create(
            [Lock(name=LOCK_NAME, taken=timezone.now())],
            update_conflicts=True,
            update_fields=["taken"],
            unique_fields=["name"] if features.supports_update_conflicts_with_target else None,
        )
        yield


def may_fetch(address: str, authorized_client: str = "") -> bool:
    """Count one more fetch of a metadata document for that network. Return whether it is allowed.

    Failed fetches count too: otherwise strangers could make this server send any number of
    requests. ``authorized_client`` is the id of a client that a user has authorized, or "". Such a
    client has its own count, so that other clients of its network cannot use up its fetches.
    """
    if (limit := rate()) is None:
        return True
    number, seconds = limit
    client = sha256(authorized_client.encode()).hexdigest() if authorized_client else ""
    return all(
        take_slot(f"fetches:{client}:{network}", allowed, seconds)
        for network, allowed in _limits(address, number)
    )


def take_slot(name: str, number: int, seconds: int) -> bool:
    """Count one more use in the cache. Return whether it is within ``number`` in ``seconds``."""
    slots = [f"django_mcp.oauth.{name}:{slot}" for slot in range(number)]
    taken = cache.get_many(slots)
    # Each slot expires by itself. Most caches give a counter a new lifetime at each increment.
    return any(cache.add(slot, True, seconds) for slot in slots if slot not in taken)


# Deleting stale clients.


def ensure_capacity() -> bool:
    """Delete stale clients if needed. Return whether one more client may be added.

    Registrations call it one after another. Metadata documents are fetched after the call, so
    simultaneous fetches can exceed the limit by a few clients.
    """
    delete_unused(unused_cutoff())
    _delete_idle_occasionally()
    return not _is_full() or _evict()


def _evict() -> bool:
    """Delete the oldest unused client of the network that has the most of them.

    A network that fills the table loses its own clients first. So it does not evict the client of
    another network whose user is just reading the consent page.
    """
    sites = _counted_clients().annotate(site=Left("address", HALF_DIGEST_LENGTH)).values("site")
    busiest = sites.annotate(number=Count("pk"), first=Min("created")).order_by("-number", "first")
    return any(
        _delete(clients_of_network(unused_clients(timezone.now()), row["site"]), 1)
        for row in busiest[:MAX_SEARCHED_NETWORKS]
    )


def _delete_idle_occasionally() -> None:
    global _last_search
    if time.monotonic() - _last_search > SEARCH_INTERVAL_SECONDS:
        _last_search = time.monotonic()
        delete_idle()


def unused_cutoff() -> datetime:
    """Return the time before which unauthorized clients must have been created to be deleted.

    A client is kept at least as long as it counts for the registration rate of its network.
    """
    _, seconds = rate() or (0, 0)
    return timezone.now() - timedelta(seconds=max(settings.UNUSED, seconds))


def _is_full() -> bool:
    return _counted_clients()[:MAX_UNAUTHORIZED_CLIENTS].count() >= MAX_UNAUTHORIZED_CLIENTS


def _counted_clients() -> QuerySet[ClientProfile]:
    """Return the clients that count for the limit: not authorized and not expired.

    Blocked clients do not count. They cannot be evicted, so they would fill the table for good.
    """
    rows = ClientProfile.objects.using(router.db_for_write(ClientProfile))
    recent = rows.filter(last_authorized=None, blocked=None, created__gte=unused_cutoff())
    return recent.filter(source__in=SELF_REGISTERED)


def unused_clients(before: datetime) -> QuerySet[ClientProfile]:
    """Return the unused clients that were created before ``before``, the oldest first.

    They have no authorization, use, consent, code or token.
    """
    clients = ClientProfile.objects.filter(
        source__in=SELF_REGISTERED,
        created__lt=before,
        last_authorized=None,
        last_used=None,
        blocked=None,
    ).exclude(Exists(Consent.objects.filter(client_id=OuterRef("client_id"))))
    for model in (*_models_that_expire(), get_refresh_token_model()):
        clients = _without_rows_in(clients, model._default_manager.all())
    return clients.order_by("created")


def idle_clients() -> QuerySet[ClientProfile]:
    """Return self-registered clients that were authorized, then unused for ``UNUSED_DAYS``."""
    before = min(unused_cutoff(), timezone.now() - timedelta(days=UNUSED_DAYS))
    clients = ClientProfile.objects.filter(
        Q(last_used=None) | Q(last_used__lt=before),
        source=Source.DCR,
        last_authorized__lt=before,
        blocked=None,
    )
    for rows in _valid_codes_and_tokens():
        clients = _without_rows_in(clients, rows)
    return clients.order_by("last_authorized")


def _without_rows_in(
    clients: QuerySet[ClientProfile], rows: QuerySet[Any]
) -> QuerySet[ClientProfile]:
    """Exclude the clients whose application has one of these codes or tokens."""
    return clients.exclude(Exists(rows.filter(application__client_id=OuterRef("client_id"))))


def _models_that_expire() -> list[Any]:
    return [get_grant_model(), get_access_token_model(), get_id_token_model()]


def _valid_codes_and_tokens() -> Iterator[QuerySet[Any]]:
    """Yield the unexpired codes and tokens, and the refresh tokens that can still be used."""
    now, lifetime = timezone.now(), refresh_token_expire_timedelta()
    for model in _models_that_expire():
        yield model._default_manager.filter(expires__gt=now)
    refresh = get_refresh_token_model()._default_manager.filter(revoked=None)
    yield refresh.exclude(access_token__expires__lte=now - lifetime) if lifetime else refresh


def delete_unused(before: datetime, at_most: int = CLIENTS_PER_REGISTRATION) -> int:
    """Delete some unused clients that were created before ``before``. Return how many."""
    return len(_delete(unused_clients(before), at_most))


def delete_idle(at_most: int = CLIENTS_PER_REGISTRATION) -> int:
    """Delete some idle clients. Return how many."""
    return len(_delete(idle_clients(), at_most))


def delete_if_stale(client_ids: Collection[str]) -> list[str]:
    """Delete those of the clients that are idle or unused, of any age. Return their ids."""
    stale = (
        clients.filter(client_id__in=client_ids)
        for clients in (unused_clients(timezone.now()), idle_clients())
    )
    return [client_id for clients in stale for client_id in _delete(clients, len(client_ids))]


def _delete(stale: QuerySet[ClientProfile], at_most: int) -> list[str]:
    """Delete some of these clients, with their applications. Return their ids."""
    database = router.db_for_write(ClientProfile)
    stale = stale.using(database)
    if not stale.exists():  # the usual case needs no transaction and no lock
        return []
    # InnoDB locks gaps of indexes too, so a user's consent to another client can cause a deadlock.
    return retry_collisions(partial(_delete_locked, stale, at_most, database), database)


def _delete_locked(stale: QuerySet[ClientProfile], at_most: int, database: str) -> list[str]:
    with transaction.atomic(using=database):
        # Skip locked rows: two processes that delete at the same moment need not wait.
        skip = connections[database].features.has_select_for_update_skip_locked
        rows = stale.select_for_update(skip_locked=skip)[:at_most]
        client_ids = [row.client_id for row in rows]
        applications = get_application_model()._default_manager.filter(
            client_id__in=client_ids, registration_source__in=SELF_REGISTERED
        )
        # Codes and tokens have a foreign key to the application row. Once that row is locked, no
        # code or token can be inserted, and a client that ``stale`` still selects stays stale.
        list(applications.select_for_update().values_list("pk"))
        client_ids = [row.client_id for row in stale.filter(client_id__in=client_ids)]
        applications.filter(client_id__in=client_ids).delete()
        ClientProfile.objects.filter(client_id__in=client_ids).delete()
        Consent.objects.filter(client_id__in=client_ids).delete()
    return client_ids
