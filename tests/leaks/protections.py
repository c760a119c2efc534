"""The protections that decide what a caller sees, and how to remove each.

``RULES_OF`` lists the places of the project that filter rows by all of ``project.RULES``, as the
how-to page of the bridge recommends. ``PATCHES`` remove protections of the package, or of REST
framework, as a bug would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, models
from django.db.models.expressions import RawSQL
from django.forms.models import model_to_dict
from rest_framework.filters import OrderingFilter
from rest_framework.serializers import ModelSerializer

from django_mcp.bridges import admin_site, commands
from django_mcp.bridges.admin_pages import ChangePage, FormValues
from django_mcp.bridges.admin_site import KEY, SearchAdminTool
from django_mcp.bridges.commands import CommandArguments, OfferedParser, load_command
from django_mcp.bridges.views import execution
from django_mcp.bridges.views.requests import ViewRequest
from django_mcp.declarations.fields import entries
from django_mcp.declarations.fields.search_methods import FullTextSearch, VectorSearch
from django_mcp.declarations.model_tools import AggregateTool
from tests.canaries.defences import ANY_SCHEMA, DEFENCES, Patch, _patch

from .project import RULES, exposed, without
from .schema import has_pgvector

RULES_OF = {
    "models": ["models"],
    "generic tools of models": ["models"],
    "REST framework": ["REST framework", "REST framework choices"],
    "ninja": ["ninja", "ninja choices"],
    "admin": ["admin", "admin choices"],
    "full-text search": ["full-text search"],
    "vector search": ["vector search"],
    "views": ["views", "views choices"],
    "commands": ["commands"],
}


OF_SQLITE = ("full-text search", "no rank by how rare a word is")


def unavailable(bridge: str, protection: str = "") -> str:
    """Return why a bridge, or a protection of it, cannot be tested on this database, or ""."""
    if (bridge, protection) == OF_SQLITE and connection.vendor != "sqlite":
        return "Only the campaign on SQLite has an index that ranks words in this way."
    if bridge == "full-text search" and connection.vendor == "mysql":
        return "InnoDB finds only committed rows, and the campaign rolls its rows back."
    if bridge == "vector search" and not has_pgvector():
        return "The database has no pgvector."
    return ""


def every_row(self: Any, request: Any, arguments: Any) -> Any:
    return self._resource._search.apply(self._resource.model.objects.all(), arguments)


def any_parameter(self: Any, visit: Any, given: Any) -> Any:
    """Pass the client's arguments to the admin's list as a query string."""
    found = visit.change_list({n: v for n, v in given.items() if n not in ("page", "limit")}, 20)
    return {"results": [{KEY: row.pk} for row in found.result_list], "count": found.result_count}


def every_column(self: Any) -> Iterator[Any]:
    for form in self._forms:
        yield {name: str(value) for name, value in model_to_dict(form.instance).items()}


def every_field(self: Any, declared: Any, info: Any) -> list[str]:
    return ["id", *info.fields]


def any_column(self: Any, queryset: Any, fields: Any, view: Any, request: Any) -> Any:
    names = {each.name for each in queryset.model._meta.concrete_fields}
    return [name for name in fields if name.lstrip("-") in names]


def all_related(queryset: Any, resources: Any, request: Any) -> Any:
    return queryset


_match = FullTextSearch.match


def any_text(self: Any, model: Any, names: Any, words: Any, vendor: str) -> Any:
    """Search all columns of text, not only those that clients may search."""
    texts = [
        each.name for each in model._meta.concrete_fields
        if isinstance(each, models.CharField | models.TextField) and not each.choices
    ]  # fmt: skip
    return _match(self, model, texts, words, vendor)


def ranked_by_rarity(self: Any, model: Any, names: Any, words: Any, vendor: str) -> Any:
    """Rank the rows of SQLite by FTS5, which counts how many rows of the table have a word."""
    match = _match(self, model, names, words, vendor)
    if match is None or vendor != "sqlite":
        return match
    table, words = self.sqlite_table, match.condition.children[0].get_source_expressions()[1].value
    sql = (
        f"(SELECT CAST(-1e6 * bm25({table}) AS INTEGER) FROM {table} "
        f"WHERE {table} MATCH %s AND rowid = {model._meta.db_table}.id)"
    )
    rank = RawSQL(sql, [words], output_field=models.BigIntegerField())
    return replace(match, rank=rank)


def nearest_of_all(self: Any, queryset: Any, vector: Any) -> Any:
    return _nearest(self, queryset.model._default_manager.all(), vector)


_nearest = VectorSearch.nearest


def any_option(self: Any, values: Any, request: Any, *, write: bool) -> Any:
    """Let the client give all options of the command."""
    tool = self._tool
    parser = OfferedParser(load_command(tool.command), None, {})
    options = parser.parse({name: one for name, one in values.items() if name in parser.offered})
    given = {name: options[name] for name in values if name in options}
    return options | dict(tool.get_options(request)) | given


mallory = property(lambda self: User.objects.get(username="mallory"), lambda self, given: None)
redirect_target = execution._redirect_target


def any_redirect(answer: Any, views: Any) -> Any:
    """Follow redirects to views that are not listed."""
    return redirect_target(answer, {*views, *(f"audit_{name}" for name in exposed)})


_OF_CANARIES = [
    "object permission", "binding through the resource", "the whitelist of fields",
    "the whitelist of filters", "the whitelist of orders", "pages filled from further on",
    "completion through the resource", "the same words for hidden and missing",
    "rows to write through the resource", "rows of forms through the resource",
]  # fmt: skip
PATCHES: dict[tuple[str, str], list[Patch]] = {
    **{("models", name): DEFENCES[name] for name in _OF_CANARIES},
    ("models", "aggregates of the queryset only"): [(AggregateTool, "_matching", every_row)],
    ("models", "rows of to-many relations"): [(entries, "visible_rows", all_related)],
    ("models", "filters by to-many relations"): [
        ("django_mcp.declarations.model_tools", "visible_rows", all_related)
    ],
    ("REST framework", "fields of the serializer"): [
        (ModelSerializer, "get_field_names", every_field)
    ],
    ("REST framework", "ordering_fields"): [
        (OrderingFilter, "remove_invalid_fields", any_column), ANY_SCHEMA
    ],
    ("admin", "the whitelist of filters"): [(SearchAdminTool, "_run", any_parameter), ANY_SCHEMA],
    ("admin", "fields of the page"): [(FormValues, "values", every_column)],
    ("admin", "counts without links"): [(admin_site, "_names_of_links", lambda: set())],
    ("full-text search", "the columns that clients may search"): [
        (FullTextSearch, "match", any_text)
    ],
    OF_SQLITE: [(FullTextSearch, "match", ranked_by_rarity)],
    ("vector search", "the rows of the queryset"): [(VectorSearch, "nearest", nearest_of_all)],
    ("vector search", "binding through the resource"): DEFENCES["binding through the resource"],
    ("vector search", "object permission"): DEFENCES["object permission"],
    ("views", "the caller as the user"): [(ViewRequest, "user", mallory)],
    ("views", "the whitelist of redirects"): [(execution, "_redirect_target", any_redirect)],
    ("commands", "the arguments that clients may give"): [
        (CommandArguments, "bind", any_option), (commands, "refuse_unknown", lambda *given: None),
        ANY_SCHEMA,
    ],
    ("commands", "errors without the text of a bug"): DEFENCES["masked bugs"],
    ("admin", "links that the form does not offer"): [
        (ChangePage, "_withhold_hidden_links", lambda self: None)
    ],
}  # fmt: skip
PROTECTIONS = [
    *((bridge, f"{rule} in {place}") for bridge, places in RULES_OF.items() for place in places
      for rule in RULES),
    *PATCHES,
]  # fmt: skip


@contextmanager
def removed(bridge: str, protection: str) -> Iterator[None]:
    """Remove one protection for the duration of the block."""
    with ExitStack() as stack:
        for place, name, new in PATCHES.get((bridge, protection), []):
            stack.enter_context(_patch(place)(place, name, new))
        if (bridge, protection) not in PATCHES:
            rule, _, place = protection.partition(" in ")
            without.add((place, rule))
            stack.callback(without.clear)
        yield
