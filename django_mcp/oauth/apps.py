"""The app ``django_mcp.oauth``: the embedded OAuth authorization server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from ..calls.records import CallRecord


def record_activity(call: CallRecord) -> None:
    """Record a call of a client. The activity log is imported at the first call.

    It has models, which cannot be imported before the apps are ready.
    """
    from .activity import activities

    if call.is_activity:
        activities.add(call)


class OAuthConfig(AppConfig):
    """The app's configuration. Install it after ``oauth2_provider`` and ``django_mcp``."""

    name = "django_mcp.oauth"
    label = "django_mcp_oauth"
    verbose_name = _("MCP authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ..calls.records import observers

        # Each connects receivers of signals, or registers checks.
        from . import checks as checks
        from . import client_registry as client_registry
        from . import revocation as revocation

        if (
            record_activity not in observers
        ):  # tests that override INSTALLED_APPS call ready() again
            observers.append(record_activity)
