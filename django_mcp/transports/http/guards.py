"""
What is looked at before anything else: the method, the Host and the Origin.

Rule: Django's settings decide - ALLOWED_HOSTS, CSRF_TRUSTED_ORIGINS and the
proxy headers it was told to trust - and what they do not allow is refused
before a byte of the body is read. "Servers MUST validate the Origin header on
all incoming connections to prevent DNS rebinding attacks."
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from ...conf import settings
from ...protocol import http
from .exchanges import NOTHING, Refused

if TYPE_CHECKING:
    from .exchanges import Exchange

METHODS = ("POST", "GET", "DELETE", "OPTIONS")
ALLOW = (b"allow", ", ".join(METHODS).encode())
LOCAL = (".localhost", "127.0.0.1", "[::1]")  # as Django allows under DEBUG
# What a page in a browser may send, and read of an answer.
PREFLIGHT = (
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, accept, last-event-id, "
     b"mcp-protocol-version, mcp-session-id, mcp-method, mcp-name"),
    (b"access-control-max-age", b"7200"),
)  # fmt: skip
EXPOSED = (b"access-control-expose-headers", b"mcp-session-id, www-authenticate, retry-after")
VARY = (b"vary", b"origin")


def guard(exchange: Exchange) -> None:
    """Raises ``Refused`` unless the request may come this way; sets its host and CORS headers."""
    if exchange.method not in METHODS:
        raise Refused(405, f"There is no {exchange.method[:20]} here.", (ALLOW,))
    exchange.host = _host(exchange)
    origin = exchange.headers.get("origin")
    if origin is None:
        return
    if not _is_trusted(origin, _own_origin(exchange)):
        raise Refused(403, "This origin is not trusted: see CSRF_TRUSTED_ORIGINS.", (VARY,))
    allowed = (b"access-control-allow-origin", origin.encode("latin-1"))
    exchange.cors = (allowed, EXPOSED, VARY)


async def preflight(exchange: Exchange) -> None:
    """A browser asks what a page may send (Fetch, "CORS-preflight request")."""
    if "access-control-request-method" not in exchange.headers or not exchange.cors:
        await exchange.json(204, headers=(ALLOW,))
        return
    await exchange.json(204, headers=(*PREFLIGHT, *_parameters(exchange)))


def _parameters(exchange: Exchange) -> tuple[tuple[bytes, bytes], ...]:
    """A tool's own headers have names that only the tool knows, so they are allowed as asked."""
    raw = exchange.scope["headers"]
    asked = next((value for name, value in raw if name == b"access-control-request-headers"), b"")
    names = (name.strip().lower() for name in asked[:2_000].split(b","))
    prefix = http.PARAM_PREFIX.encode()
    own = [name for name in names if name.startswith(prefix) and _is_token(name)]
    return ((b"access-control-allow-headers", b", ".join(own)),) if own else NOTHING


def _is_token(name: bytes) -> bool:
    return name.replace(b"-", b"").replace(b"_", b"").isalnum()


# Host.


def _host(exchange: Exchange) -> str:
    host = exchange.headers.get("host", "")
    if django_settings.USE_X_FORWARDED_HOST:
        host = exchange.headers.get("x-forwarded-host", host)
    if not _is_allowed(host, _allowed_hosts()):
        raise Refused(400, "This host is not allowed: see ALLOWED_HOSTS.")
    return host


def _allowed_hosts() -> tuple[str, ...]:
    hosts = tuple(django_settings.ALLOWED_HOSTS)
    return LOCAL if django_settings.DEBUG and not hosts else hosts


@lru_cache(maxsize=256)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, list(allowed))


# Origin.


def _own_origin(exchange: Exchange) -> str:
    scheme = str(exchange.scope.get("scheme", "http"))
    if secure := django_settings.SECURE_PROXY_SSL_HEADER:
        header, value = secure
        given = _header(exchange, header.removeprefix("HTTP_").replace("_", "-").lower())
        if given is not None:
            scheme = "https" if given.split(",")[0].strip() == value else "http"
    return f"{scheme}://{exchange.host}"


def _header(exchange: Exchange, name: str) -> str | None:
    wanted = name.encode()
    found = (value for key, value in exchange.scope["headers"] if key == wanted)
    return next((value.decode("latin-1") for value in found), None)


def _is_trusted(origin: str, own: str) -> bool:
    trusted = (own, settings.URL.rstrip("/"), *django_settings.CSRF_TRUSTED_ORIGINS)
    return _matches(origin.lower(), tuple(one.lower() for one in trusted))


@lru_cache(maxsize=256)
def _matches(origin: str, trusted: tuple[str, ...]) -> bool:
    """Whether it is one of them, or below one that begins with ``https://*.``."""
    if origin in trusted:
        return True
    try:
        scheme, host = urlsplit(origin)[:2]
    except ValueError:
        return False
    wildcards = (urlsplit(one.replace("*", "", 1)) for one in trusted if "//*." in one)
    return any(one.scheme == scheme and is_same_domain(host, one.netloc) for one in wildcards)
