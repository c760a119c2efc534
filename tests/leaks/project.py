"""The code of a project with a random schema: it uses each bridge as its how-to page recommends.

``without`` has the rules of the project that ``protections`` removes, each with the place where it
is removed.
"""

# No annotations from __future__: ninja evaluates those of operations, which name local classes.

import itertools
from types import ModuleType
from typing import Annotated, Any

import django_filters
from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.shortcuts import get_object_or_404
from django.urls import include, path
from django_filters.rest_framework import DjangoFilterBackend
from ninja import FilterLookup, FilterSchema, NinjaAPI, Query, Router, Status
from ninja import Schema as NinjaSchema
from ninja.errors import HttpError
from ninja.orm import create_schema
from ninja.pagination import PageNumberPagination, paginate
from pydantic import create_model
from rest_framework import filters, pagination, routers, serializers, viewsets

import django_mcp as mcp
from django_mcp.bridges.commands import CommandTool
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.ninja import NinjaTools
from django_mcp.bridges.rest_framework import ViewSetTools
from django_mcp.declarations.server import Server

from .schema import KINDS, VECTOR, Schema, Table

without: set[tuple[str, str]] = set()  # places and rules, as ``rows`` gets them
_numbers = itertools.count(1)
RULES = ("tenant", "soft delete", "owner")


def rows(schema: Schema, model: Any, user: Any, place: str, rules: Any = RULES) -> Any:
    """Return the rows of ``model`` that ``user`` may see. ``place`` is that of the calling code."""
    (table,) = [one for one in schema.tables if one.model is model]
    wanted = {
        "tenant": Q(**{f"{table.tenant}__member": user.pk}),
        "soft delete": Q(
            **({f"{table.deleted}__isnull": True} if table.deleted == "deleted_at"
               else {table.deleted: False})
        ),
        "owner": Q(**{table.owner: None}) | Q(**{table.owner: user.pk}),
    }  # fmt: skip
    found = model._default_manager.all()
    for rule in rules:
        if (place, rule) not in without:
            found = found.filter(wanted[rule])
    return found


def own_tenant(schema: Schema, user: Any) -> Any:
    return schema.tenant.objects.get(member=user.pk)


# Model resources, tools and forms.


def expose_models(schema: Schema, name: str, place: str = "models", **options: Any) -> Server:
    """Return a server of the models. ``options`` turn on ``full_text`` and ``vectors``."""
    server = Server(name)
    for table in schema.tables:
        server.register(table.model, _resource(schema, table, place, **options))
        _binding(server, table)
    for table in schema.tables[1:]:
        fields = [*table.shown, "parent", *([table.children] if table.is_many else [])]
        meta = type("Meta", (), {"model": table.model, "fields": fields})
        form = type(f"{table.model.__name__}Form", (forms.ModelForm,), {"Meta": meta})
        attributes = {"update": True, "permission": mcp.AUTHENTICATED, "name": f"edit_{table.name}"}
        server.register(form, type("Edit", (FormTool,), attributes | {"__doc__": "Edit a row."}))
    return server


def embed(text: str) -> list[float]:
    """Return a vector of a text, as an embedding model does."""
    return [float(len(text) % 7), 1.0]


def _resource(
    schema: Schema, table: Table, place: str, *, full_text: bool = False, vectors: bool = False
) -> Any:
    relations = [name for name in (table.parent, table.children) if name]
    filtered = [one for one in table.shown if table.shown[one] != "json"]
    filtered += [name for name in (table.parent, table.children if table.is_many else "") if name]
    through_parent = []
    if table.target and not table.target.by_object:
        through_parent = [f"parent__{next(iter(table.target.shown))}"]

    class Resource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = [*table.shown, *relations, *through_parent]
        search_fields = table.named(lambda kind: kind.is_text)
        filter_fields = filtered
        ordering = table.named(lambda kind: kind.is_ordered)
        operations = ["create", "update", "delete"]
        listed = True
        default = True

        def get_queryset(self, request: Any) -> Any:
            rules = RULES[:2] if table.by_object else RULES
            return rows(schema, self.model, request.user, place, rules)

        def get_initial(self, request: Any) -> Any:
            return {table.tenant: own_tenant(schema, request.user)}

    if full_text:
        declared = mcp.FullTextSearch(config="simple", sqlite_table=table.text_table)
        Resource.full_text_search = declared
    if vectors:
        Resource.vector_search = mcp.VectorSearch(VECTOR, embed=embed, distance="l2")
    if table.by_object:

        def has_object_permission(self: Any, request: Any, obj: Any, action: str) -> bool:
            return getattr(obj, table.owner) in (None, request.user.pk)

        Resource.has_object_permission = has_object_permission  # type: ignore[method-assign]
    else:
        Resource.aggregate_fields = table.named(lambda kind: kind.is_number)
        Resource.group_fields = [
            *(name for name in filtered if name != table.children), *through_parent
        ]  # fmt: skip
    return Resource


