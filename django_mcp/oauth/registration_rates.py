"""
Rate limits for clients that register themselves, by network address.

The address is that of the connection, ``REMOTE_ADDR``, as the ASGI server sets it. No request
header is read here: only the server knows which proxy it may believe. The address is stored as a
digest with the project's key. An IPv6 customer owns a whole /64 and often a /48, so IPv6 is limited
by both. Registrations are counted by their rows in the database, for all processes together.
``turn`` is the lock for counting and adding. Fetches of documents are counted in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256

from django.core.cache import cache
from django.db import connections, router, transaction
from django.db.models import QuerySet
from django.utils import timezone

from ..auth.networks import HALF_DIGEST_LENGTH, SITE_BITS, SUBNET_BITS, network_digest
from .conf import settings
from .models import ClientProfile, Lock, Source

# Factor from the limit of a subnet to that of its site: 20 an hour become 80 for a /48.
SITE_FACTOR = 4
REGISTERING = "registering"


def address_digest(remote: str) -> str:
    """Return the digest under which the client's network is stored, 64 hex digits.

    The first half identifies the site (the /48 of IPv6), the second half the subnet (the /64). For
    IPv4 the halves are equal. Requests without an address count as one network.
    """
    bits = (SITE_BITS, SUBNET_BITS)
    return "".join(network_digest(remote, one, "oauth.address") for one in bits)


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
        counted = of_network(recent, network)
        times = counted.order_by("-created").values_list("created", flat=True)
        last = next(iter(times[allowed - 1 : allowed]), None)
        waits.append(0 if last is None else int((last + window - now).total_seconds()) + 1)
    return max(waits)


def of_network(clients: QuerySet[ClientProfile], network: str) -> QuerySet[ClientProfile]:
    """Filter for clients whose address digest starts with ``network``.

    Clients with a metadata document have an empty address.
    """
    if not network:
        return clients.filter(address="")
    # Every database can use its index for a range, with any collation. "g" sorts after every hex
    # digit.
    return clients.filter(address__gte=network, address__lt=f"{network}g")


def _limits(address: str, number: int) -> list[tuple[str, int]]:
    """Return the networks that count for an address, and how many clients each may register."""
    site, subnet = address[:HALF_DIGEST_LENGTH], address[HALF_DIGEST_LENGTH:]
    return [(address, number)] + ([(site, number * SITE_FACTOR)] if site != subnet else [])


@contextmanager
def turn() -> Iterator[None]:
    """Open a transaction in which no other client can register, so that its counts stay valid.

    It starts with a write to one row, because a write blocks other writers on every database.
    SQLite has no other lock.
    """
    alias = router.db_for_write(Lock)
    named = ["name"] if connections[alias].features.supports_update_conflicts_with_target else None
    with transaction.atomic(using=alias):
        Lock.objects.using(alias).bulk_create(
            [Lock(name=REGISTERING, taken=timezone.now())],
            update_conflicts=True, update_fields=["taken"], unique_fields=named,
        )  # fmt: skip
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
    limits = _limits(address, number)
    whose = f"fetches:{sha256(authorized_client.encode()).hexdigest() if authorized_client else ''}"
    return all(take_slot(f"{whose}:{network}", allowed, seconds) for network, allowed in limits)


def take_slot(name: str, number: int, seconds: int) -> bool:
    """Count one more use in the cache. Return whether it is within ``number`` in ``seconds``."""
    slots = [f"django_mcp.oauth.{name}:{slot}" for slot in range(number)]
    taken = cache.get_many(slots)
    # Each slot expires by itself. Most caches give a counter a new lifetime at each increment.
    return any(cache.add(slot, True, seconds) for slot in slots if slot not in taken)
