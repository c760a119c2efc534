"""Models: rows as resources, and the one gate through which all of them pass.

Rule: ``get_queryset(request)`` bounds everything - reading, listing,
searching, completion, binding - and ``fields`` bounds what is seen of a row.
A ModelResource that states no permission needs Django's own to view the model;
what it states is for reading, and allows no ``operations``.

How rows of a model resource are named: by a key, which is the variable of its URI, or by the URI.
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
from .bindings import is_model
from .declaration import Declaration, prose
from .fields.keys import key_schema, key_text, or_uri, parse_key
from .fields.keyset import Keyset
from .fields.search import Search
from .fields.whitelist import FieldSet
from .model_checks import REQUIRED, field_problems, operation_problems, permission_problems
from .model_extensions import derivations
from .permissions import Decision, Permission
from .resources import Resource
from .schema_summary import key_description

if TYPE_CHECKING:
    from .catalog import Catalog
    from .request import Request


class RowKeys(Resource):
    """Keys and URIs of the rows of ``model``. ``_lookup`` is the field that the URI names."""

    model: type[models.Model]
    _lookup: str

    @property
    def _verbose_name(self) -> str:
        return str(self.model._meta.verbose_name)

    def _key_schema(self) -> dict[str, Any]:
        """The JSON Schema of an argument that names a row, by its key or by its URI."""
        schema = or_uri(key_schema(self.model, self._lookup))
        uri = "" if self._by_pk else self.uri
        return schema | {"description": key_description(self._verbose_name, uri)}

    def _key(self, value: Any) -> Any:
        """The key in a key or URI. Raises ``ValueError``."""
        text = self._in_uri(value)
        return self._parsed(value if text is None else text, self._lookup)

    def _in_uri(self, value: Any) -> str | None:
        """The text of the key in a URI of this resource; None where ``value`` is no such URI."""
        variables = self._match(value) if isinstance(value, str) else None
        return variables[self._lookup] if variables else None

    def _parsed(self, key: Any, lookup: str) -> Any:
        return parse_key(self.model, key if isinstance(key, list) else str(key), lookup)

    # What rows that point here take as its key: they show the primary key, whatever the URI has.

    def _related_schema(self) -> dict[str, Any]:
        """The JSON Schema of an argument that names a related row."""
        if self._by_pk:
            return self._key_schema()
        words = f"The primary key, as rows show it. {key_description(self._verbose_name, self.uri)}"
        return or_uri(key_schema(self.model)) | {"description": words}

    def _named_key(self, value: Any) -> tuple[str, Any]:
        """The lookup and the key in a key or URI. Raises ``ValueError``."""
        return self._lookup, self._key(value)

    def _related_key(self, value: Any) -> tuple[str, Any]:
        """The lookup and the key in a primary key or URI. Raises ``ValueError``."""
        text = self._in_uri(value)
        return ("pk", self._parsed(value, "pk")) if text is None else self._named_key(value)

    def _values(self, variables: Mapping[str, str]) -> dict[str, Any]:
        return dict(variables)

    def _uri_of(self, row: Any) -> str:
        assert self._template is not None
        return self._template.expand({self._lookup: key_text(row, self._lookup)})

    @property
    def _by_pk(self) -> bool:
        """Whether the address is made of the primary key, so that a foreign key leads there."""
        return not self.uri or "{pk}" in self.uri

    def _uri_for(self, key: Any) -> str:
        """The address of the row with primary key ``key``."""
        assert self._template is not None
        return self._template.expand({"pk": str(key)})

    def _key_attribute(self, lookup: str) -> str:
        """The attribute of a row that holds its key."""
        if lookup == "pk":
            return "pk"
        return str(self.model._meta.get_field(lookup).attname)  # type: ignore[union-attr]


def written(queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """In the database of its model's writes, where a replica may be behind; if it names none."""
    named = queryset._db  # type: ignore[attr-defined]
    return queryset if named else queryset.using(router.db_for_write(queryset.model))


