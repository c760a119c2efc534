"""
Clients that register themselves (RFC 7591).

Rule: whoever asks is a stranger, whatever cookie comes along. A client gets what a client needs, an
id and the code grant; nothing by which to read or change what it registered (RFC 7592). Before
anything is written it is known that this address may register one more, however many ask at once.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import router, transaction
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.generators import generate_client_secret
from oauth2_provider.models import get_application_model

from . import clients, rates, redirects, secrets, unused
from .clients import ClientMetadata, MetadataError
from .conf import settings
from .models import ClientProfile, Source

LONGEST_BODY = 16_384  # bytes
HEADERS = {"Cache-Control": "no-store", "Pragma": "no-cache"}
METHODS = (clients.NONE, *clients.WITH_SECRET, clients.KEY)
# What the answer repeats beside the redirect URIs, by its name in RFC 7591; where there is any.
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

    def post(self, request: HttpRequest) -> JsonResponse:
        if settings.REGISTRATION != "open":
            return _error(403, "access_denied", "Clients do not register themselves here.")
        try:
            said = _metadata(_document(request))
        except MetadataError as error:
            return _error(400, error.code, str(error))
        address = rates.address_digest(request.META.get("REMOTE_ADDR") or "")
        if known := _known(said, address):
            return _created(said, known)
        # Who came too often is told so at once, and keeps nobody waiting for a turn.
        return _too_many(address) or _let_in(said, address)


def _too_many(address: str) -> JsonResponse | None:
    if seconds := rates.wait_to_register(address):
        return _later(429, "Too many clients were registered from there.", seconds)
    return None


def _let_in(said: ClientMetadata, address: str) -> JsonResponse:
    """One at a time: others who came at the same moment were not counted before."""
    with rates.turn():
        if refused := _too_many(address):
            return refused
        if not unused.make_room():
            return _later(503, "Too many clients are registered that nobody uses.", unused.SOON)
        return _created(said, *_register(said, address))


# What was sent.


def _document(request: HttpRequest) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise MetadataError("Client metadata is sent as application/json.")
    body = request.read(LONGEST_BODY + 1)
    if len(body) > LONGEST_BODY:
        raise MetadataError(f"Client metadata has at most {LONGEST_BODY} bytes.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MetadataError("Client metadata is a JSON object.")
    # Some write null for what they leave out.
    return {name: value for name, value in found.items() if value is not None}


def _metadata(document: dict[str, Any]) -> ClientMetadata:
    """RFC 7591, 2: without a word on it, the method is client_secret_basic."""
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= redirects.AT_MOST:
        raise _bad_redirects(f"redirect_uris is a list of one to {redirects.AT_MOST} URIs")
    if reason := next(filter(None, map(redirects.wrong, uris)), None):
        raise _bad_redirects(reason)
    method = document.get("token_endpoint_auth_method", "client_secret_basic")
    if method not in METHODS:
        raise MetadataError(f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
    return clients.read(document, redirects.taken(uris), method)


def _bad_redirects(reason: str) -> MetadataError:
    return MetadataError(reason, "invalid_redirect_uri")


# What is kept.


def _known(said: ClientMetadata, address: str) -> ClientProfile | None:
    """The client that said the very same before, from there, and was not authorized since.

    Only without a secret, which could not be told again. Its time begins anew.
    """
    if said.auth_method != clients.NONE:
        return None
    now = timezone.now()
    same = ClientProfile.objects.filter(
        source=Source.DCR, address=address, digest=said.digest, auth_method=clients.NONE,
        last_authorized=None, last_used=None, blocked=None,
        created__gt=now - timedelta(seconds=settings.UNUSED),
    )  # fmt: skip
    found = same.order_by("-created").first()
    if found is None or not _applications().filter(client_id=found.client_id).exists():
        return None
    found.created = now
    return found if same.filter(pk=found.pk).update(created=now) else None


def _register(said: ClientMetadata, address: str) -> tuple[ClientProfile, str]:
    """Its profile, and its secret; "" if it has none to know.

    One that nobody knows it has all the same: an empty one would be guessed.
    """
    model, secret = get_application_model(), generate_client_secret()
    told = said.auth_method in clients.WITH_SECRET
    public = said.auth_method == clients.NONE
    with transaction.atomic(using=router.db_for_write(model), savepoint=False):
        application = model._default_manager.create(
            name=said.name,
            redirect_uris=" ".join(said.redirect_uris),
            client_type=model.CLIENT_PUBLIC if public else model.CLIENT_CONFIDENTIAL,
            authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
            registration_source=Source.DCR,
            client_secret=secrets.kept(secret),
            hash_client_secret=False,  # slowly, it is a digest already
            user=None,
        )
        profile = ClientProfile.objects.create(
            client_id=application.client_id, source=Source.DCR, address=address, **said.columns
        )
    return profile, secret if told else ""


def _applications() -> Any:
    return get_application_model()._default_manager


# What is answered.


def _created(said: ClientMetadata, profile: ClientProfile, secret: str = "") -> JsonResponse:
    """RFC 7591, 3.2.1: all that was registered."""
    body: dict[str, Any] = {
        "client_id": profile.client_id,
        "client_id_issued_at": int(profile.created.timestamp()),
        "redirect_uris": said.redirect_uris,
        "grant_types": clients.GRANTS,
        "response_types": clients.RESPONSES,
        "token_endpoint_auth_method": said.auth_method,
    }
    body |= {name: found for name, kept in ECHOED.items() if (found := getattr(said, kept))}
    if secret:
        body |= {"client_secret": secret, "client_secret_expires_at": 0}  # 0: never
    return JsonResponse(body, status=201, headers=HEADERS)


def _error(status: int, code: str, why: str) -> JsonResponse:
    body = {"error": code, "error_description": why}
    return JsonResponse(body, status=status, headers=HEADERS)


def _later(status: int, why: str, seconds: int) -> JsonResponse:
    response = _error(status, "temporarily_unavailable", why)
    response["Retry-After"] = str(seconds)
    return response
