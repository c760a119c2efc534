"""
Find the OAuth clients of requests, and tell which clients the site's staff registered.

django-oauth-toolkit stores a client as an ``Application``. The ``ClientProfile`` beside it has what
the toolkit does not know, such as whether the client is blocked, and how it authenticates.

Saving an application that was registered by hand creates its profile. Applications that sent no
signal, such as those from before the installation or from ``bulk_create()``, get a profile when
they are first used.
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

from .client_metadata import MAX_CLIENT_NAME_LENGTH, printable
from .client_metadata_documents import fetching
from .conf import settings
from .models import MAX_CLIENT_ID_LENGTH, ClientProfile, Source
from .resource_indicators import notes

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


class ClientLookup(Validator):
    """Mixin for an ``OAuth2Validator``: treat clients that may not be used as unknown.

    Those are blocked clients, and clients whose metadata document is at a host that is not in
    ``CLIENT_HOSTS``, or could not be fetched for ``STALE`` seconds.
    """

    def _load_application(self, client_id: Any, request: Any) -> Any:
        """Override the one method by which django-oauth-toolkit loads a client."""
        found = None
        # The block comes first: the document of a blocked client must not be fetched.
        if _is_valid_id(client_id) and not _is_blocked(client_id, request):
            with fetching(request):
                found = self._load_usable(client_id, request)
        if found is None:
            request.client = None
        return found

    def _load_usable(self, client_id: str, request: Any) -> Any:
        found = super()._load_application(client_id, request)
        if found is not None and found.registration_source == Source.CIMD and not profile(request):
            # Only the profile says whether the client must authenticate with a key. So fetch the
            # document again, which creates the profile.
            notes(request).profile = None
            found = request.client = resolve_cimd_application(client_id, request)
        # A collation that ignores case finds clients whose id differs in case.
        if found is None or found.client_id != client_id or not _is_usable(profile(request)):
            return None
        return found


def _is_valid_id(client_id: Any) -> bool:
    return (
        isinstance(client_id, str)
        and 0 < len(client_id) <= MAX_CLIENT_ID_LENGTH
        and "\0" not in client_id
    )


def _is_blocked(client_id: str, request: Any) -> bool:
    """Whether a client is blocked. Queried once per request."""
    if notes(request).unblocked_client_id == client_id:
        return False
    if ClientProfile.objects.filter(client_id=client_id, blocked__isnull=False).exists():
        return True
    notes(request).unblocked_client_id = client_id
    return False


def profile(request: Any) -> ClientProfile | None:
    """Return the profile of an oauthlib request's client; None without a client or a profile.

    It is queried once per request.
    """
    # Not ``request.client``: oauthlib answers a missing attribute from the client's parameters.
    if (client := vars(request).get("client")) is None:
        return None
    cached = notes(request).profile
    if cached is None or cached[0] != client.client_id:
        found = ClientProfile.objects.filter(client_id=client.client_id).first()
        cached = notes(request).profile = (client.client_id, found)
    return cached[1]


def _is_usable(client_profile: ClientProfile | None) -> bool:
    if client_profile is None:  # registered by hand, and not used yet
        return True
    if client_profile.blocked is not None:
        return False
    if client_profile.source != Source.CIMD:
        return True
    host = urlsplit(client_profile.client_id).hostname or ""
    oldest = timezone.now() - timedelta(seconds=settings.STALE)
    is_fresh = client_profile.fetched is not None and client_profile.fetched >= oldest
    return is_fresh and validate_host(host, settings.CLIENT_HOSTS)


@receiver(
    post_save, sender=oauth2_settings.APPLICATION_MODEL, dispatch_uid="django_mcp_oauth.by_hand"
)
def _update_profile(sender: Any, instance: Any, raw: bool, **kwargs: Any) -> None:
    if not raw and instance.registration_source == Source.MANUAL:
        ClientProfile.objects.update_or_create(
            client_id=instance.client_id, defaults=_profile_values(instance)
        )


def ensure_profile(application: Any) -> None:
    """Create the profile of a client that was registered by hand, if it has none yet."""
    if application.registration_source == Source.MANUAL:
        ClientProfile.objects.get_or_create(
            client_id=application.client_id, defaults=_profile_values(application)
        )


def _profile_values(application: Any) -> dict[str, Any]:
    return {"source": Source.MANUAL, "name": printable(application.name, MAX_CLIENT_NAME_LENGTH)}


def is_registered_by_staff(application: Any) -> bool:
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
