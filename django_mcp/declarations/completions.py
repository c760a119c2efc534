"""
Completion of what a person types into a prompt's argument or a URI.

Rule: whoever completes sees what the caller may see and nothing else; the best
matches come first, never more than a hundred (server/utilities/completion).
Choices, booleans and bound models complete themselves; anything else is given
a function by ``Annotated[str, mcp.Complete(function)]``.
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
    from .arguments import Arguments, Parameter
    from .request import Request

MAX_VALUES = 100
Context = Mapping[str, str]
Completer = Callable[["Request", str, Context], Iterable[Any]]


@dataclass(frozen=True, eq=False)  # an annotation has a hash, whatever it is made of
class Complete:
    """Complete an argument by ``function(request, text)`` or ``(request, text, context)``.

    It returns any iterable of values, or a queryset of values; ``context`` are
    the arguments filled in before, as strings. A list of values will do, too.
    """

    function: Callable[..., Iterable[Any]] | Iterable[Any]


def completers_of(arguments: Arguments) -> dict[str, Completer]:
    """The completer of each argument that has one."""
    found = {name: completer_of(p) for name, p in arguments.parameters.items()}
    return {name: completer for name, completer in found.items() if completer is not None}


def completer_of(parameter: Parameter) -> Completer | None:
    """What completes one argument, or None."""
    if parameter.complete is not None:
        return _by_function(parameter.complete)
    if parameter.binding is not None:
        return parameter.binding.resource._complete
    choices = choices_of(parameter.annotation)
    return _by_choices(choices) if choices else None


def choices_of(annotation: Any) -> list[str]:
    """The fixed values of a type, as strings; [] when there are none."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return choices_of(inner[0])
    if origin is Literal:
        return [str(value) for value in inner]
    if annotation is bool:
        return ["true", "false"]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member.value) for member in annotation]
    if origin in (typing.Union, types.UnionType):
        return [choice for part in inner for choice in choices_of(part)]
    return []


def ranked(values: Iterable[str], text: str) -> list[str]:
    """The values that contain ``text``: those that begin with it first."""
    wanted = text.casefold()
    matching = [value for value in values if wanted in value.casefold()]
    return sorted(matching, key=lambda value: not value.casefold().startswith(wanted))


def _by_choices(choices: list[str]) -> Completer:
    return lambda request, text, context: ranked(choices, text)


def _by_function(complete: Complete) -> Completer:
    function = complete.function
    if not callable(function):
        return _by_choices([str(value) for value in function])
    if _takes_context(function):
        return function
    return lambda request, text, context: function(request, text)


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    needed = [one for one in parameters.values() if one.default is one.empty]
    return "context" in parameters or len(needed) > 2


def completer_problem(complete: Complete) -> str | None:
    """What is wrong with a completer, in words, or None."""
    function = complete.function
    if iscoroutinefunction(function):
        return f"{function!r} is async: a completer is called in a thread."
    if isinstance(function, str | QuerySet) or not (callable(function) or _is_list(function)):
        kind = type(function).__name__  # not what is in it: that may be the database
        return f"A value of type {kind} is neither a function nor a list of values."
    if callable(function) and not _is_completer(function):
        return f"{function!r} does not take (request, text) or (request, text, context)."
    return None


def _is_list(values: Any) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, Iterator)


def _is_completer(function: Callable[..., Any]) -> bool:
    given: tuple[Any, ...] = (None, "", {})[: 3 if _takes_context(function) else 2]
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    return True


def completion(values: Iterable[Any]) -> dict[str, Any]:
    """At most a hundred values, and whether there are more."""
    bounded = values[: MAX_VALUES + 1] if isinstance(values, QuerySet) else values
    found = [_text(value) for value in islice(bounded, MAX_VALUES + 1)]
    shown: dict[str, Any] = {"values": found[:MAX_VALUES], "hasMore": len(found) > MAX_VALUES}
    return shown if shown["hasMore"] else shown | {"total": len(found)}


def _text(value: Any) -> str:
    # The text of a row may show anything: no "fields" bound it. That of a container holds it.
    if isinstance(value, Model) or (isinstance(value, Collection) and not isinstance(value, str)):
        raise TypeError(
            f"A {type(value).__name__} is no completion: return values, "
            'such as those of values_list("name", flat=True).'
        )
    return str(value)
