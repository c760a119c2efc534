"""
Clients that the project itself registered, on the list of all clients.

Rule: one is listed when its application is saved, under the name that it has there. What no signal
told of - it was there before, or came by ``bulk_create()`` - is listed when it is first used.
"""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver
from oauth2_provider.settings import oauth2_settings

from .clients import NAME, printable
from .models import ClientProfile, Source


@receiver(
    post_save, sender=oauth2_settings.APPLICATION_MODEL, dispatch_uid="django_mcp_oauth.by_hand"
)
def _list(sender: Any, instance: Any, raw: bool, **kwargs: Any) -> None:
    if not raw and instance.registration_source == Source.MANUAL:
        ClientProfile.objects.update_or_create(
            client_id=instance.client_id, defaults=_columns(instance)
        )


def list_used(application: Any) -> None:
    """One of the project's own that is used, in case nothing is known of it yet."""
    if application.registration_source == Source.MANUAL:
        ClientProfile.objects.get_or_create(
            client_id=application.client_id, defaults=_columns(application)
        )


def _columns(application: Any) -> dict[str, Any]:
    return {"source": Source.MANUAL, "name": printable(application.name, NAME)}