def _binding(server: Server, table: Table) -> None:
    label = next(iter(table.shown))

    def describe(request: mcp.Request, row: Any, others: Any = ()) -> Any:
        """Describe a row, and count others."""
        request.log("info", {"label": getattr(row, label)})
        return {"label": getattr(row, label), "others": len(others)}

    describe.__annotations__ |= {"row": table.model, "others": list[table.model]}  # type: ignore[name-defined]
    server.tool(describe, name=f"describe_{table.name}")

    def review(request: mcp.Request, row: Any) -> str:
        return f"Review {getattr(row, label)}."

    review.__annotations__ |= {"row": table.model}
    server.prompt(review, name=f"review_{table.name}")


# Django REST framework.


def expose_rest_framework(schema: Schema, router: Any) -> Server:
    server = Server("leaks of REST framework")
    for table in schema.tables:
        viewset = _viewset(schema, table)
        router.register(table.name, viewset, basename=table.name)
        actions = ["list", "retrieve", "create", "partial_update", "destroy"]
        attributes = {"actions": actions, "permission": mcp.AUTHENTICATED}
        server.register(viewset, type("Tools", (ViewSetTools,), attributes))
    return server


def _viewset(schema: Schema, table: Table) -> Any:
    def of(model: Any, request: Any, place: str = "REST framework choices") -> Any:
        return rows(schema, model, request.user, place)

    class ScopedKey(serializers.PrimaryKeyRelatedField):
        def get_queryset(self) -> Any:
            return of(super().get_queryset().model, self.context["request"])

    named = {"id": ["exact"]} | {
        name: ["exact", *(["gte", "lte"] if KINDS[kind].is_number else [])]
        for name, kind in table.shown.items()
        if kind != "json"
    }
    target = table.target
    chosen = {}
    if target:
        found = lambda request: of(target.model, request)  # noqa: E731
        chosen["parent"] = django_filters.ModelChoiceFilter(queryset=found)
    if table.is_many:
        chosen[table.children] = django_filters.ModelMultipleChoiceFilter(queryset=found)

    class Serializer(serializers.ModelSerializer):
        serializer_related_field = ScopedKey

        class Meta:
            model = table.model
            fields = ["id", *table.shown, *(["parent"] if target else [])]

    meta = type("Meta", (), {"model": table.model, "fields": named})
    filterset = type("Filters", (django_filters.FilterSet,), chosen | {"Meta": meta})

    class Page(pagination.PageNumberPagination):
        page_size = 3
        page_size_query_param = "page_size"

    class ViewSet(viewsets.ModelViewSet):
        """Rows of the caller's tenant."""

        queryset = table.model._default_manager.order_by("pk")
        serializer_class = Serializer
        pagination_class = Page
        filter_backends = [DjangoFilterBackend, filters.SearchFilter, filters.OrderingFilter]
        filterset_class = filterset
        search_fields = table.named(lambda kind: kind.is_text)
        ordering_fields = table.named(lambda kind: kind.is_ordered)

        def get_queryset(self) -> Any:
            return of(table.model, self.request, "REST framework").order_by("pk")

        def perform_create(self, serializer: Any) -> None:
            serializer.save(**{table.tenant: own_tenant(schema, self.request.user)})

    return ViewSet


# django-ninja.


