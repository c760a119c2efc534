"""Declarations as the project's modules wrote them, before the server resolves them, and hooks.

A ``Registration`` does not check anything. Modules are imported in any order, so mistakes are found
later and reported by system checks. One of them is a decorator that was called but never applied.

Packages above ``declarations`` register hooks here, so that ``declarations`` does not import them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from .attribute_checks import replaced_internals

if TYPE_CHECKING:
    from .declaration import Declaration
    from .model_resources import ModelResource

PENDING, REGISTER, REGISTER_MODELS = "pending", "register", "register_models"

# Called with each model when a resource for it is registered.
model_registered: list[Callable[[type[Any]], object]] = []
# Each function returns declarations that a model resource adds, such as tools that write rows. The
# catalog calls them.
model_extensions: list[Callable[[ModelResource], Iterable[Declaration]]] = []


class Registration:
    """The use of one decorator on the project's code.

    ``kind`` is the name of the decorator, and ``target`` the function or class that it decorates. A
    registration is pending if the decorator was called but has not decorated anything yet. Then
    ``kind`` is ``PENDING``, and ``target`` is the name of the decorator.
    """

    def __init__(
        self, kind: str, target: Any, options: dict[str, Any], subjects: tuple[Any, ...] = ()
    ) -> None:
        self.kind, self.target, self.options, self.subjects = kind, target, options, subjects

    def __str__(self) -> str:
        return getattr(self.target, "__qualname__", repr(self.target))

    @property
    def is_pending(self) -> bool:
        return self.kind == PENDING

    def apply_to(self, target: Any) -> Registration:
        """Return the registration that a pending one becomes when it is applied."""
        return Registration(self.target, target, dict(self.options), self.subjects)

    def same_as(self, other: Registration) -> bool:
        """Whether both declare the same target under the same name."""
        return self._identity() == other._identity()

    def _identity(self) -> tuple[Any, ...]:
        named = (self.options.get("name"), self.options.get("uri"))
        return (self.kind, self.target, self.subjects, *named)

    def declarations(self, problems: list[CheckMessage]) -> list[Declaration]:
        """Return the declarations. Add an error to ``problems`` if they cannot be made."""
        if self.is_pending:
            return []
        # Before anything is called: what the class replaces may be what is called first.
        if replaced := [*self._replaced_internals()]:
            problems += replaced
            return []
        try:
            return self._make_declarations()
        except (TypeError, ImproperlyConfigured) as error:
            hint = "See the options of Server.tool, prompt, resource and register."
            problems.append(Error(str(error), hint=hint, obj=self, id="django_mcp.E003"))
            return []

    def _replaced_internals(self) -> Iterator[CheckMessage]:
        if self.kind == REGISTER and isinstance(self.target, type):
            for message, hint in replaced_internals(self.target):
                yield Error(message, hint=hint, obj=self.target, id="django_mcp.E065")

    def _make_declarations(self) -> list[Declaration]:
        """Return the declarations. Raise ``TypeError`` or ``ImproperlyConfigured``."""
        from .generic_tools import GenericModels
        from .prompts import Prompt
        from .resources import Resource
        from .tools import Tool

        if self.kind == REGISTER:
            if not is_declaration(self.target):
                raise TypeError(f"{self} is not a Tool, Resource, Prompt or ModelResource.")
            return self.target._instances_for(self.subjects)  # type: ignore[no-any-return]
        if self.kind == REGISTER_MODELS:
            return [GenericModels(self.subjects, self.options)]
        kinds: dict[str, type[Declaration]] = {"tool": Tool, "prompt": Prompt, "resource": Resource}
        return [kinds[self.kind]._from_function(self.target, **self.options)]

    def problem(self) -> CheckMessage:
        """Return the error for a decorator that was never applied."""
        given = [getattr(subject, "__name__", repr(subject)) for subject in self.subjects]
        given += [f"{name}={value!r}" for name, value in self.options.items()]
        return Error(
            f"{self.target}({', '.join(given)}) was called and never applied.",
            hint="Use it as a decorator, or pass the class: register(Model, Resource).",
            obj=self.target,
            id="django_mcp.E002",
        )


def is_declaration(cls: Any) -> bool:
    """Whether ``cls`` is a class that can be registered."""
    return hasattr(cls, "_instances_for")
