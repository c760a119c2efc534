"""Digests of client networks, for rate limits of requests without a user.

The address is that of the connection, as the web server reports it (``REMOTE_ADDR``, or ``client``
of an ASGI scope). No request header is read, because only the web server knows which proxies are
trusted.
"""

from __future__ import annotations

import ipaddress

from django.utils.crypto import salted_hmac

SUBNET_BITS, SITE_BITS = 64, 48  # IPv6 prefix lengths of a network and of a site (RFC 6177)
HALF_DIGEST_LENGTH = 32  # hex digits


def network_digest(remote: str, ipv6_bits: int, purpose: str) -> str:
    """Return a digest of the network, 32 hex digits. It is keyed, so the address stays unknown.

    An IPv4 address is a network of its own. Requests without an address come from one network.
    """
    made = salted_hmac(f"django_mcp.{purpose}", _network(remote, ipv6_bits), algorithm="sha256")
    return made.hexdigest()[:HALF_DIGEST_LENGTH]


def client_network(remote: str) -> str:
    """Return the digest that limits of anonymous clients use, for sessions, calls and listens."""
    return network_digest(remote, SITE_BITS, "client.network")


def _network(remote: str, bits: int) -> str:
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, bits), strict=False))
        address = address.ipv4_mapped
    return str(address)