def expose_ninja(schema: Schema, api: Any) -> Server:
    server = Server("leaks of ninja")
    for table in schema.tables:
        router = Router()
        names = _operations(schema, table, router)
        api.add_router(f"/{table.name}", router)
        attributes = {"operations": names, "permission": mcp.AUTHENTICATED}
        server.register(router, type("Tools", (NinjaTools,), attributes))
    return server


def _operations(schema: Schema, table: Table, router: Any) -> list[str]:
    names = [*table.shown, *(["parent"] if table.target else [])]

    def of(request: Any) -> Any:
        return rows(schema, table.model, request.user, "ninja")

    label = table.model.__name__
    Out = create_schema(table.model, name=f"{label}Out", fields=["id", *names])
    In = create_schema(table.model, name=f"{label}In", fields=names)
    Change = create_schema(table.model, name=f"{label}Change", fields=names, optional_fields=names)
    filtered: Any = {
        f"{name}{suffix}": (Annotated[kind | None, FilterLookup(f"{name}{lookup}")], None)
        for name, kind, suffix, lookup in _filters(table)
    }
    Filters = create_model(f"{label}Filters", __base__=FilterSchema, **filtered)
    ordered = table.named(lambda kind: kind.is_ordered)

    class Order(NinjaSchema):
        ordering: str = ""

    @router.get("", response=list[Out])
    @paginate(PageNumberPagination, page_size=3)
    def list_rows(request, filters: Query[Filters], order: Query[Order]):
        """List rows."""
        by = [order.ordering] if order.ordering.lstrip("-") in ordered else []
        return filters.filter(of(request)).order_by(*by, "pk")

    @router.get("/{int:pk}", response=Out)
    def read_row(request, pk: int):
        """Show one row."""
        return get_object_or_404(of(request), pk=pk)

    def save(request, row, values):
        if (parent := values.pop("parent", None)) is not None:
            values["parent"] = get_object_or_404(
                rows(schema, table.target.model, request.user, "ninja choices"), pk=parent
            )
        for name, value in values.items():
            setattr(row, name, value)
        try:
            row.full_clean()
        except ValidationError as error:
            raise HttpError(400, "; ".join(error.messages)) from None
        row.save()
        return row

    @router.post("", response={201: Out})
    def create_row(request, payload: In):
        """Add a row."""
        row = table.model(**{table.tenant: own_tenant(schema, request.user)})
        return Status(201, save(request, row, payload.dict()))

    @router.patch("/{int:pk}", response=Out)
    def update_row(request, pk: int, payload: Change):
        """Change a row."""
        values = payload.dict(exclude_unset=True)
        return save(request, get_object_or_404(of(request), pk=pk), values)

    @router.delete("/{int:pk}", response={204: None})
    def delete_row(request, pk: int):
        """Delete a row."""
        get_object_or_404(of(request), pk=pk).delete()
        return Status(204, None)

    made = [list_rows, read_row, create_row, update_row, delete_row]
    operations = [one for view in router.path_operations.values() for one in view.operations]
    for operation, function in zip(operations, made, strict=False):
        operation.operation_id = f"{function.__name__}_{table.name}"
    return [f"{one.__name__}_{table.name}" for one in made]


def _filters(table: Table) -> Any:
    for name in table.named(lambda kind: kind.is_text):
        yield name, str, "", "__icontains"
    for name in table.named(lambda kind: kind.is_number):
        yield name, float, "_from", "__gte"
        yield name, float, "_to", "__lte"
    if table.target:
        yield "parent", int, "", ""


# The admin.


def expose_admin(schema: Schema, site: Any) -> Server:
    server = Server("leaks of the admin")
    for table in schema.tables:
        site.register(table.model, _model_admin(schema, table))
    mcp.register_admin(
        site, [table.model for table in schema.tables],
        operations=["create", "update", "delete"], actions=["count_rows"], server=server,
    )  # fmt: skip
    return server


