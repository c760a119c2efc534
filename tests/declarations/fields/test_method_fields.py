"""Methods of a model resource that are listed in ``fields``."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Prefetch

import django_mcp as mcp
from django_mcp.declarations.fields.whitelist import FieldSet
from tests.client import RpcError
from tests.declarations.helpers import single_problem, valid_catalog
from tests.shop.models import Invoice, Tag


class Bills(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["number", "total_label", "due"]
    search_fields = ["number"]

    def get_queryset(self, request: mcp.Request) -> Any:
        return super().get_queryset(request)

    def total_label(self, row: Any, request: mcp.Request) -> str:
        """The total, for this user.

        Not shown.
        """
        return f"{row.total} for {request.user.get_username()}"

    def due(self, row, request) -> date | None:
        return row.issued


def test_method_values_are_part_of_the_row(server, connect, alice, invoice):
    server.register(Invoice, Bills)
    valid_catalog(server)
    client = connect(alice, server=server)
    (found,) = client.call("search_invoice")["structuredContent"]["results"]
    assert found["total_label"] == f"{invoice.total} for alice"
    assert found["due"] == invoice.issued.isoformat()


def test_schema_of_a_method_is_its_return_annotation(server):
    server.register(Invoice, Bills)
    (resource,) = valid_catalog(server).models[Invoice]
    shown = resource._row_schema()["properties"]
    label = {"type": "string", "description": "The total, for this user."}
    assert shown["total_label"] == label
    due = {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
    assert shown["due"] == due


def problem_of_method(server: Any, method: Any, name: str = "label", **more: Any) -> str:
    server.register(Invoice, type("Odd", (Bills,), {"fields": [name], name: method} | more))
    return str(single_problem(server))


def unannotated(self, row, request):
    return ""


def without_request(self, row) -> str:
    return ""


async def asynchronous(self, row, request) -> str:
    return ""


def swapped(self, request, row) -> str:
    return ""


def annotated(self, a: mcp.Request, b: Any) -> str:
    return ""


def request_of_another_name(self, row, req) -> str:
    return ""


def row_of_another_name(self, invoice, request) -> str:
    return ""


def returns_rows(self, row, request) -> list[Invoice]:
    return [row]


def unknown_annotation(self, row, request) -> server:  # noqa: F821
    return row


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (unannotated, "'label' has no return annotation"),
        (without_request, "'label' must accept (self, row, request)"),
        (swapped, "'label' must accept (self, row, request): write 'row' before 'request'"),
        (annotated, "'label' must accept (self, row, request): write 'b' before 'a'"),
        (asynchronous, "'label' is asynchronous"),
        (returns_rows, "'label' returns model instances"),
        (unknown_annotation, "'label': its annotation has no JSON Schema"),
    ],
)
def test_invalid_method_is_a_problem_with_its_name(server, method, words):
    assert words in problem_of_method(server, method, search_fields=[])


@pytest.mark.parametrize("method", [request_of_another_name, row_of_another_name])
def test_parameters_of_a_method_may_have_any_name(server, method):
    more = {"fields": ["label"], "label": method, "search_fields": []}
    server.register(Invoice, type("Named", (Bills,), more))
    valid_catalog(server)


def test_method_with_the_name_of_a_model_field_is_a_problem(server):
    words = problem_of_method(server, Bills.total_label, "number")
    assert "'number' is both a field of the model and a method of the resource" in words


@pytest.mark.parametrize("option", ["search_fields", "filter_fields", "ordering"])
def test_method_cannot_be_searched_filtered_or_ordered_by(server, option):
    server.register(Invoice, type("Odd", (Bills,), {option: ["due"]}))
    assert "due" in str(single_problem(server))


@pytest.mark.django_db
def test_method_value_that_does_not_fit_its_annotation_is_not_sent(
    server, connect, alice, invoice, caplog
):
    odd = {"fields": ["number", "due"], "due": lambda self, row, request: Decimal(1)}
    odd["due"].__annotations__["return"] = str
    server.register(Invoice, type("Odd", (Bills,), odd))
    valid_catalog(server)
    with pytest.raises(RpcError, match="Something went wrong"):
        connect(alice, server=server).request(
            "resources/read", uri=f"model://shop/invoice/{invoice.pk}"
        )
    assert "Odd.due returned Decimal('1') (Decimal). Its annotation is str" in caplog.text
    assert "ValidationError" not in caplog.text


def test_methods_of_the_package_cannot_be_listed():
    assert FieldSet(Invoice, ["number"]).methods == {}
    resource = Bills()
    resource.model = Invoice
    assert list(resource._field_set.methods) == ["total_label", "due"]
    assert not resource._has_method("values") and not resource._has_method("uri")


class Tagged(Bills):
    fields = ["number", "labels"]
    search_fields = ["number"]

    def get_queryset(self, request: mcp.Request) -> Any:
        late = Prefetch("tags", Tag.objects.exclude(label="hidden"), to_attr="shown_tags")
        return super().get_queryset(request).prefetch_related(late)

    def labels(self, row: Any, request: mcp.Request) -> list[str]:
        return [tag.label for tag in row.shown_tags]


def test_method_can_use_what_get_queryset_prefetches(server, connect, alice, invoice):
    server.register(Invoice, Tagged)
    valid_catalog(server)
    for label in ("late", "hidden"):
        invoice.tags.create(label=label)
    client = connect(alice, server=server)
    (found,) = client.call("search_invoice")["structuredContent"]["results"]
    read = client.request("resources/read", uri=found["_uri"])["contents"][0]["text"]
    assert found["labels"] == json.loads(read)["labels"] == ["late"]
