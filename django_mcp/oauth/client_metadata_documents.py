"""
Client ID metadata documents: clients whose id is the URL of their metadata (draft, CIMD 01).

The current document applies. If it changes, all consents to the client are revoked, so its users
are asked again. If its redirect URIs, authentication method or key URL change, all its tokens are
revoked too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import router, transaction
from django.http.request import validate_host
from django.utils import timezone
from oauth2_provider.cimd import CIMDError
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..auth.networks import HALF_DIGEST_LENGTH
from . import client_metadata, registration_rates, stale_clients
from .client_metadata import ClientMetadata, MetadataError
from .conf import settings
from .fetching import DocumentFetcher, checked, fetch_slot
from .models import ClientProfile, Consent, Source
from .revocation import end_all

logger = logging.getLogger("django_mcp")
METHODS = (client_metadata.NONE, client_metadata.KEY)
COUNTED, SLOTS = "_mcp_counted", "_mcp_slots"  # attributes of oauthlib's request
SECRETS = {"client_secret", "client_secret_expires_at"}  # not allowed in a public document


class CIMDPolicy:
    """Permission class for fetching a document: allowed hosts, rate limits and free slots.

    The hosts are those of ``CLIENT_HOSTS``. Blocked clients are rejected.
    """

    def has_permission(self, request: Any, client_id: str) -> bool:
        try:
            host = checked(client_id).hostname or ""
        except CIMDError:
            return False
        if not validate_host(host, settings.CLIENT_HOSTS):
            return False
        known = ClientProfile.objects.filter(client_id=client_id).first()
        if known is not None and known.blocked is not None:
            return False
        address = registration_rates.address_digest(str(request.headers.get("REMOTE_ADDR") or ""))
        was_authorized = known is not None and known.last_authorized is not None
        if not _take_slot(request, host, address, was_authorized=was_authorized):
            logger.warning("No slot to fetch a client metadata document: host=%s", host)
            return False
        if COUNTED not in vars(request):  # one request loads its client more than once
            may_fetch = registration_rates.may_fetch(address, client_id if was_authorized else "")
            vars(request)[COUNTED] = may_fetch and (known is not None or stale_clients.make_room())
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
    site = address[:HALF_DIGEST_LENGTH]  # the /48: its owner has many subnets
    return stack.enter_context(fetch_slot(host, site, was_authorized=was_authorized))


class MCPMetadataFetcher(DocumentFetcher):
    """Fetch and store a client's metadata (``CIMD_METADATA_FETCHER``).

    In development, under DEBUG, a subclass may override ``ports`` and ``addresses``.
    """

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        document, seconds = self.retrieve(client_id, oauth2_settings.CIMD_MAX_DOCUMENT_SIZE)
        if document.get("client_id") != client_id:
            raise CIMDError("the document is another client's")
        try:
            said = _metadata(document)
        except MetadataError as error:
            raise CIMDError(str(error)) from error
        _keep(client_id, said)
        return _for_toolkit(client_id, said), min(seconds, settings.STALE)


def _metadata(document: dict[str, Any]) -> ClientMetadata:
    """Return the metadata of a document, or raise ``MetadataError``.

    Redirect URIs that are not allowed are dropped. One allowed URI is enough.
    """
    if SECRETS & set(document):
        raise MetadataError("a document has no secret")
    method = document.get("token_endpoint_auth_method", client_metadata.NONE)
    if method not in METHODS:
        raise MetadataError(f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
    uris = client_metadata.taken(client_metadata.texts(document, "redirect_uris"))
    said = client_metadata.read(document, uris, method)
    if not uris or not said.name:
        raise MetadataError("a document has a client_name, and a redirect URI that is taken")
    return said


def _for_toolkit(client_id: str, said: ClientMetadata) -> dict[str, Any]:
    """Return the metadata for django-oauth-toolkit.

    The authentication method is always "none" there. The real one is in the ``ClientProfile``.
    """
    return {
        "client_id": client_id,
        "client_name": said.name,
        "redirect_uris": said.redirect_uris,
        "grant_types": client_metadata.GRANTS,
        "token_endpoint_auth_method": client_metadata.NONE,
    }


# Storing a document, and what its changes revoke.


def _keep(client_id: str, said: ClientMetadata) -> None:
    """Store the client's profile, before django-oauth-toolkit stores the application.

    Without a profile, the application of a client with a key could be used without that key.
    """
    now = timezone.now()
    with transaction.atomic(using=router.db_for_write(ClientProfile)):
        ClientProfile.objects.get_or_create(
            client_id=client_id, defaults={"source": Source.CIMD, **said.columns}
        )
        known = ClientProfile.objects.select_for_update().get(client_id=client_id)
        if known.source != Source.CIMD:
            raise CIMDError("the id is that of a client that was registered otherwise")
        if known.digest != said.digest:
            _changed(known, said)
        columns = {"fetched": now, **said.columns}
        ClientProfile.objects.filter(pk=known.pk).update(**columns)


def _changed(known: ClientProfile, said: ClientMetadata) -> None:
    now = timezone.now()
    consents = Consent.objects.filter(client_id=known.client_id, revoked=None)
    logger.warning("The client %s has changed: whoever agreed is asked again.", known.client_id)
    consents.update(revoked=now)
    applications = get_application_model()._default_manager.filter(client_id=known.client_id)
    for application in applications.select_for_update():
        keys = (known.auth_method, known.jwks_uri) != (said.auth_method, said.jwks_uri)
        if keys or _differ(application.redirect_uris.split(), said.redirect_uris):
            logger.warning("All tokens of the client %s end.", known.client_id)
            end_all(application=application)


def _differ(before: Collection[str], after: Collection[str]) -> bool:
    return set(before) != set(after)
