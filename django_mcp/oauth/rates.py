"""
How often clients come to be known from one address.

Rule: an address is what the connection has, ``REMOTE_ADDR``; no header of a request says it. It is
kept as a digest with the project's key. IPv6 gives everybody a whole network, so that is one.
"""

from __future__ import annotations

import ipaddress
from datetime import timedelta

from django.core.cache import cache
from django.utils import timezone
from django.utils.crypto import salted_hmac

from .conf import settings
from .models import ClientProfile, Source

NETWORK = 64  # bits of an IPv6 address that one subscriber has


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
    recent = ClientProfile.objects.filter(
        source=Source.DCR, address=address, created__gt=now - window
    )
    times = recent.order_by("-created").values_list("created", flat=True)
    found = next(iter(times[number - 1 : number]), None)
    return 0 if found is None else int((found + window - now).total_seconds()) + 1


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
