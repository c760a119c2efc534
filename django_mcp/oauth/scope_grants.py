"""
Scopes that clients may request or already hold, and the users that clients may act for.

``MCPScopes`` is the scopes backend of django-oauth-toolkit (``SCOPES_BACKEND_CLASS``). A request
without a scope gets the first offered scope, which is the narrowest. The scopes of the project's
other APIs stay available.

A client that asks for new scopes gets them together with those that it holds (basic/authorization,
"Step-Up"). So a client that names only the missing scope does not lose the others. A client that
asks for nothing new gets what it names, which may be less than it holds.

Clients may act for users who may sign in. The project's function
``DJANGO_MCP["OAUTH"]["MAY_AUTHORIZE"]`` can only narrow that further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.db.models import Q
from django.utils import timezone
from django.utils.module_loading import import_string
from oauth2_provider.models import (
    get_access_token_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)
from oauth2_provider.scopes import SettingsScopes

from ..auth.scopes import broader, offered
from ..verifiers.protected_resource import served
from .conf import settings

if TYPE_CHECKING:
    from ..declarations.server import Server

MAX_READ_TOKENS = 100  # tokens that are read, the newest first


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


# Scopes that a client holds.


def held_scopes(user: Any, application: Any, servers: Iterable[str]) -> tuple[str, ...]:
    """Return the offered scopes of a client's valid tokens for exactly these servers.

    They are in the order in which they are offered. Runs queries.
    """
    resources = set(servers)
    tokens = [
        row for row in _valid_tokens(user, application) if set(row.resource or ()) == resources
    ]
    held = {scope for row in tokens for scope in row.scope.split()}
    return tuple(scope for scope in offered() if scope in held)


def _valid_tokens(user: Any, application: Any) -> Iterator[Any]:
    """Yield access tokens that are valid, or can be renewed by a refresh token."""
    tokens = get_access_token_model().objects.filter(user=user, application=application)
    tokens = tokens.only("scope", "resource").order_by("-pk")
    yield from tokens.filter(expires__gt=timezone.now())[:MAX_READ_TOKENS]
    yield from tokens.filter(renewable(user=user, application=application))[:MAX_READ_TOKENS]


def renewable(**owner: Any) -> Q:
    """Filter for access tokens with a refresh token that is not revoked and not expired."""
    refresh_tokens = get_refresh_token_model().objects.filter(revoked=None, **owner)
    is_renewable = Q(pk__in=refresh_tokens.values("access_token"))
    lifetime = refresh_token_expire_timedelta()
    if lifetime is None:  # refresh tokens never expire
        return is_renewable
    return is_renewable & Q(expires__gt=timezone.now() - lifetime)


def join_scopes(requested: Iterable[str], held: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes for a token: ``requested``, and also ``held`` if some are new."""
    requested = tuple(requested)
    if not new_scopes(requested, held):
        return requested
    return tuple(dict.fromkeys((*held, *requested)))


def new_scopes(requested: Iterable[str], held: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes of ``requested`` that ``held`` does not cover."""
    held = tuple(held)
    return broader(held, requested) if held else tuple(requested)


# Users.


def may_authorize(user: Any, servers: Iterable[Server]) -> bool:
    """Whether clients may act for ``user`` at ``servers``.

    Checked at the consent, and whenever tokens are issued.
    """
    return may_sign_in(user) and all(_project_allows(user, server) for server in servers)


def may_use(user: Any, targets: Iterable[str]) -> bool:
    """Like ``may_authorize``, for servers by URL. URLs that are no server's are ignored."""
    servers = served()
    return may_authorize(user, [servers[target] for target in targets if target in servers])


def may_sign_in(user: Any) -> bool:
    """Whether a user is active and not hidden by the default manager of the user model."""
    if user is None or not (user.is_authenticated and user.is_active):
        return False
    visible = get_user_model()._default_manager.all()
    return not visible.query.where or visible.filter(pk=user.pk).exists()


def _project_allows(user: Any, server: Server) -> bool:
    path = settings.MAY_AUTHORIZE
    return path is None or bool(import_string(path)(user, server))
