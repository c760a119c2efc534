"""Whether clients can find the rows of a resource: by a list, a search, another row or a tool."""

import pytest

import django_mcp as mcp
from django_mcp.checks import check_declarations
from django_mcp.declarations.model_checks import unreachable
from tests.shop.models import Company, Customer, Invoice, Tag

from .world import right


class Rows(mcp.ModelResource):
    permission = mcp.AUTHENTICATED

    def get_queryset(self, request):
        return self.model.objects.all()


def found(server):
    return [(message.id, message.obj.model) for message in unreachable(right(server))]


def declare(server, model, *fields, **attributes):
    server.register(model, type("Resource", (Rows,), {"fields": list(fields)} | attributes))


def test_resource_with_only_fields_is_a_warning(server):
    declare(server, Invoice, "number")
    assert found(server) == [("django_mcp.W062", Invoice)]
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
def test_rows_that_are_listed_or_searched_are_found(server, attributes):
    declare(server, Invoice, "number", **attributes)
    assert found(server) == []


def test_rows_are_found_by_the_keys_that_other_rows_show(server):
    declare(server, Invoice, "number", "customer", "tags", search_fields=["number"])
    declare(server, Customer, "name")
    declare(server, Tag, "label")
    declare(server, Company, "name")
    assert found(server) == [("django_mcp.W062", Company)]


def test_rows_are_found_by_a_tool_that_returns_them(server):
    declare(server, Invoice, "number")

    @server.tool
    def latest(request) -> list[Invoice]:
        return []

    assert found(server) == []


def test_rows_are_not_found_by_a_tool_that_takes_them_or_by_keys_of_their_own_kind(server):
    declare(server, Customer, "name", "referred_by")

    @server.tool
    def greet(request, customer: Customer) -> str:
        return customer.name

    assert found(server) == [("django_mcp.W062", Customer)]


def test_rows_that_are_found_only_from_each_other_are_a_warning(server):
    declare(server, Invoice, "number", "customer")
    declare(server, Customer, "name", "invoices")
    assert found(server) == [("django_mcp.W062", Invoice), ("django_mcp.W062", Customer)]


def test_rows_are_found_in_several_steps(server):
    declare(server, Company, "name")
    declare(server, Customer, "name", "company")
    declare(server, Invoice, "number", "customer", listed=True)
    assert found(server) == []


def test_tool_that_needs_a_key_finds_no_rows_of_that_kind(server):
    declare(server, Invoice, "number")
    declare(server, Customer, "name")

    @server.tool
    def pay(request, invoice: Invoice) -> Invoice:
        return invoice

    @server.tool
    def payer(request, invoice: Invoice) -> Customer:
        return invoice.customer

    assert found(server) == [("django_mcp.W062", Invoice), ("django_mcp.W062", Customer)]


def test_tool_finds_rows_by_a_key_that_can_be_found_or_left_out(server):
    declare(server, Invoice, "number", listed=True)
    declare(server, Customer, "name")
    declare(server, Tag, "label")

    @server.tool
    def payer(request, invoice: Invoice) -> Customer:
        return invoice.customer

    @server.tool
    def tags(request, like: Tag | None = None) -> list[Tag]:
        return []

    assert found(server) == []


def test_rows_are_not_found_by_tools_that_write_them(server):
    declare(server, Customer, "name", operations=["update"])
    assert found(server) == [("django_mcp.W062", Customer)]


@pytest.mark.parametrize(
    ("shown", "uri", "is_found"),
    [
        (["label"], "other://{pk}", True),
        (["label"], "other://{label}", True),
        (["pk"], "other://{label}", False),
    ],
)
def test_second_resource_of_a_model_is_found_by_a_key_that_the_first_shows(
    server, shown, uri, is_found
):
    declare(server, Tag, *shown, listed=True, default=True, name="first")
    declare(server, Tag, "label", uri=uri, name="second")
    assert found(server) == ([] if is_found else [("django_mcp.W062", Tag)])


def test_the_check_of_a_project_says_it(server):
    declare(server, Invoice, "number")
    assert "django_mcp.W062" in {message.id for message in check_declarations()}


def test_a_wrong_declaration_comes_first(server):
    declare(server, Invoice, "nubmer")
    assert {message.id for message in check_declarations()} == {"django_mcp.E056"}
