"""
All that one server exposes, resolved once.

Rule: resolution happens after all of the project is loaded, finds every
mistake at once and stops at none; what is resolved does not change. A name or
URI has one owner, and a clash names both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from .declaration import Declaration
from .elicitation_checks import question_problems
from .model_resources import ModelResource
from .prompts import Prompt
from .resources import Resource
from .tools import Tool

if TYPE_CHECKING:
    from .server import Server

D = TypeVar("D", bound=Declaration)

logger = logging.getLogger("django_mcp")
WRONG_TYPE = "django_mcp.E060"  # of an attribute: the rest cannot be looked at


class Catalog:
    """The resolved registry of a server; ``messages`` are what is wrong with it."""

    def __init__(self, server: Server, declared: Iterable[Declaration]) -> None:
        self.server = server
        self.messages: list[CheckMessage] = []
        self.tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.models: dict[type[Model], list[ModelResource]] = {}
        self._broken: set[Declaration] = set()
        self._fill(list(declared))

    @cached_property
    def has_public(self) -> bool:
        """Whether anything is for everybody."""
        return any(thing._is_public for thing in self._things())

    @cached_property
    def is_public(self) -> bool:
        """Whether everything is for everybody, so that nobody would see more than anybody."""
        return not self.private_kinds

    @cached_property
    def private_kinds(self) -> frozenset[str]:
        """Of "tools", "prompts" and "resources" those of which something is not for everybody."""
        kinds: dict[str, list[dict[str, Any]]] = {
            "tools": [self.tools],
            "prompts": [self.prompts],
            "resources": [self.resources, self.templates],
        }
        return frozenset(
            kind
            for kind, owned in kinds.items()
            if not all(thing._is_public for things in owned for thing in things.values())
        )

    def _things(self) -> Iterator[Declaration]:
        for owned in (self.tools, self.prompts, self.resources, self.templates):
            yield from owned.values()

    def _fill(self, declared: list[Declaration]) -> None:
        """Models first: arguments and results of the others are bound through them."""
        models = [thing for thing in declared if isinstance(thing, ModelResource)]
        for resource in models:
            self.models.setdefault(resource.model, []).append(resource)
        found: dict[Declaration, list[CheckMessage]] = {}
        for thing in [*models, *(thing for thing in declared if thing not in models)]:
            found[thing] = self._resolved(thing)
        for thing in declared:
            self._add(thing, found[thing])

    def _resolved(self, thing: Declaration) -> list[CheckMessage]:
        try:
            found = [*thing._attribute_problems()]
            if not any(message.id == WRONG_TYPE for message in found):
                found += [*thing._resolve(self), *question_problems(thing)]
        except Exception as error:  # an attribute may be anything
            logger.error("%s could not be resolved", thing, exc_info=error)
            message = f"It cannot be resolved: {type(error).__name__}: {error}"
            hint = "See the traceback in the log: an attribute is probably of no kind it may be of."
            found = [thing._error(message, 7, hint)]
        if any(message.is_serious() for message in found):
            self._broken.add(thing)
        return found

    def _add(self, thing: Declaration, found: list[CheckMessage]) -> None:
        self.messages += found
        if thing in self._broken:
            return
        for owned, key in self._places(thing):
            self._own(owned, key, thing)
        for derived in getattr(thing, "_derived", tuple)():
            self._add(derived, self._resolved(derived))

    def _places(self, thing: Declaration) -> Iterator[tuple[dict[str, Any], str]]:
        if isinstance(thing, Tool):
            yield self.tools, thing.name
        elif isinstance(thing, Prompt):
            yield self.prompts, thing.name
        elif isinstance(thing, Resource):  # anything else is only what it brings along
            yield (self.templates if thing._is_template else self.resources), thing.uri

    def _own(self, owned: dict[str, D], key: str, thing: D) -> None:
        first = owned.setdefault(key, thing)
        if first is not thing:
            message = f"{key!r} is declared twice: by {first._origin()} and by {thing._origin()}."
            hint = "Give one of them another name or URI."
            self.messages.append(Error(message, hint=hint, obj=thing, id="django_mcp.E001"))

    # Finding.

    def find(self, model: type[Model], chosen: Any = None) -> ModelResource:
        """The resource through which ``model`` is bound. Raises ``ImproperlyConfigured``."""
        candidates = self.models.get(model, [])
        if chosen is not None:
            candidates = [resource for resource in candidates if isinstance(resource, chosen)]
        if len(candidates) > 1:
            candidates = [resource for resource in candidates if resource.default]
        if len(candidates) != 1:
            raise ImproperlyConfigured(self._why_not(model, chosen))
        if candidates[0] in self._broken:
            raise ImproperlyConfigured(f"{candidates[0]} is misdeclared itself.")
        return candidates[0]

    def _why_not(self, model: type[Model], chosen: Any = None) -> str:
        name = f"{model._meta.app_label}.{model.__name__}"
        name = name if chosen is None else f"{name} with {chosen.__name__}"
        if not any(isinstance(one, chosen or object) for one in self.models.get(model, [])):
            return f"{name} is not registered on the server {self.server.public_name!r}."
        return f"Several resources expose {name}: set default = True on one, or name one."

    def resource_of(self, model: type[Model]) -> ModelResource:
        """The resource whose ``fields`` apply to an instance of ``model`` or a parent."""
        for kind in model.__mro__:
            if kind in self.models:
                return self.find(kind)
        raise ValueError(self._why_not(model))

    def at(self, uri: str) -> Iterator[tuple[Resource, dict[str, str]]]:
        """Every resource that may be at ``uri``, the exact one first, with its variables."""
        if uri in self.resources:
            yield self.resources[uri], {}
        for resource in self.templates.values():
            variables = resource._match(uri)
            if variables is not None:
                yield resource, variables
