"""
The signature of the project's function, read as arguments.

Rule: the first parameter is the request, always; every other one has a name
and a type, and nothing of it is lost without a word.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from pydantic.fields import FieldInfo

from .bindings import Binding, Find, bound, holds
from .completions import Complete
from .headers import Header

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True)
class Parameter:
    """One argument of a function, as declared."""

    name: str
    annotation: Any
    default: Any = inspect.Parameter.empty
    binding: Binding | None = None
    header: Header | None = None
    complete: Complete | None = None

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with its annotations evaluated. Raises ``ImproperlyConfigured``."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception as error:  # an annotation is any code
        raise ImproperlyConfigured(f"The signature cannot be read: {error}.") from error


def takes_anything(function: Callable[..., Any]) -> bool:
    """Whether it takes arguments that it does not name."""
    parameters = signature_of(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def parameters_of(
    function: Callable[..., Any], find: Find, *, handwritten: bool
) -> dict[str, Parameter]:
    listed = list(signature_of(function).parameters.values())
    if not listed or listed[0].kind not in (listed[0].POSITIONAL_ONLY, POSITIONAL):
        raise ImproperlyConfigured("The first argument is the request.")
    if not _may_be_request(listed[0]):
        wrong = f"and {listed[0].name!r} is in its place: write request before it."
        raise ImproperlyConfigured(f"The first argument is the request, {wrong}")
    named = [p for p in listed[1:] if not (handwritten and p.kind is p.VAR_KEYWORD)]
    return {p.name: _parameter(p, find, handwritten=handwritten) for p in named}


def _may_be_request(parameter: inspect.Parameter) -> bool:
    """Not an argument of a function whose author forgot the request."""
    from .requests import Request

    kind = parameter.annotation
    if parameter.name == "request" or kind in (parameter.empty, Any, object):
        return True
    if isinstance(kind, type):
        return getattr(kind, "_is_protocol", False) or issubclass(kind, Request)
    return not typing.get_args(kind) or holds(kind, Request)


def _parameter(parameter: inspect.Parameter, find: Find, *, handwritten: bool) -> Parameter:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ImproperlyConfigured(f"*{parameter.name} has no schema: name every argument.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ImproperlyConfigured(f"{parameter.name} is positional-only; arguments have names.")
    if parameter.annotation is parameter.empty and not handwritten:
        raise ImproperlyConfigured(f"{parameter.name} needs a type annotation.")
    if isinstance(parameter.default, FieldInfo):
        words = "write Annotated[type, Field(...)] = default."
        raise ImproperlyConfigured(f"{parameter.name} has a Field for its default: {words}")
    annotation, binding = bound(parameter.annotation, find)
    return Parameter(
        parameter.name,
        annotation,
        parameter.default,
        binding,
        header=_metadata(parameter.annotation, Header),
        complete=_metadata(parameter.annotation, Complete),
    )


def _metadata(annotation: Any, kind: type) -> Any:
    """What an annotation says of ``kind``, wherever in an ``X | None`` it stands."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        found = (_metadata(part, kind) for part in typing.get_args(annotation))
        return next((one for one in found if one is not None), None)
    if origin is not Annotated:
        return None
    own = next((m for m in annotation.__metadata__ if isinstance(m, kind)), None)
    return own or _metadata(annotation.__origin__, kind)
