"""The app: an authorization server beside the MCP servers that its tokens are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from ..dispatch.deeds import Deed


def noted(deed: Deed) -> None:
    """A client did something. What keeps account of it is not imported before."""
    from .activity import activities

    activities.note(deed)


class OAuthConfig(AppConfig):
    """Add it after ``oauth2_provider`` and ``django_mcp``."""

    name = "django_mcp.oauth"
    label = "django_mcp_oauth"
    verbose_name = _("MCP authorization")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ..dispatch.deeds import accounts
        from . import by_hand as by_hand
        from . import checks as checks
        from . import checks_of_surroundings as checks_of_surroundings
        from . import checks_of_urls as checks_of_urls
        from . import signals as signals

        if noted not in accounts:  # settings of a test may load the apps again
            accounts.append(noted)
