"""Checks of a project's classes: unknown names, wrong types of values, wrong parameters of methods.

A misspelled option such as ``permision = "shop.view_invoice"`` was probably meant to restrict
something, so it is an error. A project's own values start with an underscore. Its own methods,
properties and nested classes may have any name, except names that are nearly one of ours and names
of permission checks in other frameworks. Mixins may also have values of their own, with the same
exceptions.

The annotations of our classes say which types an option accepts. A value of another type, such as
``listed = "yes"`` or ``fields = "number"``, is an error before anything else is checked, because
``"no"`` is true and a string is a sequence of letters.

A method with wrong parameters would fail at the first request that calls it. For a permission that
is every list of the server.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import Promise

from .fields.search_methods import FullTextSearch, VectorSearch
from .ui import UI

T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]
HOOKS = ("has_", "get_", "save_", "delete_", "form_")
# Mixins of this module restrict views of Django and nothing else.
VIEW_MIXINS = "django.contrib.auth.mixins"
# Names of Django, its admin and Django REST framework for what has another name here.
OTHER_FRAMEWORKS = {
    **dict.fromkeys(
        (
            "authentication_required", "get_permission_required", "login_required",
            "permission_classes", "permission_name", "permission_policy", "permission_required",
            "permissions", "permissions_required", "required_permission", "required_permissions",
        ),
        "permission",
    ),
    **dict.fromkeys(
        (
            "allow", "allowed", "authorize", "authorized", "can_access", "can_use", "check_perm",
            "check_permission", "check_permissions", "check_perms", "get_test_func",
            "has_module_permission", "has_perm", "has_perms", "has_view_permission", "is_allowed",
            "is_authorized", "is_permitted", "test_func",
        ),
        "has_permission",
    ),
    "check_object_permission": "has_object_permission",
    "check_object_permissions": "has_object_permission",
    "has_add_permission": "has_operation_permission",
    "has_change_permission": "has_operation_permission",
    "has_delete_permission": "has_operation_permission",
    **dict.fromkeys(
        ("exclude", "exclude_fields", "excluded_fields", "get_exclude", "get_fieldsets"), "fields"
    ),
    "readonly_field": "readonly_fields",
    **dict.fromkeys(
        ("rate_limit", "ratelimit", "throttle_classes", "throttle_rate", "throttle_scope"),
        "throttle",
    ),
    "get_throttles": "throttle",
    "read_only_fields": "readonly_fields",
    "get_permissions": "has_permission",
    "queryset": "get_queryset",
    "filter_queryset": "get_queryset",
    "perform_create": "save_model",
    "perform_update": "save_model",
    "perform_destroy": "delete_model",
    "delete_object": "delete_model",
    "delete_queryset": "delete_model",
}  # fmt: skip
# Options that restrict clients. A method whose name is nearly one of these is an error.
RESTRICTING_OPTIONS = frozenset((
    "aggregate_fields", "exclude", "fields", "filter_fields", "group_fields", "listed",
    "operation_permissions", "operations", "permission", "read_only", "readonly_fields",
    "search_fields", "throttle",
))  # fmt: skip
# Names of ``OTHER_FRAMEWORKS`` that restrict nothing on a class without rows.
ROW_METHODS = ("get_queryset", "save_model", "delete_model")
# The similarity (difflib's ratio) above which a name counts as a misspelling of another one.
# Attributes of a mixin may serve the mixin alone, so they must be more similar.
SIMILARITY = 0.6
HOOK_SIMILARITY = 0.82  # of the part after ``get_``, ``has_`` and the like
MIXIN_SIMILARITY = 0.8
METHOD_SIMILARITY = 0.9  # of other methods and options


def did_you_mean(name: str, known: Iterable[str], similarity: float = SIMILARITY) -> str:
    """Return "Did you mean 'x'?" for the most similar of the ``known`` names, or ""."""
    known = [*known]
    near = difflib.get_close_matches(name.lower(), known, 1, similarity)
    if elsewhere := OTHER_FRAMEWORKS.get(name):
        near = difflib.get_close_matches(elsewhere, known, 1) or near
    return f"Did you mean {near[0]!r}?" if near else ""


@dataclass(frozen=True)
class PublicClass:
    """A class of ours that projects subclass: the options and the methods that they may define.

    With ``takes_others`` subclasses may also have public values of their own.
    """

    cls: type
    kind: str
    options: Collection[str]
    hooks: Collection[str]
    takes_others: bool = False

    @property
    def known(self) -> list[str]:
        return [*self.options, *self.hooks]


def unknown_attributes(
    instance: object, kind: str, options: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each attribute of the project's classes that nothing reads."""
    cls, ours = type(instance), own_class(instance)
    hooks = {name for name, _ in inspect.getmembers(ours, callable) if name.startswith(HOOKS)}
    fields = getattr(instance, "fields", None)
    # A method that is named in ``fields`` shows a value: it is used, whatever its name.
    shown = {*fields} if isinstance(fields, list | tuple) and all_text(fields) else set()
    return unknown_names(cls, PublicClass(ours, kind, options, hooks), shown)


