"""Who may use a thing: one rule, meaning the same everywhere.

Rule: what states nothing needs an authenticated user; public is always written
out; a user that is not active may do nothing. A permission is a codename, a
function of the request, ``AUTHENTICATED`` or ``PUBLIC``.

Why somebody may use a thing, or may not: the rule that decides, in words for the developer.

Rule: whether is for the declaration alone to say; a reason stands beside its
answer and is never asked in its place. It names groups, code and what is
hidden: it is for the shell, and for the log under DEBUG, and is sent to nobody.

The effective permission: what a caller may do with a thing, and what that lacks.

Rule: one answer for lists, calls and challenges. Who lacks a permission - Django's, an object's,
the project's own, an administrator's - is not told that the thing is there. Who lacks nothing but a
scope that its client could be given is told so, and which.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.utils.module_loading import import_string

from ..auth import kill_switches, scopes

if TYPE_CHECKING:
    from django.db.models import Model

    from ..auth.principal import Auth
    from .declaration import Declaration
    from .request import Request


class Access(enum.Enum):
    """The two permissions that need no name."""

    AUTHENTICATED = "authenticated"
    PUBLIC = "public"

    def __repr__(self) -> str:
        return f"mcp.{self.name}"


AUTHENTICATED, PUBLIC = Access.AUTHENTICATED, Access.PUBLIC

# What Django calls the permission for each thing that is done to rows of a model.
MODEL_PERMISSIONS = {"create": "add", "update": "change", "delete": "delete"}

# What a backend overrides to grant permissions that are not in Django's table.
BACKEND_METHODS = (
    "has_perm", "get_all_permissions", "get_user_permissions", "get_group_permissions",
)  # fmt: skip
CODENAME_SIMILARITY = 0.7

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


def unknown_codename(codename: str) -> str | None:
    """Return a hint if no model declares the permission ``codename``, else None.

    It asks the models and not the database: checks run before tables exist. Where a backend of the
    project may grant other permissions, only a codename that looks misspelled is unknown.
    """
    from .attribute_checks import did_you_mean

    if not apps.is_installed("django.contrib.auth"):
        return None
    known = {name for model in apps.get_models() for name in _codenames(model)}
    if codename in known:
        return None
    near = did_you_mean(codename, known, CODENAME_SIMILARITY)
    if not near and any(map(_grants_others, settings.AUTHENTICATION_BACKENDS)):
        return None
    return f"{near} A model declares permissions in its Meta.permissions.".strip()


def _codenames(model: type[Model]) -> Iterator[str]:
    options = model._meta
    names = [get_permission_codename(verb, options) for verb in options.default_permissions]
    for name in (*names, *(custom[0] for custom in options.permissions)):
        yield f"{options.app_label}.{name}"


def _grants_others(path: str) -> bool:
    backend = import_string(path)
    methods = (getattr(backend, name, None) for name in BACKEND_METHODS)
    modules = (getattr(method, "__module__", "") for method in methods)
    return any(not module.startswith("django.contrib.auth") for module in modules)


@dataclass(frozen=True)
class RuleDecision:
    """Whether a rule lets somebody through, and which rule it is."""

    allows: bool
    words: str


NOBODY = RuleDecision(False, "nobody is signed in, and it is not mcp.PUBLIC")


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


def reason_of(thing: Declaration, request: Request) -> RuleDecision:
    """Why ``thing`` admits ``request``'s user, or does not."""
    if thing.permission is not PUBLIC and not request.principal.is_authenticated:
        return NOBODY
    if not thing._permission_is_declared:
        return said(method_of(thing, "has_permission"), thing.has_permission(request))
    return reason(thing.permission, request)


def reason(permission: Permission, request: Request) -> RuleDecision:
    """Why ``request``'s user, who is signed in, has ``permission`` or has not."""
    if permission is PUBLIC:
        return RuleDecision(True, "mcp.PUBLIC: it is for everybody")
    if permission is AUTHENTICATED:
        return RuleDecision(True, "mcp.AUTHENTICATED: it is for everybody who is signed in")
    if isinstance(permission, str):
        return codenames([permission], request)
    assert callable(permission)
    return said(function(permission), permission(request))


def said(who: str, answer: Any) -> RuleDecision:
    """What code of the project answered."""
    allows = truth(answer)
    return RuleDecision(allows, f"{who} says {'yes' if allows else 'no'}")


def codenames(names: Sequence[str], request: Request) -> RuleDecision:
    """Why ``request``'s user has one of these permissions, or none."""
    user = request.user
    for name in names:
        if user.has_perm(name):
            return RuleDecision(
                True, f"{name}: {', '.join(sources(user, name)) or 'has_perm() says so'}"
            )
    return RuleDecision(False, "lacks " + " and ".join(map(str, names)) + _but(user, names))


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


@dataclass(frozen=True, slots=True)
class ScopeDecision:
    """Whether a thing ``may_use``; if not, the scopes ``needed`` by which it might be.

    Those are all that the thing asks for, also such as the token has.
    """

    may_use: bool
    needed: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the caller is told that the thing is there."""
        return self.may_use or bool(self.needed)


ALLOWED, UNKNOWN = ScopeDecision(True), ScopeDecision(False)


def effective(thing: Declaration, request: Request) -> ScopeDecision:
    """What ``request``'s user may do with ``thing``, as a client of the request's token."""
    if not thing.lacking(request):
        return ALLOWED if thing.allows(request) else UNKNOWN
    needed = grantable(thing, request.principal.auth)
    if not needed or not thing.allows(request):
        return UNKNOWN
    return ScopeDecision(False, needed)


def decision(thing: Declaration, request: Request) -> RuleDecision:
    """Which rule decides, in words for people who may know of everything; as ``effective`` does."""
    for one in (thing, *thing.rests_on):
        if kill_switches.is_off(request.server.name, one.mark) and not thing.allows(request):
            return RuleDecision(
                False, f"an administrator has switched off {one.mark}, or the server"
            )
    permission = thing.reason(request)
    missing = thing.lacking(request)
    if not permission.allows or not missing:
        return permission
    return RuleDecision(False, f"{permission.words}, but {_narrow(thing, request, missing)}")


def _narrow(thing: Declaration, request: Request, missing: Iterable[str]) -> str:
    words = f"its token is not good for {' and '.join(missing)}"
    if needed := grantable(thing, request.principal.auth):
        return f"{words}: listed, and asked to get {' '.join(needed)}"
    return f"{words}, and such a client cannot get more"


def grantable(thing: Declaration, auth: Auth | None) -> tuple[str, ...]:
    """The scopes to ask for by which a client of this token could use ``thing``; nothing if none.

    Only what an authorization server gave to an application can be asked for again.
    """
    if auth is None or auth.application is None:
        return ()
    return scopes.to_ask(auth.scopes, thing.scopes) or ()
