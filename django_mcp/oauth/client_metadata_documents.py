"""
Client ID metadata documents: clients whose id is the URL of their metadata (draft, CIMD 01).

The current document applies. If it changes, all consents to the client are revoked, so its users
are asked again. If its redirect URIs, authentication method or key URL change, all its tokens are
revoked too.

Only https at port 443 of public addresses is fetched, for documents and for the keys of clients
(SSRF protection). The host is resolved once, and the connection uses the address that was checked.
Redirects and long documents are rejected. Only the DNS lookup has the resolver's own timeout.

``fetch_slot`` limits how many documents this process fetches at the same time.
django-oauth-toolkit has one limit for all clients, ``CIMD_MAX_CONCURRENT_FETCHES``. A few slow
documents would use that up. So each host and each network of requesters gets only a few slots, and
some slots are reserved for clients that a user has authorized before. The slots of authorized and
of other clients are counted separately. So slow documents of unknown clients do not use up the
slots of authorized clients at the same host.
"""

from __future__ import annotations

import http.client
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.db import router, transaction
from django.http.request import validate_host
from django.utils import timezone
from oauth2_provider.cimd import (
    NAT64_PREFIX,
    CIMDError,
    SafeMetadataFetcher,
    _effective_max_age,
    _resolve_and_validate,
)
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..auth.principal import HALF_DIGEST_LENGTH
from ..verifiers.fetching import FetchError, fetch_json
from . import client_metadata, registration_limits
from .client_metadata import NETLOC, ClientMetadata, MetadataError
from .conf import settings
from .models import ClientProfile, Consent, Source
from .revocation import end_all

logger = logging.getLogger("django_mcp.oauth")
AUTHENTICATION_METHODS = (client_metadata.AUTH_METHOD_NONE, client_metadata.AUTH_METHOD_PRIVATE_KEY)
COUNTED, SLOTS = "_mcp_counted", "_mcp_slots"  # attributes of oauthlib's request
SECRETS = {"client_secret", "client_secret_expires_at"}  # not allowed in a public document
MAX_PER_HOST = 3  # fetches of documents of one host at a time
MAX_PER_NETWORK = 3  # fetches for the clients of one network at a time
RESERVED_TENTHS = 3  # tenths of all slots that are reserved for authorized clients
# A request checks several counters and increments them: no other thread may do so in between.
_lock = threading.Lock()
_slots_in_use: Counter[str] = Counter()


@contextmanager
def fetch_slot(host: str, network: str = "", *, was_authorized: bool = False) -> Iterator[bool]:
    """Take a slot for the block, without waiting. Yield whether one was free.

    ``network`` is the digest of the requester's network (the /48 of IPv6), or "" if unknown.
    """
    kind = "authorized" if was_authorized else "other"
    limits = {f"{kind} host {host}": MAX_PER_HOST}
    if network:
        limits[f"{kind} network {network}"] = MAX_PER_NETWORK
    size = oauth2_settings.CIMD_MAX_CONCURRENT_FETCHES
    if size and not was_authorized:
        limits["not authorized"] = size - size * RESERVED_TENTHS // 10
    with _lock:
        is_free = all(_slots_in_use[name] < limit for name, limit in limits.items())
        if is_free:
            _slots_in_use.update(limits.keys())
    try:
        yield is_free
    finally:
        if is_free:
            _release(limits)


def _release(names: dict[str, int]) -> None:
    with _lock:
        _slots_in_use.subtract(names.keys())
        for name in names:  # otherwise every host would stay in memory
            if not _slots_in_use[name]:
                del _slots_in_use[name]


MAX_URL_LENGTH = 255  # characters, the maximum length of a client id
URL = re.compile(r"https://[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+")
UNICAST = ipaddress.ip_network("2000::/3")  # the global unicast range of IPv6 (RFC 4291, 2.4)
# Networks for protocols and examples that Python counts as global (IANA's registries of
# special-purpose addresses). Routers and clouds use some of them. 2001::/23 contains Teredo and
# ORCHID. Addresses of 2002::/16 (6to4) contain an IPv4 address, which a tunnel of the site may
# reach. 6to4 is deprecated (RFC 7526), and public servers do not have such addresses.
SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2002::/16", "3fff::/20"),
    )
)


