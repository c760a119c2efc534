"""Completion of the arguments of prompts and the variables of resource templates.

A completer runs with the permissions of the caller. The best matches come first, and a response has
at most a hundred values (server/utilities/completion). Literals, enums, booleans and bound models
are completed automatically. Other arguments need a function: ``Annotated[str,
mcp.Complete(function)]``.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from asgiref.sync import iscoroutinefunction
from django.db.models import Model, QuerySet

if TYPE_CHECKING:
    from .request import Request

MAX_COMPLETION_VALUES = 100
Context = Mapping[str, str]
Completer = Callable[["Request", str, Context], Iterable[Any]]


# Without ``eq``, because annotations must be hashable and a list of values is not.
@dataclass(frozen=True, eq=False)
class Complete:
    """Complete an argument by ``function(request, text)`` or ``function(request, text, context)``.

    The function returns an iterable of values, or a queryset of values. ``context`` are the
    arguments that are already filled in, as strings. A list of values may be given instead of a
    function.
    """

    function: Callable[..., Iterable[Any]] | Iterable[Any]


def literal_values(annotation: Any) -> list[str]:
    """Return the fixed values of a type, as strings; [] if there are none."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return literal_values(inner[0])
    if origin is Literal:
        return [str(value) for value in inner]
    if annotation is bool:
        return ["true", "false"]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member.value) for member in annotation]
    if origin in (typing.Union, types.UnionType):
        return [choice for part in inner for choice in literal_values(part)]
    return []


def rank_matches(values: Iterable[str], text: str) -> list[str]:
    """Return the values that contain ``text``. Values that start with it come first."""
    wanted = text.casefold()
    matching = [value for value in values if wanted in value.casefold()]
    return sorted(matching, key=lambda value: not value.casefold().startswith(wanted))


def get_completer(complete: Complete) -> Completer:
    """Return the completer that ``complete`` declares: a function, or a list of values."""
    function = complete.function
    if not callable(function):
        values = [str(value) for value in function]
        return lambda request, text, context: rank_matches(values, text)
    if _takes_context(function):
        return function
    return lambda request, text, context: function(request, text)


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    needed = [one for one in parameters.values() if one.default is one.empty]
    return "context" in parameters or len(needed) > 2


def completer_problem(complete: Complete) -> str | None:
    """Return what is wrong with a completer, or None."""
    function = complete.function
    if iscoroutinefunction(function):
        return f"{function!r} is asynchronous. Completers are called in a thread."
    if isinstance(function, str | QuerySet) or not (
        callable(function) or _is_reusable_iterable(function)
    ):
        kind = type(function).__name__  # repr() of a queryset would query the database
        return f"A value of type {kind} is neither a function nor a list of values."
    if callable(function) and not _is_completer(function):
        return f"{function!r} does not accept (request, text) or (request, text, context)."
    return None


def _is_reusable_iterable(values: Any) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, Iterator)


def _is_completer(function: Callable[..., Any]) -> bool:
    given: tuple[Any, ...] = (None, "", {})[: 3 if _takes_context(function) else 2]
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    return True


def completion(values: Iterable[Any]) -> dict[str, Any]:
    """Return the ``completion`` of the result: at most 100 values, and whether there are more."""
    bounded = values[: MAX_COMPLETION_VALUES + 1] if isinstance(values, QuerySet) else values
    found = [_text(value) for value in islice(bounded, MAX_COMPLETION_VALUES + 1)]
    shown: dict[str, Any] = {
        "values": found[:MAX_COMPLETION_VALUES],
        "hasMore": len(found) > MAX_COMPLETION_VALUES,
    }
    return shown if shown["hasMore"] else shown | {"total": len(found)}


def _text(value: Any) -> str:
    """Return a value as text. Raise ``TypeError`` for rows and containers."""
    # str() of a row may show columns that no `fields` allows. A container may hold rows.
    if isinstance(value, Model) or (isinstance(value, Collection) and not isinstance(value, str)):
        raise TypeError(
            f"A {type(value).__name__} cannot be a completion. Return plain values, such as "
            'those of values_list("name", flat=True).'
        )
    return str(value)
