"""
Permissions of declarations, and the decisions that they lead to.

A permission is a codename, a function of the request, ``AUTHENTICATED`` or ``PUBLIC``. Without one,
a declaration requires an authenticated, active user.

``declaration.decide`` returns a ``Decision``. Lists, calls, scope challenges, ``mcp_explain`` and
the admin all call it, so an explanation always agrees with what a call would do.
``Declaration._is_allowed`` is a faster variant that returns only True or False.

What a client learns:

- If the user lacks the permission, the response is the same as for a name that does not exist.
- If only a scope is missing and the client can request it, the response names the scopes.
- The reason of a decision is never sent, because it names groups, functions and backends.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.utils.module_loading import import_string
from django.utils.text import get_text_list
from django.utils.translation import gettext

from .attribute_checks import did_you_mean

if TYPE_CHECKING:
    from django.db.models import Model

    from ..auth.kill_switches import ActiveKillSwitch
    from .request import Request


class Access(enum.Enum):
    """The permissions ``AUTHENTICATED`` and ``PUBLIC``."""

    AUTHENTICATED = "authenticated"
    PUBLIC = "public"

    __hash__ = object.__hash__  # lists hash it for each tool, and that of ``Enum`` is Python code

    def __repr__(self) -> str:
        return f"mcp.{self.name}"


AUTHENTICATED, PUBLIC = Access.AUTHENTICATED, Access.PUBLIC

# Django's verb in the codename of the permission for each operation on rows.
MODEL_PERMISSIONS = {"create": "add", "update": "change", "delete": "delete"}

AND, OR = ", and ", " or "  # join the rules of a declaration in texts for developers

# An authentication backend that overrides one of these methods may grant permissions that have no
# row in Django's ``Permission`` table.
BACKEND_METHODS = (
    "has_perm", "get_all_permissions", "get_user_permissions", "get_group_permissions",
)  # fmt: skip
CODENAME_SIMILARITY = 0.7

Permission = str | Access | Callable[["Request"], bool]


def of_model(operation: str, model: type[Model]) -> str:
    """Return the codename of Django's permission for an operation on ``model``."""
    options = model._meta
    codename = get_permission_codename(MODEL_PERMISSIONS[operation], options)
    return f"{options.app_label}.{codename}"


def truth(answer: Any) -> bool:
    """Whether ``answer`` is true. Raise ``TypeError`` for a coroutine, which is always true."""
    if isinstance(answer, bool):
        return answer
    # Every coroutine object is true, so an asynchronous permission function would allow everybody.
    if inspect.iscoroutine(answer):
        answer.close()  # Python would warn that it was never awaited
    if inspect.isawaitable(answer):
        raise TypeError("A permission function must not be asynchronous.")
    return bool(answer)


def is_free(permission: object) -> bool:
    """Whether the decision takes neither a query nor code of the project."""
    return isinstance(permission, Access)


def problem(permission: object) -> str | None:
    """Return what is wrong with a declared permission, or None."""
    if isinstance(permission, Access):
        return None
    if isinstance(permission, type):
        return f"{permission.__name__} is a class. A permission is a function of the request."
    if inspect.iscoroutinefunction(permission):
        return f"{function(permission)} is asynchronous. A permission must be a plain function."
    if callable(permission):
        return None
    if isinstance(permission, str):
        app, dot, codename = permission.partition(".")
        if app and dot and codename:
            return None
        return f"{permission!r} is not a permission. Write 'app_label.codename'."
    return f"{permission!r} is not a codename, a function, AUTHENTICATED or PUBLIC."


def unknown_codename(codename: str) -> str | None:
    """Return a hint if no model declares the permission ``codename``, else None.

    It reads the models and not the database, because checks run before tables exist. A backend of
    the project may grant permissions that no model declares. Then only a codename that resembles a
    declared one, and so looks misspelled, is reported.
    """
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
    modules = (method.__module__ for method in methods if method is not None)
    return any(not module.startswith("django.contrib.auth") for module in modules)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a caller may use a declaration.

    ``missing_scopes`` are the scopes to request if nothing else is missing. They include those that
    the token already has, because a client requests all scopes of a token at once.
    """

    allowed: bool
    # A function, and called only by ``reason``: the group that grants a permission takes a query.
    explain: Callable[[], str] = field(compare=False, repr=False)
    missing_scopes: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The rule that decided, for developers and administrators. May query the database."""
        return self.explain()

    @property
    def is_listed(self) -> bool:
        """Whether the caller may know that the declaration exists."""
        return self.allowed or bool(self.missing_scopes)


ANONYMOUS = Decision(
    False, lambda: gettext("the caller is not authenticated, and it is not mcp.PUBLIC")
)
FOR_EVERYBODY = Decision(True, lambda: gettext("mcp.PUBLIC: everybody may use it"))
FOR_AUTHENTICATED = Decision(
    True, lambda: gettext("mcp.AUTHENTICATED: every authenticated user may use it")
)


# Decisions by one permission.


def decide_permission(permission: Permission, request: Request) -> Decision:
    """Decide whether ``request``'s user has ``permission``."""
    if permission is PUBLIC:
        return FOR_EVERYBODY
    if not request.principal.is_authenticated:
        return ANONYMOUS
    if permission is AUTHENTICATED:
        return FOR_AUTHENTICATED
    if isinstance(permission, str):
        return decide_codenames([permission], request)
    assert callable(permission)
    return decided_by(function(permission), permission(request))


