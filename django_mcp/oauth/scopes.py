"""
The scopes backend for django-oauth-toolkit (``SCOPES_BACKEND_CLASS``).

A request without a scope gets the first offered scope, which is the narrowest. The scopes of the
project's other APIs stay available.
"""

from __future__ import annotations

from typing import Any

from oauth2_provider.scopes import SettingsScopes

from ..auth.scopes import offered


def default_scopes() -> list[str]:
    return list(offered())[:1]


class MCPScopes(SettingsScopes):  # type: ignore[misc]
    """The scopes of the MCP servers, and those of ``OAUTH2_PROVIDER["SCOPES"]``."""

    def get_all_scopes(self) -> dict[str, str]:
        return {**super().get_all_scopes(), **{name: str(one) for name, one in offered().items()}}

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        return list(self.get_all_scopes())

    def get_default_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        return default_scopes()
