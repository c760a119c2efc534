"""Rows of a model that a user may see: queries, keys and URIs, and their JSON.

``ModelRows`` is the part of a model resource that arguments and results of other declarations use:
an argument may be the key of a row, and a tool may return rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.db import models, router

from . import permissions
from .attribute_checks import own_class
from .completions import MAX_COMPLETION_VALUES
from .content import write_icons
from .declaration import REQUIRED, ToolDeclaration
from .fields.aggregates import Aggregates
from .fields.keys import filter_by_keys, key_or_uri_schema, key_schema, key_text, parse_key
from .fields.keyset import Keyset
from .fields.search import Search
from .fields.search_methods import FullTextSearch, VectorSearch
from .fields.whitelist import FieldSet
from .schema_summary import key_description

if TYPE_CHECKING:
    from ..protocol.uri_template import Template
    from .request import Request


def in_write_database(queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Return the queryset in the database for writes, unless it names a database.

    A replica may not have the newest rows yet.
    """
    named = queryset._db  # type: ignore[attr-defined]
    return queryset if named else queryset.using(router.db_for_write(queryset.model))


class ModelRows(ToolDeclaration):
    """The rows of a model: the base class of ``ModelResource``."""

    model: type[models.Model]
    fields: Sequence[str] = REQUIRED
    search_fields: Sequence[str] = ()
    full_text_search: FullTextSearch | None = None
    vector_search: VectorSearch | None = None
    filter_fields: Sequence[str] = ()
    aggregate_fields: Sequence[str] = ()
    group_fields: Sequence[str] = ()
    ordering: Sequence[str] = ()
    uri: str
    mime_type: str | None

    _lookup: str  # the field in the URI
    _template: Template | None
    # The resources that limit the rows of to-many relations, by model.
    _row_limits: dict[type[models.Model], Sequence[ModelRows]]
    _related: dict[str, ModelRows]  # by the names of shown foreign keys whose rows have a URI

    _own_class = cached_property(own_class)  # ``ModelResource``, of which a project's is a subclass

    # For a project to override.

    def get_queryset(self, request: Request) -> models.QuerySet[Any]:
        """Return the rows that this user may see. The default is all rows.

        Clients cannot read, find or change any other row.
        """
        return self.model._default_manager.all()

    def get_listed(self, request: Request) -> models.QuerySet[Any]:
        """Return the rows in lists if ``listed`` is set.

        The default is all that the user may see.
        """
        return self.get_queryset(request)

    def get_title(self, request: Request, row: Any) -> str:
        """Return the name of a row in lists. The default is the model's name and the row's key."""
        return f"{self._verbose_name} {key_text(row, self._lookup)}"

    def has_object_permission(self, request: Request, obj: Any, action: str) -> bool:
        """Whether ``obj`` may be read and passed to tools: ``action`` is "view".

        The tools of ``operations`` also ask for "add", "change" or "delete". What another tool may
        do with a row is decided by the tool and its permission.
        """
        return True

    # Keys and URIs of rows.

    @property
    def _verbose_name(self) -> str:
        return str(self.model._meta.verbose_name)

    def _key_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of an argument that is the key or URI of a row."""
        schema = key_or_uri_schema(key_schema(self.model, self._lookup))
        uri = "" if self._by_pk else self.uri
        return schema | {"description": key_description(self._verbose_name, uri)}

    def _key(self, value: Any) -> Any:
        """Return the key in a key or URI. Raise ``ValueError``."""
        text = self._key_text_in_uri(value)
        return self._parse_key(value if text is None else text, self._lookup)

    def _key_text_in_uri(self, value: Any) -> str | None:
        """Return the text of the key in a URI of this resource; None if it is no such URI."""
        assert self._template is not None
        variables = self._template.match(value) if isinstance(value, str) else None
        return variables[self._lookup] if variables else None

    def _parse_key(self, key: Any, lookup: str) -> Any:
        return parse_key(self.model, key if isinstance(key, list) else str(key), lookup)

    # Arguments for foreign keys. Rows show the primary key of a related row, even if its URI
    # contains another field.

    def _related_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of an argument that is the key or URI of a related row."""
        if self._by_pk:
            return self._key_schema()
        about = f"The primary key, as rows show it. {key_description(self._verbose_name, self.uri)}"
        return key_or_uri_schema(key_schema(self.model)) | {"description": about}

    def _lookup_and_key(self, value: Any) -> tuple[str, Any]:
        """Return the field in the URI, and the key in a key or URI. Raise ``ValueError``."""
        return self._lookup, self._key(value)

    def _related_lookup_and_key(self, value: Any) -> tuple[str, Any]:
        """Return the field and the key of a primary key ("pk") or URI. Raise ``ValueError``."""
        text = self._key_text_in_uri(value)
        return ("pk", self._parse_key(value, "pk")) if text is None else self._lookup_and_key(value)

    def _uri_of(self, row: Any) -> str:
        assert self._template is not None
        return self._template.expand({self._lookup: key_text(row, self._lookup)})

    @property
    def _by_pk(self) -> bool:
        """Whether the URI contains the primary key, so that a foreign key's value makes the URI."""
        return not self.uri or "{pk}" in self.uri

    def _uri_for(self, key: Any) -> str:
        """Return the URI of the row with primary key ``key``."""
        assert self._template is not None
        return self._template.expand({"pk": str(key)})

    def _key_attribute(self, lookup: str) -> str:
        """Return the attribute of a row that contains its key."""
        if lookup == "pk":
            return "pk"
        return str(self.model._meta.get_field(lookup).attname)  # type: ignore[union-attr]

    # Rows.

    def _fetch(
        self,
        request: Request,
        keys: Sequence[Any],
        *,
        write: bool = False,
        fresh: bool = False,
        lookup: str = "",
        query_without_keys: bool = False,
    ) -> dict[Any, Any]:
        """Return the rows with these keys that the user may see, by key, with all columns.

        With ``write``, the rows come from the database for writes. With ``fresh`` too, unless the
        queryset names a database. ``lookup`` is the field of the keys, by default that in the URI.
        With ``query_without_keys``, an empty list of keys takes a query, too.
        """
        lookup = lookup or self._lookup
        if not self._is_allowed(request):
            return {}
        queryset = self.get_queryset(request)
        if write:
            queryset = queryset.using(router.db_for_write(self.model))
        elif fresh:
            queryset = in_write_database(queryset)
        if query_without_keys:
            rows = filter_by_keys(queryset, keys, lookup)
        else:
            rows = queryset.filter(**{f"{lookup}__in": list(keys)})
        attribute = self._key_attribute(lookup)
        return {getattr(row, attribute): row for row in self._permitted(request, rows)}

    def _row_check(self, request: Request) -> Callable[[Any], bool] | None:
        """Return the object permission check for rows, or None if every row passes."""
        if not self._overrides("has_object_permission"):
            return None
        return lambda row: any(True for _ in self._permitted(request, [row]))

    def _permitted(self, request: Request, rows: Iterable[Any]) -> Iterator[Any]:
        return (row for row in rows if self._permits(request, row, "view"))

    def _permits(self, request: Request, row: Any, operation: str, *more: str) -> bool:
        """Whether object permission allows each of the operations on a row of the queryset."""
        allows = self.has_object_permission
        return all(permissions.truth(allows(request, row, each)) for each in (operation, *more))

    def _selected(self, queryset: models.QuerySet[Any], request: Request) -> models.QuerySet[Any]:
        """Return ``queryset`` with only the columns of ``fields``.

        If object permission is checked, all columns of the row are loaded, because it may read any.
        """
        whole = self._overrides("has_object_permission")
        return self._field_set.select(queryset, request, whole=whole)

    def _rows(self, value: Iterable[Any], request: Request) -> Iterable[Any]:
        """Return ``value``. A queryset then loads only what ``fields`` shows."""
        if not isinstance(value, models.QuerySet) or value._result_cache is not None:
            return value
        # Django forbids changes, except of the order, to a union, intersection or difference.
        return value if value.query.combinator else self._field_set.select(value, request)

    def _row_values(self, row: Any, request: Request) -> dict[str, Any]:
        """Return the fields of a row, with its URI and the URIs of related rows."""
        uri = self._uri_of(row)
        shown = self._field_set.values(row, lambda name: f"{uri}/{name}", request)
        return {"_uri": uri} | shown | self._links(row, shown, request)

    def _links(self, row: Any, shown: dict[str, Any], request: Request) -> dict[str, Any]:
        linked = {n: r for n, r in self._related.items() if shown.get(n) is not None}
        links = {n: r._uri_for(shown[n]) for n, r in linked.items() if r._is_allowed(request)}
        return {"_links": links} if links else {}

    def _row_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of ``_row_values``."""
        schema = self._field_set.schema()
        links = {"type": "object", "additionalProperties": {"type": "string"}}
        own = {"_uri": {"type": "string"}}
        properties = own | schema["properties"] | ({"_links": links} if self._related else {})
        required = ["_uri", *schema.get("required", [])]
        return schema | {"properties": properties, "required": required}

    # Lists and completion.

    def _page(
        self, request: Request, after: list[Any] | None, limit: int
    ) -> tuple[list[dict[str, Any]], list[Any] | None]:
        """Return a page of list entries, and the position of its last row, or None at the end."""
        rows, position = self._keyset.page(
            self.get_listed(request), after, limit, self._row_check(request)
        )
        common: dict[str, Any] = {"mimeType": self.mime_type} if self.mime_type else {}
        if icons := write_icons(self.icons):
            common["icons"] = icons
        return [self._entry(request, row) | common for row in rows], position

    def _entry(self, request: Request, row: Any) -> dict[str, Any]:
        return {"uri": self._uri_of(row), "name": self.get_title(request, row)}

    def _complete(self, request: Request, text: str, context: Any = None) -> Iterable[str]:
        """Return the keys of rows for a text: first the row with this key, then search results.

        Return one more than a completion has, so that the client learns that there are more.
        """
        if not self._is_allowed(request):
            return []
        queryset = self.get_queryset(request)
        found = self._search.completions(
            queryset, text, self._lookup, MAX_COMPLETION_VALUES + 1, self._row_check(request)
        )
        return [key_text(row, self._lookup) for row in found]

    # The whitelist.

    @cached_property
    def _field_set(self) -> FieldSet:
        methods = {name: getattr(self, name) for name in self.fields if self._has_method(name)}
        return FieldSet(self.model, list(self.fields), methods)

    def _has_method(self, name: str) -> bool:
        """Whether the project's class, and no class of ours, defines the method ``name``."""
        own = inspect.getattr_static(type(self), name, None)
        return inspect.isfunction(own) and not hasattr(self._own_class, name)

    @cached_property
    def _keyset(self) -> Keyset:
        return Keyset(self.model, list(self.ordering))

    @cached_property
    def _search(self) -> Search:
        return Search(
            self.model,
            self.search_fields,
            self.filter_fields,
            self.ordering,
            self.full_text_search,
        )

    @cached_property
    def _aggregates(self) -> Aggregates:
        return Aggregates(self.model, self.aggregate_fields, self.group_fields)

    def _overrides(self, method: str) -> bool:
        """Whether the project overrides this method."""
        return getattr(type(self), method) is not getattr(self._own_class, method)
