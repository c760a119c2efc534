"""The app ``django_mcp.oauth``: the embedded OAuth authorization server."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


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
        from .activity import activities

        if activities.add not in observers:  # tests that override INSTALLED_APPS call it again
            observers.append(activities.add)
