"""Model resources: rows of a model as resources.

``get_queryset(request)`` limits every access to rows: reading, listing, searching, completion, and
arguments that are rows. ``fields`` limits what is shown of a row. Without a ``permission``, users
need Django's permission to view the model. ``permission`` is for reading. ``operations`` need
permissions of their own.

A client names a row by its key, which is the variable of the URI, or by the whole URI.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.db import models, router

from ..protocol.jsonrpc import ResourceNotFound
from . import permissions
from .arguments import Arguments
from .declaration import Declaration, prose
from .fields.keys import key_schema, key_text, or_uri, parse_key
from .fields.keyset import Keyset
from .fields.search import Search
from .fields.whitelist import FieldSet
from .model_checks import REQUIRED, field_problems, operation_problems, permission_problems
from .permissions import Decision, Permission
from .resources import Resource
from .schema_summary import key_description
from .type_schemas import is_model

if TYPE_CHECKING:
    from .catalog import Catalog
    from .request import Request


def in_write_database(queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Return the queryset in the database for writes, unless it names a database.

    A replica may not have the newest rows yet.
    """
    named = queryset._db  # type: ignore[attr-defined]
    return queryset if named else queryset.using(router.db_for_write(queryset.model))


class ModelResource(Resource):
    """Rows of a model as resources: write ``@mcp.register(Invoice)`` above a subclass.

    ``fields`` is a required whitelist: names of fields, paths through relations
    (``customer__name``, ``tags__label``), properties, and methods of the resource that take the row
    and the request. ``search_fields`` and ``filter_fields`` add a search tool. They and
    ``ordering`` must be in ``fields``. ``uri`` may contain another unique field instead of
    ``{pk}``. ``listed`` shows the rows in lists. ``default`` selects the resource that binds
    arguments if several expose the model.

    ``operations`` ("create", "update", "delete") add tools that write the editable fields in
    ``fields``, except ``readonly_fields``. Each needs Django's permission to add, change or delete
    the model, or the one in ``operation_permissions``.
    """

    model: type[models.Model]
    _lookup: str  # the field in the URI

    _kind = "model resource"
    # They describe one resource, and the protocol's templates have neither.
    _inherits_unread = frozenset({"size", "last_modified"})
    permission: Permission = REQUIRED
    fields: Sequence[str] = REQUIRED
    search_fields: Sequence[str] = ()
    filter_fields: Sequence[str] = ()
    ordering: Sequence[str] = ()
    default: bool = False
    listed: bool = False
    operations: Sequence[str] = ()
    readonly_fields: Sequence[str] = ()
    operation_permissions: Mapping[str, Permission] = {}
    mime_type = "application/json"

    @classmethod
    def _made_for(cls, subjects: tuple[Any, ...]) -> list[Declaration]:
        if not subjects or not all(map(is_model, subjects)):
            raise TypeError(f"Register {cls.__name__} with a model: @mcp.register(Invoice).")
        made = []
        for model in subjects:
            one = cls()
            one.model = model
            made.append(one)
        return list(made)

    # For a project to override.

    def get_queryset(self, request: Request) -> models.QuerySet[Any]:
        """Return the rows that this user may see. The default is all rows.

        Every access to rows is limited by it.
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

    def _decide_declared(self, request: Request) -> Decision:
        if self._states_permission:
            return super()._decide_declared(request)
        # Only PUBLIC admits anonymous users, although a backend may grant permissions to them.
        if not request.principal.is_authenticated:
            return permissions.ANONYMOUS
        return permissions.decide_codenames(self._to_view, request)

    @property
    def _to_view(self) -> list[str]:
        """Django's permissions, one of which is enough to view the model."""
        options = self.model._meta
        return [f"{options.app_label}.{verb}_{options.model_name}" for verb in ("view", "change")]

    def _codenames(self) -> tuple[str, ...]:
        return super()._codenames() if self._states_permission else (self._to_view[0],)

    @property
    def _rule(self) -> str:
        return permissions.OR.join(self._to_view) if self._asks_django else super()._rule

    @property
    def _asks_django(self) -> bool:
        """Whether Django's permissions to view the model decide."""
        return not self._states_permission and self._permission_is_declared

    def has_object_permission(self, request: Request, obj: Any, action: str) -> bool:
        """Whether ``obj`` may be read and passed to tools: ``action`` is "view".

        The tools of ``operations`` also ask for "add", "change" or "delete". What another tool may
        do with a row is decided by the tool and its permission.
        """
        return True

    # For ``operations``.

    def has_operation_permission(self, request: Request, operation: str) -> bool:
        """Whether ``request``'s user may "create", "update" or "delete" rows that they may view."""
        return self._decide_operation(request, operation).allowed

    def _decide_operation(self, request: Request, operation: str) -> Decision:
        return permissions.decide_permission(self._operation_permission(operation), request)

    def has_cascade_permission(self, request: Request, model: type[models.Model]) -> bool:
        """Whether deleting a row may also delete dependent rows of ``model``, as in the admin."""
        return bool(request.user.has_perm(permissions.of_model("delete", model)))

    def get_initial(self, request: Request) -> Mapping[str, Any]:
        """Return values of a new row that the client does not give: ``{"owner": request.user}``."""
        return {}

    def save_model(self, request: Request, obj: Any, created: bool) -> None:
        """Save a validated row. A new row never replaces an existing one."""
        obj.save(force_insert=(models.Model,) if created else False)

    def delete_model(self, request: Request, obj: Any) -> None:
        """Delete a row."""
        obj.delete()

    def _operation_permission(self, operation: str) -> Permission:
        """Return the permission of an operation. ``permission`` is not used: it is for reading."""
        stated = self.operation_permissions.get(operation)
        return permissions.of_model(operation, self.model) if stated is None else stated

    def _origin(self) -> str:
        return f"{super()._origin()} of {self.model._meta.label}"

    # Keys and URIs of rows.

    @property
    def _verbose_name(self) -> str:
        return str(self.model._meta.verbose_name)

    def _key_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of an argument that is the key or URI of a row."""
        schema = or_uri(key_schema(self.model, self._lookup))
        uri = "" if self._by_pk else self.uri
        return schema | {"description": key_description(self._verbose_name, uri)}

    def _key(self, value: Any) -> Any:
        """Return the key in a key or URI. Raise ``ValueError``."""
        text = self._in_uri(value)
        return self._parsed(value if text is None else text, self._lookup)

    def _in_uri(self, value: Any) -> str | None:
        """Return the text of the key in a URI of this resource; None if it is no such URI."""
        variables = self._match(value) if isinstance(value, str) else None
        return variables[self._lookup] if variables else None

    def _parsed(self, key: Any, lookup: str) -> Any:
        return parse_key(self.model, key if isinstance(key, list) else str(key), lookup)

    # Keys in foreign keys of other rows. Rows show the primary key, even if the URI has another.

    def _related_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of an argument that is the key or URI of a related row."""
        if self._by_pk:
            return self._key_schema()
        about = f"The primary key, as rows show it. {key_description(self._verbose_name, self.uri)}"
        return or_uri(key_schema(self.model)) | {"description": about}

    def _named_key(self, value: Any) -> tuple[str, Any]:
        """Return the lookup and the key in a key or URI. Raise ``ValueError``."""
        return self._lookup, self._key(value)

    def _related_key(self, value: Any) -> tuple[str, Any]:
        """Return the lookup and the key in a primary key or URI. Raise ``ValueError``."""
        text = self._in_uri(value)
        return ("pk", self._parsed(value, "pk")) if text is None else self._named_key(value)

    def _values(self, variables: Mapping[str, str]) -> dict[str, Any]:
        return dict(variables)

    def _uri_of(self, row: Any) -> str:
        assert self._template is not None
        return self._template.expand({self._lookup: key_text(row, self._lookup)})

    @property
    def _by_pk(self) -> bool:
        """Whether the URI contains the primary key, so that a foreign key's value leads to it."""
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
    ) -> dict[Any, Any]:
        """Return the rows with these keys that the user may see, by key, with all columns.

        ``write`` reads in the database for writes. ``fresh`` does so too unless the queryset names
        a database. ``lookup`` is the field of the keys if it is not the one in the URI.
        """
        lookup = lookup or self._lookup
        if not self._is_allowed(request):
            return {}
        queryset = self.get_queryset(request)
        if write:
            queryset = queryset.using(router.db_for_write(self.model))
        elif fresh:
            queryset = in_write_database(queryset)
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

    def read(self, request: Any, *args: Any, **variables: Any) -> Any:
        """Return one row as JSON. Raise ``ResourceNotFound``."""
        try:
            key = self._key(variables[self._lookup])
        except ValueError:
            raise ResourceNotFound(self.uri) from None
        found = self._selected(self.get_queryset(request)).filter(**{self._lookup: key})
        # Prefetch after the permission check. Otherwise a hidden row takes more queries than a
        # missing one, and the response time reveals that it exists.
        for row in self._permitted(request, found.prefetch_related(None)[:1]):
            self._field_set.complete(row, found)
            return self._row_values(row, request)
        raise ResourceNotFound(self.uri)

    def _selected(self, queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
        """Return ``queryset`` with only the columns of ``fields``.

        If object permission is checked, all columns of the row are loaded, because it may read any.
        """
        return self._field_set.select(queryset, whole=self._overrides("has_object_permission"))

    def _rows(self, value: Iterable[Any]) -> Iterable[Any]:
        """Return ``value``. A queryset then loads only what ``fields`` shows."""
        if not isinstance(value, models.QuerySet) or value._result_cache is not None:
            return value
        # Django forbids changes, except of the order, to a union, intersection or difference.
        return value if value.query.combinator else self._field_set.select(value)

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
        """Return a page of list entries, and the position after it."""
        rows, position = self._keyset.page(
            self.get_listed(request), after, limit, self._row_check(request)
        )
        return [self._entry(request, row) for row in rows], position

    def _entry(self, request: Request, row: Any) -> dict[str, Any]:
        shown = {"uri": self._uri_of(row), "name": self.get_title(request, row)}
        return shown | ({"mimeType": self.mime_type} if self.mime_type else {})

    def _complete(self, request: Request, text: str, context: Any = None) -> Iterable[str]:
        """Return the keys of rows that ``text`` may mean: the exact key, then search results."""
        if not self._is_allowed(request):
            return []
        queryset = self.get_queryset(request)
        found = self._search.completions(
            queryset, text, self._lookup, 101, self._row_check(request)
        )
        return [key_text(row, self._lookup) for row in found]

    # Resolution.

    @cached_property
    def _field_set(self) -> FieldSet:
        methods = {name: getattr(self, name) for name in self.fields if self._has_method(name)}
        return FieldSet(self.model, list(self.fields), methods)

    def _has_method(self, name: str) -> bool:
        """Whether the project's class, and no class of ours, defines the method ``name``."""
        own = inspect.getattr_static(type(self), name, None)
        return inspect.isfunction(own) and not hasattr(ModelResource, name)

    @cached_property
    def _keyset(self) -> Keyset:
        return Keyset(self.model, list(self.ordering))

    @cached_property
    def _search(self) -> Search:
        return Search(self.model, self.search_fields, self.filter_fields, self.ordering)

    _related: dict[str, ModelResource]

    @property
    def _states_permission(self) -> bool:
        """Whether the class sets ``permission``. Otherwise Django's model permissions decide."""
        return self.permission is not REQUIRED

    @property
    def _is_free(self) -> bool:
        return self._states_permission and super()._is_free

    def _overrides(self, method: str) -> bool:
        """Whether the project overrides this method."""
        return getattr(type(self), method) is not getattr(ModelResource, method)

    def _resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        options = self.model._meta
        self._arguments, self._related = Arguments(), {}
        if options.abstract or options.swapped:
            message = f"{options.label} is abstract or swapped, so it has no rows."
            yield self._error(message, 58, "Register a concrete model.")
            return
        self.name = self.name or str(options.model_name)
        self.title = self.title or self._verbose_name.capitalize()
        self.uri = self.uri or f"model://{options.app_label}/{options.model_name}/{{pk}}"
        self.listed = self.listed or self._overrides("get_listed")
        self.description = self.description or prose(type(self).__doc__)
        yield from permission_problems(self)
        yield from self._address_problems()
        names = self._template.names if self._template else ()
        self._lookup = names[0] if names else "pk"
        self._completers = {self._lookup: self._complete}
        wrong = [*field_problems(self), *operation_problems(self)]
        yield from wrong
        if not wrong:
            self._relate(catalog)

    def _relate(self, catalog: Catalog) -> None:
        """Find the shown foreign keys whose rows have a URI on this server."""
        for name in self.fields:
            target = self._field_set.target(name)
            exposed = catalog.models.get(target, []) if target else []
            candidates = [resource for resource in exposed if resource._by_pk]
            if len(candidates) > 1:
                candidates = [resource for resource in candidates if resource.default]
            if len(candidates) == 1:
                self._related[name] = candidates[0]
