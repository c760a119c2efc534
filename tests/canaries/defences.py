"""
The protections of the package, and how to remove each. The campaign must then detect a leak.

A protection is removed in the package, as a bug would do it. The project's code is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from django.contrib.auth.models import User

from django_mcp.bridges.form_input import FormInput
from django_mcp.bridges.views import execution
from django_mcp.bridges.views.requests import ViewRequest
from django_mcp.calls.listing import Usable
from django_mcp.changes.subscriptions import ClientSubscriptions
from django_mcp.declarations.arguments import KeyBinding, row_not_found
from django_mcp.declarations.declaration import Declaration
from django_mcp.declarations.fields.entries import Column
from django_mcp.declarations.fields.keyset import Keyset
from django_mcp.declarations.fields.search import Search
from django_mcp.declarations.fields.whitelist import FieldSet
from django_mcp.declarations.model_resources import ModelResource
from django_mcp.declarations.permissions import FOR_EVERYBODY
from django_mcp.exceptions import InvalidArguments

from .exposed import Ours

Patch = tuple[Any, str, Any]


REDIRECT_TARGET = execution._redirect_target


def redirect_to_hidden_views(answer: Any, views: Any) -> Any:
    return REDIRECT_TARGET(answer, {*views, "audit", "paper"})


def everything(self: Any, request: Any) -> Any:
    return self.model._default_manager.all()


def bound_from_everything(
    self: Any, request: Any, keys: Any, *, lookup: str = "", **options: bool
) -> Any:
    lookup = lookup or self._lookup
    rows = self.model._default_manager.filter(**{f"{lookup}__in": list(keys)})
    return {getattr(row, self._key_attribute(lookup)): row for row in rows}


def said_to_be_forbidden(binding: KeyBinding, named: Any, request: Any, *, write: bool) -> Any:
    """Use different errors for hidden and for missing rows."""
    found = {}
    for lookup, key in named:
        rows = binding.resource._fetch(request, [key], write=write, lookup=lookup)
        if key not in rows:
            there = binding.resource.model._default_manager.filter(**{lookup: key}).exists()
            raise InvalidArguments(f"{key} is {'forbidden' if there else 'missing'}.")
        found[lookup, key] = rows[key]
    return found


def whole_row(fields: FieldSet, row: Any, *options: Any) -> dict[str, Any]:
    shown = {field.attname: str(getattr(row, field.attname)) for field in row._meta.concrete_fields}
    return {name: shown.get(name) for name in fields.entries} | shown


def any_lookup(search: Search, queryset: Any, arguments: Any, visible: Any) -> Any:
    """Pass the client's filters to the ORM."""
    own = ("query", "ordering", "limit", "cursor")
    for name, value in arguments.items():
        if name not in own:
            try:
                queryset = queryset.filter(**{name: value})
            except Exception as error:
                raise ValueError(str(error)) from error
    return queryset


def any_column(search: Search, arguments: Any, alias: str) -> Keyset:
    keyset = Keyset(search.model, [arguments.get("ordering", "pk")])
    if keyset.problems():
        raise ValueError("ordering")
    return keyset


_page = Keyset.page


def counted_before(keyset: Keyset, rows: Any, after: Any, limit: int, allows: Any = None) -> Any:
    """Apply object permissions after the page was cut, so that hidden rows shorten it."""
    page, position = _page(keyset, rows, after, limit, None)
    return [row for row in page if allows is None or allows(row)], position


def path_of_a_file(column: Column, row: Any, *options: Any) -> Any:
    value = getattr(row, column.name.split("__")[0], None)
    return f"/kanary/{value}" if column.name == "scan" else _value(column, row, *options)


_value = Column.value


def completed_from_everything(self: Any, request: Any, text: str, context: Any = None) -> Any:
    return [str(row.pk) for row in self._search.completions(everything(self, request), text)]


def seen_by_everybody(request: Any, uris: Any) -> dict[str, str]:
    return dict.fromkeys(uris, "")


def held_from_everything(resource: Any, request: Any, name: Any, verb: str) -> Any:
    row = resource.model._default_manager.filter(pk=resource._key(name)).first()
    if row is None:
        raise row_not_found(resource, name, f" that you may {verb}")
    return row


def named_from_everything(form: FormInput, request: Any, field: Any, named: list[Any]) -> list[Any]:
    return named


def shown_whoever_asks(request: Any) -> Usable:
    catalog = request.server._catalog
    tools, resources = [*catalog.tools.values()], [*catalog.resources.values()]
    return Usable(tools=tools, resources=resources, prompts=[*catalog.prompts.values()])


mallory = property(
    lambda self: User.objects.get(username="kanary-mallory"), lambda self, given: None
)
ANY_SCHEMA = ("django_mcp.declarations.schemas", "violations", lambda *args, **options: [])
DEFENCES: dict[str, list[Patch]] = {
    "the project's queryset": [(Ours, "get_queryset", everything)],
    "object permission": [(ModelResource, "_permitted", lambda self, request, rows: iter(rows))],
    "binding through the resource": [(ModelResource, "_fetch", bound_from_everything)],
    "the same words for hidden and missing": [(KeyBinding, "_fetch_rows", said_to_be_forbidden)],
    "the whitelist of fields": [(FieldSet, "values", whole_row)],
    "the whitelist of filters": [(Search, "apply", any_lookup), ANY_SCHEMA],
    "the whitelist of orders": [(Search, "keyset", any_column), ANY_SCHEMA],
    "pages filled from further on": [(Keyset, "page", counted_before)],
    "no paths of files": [(Column, "value", path_of_a_file)],
    "completion through the resource": [(ModelResource, "_complete", completed_from_everything)],
    "what subscribers may see": [
        ("django_mcp.calls.methods", "visible", seen_by_everybody),
        ("django_mcp.changes.subscriptions", "visible", seen_by_everybody),
        ("django_mcp.changes.broadcaster", "visible", seen_by_everybody),
    ],
    "lists of what they may see": [
        (
            ClientSubscriptions,
            "_update_listed",
            lambda self, changes, seen: bool(changes.listed_uris),
        )
    ],
    "permission": [(Declaration, "_decide", lambda self, request: FOR_EVERYBODY)],
    "rows to write through the resource": [
        ("django_mcp.bridges.model_operations", "locked_row", held_from_everything),
        ("django_mcp.bridges.forms", "locked_row", held_from_everything),
    ],
    "rows of forms through the resource": [(FormInput, "_find_rows", named_from_everything)],
    "rows of questions through the resource": [
        ("django_mcp.declarations.elicitation_forms", "narrow", lambda form, request: None)
    ],
    "views as who calls": [(ViewRequest, "user", mallory)],
    "the whitelist of redirects": [
        ("django_mcp.bridges.views.execution", "_redirect_target", redirect_to_hidden_views)
    ],
    "the page as who visits": [("django_mcp.web.page", "usable", shown_whoever_asks)],
    "masked bugs": [("django_mcp.calls.errors", "_bug", lambda error, run: str(error))],
}


@contextmanager
def removed(defence: str) -> Iterator[None]:
    """Remove one defence for the duration of the block."""
    with ExitStack() as stack:
        for place, name, without in DEFENCES[defence]:
            stack.enter_context(_patch(place)(place, name, without))
        yield


def _patch(place: Any) -> Callable[..., Any]:
    if isinstance(place, str):
        return lambda module, name, new: mock.patch(f"{module}.{name}", new)
    return mock.patch.object
