"""
Whom clients may act for.

Rule: whoever may not sign in lets nobody in, whatever the project's own rule says; that rule,
``DJANGO_MCP["OAUTH"]["MAY_AUTHORIZE"]``, can only narrow it further.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.utils.module_loading import import_string

from ..protected.names import served
from .conf import settings

if TYPE_CHECKING:
    from ..declare.servers import Server


def may_authorize(user: Any, servers: Iterable[Server]) -> bool:
    """Whether clients may act for ``user`` at ``servers``: asked at the consent, and ever after."""
    return may_sign_in(user) and all(_as_the_project_says(user, server) for server in servers)


def may_use(user: Any, targets: Iterable[str]) -> bool:
    """The same for all servers of these names; a name that is no server's is not ours to judge."""
    found = served()
    return may_authorize(user, [found[target] for target in targets if target in found])


def may_sign_in(user: Any) -> bool:
    """A user who is active, and whom the project's default manager does not hide."""
    if user is None or not (user.is_authenticated and user.is_active):
        return False
    seen = get_user_model()._default_manager.all()
    return not seen.query.where or seen.filter(pk=user.pk).exists()


def _as_the_project_says(user: Any, server: Server) -> bool:
    path = settings.MAY_AUTHORIZE
    return path is None or bool(import_string(path)(user, server))
