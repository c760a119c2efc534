"""
Who may use a thing: one rule, meaning the same everywhere.

Rule: what states nothing needs an authenticated user; public is always written
out; a user that is not active may do nothing. A permission is a codename, a
function of the request, ``AUTHENTICATED`` or ``PUBLIC``.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_permission_codename

if TYPE_CHECKING:
    from django.db.models import Model

    from .requests import Request


class Access(enum.Enum):
    """The two permissions that need no name."""

    AUTHENTICATED = "authenticated"
    PUBLIC = "public"

    def __repr__(self) -> str:
        return f"mcp.{self.name}"


AUTHENTICATED, PUBLIC = Access.AUTHENTICATED, Access.PUBLIC

# What Django calls the permission for each thing that is done to rows of a model.
MODEL_PERMISSIONS = {"create": "add", "update": "change", "delete": "delete"}

Permission = str | Access | Callable[["Request"], bool]


def allows(permission: Permission, request: Request) -> bool:
    """Whether ``request``'s user has ``permission``."""
    if permission is PUBLIC:
        return True
    if not request.principal.is_authenticated:
        return False
    if permission is AUTHENTICATED:
        return True
    if isinstance(permission, str):
        return bool(request.user.has_perm(permission))
    assert callable(permission)
    return truth(permission(request))


def of_model(operation: str, model: type[Model]) -> str:
    """The codename of Django's own permission for an operation on ``model``."""
    options = model._meta
    codename = get_permission_codename(MODEL_PERMISSIONS[operation], options)
    return f"{options.app_label}.{codename}"


def truth(answer: Any) -> bool:
    """Whether ``answer`` allows. Raises ``TypeError`` for a coroutine: that is always true."""
    if isinstance(answer, bool):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer):
        raise TypeError("A permission is answered at once: it cannot be async.")
    return bool(answer)


def is_free(permission: object) -> bool:
    """Whether deciding needs neither the database nor the project's code."""
    return isinstance(permission, Access)


def problem(permission: object) -> str | None:
    """What is wrong with a declared permission, in words, or None."""
    if isinstance(permission, Access):
        return None
    if isinstance(permission, type):
        return f"{permission.__name__} is a class: a permission is a function of the request."
    if inspect.iscoroutinefunction(permission):
        return f"{permission.__name__} is async: a permission is answered at once."
    if callable(permission):
        return None
    if isinstance(permission, str):
        app, dot, codename = permission.partition(".")
        if app and dot and codename:
            return None
        return f"{permission!r} is no permission: write 'app_label.codename'."
    return f"{permission!r} is neither a codename, a function, AUTHENTICATED nor PUBLIC."
