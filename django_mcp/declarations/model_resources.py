"""Model resources: rows of a model as resources.

``get_queryset(request)`` limits every access to rows: reading, listing, searching, completion, and
arguments that are rows. ``fields`` limits the columns that clients see.

``permission`` is for reading. Without it, users need Django's permission to view the model. Each of
the ``operations`` needs its own permission.

A client names a row by its key, which is the variable of the URI, or by the whole URI.

The system checks are at the end of the module. A name in ``search_fields``, ``filter_fields``,
``aggregate_fields``, ``group_fields`` or ``ordering`` must be in ``fields``, because a client can
learn a value by searching for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from ..protocol.jsonrpc import ResourceNotFound
from . import permissions
from .arguments import Arguments
from .attribute_checks import permission_problem
from .declaration import REQUIRED, Declaration, Find, ascii_name, prose
from .fields import search_methods
from .fields.aggregates import AGGREGATE_ARGUMENTS
from .fields.entries import RelatedRows
from .fields.field_types import field_type
from .fields.keys import key_problems
from .fields.search_methods import DISTANCES, SIMILAR_TO, takes_one_text
from .fields.values import VectorType
from .model_rows import ModelRows
from .permissions import AUTHENTICATED, MODEL_PERMISSIONS, PUBLIC, Decision, Permission
from .resources import Resource
from .schemas import is_model

if TYPE_CHECKING:
    from .request import Request


class ModelResource(ModelRows, Resource):
    """Rows of a model as resources: write ``@mcp.register(Invoice)`` above a subclass.

    ``fields`` is a required whitelist: names of fields, paths through relations
    (``customer__name``, ``tags__label``), properties, and methods of the resource that take the row
    and the request. ``search_fields`` and ``filter_fields`` add a search tool, and
    ``aggregate_fields`` and ``group_fields`` a tool that aggregates rows. They and ``ordering``
    must be in ``fields``. ``vector_search`` adds a tool that finds similar rows.

    ``uri`` may contain another unique field instead of ``{pk}``. ``listed`` shows the rows in
    lists. ``default`` selects the resource that binds arguments if several expose the model.

    ``operations`` ("create", "update", "delete") add tools that write the editable fields in
    ``fields``, except ``readonly_fields``. Each needs Django's permission to add, change or delete
    the model, or the one in ``operation_permissions``.
    """

    _kind = "model resource"
    # ``size`` and ``last_modified`` describe one resource. A template describes many.
    _ignored_attributes = frozenset({"size", "last_modified"})
    permission: Permission = REQUIRED
    default: bool = False
    listed: bool = False
    operations: Sequence[str] = ()
    readonly_fields: Sequence[str] = ()
    operation_permissions: Mapping[str, Permission] = {}
    mime_type = "application/json"

    @classmethod
    def _instances_for(cls, subjects: tuple[Any, ...]) -> list[Declaration]:
        if not subjects or not all(map(is_model, subjects)):
            raise TypeError(f"Register {cls.__name__} with a model: @mcp.register(Invoice).")
        made = []
        for model in subjects:
            one = cls()
            one.model = model
            made.append(one)
        return list(made)

    def _decide_declared(self, request: Request) -> Decision:
        if self._has_own_permission:
            return super()._decide_declared(request)
        # Only PUBLIC admits anonymous users, although a backend may grant permissions to them.
        if not request.principal.is_authenticated:
            return permissions.ANONYMOUS
        return permissions.decide_codenames(self._view_permissions, request)

    @property
    def _view_permissions(self) -> list[str]:
        """The codenames of Django's permissions. One of them is enough to view the model."""
        options = self.model._meta
        return [f"{options.app_label}.{verb}_{options.model_name}" for verb in ("view", "change")]

    def _codenames(self) -> tuple[str, ...]:
        return super()._codenames() if self._has_own_permission else (self._view_permissions[0],)

    @property
    def _rule(self) -> str:
        return (
            permissions.OR.join(self._view_permissions)
            if self._uses_django_permissions
            else super()._rule
        )

    @property
    def _uses_django_permissions(self) -> bool:
        """Whether Django's permissions to view the model decide."""
        return not self._has_own_permission and self._permission_is_declared

    # For ``operations``.

    def has_operation_permission(self, request: Request, operation: str) -> bool:
        """Whether ``request``'s user may "create", "update" or "delete" rows that they may view."""
        return self._decide_operation(request, operation).allowed

    def _decide_operation(self, request: Request, operation: str) -> Decision:
        # ``MODEL_PERMISSIONS`` has Django's verb for an operation, such as "add" for "create".
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

    def _values(self, variables: Mapping[str, str]) -> dict[str, Any]:
        return dict(variables)

    def read(self, request: Any, *args: Any, **variables: Any) -> Any:
        """Return one row as JSON. Raise ``ResourceNotFound``."""
        try:
            key = self._key(variables[self._lookup])
        except ValueError:
            raise ResourceNotFound(self.uri) from None
        found = self._selected(self.get_queryset(request), request)
        found = found.filter(**{self._lookup: key})
        # Prefetch after the permission check. Otherwise a hidden row takes more queries than a
        # missing one, and the response time reveals that it exists.
        for row in self._permitted(request, found.prefetch_related(None)[:1]):
            self._field_set.complete(row, found)
            return self._row_values(row, request)
        raise ResourceNotFound(self.uri)

    # Resolution.

    @property
    def _has_own_permission(self) -> bool:
        """Whether the class sets ``permission``. Otherwise Django's model permissions decide."""
        return self.permission is not REQUIRED

    @property
    def _decides_without_database(self) -> bool:
        return self._has_own_permission and super()._decides_without_database

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        options = self.model._meta
        self._arguments, self._related, self._row_limits = Arguments(), {}, {}
        if options.abstract or options.swapped:
            message = f"{options.label} is abstract or swapped, so it has no rows."
            yield self._error(message, 58, "Register a concrete model.")
            return
        model_name = str(options.model_name)
        self.name = self.name or ascii_name(model_name) or model_name
        self.title = self.title or self._verbose_name.capitalize()
        self.uri = self.uri or f"model://{options.app_label}/{options.model_name}/{{pk}}"
        self.listed = self.listed or self._overrides("get_listed")
        self.description = self.description or prose(type(self).__doc__)
        yield from permission_problems(self)
        yield from self._address_problems()
        names = self._template.names if self._template else ()
        self._lookup = names[0] if names else "pk"
        self._completers = {self._lookup: self._complete}
        yield from field_problems(self)
        yield from operation_problems(self)

    def _link_related_models(
        self, by_model: Mapping[type[models.Model], Sequence[ModelResource]]
    ) -> None:
        """Set the resources of shown relations: links for foreign keys, limits for to-many rows.

        A foreign key has links if its rows have a URI on this server. Rows of to-many relations are
        limited to those that the resources of their model show. The catalog calls this when all
        model resources have been resolved.
        """
        for name, entry in [*self._field_set.entries.items()]:
            if isinstance(entry, RelatedRows):
                exposed = by_model.get(entry.model, [])
                self._row_limits[entry.model] = [one for one in exposed if one.default] or exposed
                self._field_set.limit_related(name, self._row_limits[entry.model])
        for name in self.fields:
            target = self._field_set.target(name)
            exposed = by_model.get(target, []) if target else []
            candidates = [resource for resource in exposed if resource._by_pk]
            if len(candidates) > 1:
                candidates = [resource for resource in candidates if resource.default]
            if len(candidates) == 1:
                self._related[name] = candidates[0]


