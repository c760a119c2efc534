"""The warning about rows that clients cannot find by a list, a search, another row or a tool."""

import pytest

import django_mcp as mcp
from django_mcp.checks import check_declarations
from django_mcp.declarations.catalog import unreachable
from tests.shop.models import Company, Customer, Invoice, Tag

from .helpers import valid_catalog


class Rows(mcp.ModelResource):
    permission = mcp.AUTHENTICATED

    def get_queryset(self, request):
        return self.model.objects.all()


def warnings(server):
    return [(message.id, message.obj.model) for message in unreachable(valid_catalog(server))]


def declare(server, model, *fields, **attributes):
    server.register(model, type("Resource", (Rows,), {"fields": list(fields)} | attributes))


def test_resource_with_only_fields_is_a_warning(server):
    declare(server, Invoice, "number")
    assert warnings(server) == [("django_mcp.W062", Invoice)]
    (message,) = unreachable(server._catalog)
    assert message.hint and not message.is_serious()


@pytest.mark.parametrize(
    "attributes",
    [
        {"search_fields": ["number"]},
        {"filter_fields": ["number"]},
        {"listed": True},
        {"get_listed": lambda self, request: self.get_queryset(request)},
    ],
)
def test_listed_or_searchable_rows_are_reachable(server, attributes):
    declare(server, Invoice, "number", **attributes)
    assert warnings(server) == []


def test_rows_are_reachable_by_keys_in_other_rows(server):
    declare(server, Invoice, "number", "customer", "tags", search_fields=["number"])
    declare(server, Customer, "name")
    declare(server, Tag, "label")
    declare(server, Company, "name")
    assert warnings(server) == [("django_mcp.W062", Company)]


def test_rows_are_reachable_by_a_tool_that_returns_them(server):
    declare(server, Invoice, "number")

    @server.tool
    def latest(request) -> list[Invoice]:
        return []

    assert warnings(server) == []


def test_tool_argument_or_self_reference_does_not_make_rows_reachable(server):
    declare(server, Customer, "name", "referred_by")

    @server.tool
    def greet(request, customer: Customer) -> str:
        return customer.name

    assert warnings(server) == [("django_mcp.W062", Customer)]


def test_rows_that_refer_only_to_each_other_are_a_warning(server):
    declare(server, Invoice, "number", "customer")
    declare(server, Customer, "name", "invoices")
    assert warnings(server) == [("django_mcp.W062", Invoice), ("django_mcp.W062", Customer)]


def test_rows_are_reachable_in_several_steps(server):
    declare(server, Company, "name")
    declare(server, Customer, "name", "company")
    declare(server, Invoice, "number", "customer", listed=True)
    assert warnings(server) == []


def test_tool_that_requires_an_unreachable_row_does_not_make_rows_reachable(server):
    declare(server, Invoice, "number")
    declare(server, Customer, "name")

    @server.tool
    def pay(request, invoice: Invoice) -> Invoice:
        return invoice

    @server.tool
    def payer(request, invoice: Invoice) -> Customer:
        return invoice.customer

    assert warnings(server) == [("django_mcp.W062", Invoice), ("django_mcp.W062", Customer)]


def test_tool_with_a_reachable_or_optional_argument_makes_rows_reachable(server):
    declare(server, Invoice, "number", listed=True)
    declare(server, Customer, "name")
    declare(server, Tag, "label")

    @server.tool
    def payer(request, invoice: Invoice) -> Customer:
        return invoice.customer

    @server.tool
    def tags(request, like: Tag | None = None) -> list[Tag]:
        return []

    assert warnings(server) == []


def test_operations_do_not_make_rows_reachable(server):
    declare(server, Customer, "name", operations=["update"])
    assert warnings(server) == [("django_mcp.W062", Customer)]


@pytest.mark.parametrize(
    ("shown", "uri", "is_found"),
    [
        (["label"], "other://{pk}", True),
        (["label"], "other://{label}", True),
        (["pk"], "other://{label}", False),
    ],
)
def test_second_resource_of_a_model_is_reachable_by_the_key_in_the_first(
    server, shown, uri, is_found
):
    declare(server, Tag, *shown, listed=True, default=True, name="first")
    declare(server, Tag, "label", uri=uri, name="second")
    assert warnings(server) == ([] if is_found else [("django_mcp.W062", Tag)])


def test_system_check_contains_the_warning(server):
    declare(server, Invoice, "number")
    assert "django_mcp.W062" in {message.id for message in check_declarations()}


def test_warning_is_omitted_if_a_declaration_is_invalid(server):
    declare(server, Invoice, "nubmer")
    assert {message.id for message in check_declarations()} == {"django_mcp.E056"}
