"""Arguments whose type is a model: the client sends a key, and the function gets the row.

Rows come through ``get_queryset(request)`` and the object permission of a model resource, so an
argument gives access to no row that the user could not read. A missing row and a forbidden row have
the same error message.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from pydantic import WithJsonSchema

from ..exceptions import InvalidArguments

if TYPE_CHECKING:
    from .model_resources import ModelResource
    from .request import Request

Find = Callable[[type[models.Model], Any], "ModelResource"]
MAX_KEYS = 100


@dataclass(frozen=True)
class KeyBinding:
    """How the keys of one argument become rows.

    The keys are those of the resource's URIs. With ``relation`` they are primary keys instead, as
    rows show them, even if the URI identifies rows by another field.
    """

    resource: ModelResource
    many: bool = False
    relation: bool = False

    def fetch(self, value: Any, request: Request, *, write: bool) -> Any:
        """Return the row or rows of the keys in ``value``. Raise ``InvalidArguments``."""
        if value is None:
            return None
        given = value if self.many else [value]
        if len(given) > MAX_KEYS:
            raise InvalidArguments(f"At most {MAX_KEYS} keys are allowed, not {len(given)}.")
        named = [self.key(one) for one in given]
        found = self._fetch_rows(named, request, write=write)
        return [found[one] for one in named] if self.many else found[named[0]]

    def _fetch_rows(
        self, named: list[tuple[str, Any]], request: Request, *, write: bool
    ) -> dict[tuple[str, Any], models.Model]:
        """Fetch the rows, with one query for each lookup.

        Raise ``InvalidArguments`` if one is missing.
        """
        found = {}
        for lookup in dict.fromkeys(lookup for lookup, _ in named):
            keys = [key for by, key in named if by == lookup]
            rows = self.resource._fetch(request, keys, write=write, lookup=lookup)
            found.update({(lookup, key): row for key, row in rows.items()})
        for one in named:
            if one not in found:
                raise row_not_found(self.resource, one[1])
        return found

    def key(self, value: Any) -> tuple[str, Any]:
        """Return the lookup and the key in ``value``, which is a key or a URI of the resource."""
        resource = self.resource
        try:
            return resource._related_key(value) if self.relation else resource._named_key(value)
        except ValueError:
            raise row_not_found(resource, value) from None


def row_not_found(resource: ModelResource, key: Any, purpose: str = "") -> InvalidArguments:
    """Return the error for a row that does not exist and for one that this user may not see."""
    shown = key if isinstance(key, int) else repr(str(key)[:80])
    return InvalidArguments(f"There is no {resource._verbose_name} {shown}{purpose}.")


def bind_annotation(
    annotation: Any, find: Find, chosen: Any = None
) -> tuple[Any, KeyBinding | None]:
    """Return ``annotation`` with keys instead of models, and how to bind them.

    The supported forms are ``M``, ``M | None``, ``list[M]`` and ``Annotated[M, Resource]``.
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if is_model(annotation):
        resource = find(annotation, chosen)
        schema = resource._key_schema()
        composite: Any = list[int | str]
        key = int | str | composite if "anyOf" in schema else int | str
        return Annotated[key, WithJsonSchema(schema)], KeyBinding(resource)
    if origin is Annotated:
        return _annotated(annotation, find)
    if origin in (typing.Union, types.UnionType) and type(None) in inner and len(inner) == 2:
        one = next(arg for arg in inner if arg is not type(None))
        made, binding = bind_annotation(one, find, chosen)
        return (made | None if binding else annotation), binding
    if origin is list and inner and _is_model_argument(inner[0]):
        made, binding = bind_annotation(inner[0], find, chosen)
        assert binding is not None
        return list[made], KeyBinding(binding.resource, many=True)  # type: ignore[valid-type]
    if holds(annotation, models.Model):
        raise ImproperlyConfigured(
            f"{annotation} cannot be an argument. Write a model as M, M | None or list[M]."
        )
    return annotation, None


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, models.Model)


def _is_model_argument(annotation: Any) -> bool:
    """Whether it is a model, or ``Annotated`` with a model."""
    plain = typing.get_origin(annotation) is Annotated
    return is_model(annotation.__origin__ if plain else annotation)


def holds(annotation: Any, *kinds: type) -> bool:
    """Whether one of ``kinds`` is anywhere inside a type."""
    if isinstance(annotation, type) and issubclass(annotation, kinds):
        return True
    return any(holds(part, *kinds) for part in typing.get_args(annotation))


def chosen_resource(metadata: tuple[Any, ...]) -> Any:
    """Return the resource that ``Annotated`` names for its model, or None."""
    from .model_resources import ModelResource

    named = (one for one in metadata if isinstance(one, type) and issubclass(one, ModelResource))
    return next(named, None)


def _annotated(annotation: Any, find: Find) -> tuple[Any, KeyBinding | None]:
    """Bind ``Annotated[M, Resource, ...]``, and keep the other metadata."""
    metadata = annotation.__metadata__
    chosen = chosen_resource(metadata)
    made, binding = bind_annotation(annotation.__origin__, find, chosen)
    rest = tuple(m for m in metadata if m is not chosen)
    if binding is None or not rest:
        return (annotation if binding is None else made), binding
    return Annotated[(made, *rest)], binding