# System checks.

OPTIONS_LIMITED_TO_FIELDS = (
    "search_fields",
    "filter_fields",
    "aggregate_fields",
    "group_fields",
    "ordering",
)


def permission_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield the problems of every declaration, and rows that would be visible to everybody."""
    declared = resource.permission
    if not resource._has_own_permission:
        # Unset means Django's "view" permission. The common checks need a permission of the
        # ordinary kind, so this one is set while they run.
        resource.permission = AUTHENTICATED
    try:
        yield from resource._common_problems()
    finally:
        resource.permission = declared
    if resource._uses_django_permissions:
        yield from resource._codename_problems(resource._view_permissions)
    if resource.shared:
        message = "shared has no effect on rows, because their queryset depends on the user."
        yield resource._error(message, 57, "Remove shared.")
    if declared in (AUTHENTICATED, PUBLIC) and not resource._overrides("get_queryset"):
        message = f"{declared!r} without get_queryset shows every row to everybody."
        hint = "Write get_queryset(self, request). To show every row, let it return .all()."
        yield resource._error(message, 51, hint)


def field_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with the whitelist and with the URI."""
    if resource.fields is REQUIRED:
        hint = "List every field that a client may see."
        yield resource._error("fields is missing.", 50, hint)
        return
    yield from chain(_lookup_problems(resource), _whitelist_problems(resource))


