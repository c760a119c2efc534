"""Which resources a caller can see, and the names of rows in the change feed.

``visible`` decides for subscribing and for notifications, by the queryset that reading uses. It
queries the database each time: the one that rows are written to, because a replica may lag behind.

``row_ref`` names a row by its concrete model and key, so that a proxy model names the same row. A
row of a child model (multi-table inheritance) is also a row of each parent. A parent's row gets
names for child models too, without a query. If there is no such child row, no queryset finds it.

The first saved row of a registered model imports this module, in processes that serve no client
too. So it imports model resources, and with them pydantic, only when a client needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from ..declarations.fields.keys import key_text, pk_text
from ..declarations.server import servers, version
from ..exceptions import InvalidArguments
from ..storage.databases import digest_of

if TYPE_CHECKING:
    from ..declarations.model_resources import ModelResource
    from ..declarations.request import Request
    from ..declarations.resources import Resource
    from ..declarations.server import Server

MAX_URI_LENGTH = 255
Keys = dict[str, dict[str, str]]  # the keys of a row: by label of the model, then by field


def label_of(model: type[Model]) -> str:
    concrete = model._meta.concrete_model or model
    return str(concrete._meta.label_lower)


def row_ref(label: str, key: str) -> str:
    """Return the name of a row. A long key is replaced by its digest, to fit into a column."""
    found = f"{label} {key}"
    return found if len(found) <= MAX_URI_LENGTH else f"{label} {digest_of(key)}"


def place_of(resource: ModelResource, row: Model) -> str:
    return row_ref(label_of(resource.model), key_text(row, "pk", resource.model))


def label_in(found: str) -> str:
    return found.partition(" ")[0]


class AnyRow(str):
    """Stands for all listed rows of a model, among URIs. Its text is the label of the model.

    It is a type of its own, so that no URI of a client can be taken for one.
    """


# Registered models.


def registered(model: type[Model]) -> dict[str, tuple[type[Model], frozenset[str]]]:
    """Return the registered models whose rows may be rows of ``model``, by label.

    These are ``model``, its parents and its children. For each, return the model of ``model``'s
    inheritance line whose fields are their keys, and the names of these fields.
    """
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
    """Return the model in ``family`` with the key of ``one``'s rows: ``one`` or a parent, or None.

    ``family`` is a set of labels.
    """
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
    return (one for server in servers() for one in server._registered_models)


def keys_of(instance: Model) -> Keys:
    """Return the keys of a row for all registered models: its own, its parents and children."""
    return {
        label: {lookup: key_text(instance, lookup, model) for lookup in sorted(lookups)}
        for label, (model, lookups) in registered(type(instance)).items()
    }


def keys_by_pk(model: type[Model], pk: Any) -> Keys | None:
    """Return the same from a primary key only, or None if a parent has another primary key."""
    found = registered(model)
    if all(_by_whose_key(model, {label_of(kind)}) for kind, _ in found.values()):
        return {label: {"pk": pk_text(model, pk)} for label in found}
    return None


def address(resource: ModelResource, keys: Mapping[str, str]) -> str | None:
    """Return the URI of a row, or None if the resource's lookup field is not in ``keys``."""
    if resource._template is None or resource._lookup not in keys:
        return None
    return resource._template.expand({resource._lookup: keys[resource._lookup]})


def resources(server: Server) -> dict[str, list[ModelResource]]:
    """Return the model resources of a server that have a URI template, by label of the model."""
    found: dict[str, list[ModelResource]] = {}
    for model, theirs in () if server._is_empty else server._catalog.models.items():
        found.setdefault(label_of(model), []).extend(one for one in theirs if one._template)
    return found


ROWS_CHECKED_ONE_BY_ONE = 100  # at most, if a resource checks permissions for each row


def visible(request: Request, uris: Iterable[str]) -> dict[str, str]:
    """Return the ``uris`` that ``request``'s user may read, with the name of their row or "".

    One query for each model resource.
    """
    from ..declarations.model_resources import ModelResource

    seen: dict[str, str] = {}
    keys: dict[ModelResource, dict[object, list[str]]] = {}
    for uri in uris:
        if isinstance(uri, AnyRow):
            seen |= {uri: ""} if _lists_any(request, uri) else {}
            continue
        for resource, variables in request.server._catalog.at(uri):
            if isinstance(resource, ModelResource):
                _collect(keys, resource, uri)
            elif resource._is_allowed(request) and _fits(resource, variables, request):
                seen[uri] = ""
    for rows, wanted in keys.items():
        for key, row in rows._fetch(request, list(wanted), fresh=True).items():
            # A database may compare keys without case, and return one that was not asked for.
            for uri in wanted.get(key, ()):
                seen[uri] = place_of(rows, row)
    return seen


def _collect(
    keys: dict[ModelResource, dict[object, list[str]]], rows: ModelResource, uri: str
) -> None:
    with suppress(ValueError):
        keys.setdefault(rows, {}).setdefault(rows._key(uri), []).append(uri)


def _lists_any(request: Request, label: str) -> bool:
    """Whether lists show the user any row of a model.

    If the resource checks permissions for each row, only the first rows are checked.
    """
    shown = [one for one in resources(request.server).get(label, ()) if one.listed]
    return any(_shows_any(request, one) for one in shown if one._is_allowed(request))


def _shows_any(request: Request, rows: ModelResource) -> bool:
    from ..declarations.model_rows import in_write_database

    found = in_write_database(rows.get_listed(request))
    if (is_permitted := rows._row_check(request)) is None:
        return found.exists()
    return any(map(is_permitted, found[:ROWS_CHECKED_ONE_BY_ONE]))


def _fits(resource: Resource, variables: dict[str, str], request: Request) -> bool:
    """Whether the variables are valid arguments, and the rows they name are visible to the user."""
    try:
        resource._arguments.bind(resource._values(variables), request, write=False)
    except InvalidArguments:
        return False
    return resource._exists(request, variables)
