"""Report to ``mcp_doctor`` which client address the server sees behind its proxies.

Rate limits count by that address. If it is the proxy's, all clients share one limit. If clients can
choose it by ``X-Forwarded-For``, there is no limit. Neither is visible from outside, so the doctor
sends a request header signed with SECRET_KEY, and the server answers with a response header. The
server ignores requests that are not signed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from django.core.signing import BadSignature, TimestampSigner
from django.utils.crypto import get_random_string

REQUEST_HEADER, RESPONSE_HEADER = "mcp-doctor-probe", "mcp-doctor-address"
VALID_SECONDS = 300  # includes a difference between the clocks of two machines
MAX_FORWARDED_LENGTH = 500
SALT = "django_mcp.runtime.address_probe"


@dataclass(frozen=True)
class SeenAddress:
    """``client`` is the address of the connection, ``forwarded`` the header X-Forwarded-For."""

    client: str
    forwarded: str


def signed_probe() -> str:
    """Return a value of the request header."""
    return TimestampSigner(salt=SALT).sign(get_random_string(12))


def response_value(probe: str | None, client: str, forwarded: str) -> str | None:
    """Return the value of the response header, or None for a probe without a valid signature."""
    if probe is None or not _is_signed(probe):
        return None
    # JSON is ASCII here, and escapes line breaks: it is safe in a header.
    return json.dumps(asdict(SeenAddress(client, forwarded[:MAX_FORWARDED_LENGTH])))


def _is_signed(probe: str) -> bool:
    try:
        TimestampSigner(salt=SALT).unsign(probe, max_age=VALID_SECONDS)
    except BadSignature:
        return False
    return True


def read_response(value: str | None) -> SeenAddress | None:
    """Return what a server reported, or None if it reported nothing that can be read."""
    try:
        return SeenAddress(**{name: str(said) for name, said in json.loads(value or "").items()})
    except (ValueError, TypeError, AttributeError):
        return None
