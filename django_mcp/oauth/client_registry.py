"""Load OAuth clients and their profiles, and decide which clients the site's staff registered.

``KnownClients`` overrides the one method by which django-oauth-toolkit loads a client. Blocked
clients are treated as unknown everywhere, and so are clients whose metadata document could not be
fetched for ``STALE`` seconds. A client with a metadata document is unknown without its profile,
because only the profile holds its authentication method.

Clients that are registered by hand get a profile when their application is saved. Applications
that sent no signal, as those from before the installation or from ``bulk_create()``, get it at
their first use.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.contrib.auth import get_permission_codename
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http.request import validate_host
from django.utils import timezone
from oauth2_provider.cimd import resolve_cimd_application
from oauth2_provider.settings import oauth2_settings

from .client_metadata import MAX_NAME_LENGTH, printable
from .client_metadata_documents import fetching
from .conf import settings
from .models import ClientProfile, Source

PROFILE_ATTRIBUTE = "_mcp_profile"

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
    """Mixin for an ``OAuth2Validator``: load only clients that may be used."""

    def _load_application(self, client_id: Any, request: Any) -> Any:
        with fetching(request):
            return self._load_known(client_id, request)

    def _load_known(self, client_id: Any, request: Any) -> Any:
        found = super()._load_application(client_id, request)
        if found is not None and found.registration_source == Source.CIMD and not profile(request):
            vars(request).pop(PROFILE_ATTRIBUTE)
            found = request.client = resolve_cimd_application(client_id, request)
        # A collation that ignores case finds clients whose id differs in case.
        if found is None or found.client_id != client_id or _is_barred(profile(request)):
            request.client = None
            return None
        return found


def profile(request: Any) -> ClientProfile | None:
    """Return the profile of an oauthlib request's client; None without a client or a profile.

    It is queried once per request. It is stored in ``vars(request)``: oauthlib answers missing
    attributes from the parameters that the client sent.
    """
    if (client := vars(request).get("client")) is None:
        return None
    kept, client_id = vars(request).get(PROFILE_ATTRIBUTE), client.client_id
    if kept is None or kept[0] != client_id:
        found = ClientProfile.objects.filter(client_id=client_id).first()
        kept = vars(request)[PROFILE_ATTRIBUTE] = (client_id, found)
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


@receiver(
    post_save, sender=oauth2_settings.APPLICATION_MODEL, dispatch_uid="django_mcp_oauth.by_hand"
)
def _list(sender: Any, instance: Any, raw: bool, **kwargs: Any) -> None:
    if not raw and instance.registration_source == Source.MANUAL:
        ClientProfile.objects.update_or_create(
            client_id=instance.client_id, defaults=_columns(instance)
        )


def list_used(application: Any) -> None:
    """Create the profile of a client that was registered by hand, if it has none yet."""
    if application.registration_source == Source.MANUAL:
        ClientProfile.objects.get_or_create(
            client_id=application.client_id, defaults=_columns(application)
        )


def is_vouched_for(application: Any) -> bool:
    """Whether the site's staff registered this client.

    On django-oauth-toolkit's own pages, any signed-in user can register a client, and can change
    its name and redirect URIs at any time. So a client with an owner counts only if the owner is a
    member of the staff with permission to add applications in the admin.
    """
    if application.registration_source != Source.MANUAL:
        return False
    if (owner := application.user) is None:
        return True
    permission = (
        f"{application._meta.app_label}.{get_permission_codename('add', application._meta)}"
    )
    return bool(owner.is_active and owner.is_staff and owner.has_perm(permission))


def _columns(application: Any) -> dict[str, Any]:
    return {"source": Source.MANUAL, "name": printable(application.name, MAX_NAME_LENGTH)}
