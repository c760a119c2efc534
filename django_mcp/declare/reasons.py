"""
Why somebody may use a thing, or may not: the rule that decides, in words for the developer.

Rule: whether is for the declaration alone to say; a reason stands beside its
answer and is never asked in its place. It names groups, code and what is
hidden: it is for the shell, and for the log under DEBUG, and is sent to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.exceptions import PermissionDenied

from .permissions import AUTHENTICATED, PUBLIC, Permission, truth

if TYPE_CHECKING:
    from .declarations import Declaration
    from .requests import Request


@dataclass(frozen=True)
class Reason:
    """Whether a rule lets somebody through, and which rule it is."""

    allows: bool
    words: str


NOBODY = Reason(False, "nobody is signed in, and it is not mcp.PUBLIC")


# What is asked for, whoever asks.


def rule_of(thing: Declaration) -> str:
    """What ``thing`` asks of its users, as it is declared."""
    if not thing._permission_is_declared:
        return method_of(thing, "has_permission")
    return rule(thing.permission)


def rule(permission: Permission) -> str:
    """A permission as somebody would write it."""
    if isinstance(permission, str):
        return permission
    return function(permission) if callable(permission) else repr(permission)


def both(*rules: str) -> str:
    """Several rules that are asked one after another, each told once."""
    return ", and ".join(dict.fromkeys(rules))


def function(called: Any) -> str:
    """A function's or method's name and module."""
    return f"{path(called if hasattr(called, '__qualname__') else type(called))}()"


def path(named: Any) -> str:
    """Where a function or class was written."""
    return f"{named.__module__}.{named.__qualname__}"


def method_of(thing: Any, name: str) -> str:
    """A method, with the class that the project wrote it in."""
    owner = next(kind for kind in type(thing).__mro__ if name in vars(kind))
    return f"{name}() of {path(owner)}"


# What decides for a request.


def reason_of(thing: Declaration, request: Request) -> Reason:
    """Why ``thing`` admits ``request``'s user, or does not."""
    if thing.permission is not PUBLIC and not request.principal.is_authenticated:
        return NOBODY
    if not thing._permission_is_declared:
        return said(method_of(thing, "has_permission"), thing.has_permission(request))
    return reason(thing.permission, request)


def reason(permission: Permission, request: Request) -> Reason:
    """Why ``request``'s user, who is signed in, has ``permission`` or has not."""
    if permission is PUBLIC:
        return Reason(True, "mcp.PUBLIC: it is for everybody")
    if permission is AUTHENTICATED:
        return Reason(True, "mcp.AUTHENTICATED: it is for everybody who is signed in")
    if isinstance(permission, str):
        return codenames([permission], request)
    assert callable(permission)
    return said(function(permission), permission(request))


def said(who: str, answer: Any) -> Reason:
    """What code of the project answered."""
    allows = truth(answer)
    return Reason(allows, f"{who} says {'yes' if allows else 'no'}")


def codenames(names: Sequence[str], request: Request) -> Reason:
    """Why ``request``'s user has one of these permissions, or none."""
    user = request.user
    for name in names:
        if user.has_perm(name):
            return Reason(True, f"{name}: {', '.join(sources(user, name)) or 'has_perm() says so'}")
    return Reason(False, "lacks " + " and ".join(map(str, names)) + _but(user, names))


def _but(user: Any, names: Sequence[str]) -> str:
    """What is odd about lacking permissions: somebody gives them, or nobody can."""
    if given := [source for name in names for source in sources(user, name)]:
        return f": has_perm() refuses, though {', '.join(given)}"
    unknown = [name for name in names if _is_djangos() and not _exists(name)]
    return f": there is no permission {' or '.join(unknown)}" if unknown else ""


def sources(user: Any, name: str) -> list[str]:
    """Where ``user`` has a permission from, as far as it is Django that knows."""
    if not _is_djangos():
        return []
    from django.contrib.auth.models import PermissionsMixin

    if not isinstance(user, PermissionsMixin):
        return []
    return [*_of_the_user(user, name)] or [*_of_backends(user, name)]


def _of_the_user(user: Any, name: str) -> Iterator[str]:
    if user.is_superuser:
        yield "is a superuser"
        return
    app, _, codename = name.partition(".")
    if user.user_permissions.filter(content_type__app_label=app, codename=codename).exists():
        yield "given to the user"
    permission = {"permissions__content_type__app_label": app, "permissions__codename": codename}
    for group in user.groups.filter(**permission).order_by("name").distinct():
        yield f"given to the group {group.name}"


def _of_backends(user: Any, name: str) -> Iterator[str]:
    from django.contrib.auth import get_backends

    for backend in get_backends():
        try:
            if hasattr(backend, "has_perm") and backend.has_perm(user, name):
                yield f"given by the backend {path(type(backend))}"
        except PermissionDenied:
            return


def _is_djangos() -> bool:
    """Whether permissions are kept where Django keeps them."""
    return apps.is_installed("django.contrib.auth")


def _exists(name: str) -> bool:
    from django.contrib.auth.models import Permission

    app, _, codename = name.partition(".")
    return Permission.objects.filter(content_type__app_label=app, codename=codename).exists()