def decide_codenames(names: Sequence[str], request: Request) -> Decision:
    """Decide whether ``request``'s user has at least one of Django's permissions ``names``."""
    user = request.user
    granted = next(filter(user.has_perm, names), None)
    if granted is not None:
        return Decision(True, lambda: _granted(user, granted))
    return Decision(False, lambda: _lacks(user, names))


def decided_by(code: str, answer: Any) -> Decision:
    """Return the decision that the project's ``code`` made. Raise ``TypeError`` for a coroutine."""
    allowed = truth(answer)
    words = {"code": code, "value": allowed}
    return Decision(allowed, lambda: gettext("%(code)s returned %(value)s") % words)


def switched_off(switch: ActiveKillSwitch) -> Decision:
    """Return a denial for a caller to whom a kill switch applies."""
    return Decision(False, lambda: _switched_off(switch))


def _switched_off(switch: ActiveKillSwitch) -> str:
    what = {"what": switch.thing or gettext("the server")}
    parts = [gettext("an administrator has switched off %(what)s") % what]
    if switch.group:
        parts.append(gettext("for members of the group %(group)s") % {"group": switch.group})
    if switch.client:
        parts.append(gettext("for the client %(client)s") % {"client": switch.client})
    return ", ".join(parts)


def _granted(user: Any, name: str) -> str:
    reason = ", ".join(sources(user, name)) or gettext("has_perm() returned True")
    return f"{name}: {reason}"


def _lacks(user: Any, names: Sequence[str]) -> str:
    permissions = get_text_list([str(name) for name in names], gettext("and"))
    unusual = _unusual(user, names)
    lacks = gettext("lacks %(permissions)s") % {"permissions": permissions}
    return f"{lacks}: {unusual}" if unusual else lacks


# The declared rules as text for developers. They are the same for every user.


def rule(permission: Permission) -> str:
    """Return a permission as text."""
    if isinstance(permission, str):
        return permission
    return function(permission) if callable(permission) else repr(permission)


def both(*rules: str) -> str:
    """Join rules that must all allow, without duplicates and without implied ones.

    "shop.change_stop" implies "shop.view_stop or shop.change_stop".
    """
    required = dict.fromkeys(part for one in rules for part in one.split(AND))
    implied = {one for one in required if OR in one and required.keys() & one.split(OR)}
    return AND.join(one for one in required if one not in implied)


def function(called: Any) -> str:
    """Return the name and module of a function or callable object, with "()"."""
    return f"{path(called if hasattr(called, '__qualname__') else type(called))}()"


def path(named: Any) -> str:
    """Return the dotted path of a function or class."""
    return f"{named.__module__}.{named.__qualname__}"


def method_of(instance: Any, name: str) -> str:
    """Return the name of a method, with the class that defines it."""
    owner = next(kind for kind in type(instance).__mro__ if name in vars(kind))
    return f"{name}() of {path(owner)}"


def _unusual(user: Any, names: Sequence[str]) -> str:
    """Return an explanation of a surprising denial, or "".

    A denial surprises if Django's tables grant the permission, or if it does not exist.
    """
    if given := dict.fromkeys(source for name in names for source in sources(user, name)):
        granted = {"sources": ", ".join(given)}
        return gettext("has_perm() returned False, although %(sources)s") % granted
    unknown = [name for name in names if _has_auth_app() and not _exists(name)]
    if not unknown:
        return ""
    return gettext("no such permission exists: %(names)s") % {"names": ", ".join(unknown)}


def sources(user: Any, name: str) -> list[str]:
    """Return how ``user`` got a permission, according to Django's tables or else its backends."""
    if not _has_auth_app():
        return []
    from django.contrib.auth.models import PermissionsMixin

    if not isinstance(user, PermissionsMixin):
        return []
    return [*_sources_of_user(user, name)] or [*_sources_in_backends(user, name)]


def _sources_of_user(user: Any, name: str) -> Iterator[str]:
    """Yield how the user got a permission from Django's tables."""
    if user.is_superuser:
        yield gettext("is a superuser")
        return
    app, _, codename = name.partition(".")
    if user.user_permissions.filter(content_type__app_label=app, codename=codename).exists():
        yield gettext("given to the user")
    permission = {"permissions__content_type__app_label": app, "permissions__codename": codename}
    for group in user.groups.filter(**permission).order_by("name").distinct():
        yield gettext("given to the group %(group)s") % {"group": group.name}


def _sources_in_backends(user: Any, name: str) -> Iterator[str]:
    """Yield the authentication backends that grant a permission."""
    from django.contrib.auth import get_backends

    for backend in get_backends():
        try:
            if hasattr(backend, "has_perm") and backend.has_perm(user, name):
                name_of_backend = {"backend": path(type(backend))}
                yield gettext("given by the backend %(backend)s") % name_of_backend
        except PermissionDenied:  # by this, a backend denies for all backends after it
            return


def _has_auth_app() -> bool:
    """Whether Django's permission tables are installed."""
    return apps.is_installed("django.contrib.auth")


def _exists(name: str) -> bool:
    from django.contrib.auth.models import Permission

    app, _, codename = name.partition(".")
    return Permission.objects.filter(content_type__app_label=app, codename=codename).exists()