class DocumentFetcher(SafeMetadataFetcher):  # type: ignore[misc]
    """Fetch one JSON object by GET. A subclass may allow other addresses and ports."""

    ports = frozenset({443})

    def retrieve(self, url: str, max_bytes: int) -> tuple[dict[str, Any], int]:
        """Return the object, and the seconds for which it may be cached. Raise ``CIMDError``.

        It blocks for the DNS lookup and then at most ``CIMD_FETCH_TIMEOUT_SECONDS``.
        """
        parts = split_client_id(url)
        port = 443 if parts.port is None else parts.port
        if port not in self.ports:
            raise CIMDError(f"port {port} is not allowed for documents")
        # One deadline for all addresses: many slow ones must not block the thread for longer.
        ends = time.monotonic() + oauth2_settings.CIMD_FETCH_TIMEOUT_SECONDS
        error: Exception | None = None
        for address in self.addresses(parts.hostname or "", port):
            if time.monotonic() >= ends:
                break
            try:
                return self._get(parts, address, ends, max_bytes)
            except FetchError as failure:
                raise CIMDError(str(failure)) from failure
            except (OSError, http.client.HTTPException, ValueError) as failure:
                error = failure
        raise CIMDError(f"the document could not be fetched: {error!r}")

    def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host. Raise ``CIMDError`` if any is not public."""
        try:
            found = list(dict.fromkeys(_resolve_and_validate(host, port)))
        except ValueError as error:  # an invalid label in the host name
            raise CIMDError("no such host") from error
        if not all(map(_is_public_unicast, found)):
            raise CIMDError("the host has an address that is not public unicast")
        return found

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        """Connect to one of ``addresses``. A project may override it to use a proxy."""
        return socket.create_connection((address, port), timeout=seconds)

    def _get(
        self, parts: SplitResult, address: str, ends: float, max_bytes: int
    ) -> tuple[dict[str, Any], int]:
        """Fetch from the address that was checked, with the certificate of the host name."""

        def connect(_: tuple[str, int], seconds: float) -> socket.socket:
            return self.connect(address, parts.port or 443, seconds)

        path = parts.path + (f"?{parts.query}" if parts.query else "")
        # A new context at each call: tests and subclasses may replace the trusted certificates.
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context)
        found, headers = fetch_json(
            connection, path, connect=connect, ends=ends, max_bytes=max_bytes
        )
        return found, _effective_max_age(headers.get("Cache-Control"))


def _is_public_unicast(text: str) -> bool:
    """Whether a global address is an ordinary public unicast address.

    Other IPv6 ranges embed IPv4 addresses, or were site-local, so they may lead into the network.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address in NAT64_PREFIX:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        elif address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address not in UNICAST:
            return False
    return not address.is_multicast and not any(address in network for network in SPECIAL)


def split_client_id(url: str) -> SplitResult:
    """Split a URL that is valid as a client id (CIMD draft, 3), or raise ``CIMDError``."""
    if len(url) > MAX_URL_LENGTH or not URL.fullmatch(url):
        raise CIMDError("the URL is too long, or no https URL")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise CIMDError("the URL is malformed") from error
    dots = {".", "..", "%2e", "%2e%2e", ".%2e", "%2e."}
    if not (host and parts.path and NETLOC.fullmatch(parts.netloc)):
        raise CIMDError("the URL needs a host and a path, and no user name or password")
    if dots & set(parts.path.lower().split("/")):
        raise CIMDError("the URL's path has a segment . or ..")
    return parts


def fetcher() -> DocumentFetcher:
    """Return the fetcher of ``OAUTH2_PROVIDER`` if it is a ``DocumentFetcher``, else a new one."""
    found = oauth2_settings.CIMD_METADATA_FETCHER
    return found() if issubclass(found, DocumentFetcher) else DocumentFetcher()


# Which documents may be fetched.


class CIMDPolicy:
    """Permission class for fetching a document: allowed hosts, rate limits and free slots.

    The hosts are those of ``CLIENT_HOSTS``. Blocked clients are rejected.
    """

    def has_permission(self, request: Any, client_id: str) -> bool:
        try:
            host = split_client_id(client_id).hostname or ""
        except CIMDError:
            return False
        if not validate_host(host, settings.CLIENT_HOSTS):
            return False
        profile = ClientProfile.objects.filter(client_id=client_id).first()
        if profile is not None and profile.blocked is not None:
            return False
        address = registration_limits.address_digest(str(request.headers.get("REMOTE_ADDR") or ""))
        was_authorized = profile is not None and profile.last_authorized is not None
        if not _take_slot(request, host, address, was_authorized=was_authorized):
            logger.warning("No slot to fetch a client metadata document: host=%s", host)
            return False
        if COUNTED not in vars(request):  # one request loads its client more than once
            may_fetch = registration_limits.may_fetch(address, client_id if was_authorized else "")
            vars(request)[COUNTED] = may_fetch and (
                profile is not None or registration_limits.ensure_capacity()
            )
        return bool(vars(request)[COUNTED])


@contextmanager
def fetching(request: Any) -> Iterator[None]:
    """Release at the end of the block the slot that ``CIMDPolicy`` takes in it.

    django-oauth-toolkit calls the policy before it fetches the document, but not at the end.
    """
    with ExitStack() as stack:
        vars(request)[SLOTS] = stack
        try:
            yield
        finally:
            del vars(request)[SLOTS]


