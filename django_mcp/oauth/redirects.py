"""
Where the answer to an authorization may go (RFC 6749, 3.1.2; RFC 8252, 7; RFC 9700, 2.1).

Rule: https, http to this very machine, or a scheme that ``REDIRECT_SCHEMES`` names. What is not
plainly one of these is none: every character is one that a URI may hold, so that no two readers of
it, a browser among them, take it for different places.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ValidationError
from oauth2_provider.settings import oauth2_settings
from oauth2_provider.validators import AllowedURIValidator

from .conf import settings

LONGEST = 512  # characters of one
AT_MOST = 10  # of one client that registers itself
# RFC 3986, 2, without "#", which opens a fragment, and "*", which looks like a wildcard.
URI = re.compile(r"(?:[A-Za-z0-9._~:/?\[\]@!$&'()+,;=-]|%[0-9A-Fa-f]{2})+")
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
NETLOC = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?")
NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# What a browser runs or reads itself, whatever a project's setting says.
NEVER = {
    "about", "blob", "content", "data", "file", "filesystem", "ftp", "http", "https", "intent",
    "jar", "javascript", "mailto", "vbscript", "view-source", "ws", "wss",
}  # fmt: skip


def wrong(uri: Any) -> str | None:
    """Why a redirect URI is not taken, in words for who sent it; None if it is."""
    if not isinstance(uri, str) or len(uri) > LONGEST:
        return f"a redirect URI is a string of at most {LONGEST} characters"
    if not URI.fullmatch(uri):
        return "a redirect URI has no fragment, wildcard, blank or other character that is no URI's"
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 - raises for what is none
    except ValueError:
        return "a redirect URI is an absolute URI"
    return BY_SCHEME.get(parts.scheme, _private)(parts) or _unfit(uri)


def taken(uris: Iterable[Any]) -> list[str]:
    """Those that are, each once."""
    return list(dict.fromkeys(uri for uri in uris if not wrong(uri)))


def _https(parts: SplitResult) -> str | None:
    if not NETLOC.fullmatch(parts.netloc):
        return "a redirect URI names a host, and nobody's name or password"
    return "no host has that address" if _is_nowhere(parts.hostname or "") else None


def _http(parts: SplitResult) -> str | None:
    if NETLOC.fullmatch(parts.netloc) and parts.hostname in LOOPBACK:
        return None
    return "http is for localhost, 127.0.0.1 and [::1] alone; use https"


def _private(parts: SplitResult) -> str | None:
    """RFC 8252, 7.1: ``app:/path``, or ``app://host/path`` as many applications have it."""
    if parts.scheme not in {name.lower() for name in settings.REDIRECT_SCHEMES} - NEVER:
        return "a redirect URI is https, or http to localhost"
    if parts.netloc:
        return _https(parts)
    return None if parts.path.startswith("/") else "a redirect URI has a host or a path"


BY_SCHEME: dict[str, Callable[[SplitResult], str | None]] = {"https": _https, "http": _http}


def _is_nowhere(host: str) -> bool:
    """Whether a host is an address that is none, or is written in a way that hides which it is.

    Browsers read 0, 0x0 and 0.0 as 0.0.0.0: whatever ends in a number is an address to them.
    """
    if ":" not in host and not NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_unspecified


def _unfit(uri: str) -> str | None:
    """What ``Application.clean`` would refuse, so that what is stored can be edited by hand."""
    schemes = {scheme.lower() for scheme in oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES}
    try:
        AllowedURIValidator(schemes, "redirect uri", allow_path=True, allow_query=True)(uri)
    except ValidationError:
        return "that redirect URI is not taken here"
    return None
