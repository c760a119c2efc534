"""
Clients that are known by a document of theirs, whose URL is their id (draft, CIMD 01).

Rule: what the document says now is what holds. Whoever agreed to a client agreed to what it was
then: if it changes, they are asked again, and if it answers elsewhere or by other keys, what it
was given ends.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from django.db import router, transaction
from django.http.request import validate_host
from django.utils import timezone
from oauth2_provider.cimd import CIMDError
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from . import clients, rates, redirects, unused
from .clients import ClientMetadata, MetadataError
from .conf import settings
from .fetching import DocumentFetcher, checked
from .models import ClientProfile, Consent, Source
from .revoking import end_all

logger = logging.getLogger("django_mcp")
METHODS = (clients.NONE, clients.KEY)
COUNTED = "_mcp_counted"
SECRETS = {"client_secret", "client_secret_expires_at"}  # which nothing public may have


class CIMDPolicy:
    """Whose documents are looked at: hosts of ``CLIENT_HOSTS``, and not too many at once."""

    def has_permission(self, request: Any, client_id: str) -> bool:
        try:
            host = checked(client_id).hostname or ""
        except CIMDError:
            return False
        if not validate_host(host, settings.CLIENT_HOSTS):
            return False
        known = ClientProfile.objects.filter(client_id=client_id).first()
        if known is not None:
            return known.blocked is None
        if COUNTED not in vars(request):  # one request loads its client more than once
            vars(request)[COUNTED] = _may_come(request)
        return bool(vars(request)[COUNTED])


def _may_come(request: Any) -> bool:
    remote = str(request.headers.get("REMOTE_ADDR") or "")
    return rates.may_fetch(rates.address_digest(remote)) and unused.make_room()


class MCPMetadataFetcher(DocumentFetcher):
    """``CIMD_METADATA_FETCHER``: what a document says, as far as it is taken.

    In development a subclass may have ``ports`` and ``addresses`` of its own, under DEBUG.
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
    """Redirect URIs that are not taken are left out: the others may do."""
    if SECRETS & set(document):
        raise MetadataError("a document has no secret")
    method = document.get("token_endpoint_auth_method", clients.NONE)
    if method not in METHODS:
        raise MetadataError(f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
    uris = redirects.taken(clients.texts(document, "redirect_uris"))
    said = clients.read(document, uris, method)
    if not uris or not said.name:
        raise MetadataError("a document has a client_name, and a redirect URI that is taken")
    return said


def _for_toolkit(client_id: str, said: ClientMetadata) -> dict[str, Any]:
    """As django-oauth-toolkit takes it. How the client authenticates is known by its profile."""
    return {
        "client_id": client_id,
        "client_name": said.name,
        "redirect_uris": said.redirect_uris,
        "grant_types": clients.GRANTS,
        "token_endpoint_auth_method": clients.NONE,
    }


# What changes.


def _keep(client_id: str, said: ClientMetadata) -> None:
    """Write the profile, before there is an application that could do without its key."""
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
