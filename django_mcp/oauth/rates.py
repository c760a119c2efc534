"""
How often clients come to be known from one address.

Rule: an address is what the connection has, ``REMOTE_ADDR``; no header of a request says it. It is
kept as a digest with the project's key. IPv6 gives everybody a whole network, so that is one. What
counts is the rows there are, whoever wrote them: it is counted and added to by one at a time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.core.cache import cache
from django.db import connections, router, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from .conf import settings
from .models import ClientProfile, Source, Turn

NETWORK = 64  # bits of an IPv6 address that one subscriber has
REGISTERING = "registering"


def address_digest(remote: str) -> str:
    """Whence a request came, as it is kept. Requests without an address come from one place."""
    return salted_hmac("django_mcp.oauth.address", _network(remote), algorithm="sha256").hexdigest()


def _network(remote: str) -> str:
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, NETWORK), strict=False))
        address = address.ipv4_mapped
    return str(address)


def rate() -> tuple[int, int] | None:
    """How many, in how many seconds; None without a limit."""
    if not settings.REGISTRATION_RATE:
        return None
    number, _, seconds = settings.REGISTRATION_RATE.partition("/")
    return int(number), int(seconds or 1)


def wait_to_register(address: str) -> int:
    """0, or the seconds until a client may register itself from there. One query."""
    if (limit := rate()) is None:
        return 0
    number, seconds = limit
    if number < 1:
        return seconds
    now, window = timezone.now(), timedelta(seconds=seconds)
    recent = ClientProfile.objects.using(router.db_for_write(ClientProfile)).filter(
        source=Source.DCR, address=address, created__gt=now - window
    )
    times = recent.order_by("-created").values_list("created", flat=True)
    found = next(iter(times[number - 1 : number]), None)
    return 0 if found is None else int((found + window - now).total_seconds()) + 1


@contextmanager
def turn() -> Iterator[None]:
    """A transaction in which nobody else registers: what is counted in it stays as it was.

    It begins by writing, which every database has others wait for, and SQLite at nothing else.
    """
    alias = router.db_for_write(Turn)
    named = ["name"] if connections[alias].features.supports_update_conflicts_with_target else None
    with transaction.atomic(using=alias):
        Turn.objects.using(alias).bulk_create(
            [Turn(name=REGISTERING, taken=timezone.now())],
            update_conflicts=True, update_fields=["taken"], unique_fields=named,
        )  # fmt: skip
        yield


def may_fetch(address: str) -> bool:
    """Whether one more document of an unknown client is fetched for whoever asks from there.

    Whether that succeeds or not: else we could be made to knock at any door, any number of times.
    """
    if (limit := rate()) is None:
        return True
    number, seconds = limit
    places = [f"django_mcp.oauth.fetches:{address}:{place}" for place in range(number)]
    taken = cache.get_many(places)
    # A place is taken once, for its time. A count would be kept for another time by most caches.
    return any(cache.add(place, True, seconds) for place in places if place not in taken)
