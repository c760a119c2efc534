"""Search tools and file resources, which a model resource creates."""

from datetime import date
from decimal import Decimal

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

import django_mcp as mcp
from django_mcp.declarations.schemas import problem, violations
from django_mcp.exceptions import InvalidArguments, ToolError
from django_mcp.protocol.jsonrpc import ResourceNotFound
from tests.shop.models import Customer, Invoice

from .helpers import make_request, valid_catalog


class Own(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["number", "customer__name", "status", "issued", "attachment"]
    search_fields = ["number", "customer__name"]
    filter_fields = ["status", "issued"]
    ordering = ["-issued", "number"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


@pytest.fixture
def declare(server):
    def declared(**attributes):
        server.register(Invoice, type("Rows", (Own,), attributes))
        return valid_catalog(server)

    return declared


@pytest.fixture
def seven_invoices(invoice):
    for number in range(2, 8):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{number}",
            total=Decimal(number), issued=date(2026, 1, number), status=Invoice.Status.PAID,
        )  # fmt: skip
    return invoice


def search(catalog, user, **arguments):
    """Return the result of a search. Arguments and result must fit their schemas."""
    tool = catalog.tools["search_invoice"]
    request = make_request(user, catalog.server)
    values = tool._arguments.read(arguments)
    found = tool._output.structured(tool._implementation(request, **values), request)
    assert violations(tool._output.schema, found) == []
    return found


def numbers(found):
    return [row["number"] for row in found["results"]]


# Definition.


def test_definition_of_a_search_tool(declare):
    shown = declare().tools["search_invoice"]._definition()
    assert shown["title"] == "Search invoices"
    assert shown["description"].startswith("Find invoices by text and fields, page by page.")
    assert shown["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert problem(shown["inputSchema"]) is None and problem(shown["outputSchema"]) is None
    assert "query" in shown["inputSchema"]["properties"]
    assert shown["outputSchema"]["required"] == ["results"]


def test_definition_without_search_fields(declare):
    shown = declare(search_fields=[]).tools["search_invoice"]._definition()
    assert shown["description"].startswith("Find invoices by fields, page by page.")
    assert "query" not in shown["inputSchema"]["properties"]


def test_resource_without_search_and_filter_fields_has_no_search_tool(declare):
    assert declare(search_fields=[], filter_fields=[]).tools == {}


def test_search_tool_has_name_and_origin_of_its_resource(declare):
    tool = declare(name="bill").tools["search_bill"]
    assert tool._origin().endswith("Rows of shop.Invoice")


# Results.


def test_search_by_text_and_filters(declare, alice, seven_invoices):
    catalog = declare()
    assert numbers(search(catalog, alice, query="A-3")) == ["A-3"]
    assert len(numbers(search(catalog, alice, query="carl"))) == 7
    assert numbers(search(catalog, alice, status="open")) == ["A-1"]
    assert numbers(search(catalog, alice, issued__gte="2026-01-06")) == ["A-7", "A-6"]
    assert numbers(search(catalog, alice, query="dora")) == []


def test_result_has_the_fields_of_the_resource(declare, alice, invoice):
    (row,) = search(declare(), alice)["results"]
    assert set(row) == {"_uri", "number", "customer__name", "status", "issued", "attachment"}


def test_search_finds_only_rows_that_the_user_may_see(declare, alice, bob, seven_invoices):
    assert search(declare(), bob) == {"results": []}


def test_search_omits_rows_without_object_permission(declare, alice, seven_invoices):
    def odd(self, request, obj, operation):
        return obj.number in ("A-2", "A-5")

    catalog = declare(has_object_permission=odd)
    assert numbers(search(catalog, alice)) == ["A-5", "A-2"]
    first = search(catalog, alice, limit=1)  # a page does not reveal how many rows it omits
    assert numbers(first) == ["A-5"]
    second = search(catalog, alice, limit=1, cursor=first["next_cursor"])
    assert numbers(second) == ["A-2"] and "next_cursor" not in second


def test_permission_of_the_search_tool_is_that_of_its_resource(declare, alice, bob):
    catalog = declare(has_permission=lambda self, request: request.user.username == "alice")
    tool = catalog.tools["search_invoice"]
    assert (
        tool._is_allowed(make_request(alice))
        and not tool._is_allowed(make_request(bob))
        and not tool._is_allowed(make_request())
    )
    assert not tool._is_public and not tool._decides_without_database


def test_search_tool_of_a_public_resource_is_public_and_free(server, alice):
    class Everybody(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["name"]
        search_fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    server.register(Customer, Everybody)
    tool = valid_catalog(server).tools["search_customer"]
    assert tool._is_public and tool._decides_without_database and tool._is_allowed(make_request())


def test_default_permission_is_required_for_search(server, alice, bob):
    class Stating(mcp.ModelResource):
        fields = ["number"]
        search_fields = ["number"]

    server.register(Invoice, Stating)
    tool = valid_catalog(server).tools["search_invoice"]
    assert (
        tool._is_allowed(make_request(alice))
        and not tool._is_allowed(make_request(bob))
        and not tool._is_allowed(make_request())
    )


# Pages.


def test_pages_contain_all_rows_in_order(declare, alice, seven_invoices, django_assert_num_queries):
    catalog = declare()
    seen, arguments = [], {"limit": 2, "status": "paid"}
    while True:
        found = search(catalog, alice, **arguments)
        seen += numbers(found)
        if "next_cursor" not in found:
            break
        arguments["cursor"] = found["next_cursor"]
    assert seen == ["A-7", "A-6", "A-5", "A-4", "A-3", "A-2"]


def test_cursor_is_valid_with_another_limit_but_not_another_search(declare, alice, seven_invoices):
    catalog = declare()
    cursor = search(catalog, alice, limit=2)["next_cursor"]
    assert len(numbers(search(catalog, alice, limit=3, cursor=cursor))) == 3
    for other in ({"status": "paid"}, {"query": "A"}, {"ordering": "number"}):
        with pytest.raises(InvalidArguments, match="it belongs to another search"):
            search(catalog, alice, limit=2, cursor=cursor, **other)


def test_cursor_of_another_user_is_refused(declare, alice, bob, seven_invoices):
    seven_invoices.company.members.add(bob)
    catalog = declare()
    cursor = search(catalog, alice, limit=2)["next_cursor"]
    with pytest.raises(InvalidArguments, match="it belongs to another search"):
        search(catalog, bob, limit=2, cursor=cursor)


@pytest.mark.parametrize("cursor", ["", "x", "1", "a:b:c", "\ud800"])
def test_invalid_cursor_is_refused(declare, alice, invoice, cursor):
    with pytest.raises(InvalidArguments, match="cursor: it belongs to another search"):
        search(declare(), alice, cursor=cursor)


def test_cursor_contains_no_readable_values(declare, alice, seven_invoices):
    catalog = declare()
    cursor = search(catalog, alice, limit=2)["next_cursor"]
    for text in ("A-6", "A-7", "2026-"):  # shorter texts could be in a cursor by chance
        assert text not in cursor


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": "5"},
        {"limit": 5.0},
        {"limit": True},
        {"query": 5},
        {"query": "a b c d e f g h i j k"},
        {"query": "\0"},
        {"status": "lost"},
        {"issued": "yesterday"},
        {"issued__gte": "2026-02-30"},
        {"ordering": "total"},
        {"total": "1.00"},
        {"customer__notes": "x"},
        {"metadata": "x"},
        {"cursor": 5},
    ],
)
def test_invalid_arguments_are_refused(declare, alice, invoice, arguments):
    with pytest.raises(InvalidArguments) as refused:
        search(declare(), alice, **arguments)
    assert next(iter(arguments)) in refused.value.message


# Files.


@pytest.fixture
def invoice_with_file(invoice, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    invoice.attachment.save("bill.pdf", ContentFile(b"%PDF"))
    return invoice


def read_file(catalog, user, uri):
    """Read a URI through the resource of files."""
    request = make_request(user, catalog.server)
    for resource, variables in catalog.at(uri):
        if resource.name == "invoice_file":
            values = resource._arguments.bind(resource._values(variables), request, write=False)
            return resource._implementation(request, **values)
    raise LookupError(uri)


def test_file_is_read_by_the_uri_in_its_row(declare, alice, invoice_with_file):
    catalog = declare()
    (row,) = search(catalog, alice)["results"]
    uri = row["attachment"]["uri"]
    assert uri == f"model://shop/invoice/{invoice_with_file.pk}/attachment"
    read = read_file(catalog, alice, uri)
    assert read.data == b"%PDF" and read.mime_type == "application/pdf"
    assert "invoices/" not in str(row)  # never the path of a file


@pytest.mark.parametrize(
    ("name", "content", "data"),
    [
        ("notes.txt", "grüße".encode(), "grüße"),
        ("table.csv", b"a,b", "a,b"),
        ("latin.txt", "grüße".encode("latin-1"), "grüße".encode("latin-1")),  # not UTF-8
        ("bill.pdf", b"plain", b"plain"),
    ],
)
def test_text_file_is_read_as_text(declare, alice, invoice_with_file, name, content, data):
    invoice_with_file.attachment.save(name, ContentFile(content))
    read = read_file(declare(), alice, f"model://shop/invoice/{invoice_with_file.pk}/attachment")
    assert read.data == data


def test_definition_of_the_file_template(declare, alice):
    template = declare().templates["model://shop/invoice/{pk}/{file}"]
    assert template._definition()["name"] == "invoice_file" and not template.listed
    assert template._origin().endswith("Rows of shop.Invoice")
    assert not template._is_public and not template._decides_without_database
    assert template._is_allowed(make_request(alice)) and not template._is_allowed(make_request())


def test_uri_of_files_is_completed(declare, alice, bob, invoice_with_file):
    template = declare().templates["model://shop/invoice/{pk}/{file}"]
    assert list(template._completers["file"](make_request(alice), "att", {})) == ["attachment"]
    assert list(template._completers["pk"](make_request(alice), "A-1", {})) == [
        str(invoice_with_file.pk)
    ]
    assert list(template._completers["pk"](make_request(bob), "A-1", {})) == []


def test_resource_without_file_fields_has_no_file_template(declare):
    assert list(declare(fields=["number"], search_fields=[], filter_fields=[], ordering=[])
                .templates) == ["model://shop/invoice/{pk}"]  # fmt: skip


@pytest.mark.parametrize("name", ["number", "metadata", "nonsense", "attachment.name", "pk"])
def test_uri_of_a_field_that_is_no_listed_file_is_not_found(
    declare, alice, invoice_with_file, name
):
    with pytest.raises(ResourceNotFound):
        read_file(declare(), alice, f"model://shop/invoice/{invoice_with_file.pk}/{name}")


def test_file_of_a_forbidden_or_missing_row_is_not_found(declare, alice, bob, invoice_with_file):
    catalog, uri = declare(), f"model://shop/invoice/{invoice_with_file.pk}/attachment"
    with pytest.raises(ResourceNotFound):
        read_file(catalog, bob, uri)
    with pytest.raises(ResourceNotFound):
        read_file(catalog, alice, f"model://shop/invoice/{invoice_with_file.pk + 1}/attachment")
    with pytest.raises(ResourceNotFound):
        read_file(catalog, alice, "model://shop/invoice/x/attachment")


def test_only_readable_files_can_be_subscribed_to(declare, alice, bob, invoice_with_file):
    template = declare().templates["model://shop/invoice/{pk}/{file}"]
    variables = {"pk": str(invoice_with_file.pk), "file": "attachment"}
    assert template._exists(make_request(alice), variables)
    assert not template._exists(make_request(bob), variables)
    assert not template._exists(make_request(alice), variables | {"file": "metadata"})
    for key in ("x", str(invoice_with_file.pk + 1)):
        assert not template._exists(make_request(alice), variables | {"pk": key})


def test_empty_file_field_is_not_found(declare, alice, invoice):
    with pytest.raises(ResourceNotFound):
        read_file(declare(), alice, f"model://shop/invoice/{invoice.pk}/attachment")


def test_deleted_file_is_not_found(declare, alice, invoice_with_file):
    default_storage.delete(invoice_with_file.attachment.name)
    with pytest.raises(ResourceNotFound):
        read_file(declare(), alice, f"model://shop/invoice/{invoice_with_file.pk}/attachment")


def test_file_that_is_too_large_is_refused(declare, alice, invoice_with_file, settings):
    settings.DJANGO_MCP = {"RESULT_SIZE": 3}
    with pytest.raises(ToolError, match="At most 3 are allowed"):
        read_file(declare(), alice, f"model://shop/invoice/{invoice_with_file.pk}/attachment")
