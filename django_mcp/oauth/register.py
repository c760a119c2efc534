"""
Dynamic client registration (RFC 7591).

Requests are anonymous: cookies are ignored. A client gets an id and the authorization code grant.
It gets no registration access token, so it cannot read or change its registration (RFC 7592).
Registrations run one after another, so that simultaneous requests cannot exceed the rate limit.
"""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import router, transaction
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.generators import generate_client_secret
from oauth2_provider.models import get_application_model

from ..runtime import address_probe
from ..storage.databases import retry_collisions
from ..verifiers.external_tokens import OWN_PREFIX
from . import client_authentication, client_metadata, registration_limits
from .client_metadata import ClientMetadata, MetadataError
from .conf import settings
from .models import ClientProfile, Lock, Source

MAX_METADATA_BYTES = 16_384
NO_STORE_HEADERS = {"Cache-Control": "no-store", "Pragma": "no-cache"}
AUTHENTICATION_METHODS = (
    client_metadata.AUTH_METHOD_NONE,
    *client_metadata.AUTH_METHODS_WITH_SECRET,
    client_metadata.AUTH_METHOD_PRIVATE_KEY,
)
# Members that the response repeats if they are not empty, by their name in RFC 7591.
ECHOED = {
    "client_name": "name",
    "client_uri": "client_uri",
    "logo_uri": "logo_uri",
    "application_type": "application_type",
    "jwks_uri": "jwks_uri",
}


