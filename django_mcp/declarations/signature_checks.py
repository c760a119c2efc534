"""Checks that functions and methods of a project accept the arguments that this package passes.

A method with wrong parameters would fail at the first request that calls it. For a permission that
is every list of the server.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .attribute_checks import HOOKS, VIEW_MIXINS, is_ours

if TYPE_CHECKING:
    from .declaration import Declaration

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


def wrong_signatures(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each overridden method with other parameters."""
    cls = type(declaration)
    ours = next(one for one in cls.__mro__ if is_ours(one))
    for name, base in inspect.getmembers(ours, inspect.isfunction):
        own = inspect.getattr_static(cls, name)
        method = getattr(declaration, name)
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