def operation_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with ``operations``, their permissions and ``readonly_fields``."""
    known = f"The operations are: {', '.join(MODEL_PERMISSIONS)}."
    if not _are_names_in(resource.operations, MODEL_PERMISSIONS):
        message = f"operations is {resource.operations!r}: it must be a list of operations."
        yield resource._error(message, 135, known)
    for operation, permission in resource.operation_permissions.items():
        if operation not in resource.operations:
            message = f"operation_permissions: {operation!r} is not in operations."
            yield resource._error(message, 136, known)
        elif wrong := _operation_permission_problem(permission):
            hint = "Write a codename, a function, or mcp.AUTHENTICATED."
            yield resource._error(f"operation_permissions: {wrong}", 137, hint)
    if not _are_names_in(resource.readonly_fields, resource.fields):
        message = f"readonly_fields is {resource.readonly_fields!r}: it must be a list of names."
        yield resource._error(message, 138, "Write a list of names that are in fields.")


def _are_names_in(names: Any, known: Any) -> bool:
    """Whether ``known`` contains all names. True for missing ``fields``, which E050 reports."""
    return known is REQUIRED or all(name in [*known] for name in names)


def _operation_permission_problem(permission: Any) -> str | None:
    if permission is PUBLIC:
        return "mcp.PUBLIC would allow everybody to write."
    return permissions.problem(permission) or permission_problem(permission)


def _lookup_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with the URI's variable, which identifies a row."""
    uri, lookup = resource.uri, resource._lookup
    if resource._template is None or len(resource._template.names) != 1:
        hint = 'Write a URI such as "invoice://{number}".'
        yield resource._error(f"{uri!r} must have exactly one variable.", 52, hint)
    elif lookup != "pk" and not _is_unique(resource, lookup):
        message = f"The variable {lookup} of the URI does not identify one row."
        yield resource._error(message, 53, "Use a unique field that is not nullable.")
    elif wrong := key_problems(resource.model, lookup):
        yield resource._error(wrong[0], 59, "Identify rows by a number, a string or a UUID.")
    elif lookup != "pk" and lookup not in resource.fields:
        message = f"The variable {lookup} of the URI is not in fields."
        yield resource._error(message, 54, "Add it: the URI shows its value to clients.")


def _is_unique(resource: ModelResource, name: str) -> bool:
    """Whether a field always identifies exactly one row."""
    try:
        field = resource.model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    alone = [made.fields == (name,) for made in resource.model._meta.total_unique_constraints]
    unique = getattr(field, "unique", False) or any(alone)
    return bool(field.concrete and unique and not getattr(field, "null", False))