def _model_admin(schema: Schema, table: Table) -> Any:
    relation = ("parent", admin.RelatedOnlyFieldListFilter)

    class ModelAdmin(admin.ModelAdmin):
        list_display = [*table.shown, *(["parent"] if table.target else [])]
        list_filter = [
            *(name for name, kind in table.shown.items() if kind in ("flag", "state", "text")),
            *([relation] if table.target else []),
        ]
        search_fields = table.named(lambda kind: kind.is_text)
        fields = [
            *table.shown,
            *(["parent"] if table.target else []),
            *([table.children] if table.is_many else []),
        ]
        ordering = ["pk"]
        actions = ["count_rows"]
        list_per_page = 3

        def get_queryset(self, request: Any) -> Any:
            # Parents that the user may not see are not shown: there are none in these schemas.
            return rows(schema, self.model, request.user, "admin").order_by("pk")

        def formfield_for_foreignkey(self, db_field: Any, request: Any, **options: Any) -> Any:
            options["queryset"] = self.choices(db_field, request)
            return super().formfield_for_foreignkey(db_field, request, **options)

        def formfield_for_manytomany(self, db_field: Any, request: Any, **options: Any) -> Any:
            options["queryset"] = self.choices(db_field, request)
            return super().formfield_for_manytomany(db_field, request, **options)

        def choices(self, db_field: Any, request: Any) -> Any:
            return rows(schema, db_field.related_model, request.user, "admin choices")

        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            if not change:
                setattr(obj, table.tenant, own_tenant(schema, request.user))
            super().save_model(request, obj, form, change)

        @admin.action(description="Count rows")
        def count_rows(self, request: Any, queryset: Any) -> None:
            self.message_user(request, f"{queryset.count()} rows.")

    return ModelAdmin


# Management commands.

exposed: dict[str, tuple[Schema, Table]] = {}  # by the name of the table


def expose_commands(schema: Schema) -> Server:
    server = Server("leaks of commands")
    exposed.clear()
    for table in schema.tables:
        exposed[table.name] = schema, table
        attributes = {
            "command": "list_rows", "name": f"list_rows_{table.name}", "get_options": _options,
            "arguments": ["contains", "pk", "first", "last"], "permission": is_member,
            "options": {"table": table.name},
        }  # fmt: skip
        server.register(type("Rows", (CommandTool,), attributes))
    return server


def is_member(self: Any, request: Any) -> bool:
    return bool(request.user.is_staff)


def _options(self: Any, request: Any) -> dict[str, Any]:
    return {**self.options, "user": request.user.pk}


def rows_of_command(options: Any) -> tuple[Table, Any, Any]:
    """Return the table that a command names, all of its rows, and those of the user it names."""
    schema, table = exposed[options["table"]]
    every = table.model._default_manager.all()
    if options["everything"]:
        return table, every, every
    user = User.objects.get(pk=options["user"])
    return table, every, rows(schema, table.model, user, "commands")


def label_of(table: Table) -> str:
    return next(iter(table.shown))


def expose(schema: Schema) -> tuple[ModuleType, dict[str, Server]]:
    """Return the URLconf of the project, and the server of each bridge."""
    from .views import expose_views  # which imports this module

    router = routers.SimpleRouter()
    api = NinjaAPI(urls_namespace=f"leaks{next(_numbers)}", title="Leaks")
    site = admin.AdminSite(name="leaks")
    servers = {
        "models": expose_models(schema, "leaks of models"),
        "generic tools of models": expose_models(schema, "generic tools of models"),
        "REST framework": expose_rest_framework(schema, router),
        "ninja": expose_ninja(schema, api),
        "admin": expose_admin(schema, site),
        "full-text search": expose_models(
            schema, "full-text search of models", "full-text search", full_text=True
        ),
        "commands": expose_commands(schema),
    }
    if schema.has_vectors:
        servers["vector search"] = expose_models(
            schema, "vector search of models", "vector search", vectors=True
        )
    servers["views"], views = expose_views(schema)
    models = [table.model for table in schema.tables]
    mcp.register_models(*models, generic=True, server=servers["generic tools of models"])
    urls = ModuleType(f"tests.leaks.urls{schema.seed}")
    urls.urlpatterns = [  # type: ignore[attr-defined]
        path("rest/", include(router.urls)),
        path("ninja/", api.urls),
        path("admin/", site.urls),
        path("views/", include(views)),
    ]
    return urls, servers