def _take_slot(request: Any, host: str, address: str, *, was_authorized: bool) -> bool:
    stack: ExitStack | None = vars(request).get(SLOTS)
    if stack is None:  # not called inside ``fetching``: only django-oauth-toolkit's limit applies
        return True
    network = address[:HALF_DIGEST_LENGTH]  # the /48: its owner has many subnets
    return stack.enter_context(fetch_slot(host, network, was_authorized=was_authorized))


class MCPMetadataFetcher(DocumentFetcher):
    """Fetch and store a client's metadata (``CIMD_METADATA_FETCHER``).

    In development, under DEBUG, a subclass may override ``ports`` and ``addresses``.
    """

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        document, seconds = self.retrieve(client_id, oauth2_settings.CIMD_MAX_DOCUMENT_SIZE)
        if document.get("client_id") != client_id:
            raise CIMDError("client_id in the document is not its URL")
        try:
            metadata = _metadata(document)
        except MetadataError as error:
            raise CIMDError(str(error)) from error
        _store_profile(client_id, metadata)
        return _for_toolkit(client_id, metadata), min(seconds, settings.STALE)


def _metadata(document: dict[str, Any]) -> ClientMetadata:
    """Return the metadata of a document, or raise ``MetadataError``.

    Redirect URIs that are not allowed are dropped. One allowed URI is enough.
    """
    if SECRETS & set(document):
        raise MetadataError("a metadata document must not have a secret")
    method = document.get("token_endpoint_auth_method", client_metadata.AUTH_METHOD_NONE)
    if method not in AUTHENTICATION_METHODS:
        raise MetadataError(
            f"token_endpoint_auth_method must be one of {', '.join(AUTHENTICATION_METHODS)}"
        )
    listed = client_metadata.string_list(document, "redirect_uris")
    uris = client_metadata.valid_redirect_uris(listed)
    metadata = client_metadata.parse_metadata(document, redirect_uris=uris, auth_method=method)
    if not uris or not metadata.name:
        raise MetadataError("a document needs a client_name and an allowed redirect URI")
    return metadata


def _for_toolkit(client_id: str, metadata: ClientMetadata) -> dict[str, Any]:
    """Return the metadata for django-oauth-toolkit.

    The authentication method is always "none" there. The real one is in the ``ClientProfile``.
    """
    return {
        "client_id": client_id,
        "client_name": metadata.name,
        "redirect_uris": metadata.redirect_uris,
        "grant_types": client_metadata.GRANT_TYPES,
        "token_endpoint_auth_method": client_metadata.AUTH_METHOD_NONE,
    }


# Storing a document, and what its changes revoke.


def _store_profile(client_id: str, metadata: ClientMetadata) -> None:
    """Store the client's profile, before django-oauth-toolkit stores the application.

    Without a profile, the application of a client with a key could be used without that key.
    """
    now = timezone.now()
    with transaction.atomic(using=router.db_for_write(ClientProfile)):
        ClientProfile.objects.get_or_create(
            client_id=client_id, defaults={"source": Source.CIMD, **metadata.columns}
        )
        profile = ClientProfile.objects.select_for_update().get(client_id=client_id)
        applications = get_application_model()._default_manager.filter(client_id=client_id)
        stored_ids = {profile.client_id, *applications.values_list("client_id", flat=True)}
        # A collation that ignores case finds the rows of another client.
        if stored_ids != {client_id}:
            raise CIMDError("another client has the same id in different case")
        if profile.source != Source.CIMD:
            raise CIMDError("the client was registered in another way")
        if profile.digest != metadata.digest:
            _revoke_after_change(profile, metadata)
        columns = {"fetched": now, **metadata.columns}
        ClientProfile.objects.filter(pk=profile.pk).update(**columns)


def _revoke_after_change(profile: ClientProfile, metadata: ClientMetadata) -> None:
    now = timezone.now()
    consents = Consent.objects.filter(client_id=profile.client_id, revoked=None)
    logger.warning(
        "Metadata of a client changed, its users are asked for consent again: client_id=%s",
        profile.client_id,
    )
    consents.update(revoked=now)
    applications = get_application_model()._default_manager.filter(client_id=profile.client_id)
    for application in applications.select_for_update():
        other_key = (profile.auth_method, profile.jwks_uri) != (
            metadata.auth_method,
            metadata.jwks_uri,
        )
        other_uris = set(application.redirect_uris.split()) != set(metadata.redirect_uris)
        if other_key or other_uris:
            logger.warning("All tokens of a client revoked: client_id=%s", profile.client_id)
            end_all(application=application)
