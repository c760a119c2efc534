"""
Documents at URLs that strangers name: of clients, and of their keys.

Rule: only https at its own port, only at addresses that everybody can reach, looked up once and
connected to as they were found; nothing that is redirected, long, or slow. The time is that of all
of it, head and body, at whatever pace they come; only the look-up of the name has the resolver's.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from oauth2_provider.cimd import (
    NAT64_PREFIX,
    CIMDError,
    SafeMetadataFetcher,
    _effective_max_age,
    _resolve_and_validate,
)
from oauth2_provider.settings import oauth2_settings

from .redirects import NETLOC

LONGEST_URL = 255  # characters: as long as the id of a client may be
URL = re.compile(r"https://[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+")
UNICAST = ipaddress.ip_network("2000::/3")  # all that is given out of IPv6 (RFC 4291, 2.4)
JSON = re.compile(r"application/(?:[a-z0-9!#$&^_.-]+\+)?json")
HEADERS = {"Accept": "application/json, application/*+json", "Connection": "close"}


class DocumentFetcher(SafeMetadataFetcher):  # type: ignore[misc]
    """One JSON object by GET. A subclass may look in other places, and on other ports."""

    ports = frozenset({443})

    def retrieve(self, url: str, longest: int) -> tuple[dict[str, Any], int]:
        """The object, and for how many seconds it may be kept; or ``CIMDError``.

        ``longest`` is in bytes. Meanwhile it takes a thread, at most
        ``CIMD_FETCH_TIMEOUT_SECONDS`` long.
        """
        parts = checked(url)
        port = 443 if parts.port is None else parts.port
        if port not in self.ports:
            raise CIMDError(f"{port} is no port for documents")
        ends = time.monotonic() + oauth2_settings.CIMD_FETCH_TIMEOUT_SECONDS
        error: Exception | None = None
        for address in self.addresses(parts.hostname or "", port):
            if time.monotonic() >= ends:
                break
            try:
                return self._get(parts, address, ends, longest)
            except (OSError, http.client.HTTPException, ValueError) as failure:
                error = failure
        raise CIMDError(f"the document could not be fetched: {error!r}")

    def addresses(self, host: str, port: int) -> list[str]:
        """Where the host is, each address public; ``CIMDError`` if any is not."""
        try:
            found = list(dict.fromkeys(_resolve_and_validate(host, port)))
        except ValueError as error:  # a label that no name has
            raise CIMDError("no such host") from error
        if not all(map(_is_usual, found)):
            raise CIMDError("the host has an address that is no one machine's")
        return found

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        """A line to what ``addresses`` found. A project may have a proxy of its own between."""
        return socket.create_connection((address, port), timeout=seconds)

    def _get(
        self, parts: SplitResult, address: str, ends: float, longest: int
    ) -> tuple[dict[str, Any], int]:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        left = max(ends - time.monotonic(), 0.001)
        raw = self.connect(address, parts.port or 443, left)
        # The certificate is the host's, whatever the address.
        context, host = ssl.create_default_context(), parts.hostname
        connection = http.client.HTTPConnection(parts.netloc)
        with closing(raw), _on_time(raw, ends), closing(connection):
            connection.sock = context.wrap_socket(raw.dup(), server_hostname=host)
            connection.request("GET", path, headers={"Host": parts.netloc, **HEADERS})
            with connection.getresponse() as response:
                return _read(response, longest)


def _is_usual(found: str) -> bool:
    """Whether an address that counts as global is one of those that are given to machines.

    The rest of IPv6 has ways of its own to IPv4 inside, and prefixes that were for sites.
    """
    address = ipaddress.ip_address(found)
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped:
        return not address.is_multicast
    return address in UNICAST or address in NAT64_PREFIX


def checked(url: str) -> SplitResult:
    """The parts of a URL that a client may have for a name (CIMD draft, 3), or ``CIMDError``."""
    if len(url) > LONGEST_URL or not URL.fullmatch(url):
        raise CIMDError("the URL is too long, or has what no https URL has")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise CIMDError("the URL is none") from error
    dots = {".", "..", "%2e", "%2e%2e", ".%2e", "%2e."}
    if not (host and parts.path and NETLOC.fullmatch(parts.netloc)):
        raise CIMDError("the URL has a host, a path, and nobody's name or password")
    if dots & set(parts.path.lower().split("/")):
        raise CIMDError("the URL's path goes nowhere but down")
    return parts


@contextmanager
def _on_time(connected: socket.socket, ends: float) -> Iterator[None]:
    """Cuts the line when the time is over: a timeout of a socket begins anew with every byte."""
    timer = threading.Timer(max(ends - time.monotonic(), 0), _cut, [connected])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _cut(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side was faster
        return


def _read(response: http.client.HTTPResponse, longest: int) -> tuple[dict[str, Any], int]:
    if response.status != 200:
        raise CIMDError(f"the document was answered by {response.status}")
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not JSON.fullmatch(media_type):
        raise CIMDError("the document is not sent as JSON")
    body = response.read(longest + 1)
    if len(body) > longest:
        raise CIMDError(f"the document has more than {longest} bytes")
    return _parsed(body), _effective_max_age(response.headers.get("Cache-Control"))


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise CIMDError("the document is no JSON") from error
    if not isinstance(found, dict):
        raise CIMDError("the document is no JSON object")
    return found


def fetcher() -> DocumentFetcher:
    """That of ``OAUTH2_PROVIDER``, where it is one of ours."""
    found = oauth2_settings.CIMD_METADATA_FETCHER
    return found() if issubclass(found, DocumentFetcher) else DocumentFetcher()
