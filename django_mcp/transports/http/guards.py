"""
What is looked at before anything else: the method, the Host and the Origin.

Rule: Django's settings decide - ALLOWED_HOSTS, CSRF_TRUSTED_ORIGINS and the
proxy headers it was told to trust - and what they do not allow is refused
before a byte of the body is read. "Servers MUST validate the Origin header on
all incoming connections to prevent DNS rebinding attacks."
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from ...conf import project, settings
from ...protocol import http
from .exchanges import Refused

if TYPE_CHECKING:
    from .exchanges import Exchange

METHODS = ("POST", "GET", "DELETE", "OPTIONS")
ALLOW = (b"allow", ", ".join(METHODS).encode())
LOCAL = (".localhost", "127.0.0.1", "[::1]")  # as Django allows under DEBUG
LONGEST = 300  # characters of a host or an origin: a name has 253 at most
# What a page in a browser may send, and read of an answer.
SENDABLE = (
    b"authorization", b"content-type", b"accept", b"last-event-id",
    *(name.encode() for name in (http.PROTOCOL_VERSION, http.SESSION_ID, http.METHOD, http.NAME)),
)  # fmt: skip
PREFLIGHT = (
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-max-age", b"7200"),
)
EXPOSED = (b"access-control-expose-headers", b"mcp-session-id, www-authenticate, retry-after")
VARY = (b"vary", b"origin")
PARAMETER = re.compile(  # a header of RFC 9110, 5.6.2, that mirrors an argument
    re.escape(http.PARAM_PREFIX).encode() + rb"[!#$%&'*+.^_`|~0-9a-z-]+"
)
MOST_ASKED = 4_000  # bytes of header names that a preflight asks for
# "scheme://host:port" and no more (RFC 6454, 6.2); no path, no user, no "null".
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


def guard(exchange: Exchange, methods: Collection[str] = METHODS) -> None:
    """Raises ``Refused`` unless the request may come this way; sets its host and CORS headers."""
    if exchange.method not in methods:
        raise Refused(405, f"There is no {exchange.method[:20]} here.", (ALLOW,))
    exchange.host = _host(exchange)
    origin = exchange.headers.get("origin")
    if origin is None:
        return
    if not _is_trusted(origin, exchange):
        raise Refused(403, "This origin is not trusted: see CSRF_TRUSTED_ORIGINS.", (VARY,))
    allowed = (b"access-control-allow-origin", origin.encode("latin-1"))
    exchange.cors = (allowed, EXPOSED, VARY)


async def preflight(exchange: Exchange) -> None:
    """A browser asks what a page may send (Fetch, "CORS-preflight request")."""
    if "access-control-request-method" not in exchange.headers or not exchange.cors:
        await exchange.json(204, headers=(ALLOW,))
        return
    names = (b"access-control-allow-headers", b", ".join((*SENDABLE, *_parameters(exchange))))
    await exchange.json(204, headers=(*PREFLIGHT, names))


def _parameters(exchange: Exchange) -> Iterable[bytes]:
    """A tool's own headers have names that only the tool knows, so they are allowed as asked."""
    raw = exchange.scope["headers"]
    asked = (value for name, value in raw if name == b"access-control-request-headers")
    names = b",".join(asked)[:MOST_ASKED].lower().split(b",")
    return filter(PARAMETER.fullmatch, dict.fromkeys(name.strip(b" \t") for name in names))


# Host.


def _host(exchange: Exchange) -> str:
    host = exchange.headers.get("host", "")
    if project.USE_X_FORWARDED_HOST:
        host = exchange.headers.get("x-forwarded-host", host)
    if len(host) > LONGEST or not _is_allowed(host, allowed_hosts()):
        raise Refused(400, "This host is not allowed: see ALLOWED_HOSTS.")
    return host


def allowed_hosts() -> tuple[str, ...]:
    hosts = tuple(project.ALLOWED_HOSTS)
    return LOCAL if project.DEBUG and not hosts else hosts


@lru_cache(maxsize=256)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, list(allowed))


@lru_cache(maxsize=256)
def _is_own(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether a page from ``host`` is ours, and not of a name that somebody else made ours.

    Where every host is allowed, "the same host" is what DNS rebinding fakes; an address it
    cannot fake.
    """
    if _is_allowed(host, tuple(name for name in allowed if name != "*")):
        return True
    try:
        ip_address(split_domain_port(host)[0].strip("[]"))
    except ValueError:
        return False
    return True


# Origin.


def _is_trusted(origin: str, exchange: Exchange) -> bool:
    if len(origin) > LONGEST or exchange.host is None:
        return False
    trusted = [settings.URL.rstrip("/"), *project.CSRF_TRUSTED_ORIGINS]
    if _is_own(exchange.host, allowed_hosts()):
        trusted.append(f"{_scheme(exchange)}://{exchange.host}")
    return _matches(origin, tuple(trusted))


def _scheme(exchange: Exchange) -> str:
    """What the client spoke, as Django finds it (``HttpRequest.scheme``)."""
    if secure := project.SECURE_PROXY_SSL_HEADER:
        header, value = secure
        given = _header(exchange, header.removeprefix("HTTP_").replace("_", "-").lower())
        if given is not None:
            return "https" if given.split(",", 1)[0].strip() == value else "http"
    return str(exchange.scope.get("scheme", "http"))


def _header(exchange: Exchange, name: str) -> str | None:
    wanted = name.encode()
    found = (value for key, value in exchange.scope["headers"] if key == wanted)
    return next((value.decode("latin-1") for value in found), None)


@lru_cache(maxsize=256)
def _matches(origin: str, trusted: tuple[str, ...]) -> bool:
    """Whether it is one of them, or below one that begins with ``https://*.``."""
    origin = origin.lower()
    if ORIGIN.fullmatch(origin) is None:
        return False
    if origin in (one.lower() for one in trusted):
        return True
    scheme, host = origin.split("://")
    wildcards = (urlsplit(one.lower()) for one in trusted if "://*." in one)
    return any(
        one.scheme == scheme and is_same_domain(host, one.netloc.removeprefix("*"))
        for one in wildcards
    )