@method_decorator([login_not_required, csrf_exempt], name="dispatch")
class RegistrationView(View):
    """The registration endpoint (RFC 7591, 3)."""

    http_method_names = ["post", "options"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer, with a header in which ``mcp_doctor`` reads the address that the limit counts."""
        response = super().dispatch(request, *args, **kwargs)
        probe = request.headers.get(address_probe.REQUEST_HEADER)
        forwarded = request.headers.get("X-Forwarded-For", "")
        client = request.META.get("REMOTE_ADDR") or ""
        if value := address_probe.response_value(probe, client, forwarded):
            response[address_probe.RESPONSE_HEADER] = value
        return response

    def post(self, request: HttpRequest) -> JsonResponse:
        if settings.REGISTRATION != "open":
            return _error(403, "access_denied", "Dynamic client registration is disabled.")
        try:
            metadata = _metadata(_document(request))
        except MetadataError as error:
            return _error(400, error.code, str(error))
        address_digest = registration_limits.address_digest(request.META.get("REMOTE_ADDR") or "")
        if known := _reusable_client(metadata, address_digest):
            return _registration_response(metadata, known)
        # Check the limit before the lock too, so that rejected requests do not wait for the lock.
        if limited := _over_limit(address_digest):
            return limited
        # The deletion of stale clients can cause a deadlock (see ``registration_limits``).
        return retry_collisions(
            partial(_register_locked, metadata, address_digest), router.db_for_write(Lock)
        )


def _over_limit(address_digest: str) -> JsonResponse | None:
    if seconds := registration_limits.wait_to_register(address_digest):
        return _retry_later(429, "Too many clients were registered from this network.", seconds)
    return None


def _register_locked(metadata: ClientMetadata, address_digest: str) -> JsonResponse:
    """Register a client, under the lock of registrations.

    The rate is checked again: requests of the same moment may have registered since.
    """
    with registration_limits.registration_lock():
        if error := _over_limit(address_digest):
            return error
        if not registration_limits.ensure_capacity():
            return _retry_later(
                503,
                "Too many registered clients wait for their first authorization by a user.",
                registration_limits.RETRY_SECONDS,
            )
        return _registration_response(metadata, *_register(metadata, address_digest))


# The request.


def _document(request: HttpRequest) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise MetadataError("Client metadata must be sent as application/json.")
    body = request.read(MAX_METADATA_BYTES + 1)
    if len(body) > MAX_METADATA_BYTES:
        raise MetadataError(f"Client metadata must have at most {MAX_METADATA_BYTES} bytes.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MetadataError("Client metadata must be a JSON object.")
    # Some clients send null for members that they omit.
    return {name: value for name, value in found.items() if value is not None}


def _metadata(document: dict[str, Any]) -> ClientMetadata:
    """Validate the metadata. The default method is client_secret_basic (RFC 7591, 2)."""
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= client_metadata.MAX_REDIRECT_URIS:
        raise _redirect_error(
            f"redirect_uris must be a list of one to {client_metadata.MAX_REDIRECT_URIS} URIs."
        )
    if reason := next(filter(None, map(client_metadata.redirect_uri_problem, uris)), None):
        raise _redirect_error(reason)
    method = document.get("token_endpoint_auth_method", "client_secret_basic")
    if method not in AUTHENTICATION_METHODS:
        raise MetadataError(
            f"token_endpoint_auth_method must be one of {', '.join(AUTHENTICATION_METHODS)}."
        )
    return client_metadata.parse_metadata(
        document, redirect_uris=client_metadata.valid_redirect_uris(uris), auth_method=method
    )


def _redirect_error(reason: str) -> MetadataError:
    return MetadataError(reason, "invalid_redirect_uri")


# The stored client.


def _reusable_client(metadata: ClientMetadata, address_digest: str) -> ClientProfile | None:
    """Return an unused client with the same metadata from the same network, or None.

    Set its creation time to now, so that the deletion of unused clients starts to count anew.
    Clients with a secret are not reused: only the digest of the secret is stored, so it cannot be
    sent again.
    """
    if metadata.auth_method != client_metadata.AUTH_METHOD_NONE:
        return None
    now = timezone.now()
    same = ClientProfile.objects.filter(
        source=Source.DCR,
        address=address_digest,
        digest=metadata.digest,
        auth_method=client_metadata.AUTH_METHOD_NONE,
        last_authorized=None,
        last_used=None,
        blocked=None,
        created__gt=now - timedelta(seconds=settings.UNUSED),
    )
    found = same.order_by("-created").first()
    if found is None or not _applications().filter(client_id=found.client_id).exists():
        return None
    found.created = now
    # All conditions again: since the query, the client may have been used, blocked or deleted.
    return found if same.filter(pk=found.pk).update(created=now) else None


def _register(metadata: ClientMetadata, address_digest: str) -> tuple[ClientProfile, str]:
    """Create a client. Return its profile, and its secret ("" if it does not authenticate by one).

    Every client has a random secret in the database, because an empty one could be guessed.
    """
    # Token verifiers recognize the prefix. If a client sends its secret as a bearer token by
    # mistake, the secret is rejected here and never forwarded to an external issuer.
    model, secret = get_application_model(), OWN_PREFIX + generate_client_secret()
    sends_secret = metadata.auth_method in client_metadata.AUTH_METHODS_WITH_SECRET
    public = metadata.auth_method == client_metadata.AUTH_METHOD_NONE
    # ``registration_lock`` has opened a transaction, which any failure rolls back entirely. If the
    # applications are in the same database, this block is part of it and needs no savepoint.
    with transaction.atomic(using=router.db_for_write(model), savepoint=False):
        application = model._default_manager.create(
            name=metadata.name,
            redirect_uris=" ".join(metadata.redirect_uris),
            client_type=model.CLIENT_PUBLIC if public else model.CLIENT_CONFIDENTIAL,
            authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
            registration_source=Source.DCR,
            client_secret=client_authentication.secret_digest(secret),
            hash_client_secret=False,  # see ``secret_digest`` for why no slow hash is needed
            user=None,
        )
        profile = ClientProfile.objects.create(
            client_id=application.client_id,
            source=Source.DCR,
            address=address_digest,
            **metadata.columns,
        )
    return profile, secret if sends_secret else ""


def _applications() -> Any:
    return get_application_model()._default_manager


# The response.


def _registration_response(
    metadata: ClientMetadata, profile: ClientProfile, secret: str = ""
) -> JsonResponse:
    """Return all registered metadata (RFC 7591, 3.2.1)."""
    body: dict[str, Any] = {
        "client_id": profile.client_id,
        "client_id_issued_at": int(profile.created.timestamp()),
        "redirect_uris": metadata.redirect_uris,
        "grant_types": client_metadata.GRANT_TYPES,
        "response_types": client_metadata.RESPONSE_TYPES,
        "token_endpoint_auth_method": metadata.auth_method,
    }
    body |= {name: value for name, attr in ECHOED.items() if (value := getattr(metadata, attr))}
    if secret:
        body |= {"client_secret": secret, "client_secret_expires_at": 0}  # never
    return JsonResponse(body, status=201, headers=NO_STORE_HEADERS)


def _error(status: int, code: str, why: str) -> JsonResponse:
    body = {"error": code, "error_description": why}
    return JsonResponse(body, status=status, headers=NO_STORE_HEADERS)


def _retry_later(status: int, why: str, seconds: int) -> JsonResponse:
    response = _error(status, "temporarily_unavailable", why)
    response["Retry-After"] = str(seconds)
    return response