def _whitelist_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield problems of the whitelist, and if there are none, those of ordering and search."""
    problems = [*_shown_problems(resource)] or [*_undeclared_problems(resource)]
    yield from problems
    for part in () if problems else (resource._keyset, resource._search):
        for message in part.problems():
            hint = "Name columns that have an order, or text columns to search."
            yield resource._error(message, 61, hint)
    if not problems:
        yield from _aggregate_problems(resource)
        yield from _full_text_problems(resource)
        yield from _vector_problems(resource)


def _aggregate_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with ``aggregate_fields`` and ``group_fields``."""
    aggregates = resource._aggregates
    for message in aggregates.field_problems():
        hint = "Name columns of numbers, dates, times or durations, also over foreign keys."
        yield resource._error(message, 230, hint)
    for message in aggregates.group_problems():
        yield resource._error(message, 231, "Name columns, also over foreign keys.")
    if not (resource.aggregate_fields or resource.group_fields):
        return
    if resource._overrides("has_object_permission"):
        message = "has_object_permission cannot be checked for the rows of an aggregate."
        hint = (
            "Let get_queryset(self, request) exclude the rows, or remove aggregate_fields and "
            "group_fields."
        )
        yield resource._error(message, 232, hint)
    for name in resource.filter_fields:
        if name in AGGREGATE_ARGUMENTS:
            message = f"filter_fields: {name!r} is an argument of the aggregate tool."
            yield resource._error(message, 233, "Rename the field, or do not filter by it.")


def _full_text_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with ``full_text_search``, as far as the model shows it."""
    declared, model, names = resource.full_text_search, resource.model, resource.search_fields
    if declared is None:
        return
    for message in search_methods.column_problems(model, names):
        hint = "Search columns of the model's own table, or remove full_text_search."
        yield resource._error(message, 240, hint)
    for message in search_methods.vector_problems(model, names, declared):
        hint = "Name a SearchVectorField that contains the texts of search_fields and no others."
        yield resource._error(message, 241, hint)
    for message in search_methods.table_problems(model, declared):
        yield resource._error(message, 242, "Remove sqlite_table.")


def _vector_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield what is wrong with ``vector_search``."""
    declared = resource.vector_search
    if declared is None:
        return
    for message in _vector_field_problems(resource.model, declared.field):
        hint = "Name a VectorField of the model, with dimensions."
        yield resource._error(f"vector_search: {message}", 280, hint)
    if declared.distance not in DISTANCES:
        message = f"vector_search: distance is {declared.distance!r}."
        yield resource._error(message, 281, f"The distances are: {', '.join(DISTANCES)}.")
    if declared.embed is not None and not takes_one_text(declared.embed):
        message = "vector_search: embed is not a synchronous function that takes one text."
        hint = "Write def embed(text). It returns the vector as a list of numbers."
        yield resource._error(message, 282, hint)
    if SIMILAR_TO in resource.filter_fields:
        message = f"filter_fields: {SIMILAR_TO!r} is an argument of the vector search."
        yield resource._error(message, 283, "Rename the field, or do not filter by it.")


def _vector_field_problems(model: type[models.Model], name: str) -> Iterator[str]:
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        yield f"{model.__name__} has no field {name!r}."
        return
    if not isinstance(field_type(field), VectorType):
        yield f"{name!r} is not a VectorField of pgvector."
    elif not field.dimensions:
        yield f"{name!r} has no dimensions, so PostgreSQL cannot compare its vectors."


def _shown_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    for message in resource._field_set.problems():
        hint = "Name fields, paths over foreign keys, properties or methods."
        yield resource._error(message, 56, hint)


def _undeclared_problems(resource: ModelResource) -> Iterator[CheckMessage]:
    """Yield names that clients can search, filter or order by but that are not in ``fields``."""
    key = {"pk", getattr(resource.model._meta.pk, "name", "pk")}
    allowed = {*resource.fields} | (key if resource._lookup == "pk" else set())  # the URI shows it
    for option in OPTIONS_LIMITED_TO_FIELDS:
        for name in getattr(resource, option):
            if name.removeprefix("-") not in allowed:
                hint = (
                    "Add it. By searching, filtering, ordering or aggregating, clients can find "
                    "out its values."
                )
                yield resource._error(f"{option}: {name!r} is not in fields.", 55, hint)
