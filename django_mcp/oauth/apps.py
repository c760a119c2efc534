"""The app: an authorization server beside the MCP servers that its tokens are for."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OAuthConfig(AppConfig):
    """Add it after ``oauth2_provider`` and ``django_mcp``."""

    name = "django_mcp.oauth"
    label = "django_mcp_oauth"
    verbose_name = _("MCP authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks as checks
        from . import checks_of_urls as checks_of_urls
        from . import signals as signals
