"""
Places: which row of which model something is, in a word.

Rule: a row is named by its concrete model, so that proxies are one with what
they stand for; and a row of a child is its row of each parent too. Whether a row
is one of a child nobody asks: if there is none, nobody sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from ..declare.rows.keys import key_text, pk_text
from ..declare.servers import servers, version
from ..delivery.rows import digest_of

if TYPE_CHECKING:
    from ..declare.model_resources import ModelResource
    from ..declare.servers import Server

LONGEST = 255
Keys = dict[str, dict[str, str]]  # how a row is named, by model and field


def label_of(model: type[Model]) -> str:
    concrete = model._meta.concrete_model or model
    return str(concrete._meta.label_lower)


def place(label: str, key: str) -> str:
    """Where a row is; short enough for a column, whatever its key."""
    found = f"{label} {key}"
    return found if len(found) <= LONGEST else f"{label} {digest_of(key)}"


def place_of(resource: ModelResource, row: Model) -> str:
    return place(label_of(resource.model), key_text(row, "pk", resource.model))


def label_in(found: str) -> str:
    return found.partition(" ")[0]


class AnyRow(str):
    """Stands among addresses for whichever rows of a model lists show. No client can say it."""


# What is registered.


def registered(model: type[Model]) -> dict[str, tuple[type[Model], frozenset[str]]]:
    """Those of its family that are, by label: whose fields name their rows, and which."""
    return _registered(model, version())


@lru_cache(maxsize=1024)
def _registered(model: type[Model], version: int) -> dict[str, tuple[type[Model], frozenset[str]]]:
    family = {label_of(kind) for kind in model.__mro__ if _is_concrete(kind)}
    found: dict[str, tuple[type[Model], frozenset[str]]] = {}
    for one, lookup in _all():
        if kind := _by_whose_key(one, family):
            _, lookups = found.get(label_of(one), (kind, frozenset(("pk",))))
            found[label_of(one)] = (kind, lookups | ({lookup} & _names(kind)))
    return found


def _by_whose_key(one: type[Model], family: Collection[str]) -> type[Model] | None:
    """Who of a family has the key of ``one``'s rows: itself, or a parent from which it is."""
    kind = one._meta.concrete_model or one
    while label_of(kind) not in family:
        link = kind._meta.pk.remote_field
        if link is None or not link.parent_link:
            return None
        kind = link.model
    return kind


def _names(kind: type[Model]) -> set[str]:
    return {field.name for field in kind._meta.concrete_fields}


def _is_concrete(kind: type[Any]) -> bool:
    options = getattr(kind, "_meta", None)
    return options is not None and not options.abstract


def _all() -> Iterator[tuple[type[Model], str]]:
    return (one for server in servers() for one in server.models)


def keys_of(instance: Model) -> Keys:
    """How a row is named by whoever registered its model, a parent of it or a child."""
    return {
        label: {lookup: key_text(instance, lookup, model) for lookup in sorted(lookups)}
        for label, (model, lookups) in registered(type(instance)).items()
    }


def keys_by_pk(model: type[Model], pk: Any) -> Keys | None:
    """The same, where no more is known than the key; None if a parent has another."""
    found = registered(model)
    if all(_by_whose_key(model, {label_of(kind)}) for kind, _ in found.values()):
        return {label: {"pk": pk_text(model, pk)} for label in found}
    return None


def address(resource: ModelResource, keys: Mapping[str, str]) -> str | None:
    """Where a row is read, if what names it there is known."""
    if resource.template is None or resource.lookup not in keys:
        return None
    return resource.template.expand({resource.lookup: keys[resource.lookup]})


def resources(server: Server) -> dict[str, list[ModelResource]]:
    """The model resources of a server, by what their rows are."""
    found: dict[str, list[ModelResource]] = {}
    for model, theirs in () if server.is_empty else server.catalog.models.items():
        found.setdefault(label_of(model), []).extend(one for one in theirs if one.template)
    return found
