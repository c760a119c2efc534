"""Views of the project with a random schema, and the ``ViewTools`` that expose them.

Each model has pages to list, read, add, edit and delete rows. The page ``audit_...`` shows all rows
to everybody, and is not exposed. The page to edit a row redirects to it.
"""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpResponse, JsonResponse
from django.template import engines
from django.urls import path, reverse
from django.views.generic import CreateView, DeleteView, DetailView, ListView, UpdateView

import django_mcp as mcp
from django_mcp.bridges.views import ViewTools
from django_mcp.declarations.server import Server

from .project import own_tenant, rows
from .schema import Schema, Table

PAGE = "<main><h1>{{ object }}</h1>{{ form.as_p }}<p>{{ object.parent }}</p></main>"
VIEWS, CHOICES = "views", "views choices"  # the places where rules can be removed


def expose_views(schema: Schema) -> tuple[Server, list[Any]]:
    """Return the server of the views, and their URL patterns."""
    server, urls = Server("leaks of views"), []
    for table in schema.tables:
        pages = _pages(schema, table)
        urls += [path(f"{table.name}/{route}", view, name=name) for name, route, view in pages]
        shown = [f"list_rows_{table.name}", f"read_row_{table.name}"]
        edited = f"edit_row_{table.name}"
        attributes = {
            "get": [*shown, edited], "resources": [shown[1]],
            "post": [f"{verb}_row_{table.name}" for verb in ("add", "edit", "delete")],
            "query": {shown[0]: _filter_form(schema, table)},
        }  # fmt: skip
        server.register(type("Views", (ViewTools,), attributes | {"permission": mcp.AUTHENTICATED}))
    return server, urls


def _filter_form(schema: Schema, table: Table, user: Any = None) -> Any:
    """Return the form of the list's query string, whose choices are those of ``user``."""
    fields: dict[str, Any] = {"contains": forms.CharField(required=False)}
    if table.target:
        every = table.target.model._default_manager.none()
        found = rows(schema, table.target.model, user, CHOICES) if user else every
        fields["parent"] = forms.ModelChoiceField(found, required=False)
    return type("FilterForm", (forms.Form,), fields)


def _pages(schema: Schema, table: Table) -> list[tuple[str, str, Any]]:
    """Return the name, the route and the view of each page."""
    columns = [*table.shown, *(["parent"] if table.target else [])]

    class Own:
        """The rows of the user."""

        model = table.model
        request: Any

        def get_queryset(self) -> Any:
            return rows(schema, table.model, self.request.user, VIEWS).order_by("pk")

        def get_template_names(self) -> Any:
            return engines["django"].from_string(PAGE)

    class Editing(Own):
        """A form whose choices are the rows of the user."""

        # No many-to-many field: views of Django remove links that their form does not offer.
        fields = columns

        def get_form(self, form_class: Any = None) -> Any:
            form = super().get_form(form_class)  # type: ignore[misc]
            for field in form.fields.values():
                if isinstance(field, forms.ModelChoiceField):
                    field.queryset = rows(schema, field.queryset.model, self.request.user, CHOICES)
            return form

    class Rows(Own, ListView):  # type: ignore[misc]
        """List rows."""

        paginate_by = 3

        def get_queryset(self) -> Any:
            found = super().get_queryset()
            form = _filter_form(schema, table, self.request.user)(self.request.GET)
            if not form.is_valid():
                return found.none()
            label = next(iter(table.shown))
            if contains := form.cleaned_data["contains"]:
                found = found.filter(**{f"{label}__icontains": contains})
            if parent := form.cleaned_data.get("parent"):
                found = found.filter(parent=parent)
            return found

        def render_to_response(self, context: Any, **options: Any) -> Any:
            names = ["id", *(f"{n}_id" if n == "parent" else n for n in columns)]
            found = [{n: getattr(row, n) for n in names} for row in context["page_obj"]]
            count = context["paginator"].count
            data = {"results": found, "count": count, "pages": context["paginator"].num_pages}
            return JsonResponse(data, encoder=DjangoJSONEncoder)

    class Row(Own, DetailView):  # type: ignore[misc]
        """Show one row."""

    class Add(Editing, CreateView):  # type: ignore[misc]
        """Add a row."""

        def form_valid(self, form: Any) -> Any:
            setattr(form.instance, table.tenant, own_tenant(schema, self.request.user))
            return super().form_valid(form)

        def get_success_url(self) -> str:
            return reverse(f"read_row_{table.name}", args=[self.object.pk])

    class Edit(Editing, UpdateView):  # type: ignore[misc]
        """Change a row."""

        def get_success_url(self) -> str:
            return reverse(f"audit_{table.name}")

    class Delete(Own, DeleteView):  # type: ignore[misc]
        """Delete a row."""

        def get_success_url(self) -> str:
            return reverse(f"list_rows_{table.name}")

    def audit(request: Any) -> HttpResponse:
        every = table.model._default_manager.values()
        return HttpResponse(json.dumps([*map(str, every)]), content_type="application/json")

    return [
        (f"list_rows_{table.name}", "", Rows.as_view()),
        (f"read_row_{table.name}", "<int:pk>/", Row.as_view()),
        (f"add_row_{table.name}", "add/", Add.as_view()),
        (f"edit_row_{table.name}", "<int:pk>/edit/", Edit.as_view()),
        (f"delete_row_{table.name}", "<int:pk>/delete/", Delete.as_view()),
        (f"audit_{table.name}", "audit/", audit),
    ]