def unknown_names(
    cls: type, base: PublicClass, shown: Collection[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each public name of ``cls`` that nothing reads.

    ``shown`` are names of methods that ``fields`` lists, so they are used.
    """
    classes = [one for one in cls.__mro__ if one.__module__ not in ("builtins", "typing")]
    theirs = [one for one in classes if not is_ours(one)]
    mixins = [one for one in theirs if not issubclass(one, base.cls)]
    # An option of a mixin's own may be set by the class that has the mixin.
    used = {name for mixin in mixins for name in vars(mixin)}.union(shown)
    written: set[str] = set()  # by the project's classes that come first
    overridden: set[str] = set()
    if restricting := [one for one in mixins if one.__module__ == VIEW_MIXINS]:
        hint = "Django's mixins restrict views. Set 'permission' or write 'has_permission'."
        yield f"{restricting[0].__qualname__} has no effect on a {base.kind}.", hint
    for one in classes:
        if one not in theirs:
            overridden.update(vars(one))
            continue
        in_mixin = one in mixins
        for name, value in vars(one).items() if one not in restricting else ():
            if name.startswith("_") or name in (shown if in_mixin else used):
                continue
            if in_mixin and name in overridden - written:
                hint = f"Name {one.__name__} before {base.cls.__name__} among the base classes."
            elif _is_read(base, name, value):
                continue
            elif _is_defined_by(one, name, value):
                hint = _hint_for_method(base, name, value, in_mixin)
            else:
                hint = _hint_for_value(base, name, in_mixin)
            if hint:
                yield f"{one.__qualname__}.{name} has no effect on a {base.kind}.", hint
        written.update(vars(one))


def replaced_internals(cls: type) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each private attribute of ours that the project replaces."""
    ours = [one for one in cls.__mro__ if is_ours(one)]
    names = {name for one in ours for name in (*vars(one), *inspect.get_annotations(one))}
    for one in cls.__mro__:
        # A mixin after the base class replaces nothing, but its methods would find our attribute.
        for name in vars(one) if one not in ours else ():
            if name in names and name.startswith("_") and not name.startswith("__"):
                message = f"{one.__qualname__}.{name} replaces an attribute of {ours[0].__name__}."
                yield message, "It is for django_mcp alone. Give yours another name."


def misnamed_in_verifier(cls: type) -> str | None:
    """Return what is wrong with the names in the class of a ``TokenVerifier``, or None.

    Verifiers may have values and methods of their own. Only misspellings of our names are wrong.
    """
    from ..auth import principal

    protocols = (
        principal.TokenVerifier, principal.RevokingVerifier, principal.ChallengingVerifier,
        principal.ApplicationVerifier, principal.IssuingVerifier, principal.LookupVerifier,
    )  # fmt: skip
    known = {name for one in protocols for name in vars(one) if not name.startswith("_")}
    own = [name for one in cls.__mro__ if not is_ours(one) for name in vars(one)]
    if getattr(cls, "verify", None) is principal.TokenVerifier.verify:
        near = difflib.get_close_matches("verify", [name for name in own if name[0] != "_"], 1)
        return "It has no method 'verify'." + (
            f" Did you mean 'verify' by {near[0]!r}?" if near else ""
        )
    base = PublicClass(object, "token verifier", known - {*own}, (), takes_others=True)
    return next((f"{message} {hint}" for message, hint in unknown_names(cls, base)), None)


def require_method(instance: object, name: str) -> None:
    """Raise ``ImproperlyConfigured`` if the project's class lacks the method that does its work."""
    cls = type(instance)
    if not _is_unwritten(cls, name):
        return
    own = [each for one in cls.__mro__ if not is_ours(one) for each in vars(one)]
    near = difflib.get_close_matches(name, [each for each in own if each[0] != "_"], 1)
    meant = f" Did you mean {name!r} by {near[0]!r}?" if near else ""
    raise ImproperlyConfigured(f"{cls.__qualname__} has no method {name!r}.{meant}")


def _is_unwritten(cls: type, name: str) -> bool:
    """Whether ``name`` is a method of the package that only raises ``NotImplementedError``."""
    owner = next(one for one in cls.__mro__ if name in vars(one))
    code = getattr(vars(owner)[name], "__code__", None)
    return is_ours(owner) and code is not None and "NotImplementedError" in code.co_names


def is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == PACKAGE


def own_class(instance: T) -> type[T]:
    """Return the class of this package that the class of ``instance`` is or extends."""
    return next(one for one in type(instance).__mro__ if is_ours(one))


def all_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_read(base: PublicClass, name: str, value: Any) -> bool:
    """Whether it is an option, or overrides a method or property of the package."""
    if name in base.options:
        return True
    return hasattr(base.cls, name) and (callable(value) or hasattr(value, "__get__"))


def _hint_for_method(base: PublicClass, name: str, value: Any, in_mixin: bool) -> str:
    """Return the hint for an unknown method, property or inner class, or "" if it is allowed."""
    if name == "Meta":
        return "Write options as attributes of the class itself, such as fields = [...]."
    option = name.removeprefix("get_")
    if option != name and option in base.options and not in_mixin:
        return f"Set {option!r}: there is no method for it."
    if name in OTHER_FRAMEWORKS:
        near = did_you_mean(name, base.known)
        if not near and (in_mixin or OTHER_FRAMEWORKS[name] in ROW_METHODS):
            return ""
    else:
        near = _hook_meant(name, base.hooks)
        if not near and not isinstance(value, type):
            options = base.options if base.takes_others else RESTRICTING_OPTIONS & {*base.options}
            near = did_you_mean(name, options, METHOD_SIMILARITY)
        if not near:
            return ""
    return f"{near} A method of your own starts with an underscore.".strip()


def _hook_meant(name: str, hooks: Iterable[str]) -> str:
    """Return "Did you mean 'get_queryset'?" for a misspelled hook, or ""."""
    prefix = next((one for one in HOOKS if name.startswith(one)), "")
    if not prefix:
        return did_you_mean(name, hooks, MIXIN_SIMILARITY)
    # Their prefixes alone make ``get_price`` and ``get_size`` similar.
    rests = {one.removeprefix(prefix): one for one in hooks if one.startswith(prefix)}
    near = difflib.get_close_matches(name.removeprefix(prefix), rests, 1, HOOK_SIMILARITY)
    return f"Did you mean {rests[near[0]]!r}?" if near else ""


def _hint_for_value(base: PublicClass, name: str, in_mixin: bool) -> str:
    """Return the hint for an unknown attribute that is no method, or "" if it is allowed."""
    if name in base.hooks:
        return f"Write {name!r} as a method."
    if name == "model" and hasattr(base.cls, "get_queryset"):
        return "Pass the model to register: @mcp.register(Invoice)."
    lenient = in_mixin or base.takes_others
    near = did_you_mean(name, base.known, MIXIN_SIMILARITY if lenient else SIMILARITY)
    if lenient and not near:
        return ""
    return f"{near} An attribute of your own starts with an underscore.".strip()


def _is_defined_by(cls: type, name: str, value: Any) -> bool:
    """Whether ``value`` is a method, property or class that the class body defines by that name.

    A function that was made elsewhere is a value: ``permision = is_staff``.
    """
    if isinstance(value, type):
        return value.__qualname__ == f"{cls.__qualname__}.{name}"
    return hasattr(value, "__get__") and getattr(value, "__name__", name) == name


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


# For each part of an annotation: its description in hints, and a test of values.
TYPES: Mapping[str, tuple[str, Any]] = {
    "bool": ("True, False", lambda value: isinstance(value, bool)),
    "None": ("None", lambda value: value is None),
    "str": ("a string", lambda value: isinstance(value, str)),
    "Promise": ("", lambda value: isinstance(value, Promise)),
    "int": ("a whole number", lambda value: type(value) is int),
    "datetime": ("a datetime", lambda value: isinstance(value, datetime)),
    "Sequence[str]": ("a list of names", lambda value: _is_list(value) and all_text(value)),
    "Sequence[Icon]": ("a list of mcp.Icon", _is_list),
    "FullTextSearch": ("mcp.FullTextSearch()", lambda value: isinstance(value, FullTextSearch)),
    "UI": ("mcp.UI(...)", lambda value: isinstance(value, UI)),
    "VectorSearch": ("mcp.VectorSearch()", lambda value: isinstance(value, VectorSearch)),
    "Mapping[str, Any]": ("a dict", lambda value: isinstance(value, Mapping)),
    "Mapping[str, str]": ("a dict", lambda value: isinstance(value, Mapping)),
    "Mapping[str, Permission]": ("a dict", lambda value: isinstance(value, Mapping)),
}
# Options whose values have a check of their own, with better messages.
CHECKED_ELSEWHERE = {
    "cache", "input_schema", "output_schema", "priority", "throttle", "timeout", "transactional",
    "uri",
}  # fmt: skip


def checked_types(cls: type, options: Collection[str]) -> dict[str, list[str]]:
    """Return the annotated types of those options of ``cls`` whose value is checked here."""
    found: dict[str, list[str]] = {}
    for kind in reversed([one for one in cls.__mro__ if is_ours(one)]):
        for name, annotation in inspect.get_annotations(kind).items():
            parts = str(annotation).split(" | ")
            if name not in CHECKED_ELSEWHERE and all(part in TYPES for part in parts):
                found[name] = parts
    return {name: parts for name, parts in found.items() if name in options}


def wrong_types(instance: object, options: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each option whose value has a wrong type."""
    ours = own_class(instance)
    for name, parts in checked_types(type(instance), options).items():
        value = getattr(instance, name)
        # A default may be an object that means "not set".
        if value is getattr(ours, name) or any(TYPES[part][1](value) for part in parts):
            continue
        *words, last = ", ".join(filter(None, (TYPES[part][0] for part in parts))).split(", ")
        expected = f"{', '.join(words)} or {last}" if words else last
        example = ': ["name"]' if parts[0] == "Sequence[str]" else ""
        yield f"{name} is {value!r:.80}.", f"Write {expected}{example}."


# Parameters of functions and methods.

# Parameter names by which a permission function seems to expect a user instead of the request.
NOT_THE_REQUEST = ("user", "principal", "obj", "self")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def accepts(function: Callable[..., Any], arguments: Sequence[str]) -> bool:
    """Whether ``function`` can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def parameters_of(function: Callable[..., Any]) -> str:
    """Return the parameters of ``function`` as its ``def`` has them, without annotations."""
    shown = inspect.signature(function).parameters.values()
    return ", ".join(str(each.replace(annotation=inspect.Parameter.empty)) for each in shown)


def permission_problem(permission: Any) -> str | None:
    """Return what is wrong with the parameters of a permission function, or None."""
    if not callable(permission):
        return None
    name = getattr(permission, "__name__", type(permission).__name__)
    if not accepts(permission, ["request"]):
        # A function in a class body is a method: Python passes the instance before the request.
        function = getattr(permission, "__func__", permission)
        bound = function is not permission and accepts(function, ["request"])
        advice = f" Write staticmethod({name})." if bound else ""
        taken = parameters_of(function)
        return f"{name}({taken}) cannot be called with the request alone.{advice}"
    try:
        first = next(iter(inspect.signature(permission).parameters), "")
    except ValueError:
        return None
    if first in NOT_THE_REQUEST:
        return f"{name}({first}) gets the request, and its parameter is called {first!r}."
    return None


def wrong_signatures(instance: object) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each overridden method with other parameters."""
    cls, ours = type(instance), own_class(instance)
    for name, base in inspect.getmembers(ours, inspect.isfunction):
        own = inspect.getattr_static(cls, name)
        method = getattr(instance, name)
        # Another check reports mixins for views.
        of_views = getattr(own, "__module__", "") == VIEW_MIXINS
        if not name.startswith(HOOKS) or own is base or of_views or not callable(method):
            continue
        passed = [
            each.name
            for each in inspect.signature(base).parameters.values()
            if each.kind in POSITIONAL
        ]
        if not accepts(method, passed[1:]):
            function = getattr(method, "__func__", method)
            message = f"{cls.__qualname__}.{name}({parameters_of(function)}) has wrong parameters."
            yield message, f"Write def {name}({', '.join(passed)})."
