"""
Which clients may be used at all.

Rule: a client that is blocked, or whose document cannot be had any more, is an unknown client,
wherever it comes: there is one way by which clients are loaded, and this stands in it. How a client
by a document authenticates is known by its profile alone, so it is unknown without one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.http.request import validate_host
from django.utils import timezone
from oauth2_provider.cimd import resolve_cimd_application

from .conf import settings
from .models import ClientProfile, Source

PLACE = "_mcp_profile"

if TYPE_CHECKING:

    class Validator:
        def _load_application(self, client_id: Any, request: Any) -> Any: ...
        def _extract_basic_auth(self, request: Any) -> Any: ...
        def client_authentication_required(self, request: Any, *args: Any, **kw: Any) -> bool: ...
        def authenticate_client(self, request: Any, *args: Any, **kw: Any) -> bool: ...
        def authenticate_client_id(
            self, client_id: Any, request: Any, *args: Any, **kw: Any
        ) -> bool: ...
else:
    Validator = object


class KnownClients(Validator):
    """To be put in front of an ``OAuth2Validator``."""

    def _load_application(self, client_id: Any, request: Any) -> Any:
        found = super()._load_application(client_id, request)
        if found is not None and found.registration_source == Source.CIMD and not profile(request):
            vars(request).pop(PLACE)
            found = request.client = resolve_cimd_application(client_id, request)
        # A database may find what only looks alike: a name in other letters.
        if found is None or found.client_id != client_id or _is_barred(profile(request)):
            request.client = None
            return None
        return found


def profile(request: Any) -> ClientProfile | None:
    """That of the client of an oauthlib request, asked for once; None without either.

    Among the request's own attributes: what it has not it answers by what the client sent.
    """
    if (client := vars(request).get("client")) is None:
        return None
    kept, client_id = vars(request).get(PLACE), client.client_id
    if kept is None or kept[0] != client_id:
        found = ClientProfile.objects.filter(client_id=client_id).first()
        kept = vars(request)[PLACE] = (client_id, found)
    return kept[1]  # type: ignore[no-any-return]


def _is_barred(found: ClientProfile | None) -> bool:
    if found is None or found.source != Source.CIMD:
        return found is not None and found.blocked is not None
    host = urlsplit(found.client_id).hostname or ""
    elsewhere = not validate_host(host, settings.CLIENT_HOSTS)
    return found.blocked is not None or elsewhere or _is_stale(found)


def _is_stale(found: ClientProfile) -> bool:
    limit = timezone.now() - timedelta(seconds=settings.STALE)
    return found.fetched is None or found.fetched < limit
