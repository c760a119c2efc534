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
    ref = f"{label} {key}"
    return ref if len(ref) <= MAX_URI_LENGTH else f"{label} {digest_of(key)}"


def row_ref_of(resource: ModelResource, row: Model) -> str:
    return row_ref(label_of(resource.model), key_text(row, "pk", resource.model))


def label_in(row_ref: str) -> str:
    return row_ref.partition(" ")[0]


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
    for other, lookup in _all_registered():
        if kind := _model_with_key_of(other, family):
            _, lookups = found.get(label_of(other), (kind, frozenset(("pk",))))
            found[label_of(other)] = (kind, lookups | ({lookup} & _names(kind)))
    return found


def _model_with_key_of(model: type[Model], labels: Collection[str]) -> type[Model] | None:
    """Return the nearest of ``model`` and its parents whose label is among ``labels``, or None.

    It has the same key: the primary key of each child on the way is the link to its parent.
    """
    kind = model._meta.concrete_model or model
    while label_of(kind) not in labels:
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


def _all_registered() -> Iterator[tuple[type[Model], str]]:
    return (one for server in servers() for one in server._registered_models)


def keys_of(instance: Model) -> Keys:
    """Return the keys of a row for all registered models: its own, its parents and children."""
    return {
        label: {lookup: key_text(instance, lookup, model) for lookup in sorted(lookups)}
        for label, (model, lookups) in registered(type(instance)).items()
    }


def keys_by_pk(model: type[Model], pk: Any) -> Keys | None:
    """Return what ``keys_of`` returns for a primary key, or None if a parent has another one."""
    found = registered(model)
    if all(_model_with_key_of(model, {label_of(kind)}) for kind, _ in found.values()):
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
    for resource, wanted in keys.items():
        for key, row in resource._fetch(request, list(wanted), fresh=True).items():
            # A database may compare keys without case, and return one that was not asked for.
            for uri in wanted.get(key, ()):
                seen[uri] = row_ref_of(resource, row)
    return seen


def _collect(
    keys: dict[ModelResource, dict[object, list[str]]], resource: ModelResource, uri: str
) -> None:
    with suppress(ValueError):
        keys.setdefault(resource, {}).setdefault(resource._key(uri), []).append(uri)


def _lists_any(request: Request, label: str) -> bool:
    """Whether lists show the user any row of a model.

    If the resource checks permissions for each row, only the first rows are checked.
    """
    shown = [resource for resource in resources(request.server).get(label, ()) if resource.listed]
    return any(_shows_any(request, resource) for resource in shown if resource._is_allowed(request))


def _shows_any(request: Request, resource: ModelResource) -> bool:
    from ..declarations.model_rows import in_write_database

    rows = in_write_database(resource.get_listed(request))
    if (is_permitted := resource._row_check(request)) is None:
        return rows.exists()
    return any(map(is_permitted, rows[:ROWS_CHECKED_ONE_BY_ONE]))


def _fits(resource: Resource, variables: dict[str, str], request: Request) -> bool:
    """Whether the variables are valid arguments, and the rows they name are visible to the user."""
    try:
        resource._arguments.bind(resource._values(variables), request, write=False)
    except InvalidArguments:
        return False
    return resource._exists(request, variables)
