"""
What a client may ask for, for django-oauth-toolkit.

Rule: who names no scope asks for the first, the least there is. A project's other APIs keep the
scopes that it gave them.
"""

from __future__ import annotations

from typing import Any

from oauth2_provider.scopes import SettingsScopes

from ..scopes import offered


def default_scopes() -> list[str]:
    return list(offered())[:1]


class MCPScopes(SettingsScopes):  # type: ignore[misc]
    """Our scopes beside those of ``OAUTH2_PROVIDER["SCOPES"]``, if that names any."""

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