class ModelResource(RowKeys):
    """Rows of a model as resources: ``@mcp.register(Invoice)`` above a subclass.

    ``fields`` is a required whitelist: names of fields, paths through
    relations (``customer__name``, ``tags__label``), properties, methods of
    the resource that take the row and the request. ``search_fields`` and
    ``filter_fields`` make a search tool, and like ``ordering`` must be in
    ``fields``. ``uri`` may name one unique field in the place of ``{pk}``.
    ``listed`` shows the rows in lists; ``default`` binds arguments where
    several resources expose the model.

    ``operations`` - "create", "update", "delete" - make tools that write what
    of ``fields`` is editable and not in ``readonly_fields``. Each needs
    Django's permission to add, change or delete the model, or the one that
    ``operation_permissions`` states for it.
    """

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
            raise TypeError(f"{cls.__name__} is registered with a model: @mcp.register(Invoice).")
        made = []
        for model in subjects:
            one = cls()
            one.model = model
            made.append(one)
        return list(made)

    # For a project to override.

    def get_queryset(self, request: Request) -> models.QuerySet[Any]:
        """The rows this user may know of; default all rows. The one gate."""
        return self.model._default_manager.all()

    def get_listed(self, request: Request) -> models.QuerySet[Any]:
        """The rows that lists show, when ``listed``; default all the user may know of."""
        return self.get_queryset(request)

    def get_title(self, request: Request, row: Any) -> str:
        """What a list calls a row; default the model's name and the row's key."""
        return f"{self._verbose_name} {key_text(row, self._lookup)}"

    def _decide_declared(self, request: Request) -> Decision:
        if self._states_permission:
            return super()._decide_declared(request)
        # A backend may grant permissions to anonymous users. They get what is PUBLIC, no more.
        if not request.principal.is_authenticated:
            return permissions.ANONYMOUS
        return permissions.decide_codenames(self._to_view, request)

    @property
    def _to_view(self) -> list[str]:
        """Django's permissions, of which one is enough to view the model."""
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

    def has_object_permission(self, request: Request, obj: Any, operation: str) -> bool:
        """Whether ``obj`` may be read and bound: ``operation`` is "view", in tools that write too.

        ``operations`` ask "add", "change" or "delete" besides; what any other
        tool may do to a row is its own permission's, and the tool's, to say.
        """
        return True

    # What of it concerns ``operations``.

    def has_operation_permission(self, request: Request, operation: str) -> bool:
        """Whether ``request``'s user may "create", "update" or "delete" rows that they may view."""
        return self._decide_operation(request, operation).allowed

    def _decide_operation(self, request: Request, operation: str) -> Decision:
        return permissions.decide_permission(self._operation_permission(operation), request)

    def has_cascade_permission(self, request: Request, model: type[models.Model]) -> bool:
        """Whether rows of ``model`` may go along with a row that is deleted, as in the admin."""
        return bool(request.user.has_perm(permissions.of_model("delete", model)))

    def get_initial(self, request: Request) -> Mapping[str, Any]:
        """What a new row has beside what the client gives: ``{"owner": request.user}``."""
        return {}

    def save_model(self, request: Request, obj: Any, created: bool) -> None:
        """Save a row that is valid. What is written to a new one never replaces another."""
        obj.save(force_insert=(models.Model,) if created else False)

    def delete_model(self, request: Request, obj: Any) -> None:
        """Delete a row that may be deleted."""
        obj.delete()

    def _operation_permission(self, operation: str) -> Permission:
        """What is declared for an operation: for writing, nothing follows from ``permission``."""
        stated = self.operation_permissions.get(operation)
        return permissions.of_model(operation, self.model) if stated is None else stated

    def _origin(self) -> str:
        return f"{super()._origin()} of {self.model._meta.label}"

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
        """The rows with these keys that the user may use, by key; whole, for code.

        To ``write``, in the database for that; ``fresh``, there unless the queryset names one.
        ``lookup`` is the field that the keys are of, where it is not the one in the URI.
        """
        lookup = lookup or self._lookup
        if not self._is_allowed(request):
            return {}
        queryset = self.get_queryset(request)
        if write:
            queryset = queryset.using(router.db_for_write(self.model))
        elif fresh:
            queryset = written(queryset)
        rows = queryset.filter(**{f"{lookup}__in": list(keys)})
        attribute = self._key_attribute(lookup)
        return {getattr(row, attribute): row for row in self._permitted(request, rows)}

    def _row_check(self, request: Request) -> Callable[[Any], bool] | None:
        """What a row must pass beside the queryset; None where that lets every row pass."""
        if not self._overrides("has_object_permission"):
            return None
        return lambda row: any(True for _ in self._permitted(request, [row]))

    def _permitted(self, request: Request, rows: Iterable[Any]) -> Iterator[Any]:
        return (row for row in rows if self._permits(request, row, "view"))

    def _permits(self, request: Request, row: Any, operation: str, *more: str) -> bool:
        """Whether each of the operations is allowed on a row that the queryset holds."""
        allows = self.has_object_permission
        return all(permissions.truth(allows(request, row, each)) for each in (operation, *more))

    def read(self, request: Any, *args: Any, **variables: Any) -> Any:
        """One row as JSON. Raises ``ResourceNotFound``."""
        try:
            key = self._key(variables[self._lookup])
        except ValueError:
            raise ResourceNotFound(self.uri) from None
        found = self._selected(self.get_queryset(request)).filter(**{self._lookup: key})
        # A row that object permission hides must not cost a query more than one that is missing.
        for row in self._permitted(request, found.prefetch_related(None)[:1]):
            self._field_set.complete(row, found)
            return self._row_values(row, request)
        raise ResourceNotFound(self.uri)

    def _selected(self, queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
        """``queryset``, fetching what ``fields`` shows and, where it is asked, permission needs."""
        return self._field_set.select(queryset, whole=self._overrides("has_object_permission"))

    def _rows(self, value: Iterable[Any]) -> Iterable[Any]:
        """``value``, with a queryset fetching just what ``fields`` shows."""
        if not isinstance(value, models.QuerySet) or value._result_cache is not None:
            return value
        # Django lets nothing but the order of a union, intersection or difference be changed.
        return value if value.query.combinator else self._field_set.select(value)

    def _row_values(self, row: Any, request: Request) -> dict[str, Any]:
        """What ``fields`` shows of a row, with its address and those of related rows."""
        uri = self._uri_of(row)
        shown = self._field_set.values(row, lambda name: f"{uri}/{name}", request)
        return {"_uri": uri} | shown | self._links(row, shown, request)

    def _links(self, row: Any, shown: dict[str, Any], request: Request) -> dict[str, Any]:
        linked = {n: r for n, r in self._related.items() if shown.get(n) is not None}
        links = {n: r._uri_for(shown[n]) for n, r in linked.items() if r._is_allowed(request)}
        return {"_links": links} if links else {}

    def _row_schema(self) -> dict[str, Any]:
        """The JSON Schema of ``_row_values``."""
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
        """A page of list entries, and the position after it."""
        rows, position = self._keyset.page(
            self.get_listed(request), after, limit, self._row_check(request)
        )
        return [self._entry(request, row) for row in rows], position

    def _entry(self, request: Request, row: Any) -> dict[str, Any]:
        shown = {"uri": self._uri_of(row), "name": self.get_title(request, row)}
        return shown | ({"mimeType": self.mime_type} if self.mime_type else {})

    def _complete(self, request: Request, text: str, context: Any = None) -> Iterable[str]:
        """Keys of rows that ``text`` may mean: the exact one first, then by search."""
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
        """Whether the project's class defines the method ``name``, and no class of ours does."""
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
        """Whether the class says who may use it; otherwise Django's model permissions do."""
        return self.permission is not REQUIRED

    @property
    def _is_free(self) -> bool:
        return self._states_permission and super()._is_free

    def _overrides(self, method: str) -> bool:
        """Whether the project wrote this method itself."""
        return getattr(type(self), method) is not getattr(ModelResource, method)

    @property
    def _derived(self) -> Any:
        from .search_tools import derived_from

        return lambda: [one for derive in (derived_from, *derivations) for one in derive(self)]

    def _resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        options = self.model._meta
        self._arguments, self._related = Arguments(), {}
        if options.abstract or options.swapped:
            yield self._error(f"{options.label} has no rows.", 58, "Register a concrete model.")
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
        """Which shown foreign keys lead to rows of another resource of this server."""
        for name in self.fields:
            target = self._field_set.target(name)
            exposed = catalog.models.get(target, []) if target else []
            candidates = [resource for resource in exposed if resource._by_pk]
            if len(candidates) > 1:
                candidates = [resource for resource in candidates if resource.default]
            if len(candidates) == 1:
                self._related[name] = candidates[0]
