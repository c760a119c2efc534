"""What a ModelResource brings along: a search that adds nothing to what may be seen, and files."""

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

from .world import asked, right


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
        return right(server)

    return declared


@pytest.fixture
def several(invoice):
    for number in range(2, 8):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{number}",
            total=Decimal(number), issued=date(2026, 1, number), status=Invoice.Status.PAID,
        )  # fmt: skip
    return invoice


def search(catalog, user, **arguments):
    """The result of the search, whose arguments and result fit their schemas."""
    tool = catalog.tools["search_invoice"]
    request = asked(user, catalog.server)
    values = tool._arguments.read(arguments)
    found = tool._output.structured(tool._implementation(request, **values), request)
    assert violations(tool._output.schema, found) == []
    return found


def numbers(found):
    return [row["number"] for row in found["results"]]


# The tool.


def test_what_lists_show_of_it(declare):
    shown = declare().tools["search_invoice"]._definition()
    assert shown["title"] == "Search invoices"
    assert shown["description"].startswith("Find invoices by text and fields, page by page.")
    assert shown["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert problem(shown["inputSchema"]) is None and problem(shown["outputSchema"]) is None
    assert "query" in shown["inputSchema"]["properties"]
    assert shown["outputSchema"]["required"] == ["results"]


def test_without_texts_it_says_so(declare):
    shown = declare(search_fields=[]).tools["search_invoice"]._definition()
    assert shown["description"].startswith("Find invoices by fields, page by page.")
    assert "query" not in shown["inputSchema"]["properties"]


def test_there_is_none_without_something_to_search_by(declare):
    assert declare(search_fields=[], filter_fields=[]).tools == {}


def test_it_is_its_resources(declare):
    tool = declare(name="bill").tools["search_bill"]
    assert tool._origin().endswith("Rows of shop.Invoice")


# Searching.


def test_it_finds_by_text_and_by_fields(declare, alice, several):
    catalog = declare()
    assert numbers(search(catalog, alice, query="A-3")) == ["A-3"]
    assert len(numbers(search(catalog, alice, query="carl"))) == 7
    assert numbers(search(catalog, alice, status="open")) == ["A-1"]
    assert numbers(search(catalog, alice, issued__gte="2026-01-06")) == ["A-7", "A-6"]
    assert numbers(search(catalog, alice, query="dora")) == []


def test_it_shows_what_the_resource_does(declare, alice, invoice):
    (row,) = search(declare(), alice)["results"]
    assert set(row) == {"_uri", "number", "customer__name", "status", "issued", "attachment"}


def test_it_finds_what_the_caller_may_see(declare, alice, bob, several):
    assert search(declare(), bob) == {"results": []}


def test_objects_have_permissions_too(declare, alice, several):
    def odd(self, request, obj, operation):
        return obj.number in ("A-2", "A-5")

    catalog = declare(has_object_permission=odd)
    assert numbers(search(catalog, alice)) == ["A-5", "A-2"]
    first = search(catalog, alice, limit=1)  # no page tells of the rows it leaves out
    assert numbers(first) == ["A-5"]
    second = search(catalog, alice, limit=1, cursor=first["next_cursor"])
    assert numbers(second) == ["A-2"] and "next_cursor" not in second


def test_who_may_use_it_may_see_the_rows(declare, alice, bob):
    catalog = declare(has_permission=lambda self, request: request.user.username == "alice")
    tool = catalog.tools["search_invoice"]
    assert (
        tool._is_allowed(asked(alice))
        and not tool._is_allowed(asked(bob))
        and not tool._is_allowed(asked())
    )
    assert not tool._is_public and not tool._is_free


def test_it_is_as_public_and_free_as_the_rows(server, alice):
    class Everybody(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["name"]
        search_fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    server.register(Customer, Everybody)
    tool = right(server).tools["search_customer"]
    assert tool._is_public and tool._is_free and tool._is_allowed(asked())


def test_a_resource_that_states_nothing_needs_djangos_permission(server, alice, bob):
    class Stating(mcp.ModelResource):
        fields = ["number"]
        search_fields = ["number"]

    server.register(Invoice, Stating)
    tool = right(server).tools["search_invoice"]
    assert (
        tool._is_allowed(asked(alice))
        and not tool._is_allowed(asked(bob))
        and not tool._is_allowed(asked())
    )


# Pages.


def test_pages_are_the_list(declare, alice, several, django_assert_num_queries):
    catalog = declare()
    seen, arguments = [], {"limit": 2, "status": "paid"}
    while True:
        found = search(catalog, alice, **arguments)
        seen += numbers(found)
        if "next_cursor" not in found:
            break
        arguments["cursor"] = found["next_cursor"]
    assert seen == ["A-7", "A-6", "A-5", "A-4", "A-3", "A-2"]


def test_the_size_of_a_page_may_change_and_nothing_else(declare, alice, several):
    catalog = declare()
    cursor = search(catalog, alice, limit=2)["next_cursor"]
    assert len(numbers(search(catalog, alice, limit=3, cursor=cursor))) == 3
    for other in ({"status": "paid"}, {"query": "A"}, {"ordering": "number"}):
        with pytest.raises(InvalidArguments, match="it belongs to another search"):
            search(catalog, alice, limit=2, cursor=cursor, **other)


def test_a_cursor_is_of_one_user(declare, alice, bob, several):
    several.company.members.add(bob)
    catalog = declare()
    cursor = search(catalog, alice, limit=2)["next_cursor"]
    with pytest.raises(InvalidArguments, match="it belongs to another search"):
        search(catalog, bob, limit=2, cursor=cursor)


@pytest.mark.parametrize("cursor", ["", "x", "1", "a:b:c", "\ud800"])
def test_cursors_nobody_issued(declare, alice, invoice, cursor):
    with pytest.raises(InvalidArguments, match="cursor: it belongs to another search"):
        search(declare(), alice, cursor=cursor)


def test_a_cursor_holds_nothing_a_client_can_read(declare, alice, several):
    catalog = declare()
    cursor = search(catalog, alice, limit=2)["next_cursor"]
    for told in ("A-6", "A-7", "2026-"):  # any two letters may be in a seal by chance
        assert told not in cursor


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
def test_arguments_that_are_none(declare, alice, invoice, arguments):
    with pytest.raises(InvalidArguments) as refused:
        search(declare(), alice, **arguments)
    assert next(iter(arguments)) in refused.value.message


# Files.


@pytest.fixture
def stored(invoice, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    invoice.attachment.save("bill.pdf", ContentFile(b"%PDF"))
    return invoice


def file(catalog, user, uri):
    """What is read at an address, through the resource of files."""
    request = asked(user, catalog.server)
    for resource, variables in catalog.at(uri):
        if resource.name == "invoice_file":
            values = resource._arguments.bind(resource._values(variables), request, write=False)
            return resource._implementation(request, **values)
    raise LookupError(uri)


def test_a_file_is_read_through_its_row(declare, alice, stored):
    catalog = declare()
    (row,) = search(catalog, alice)["results"]
    uri = row["attachment"]["uri"]
    assert uri == f"model://shop/invoice/{stored.pk}/attachment"
    read = file(catalog, alice, uri)
    assert read.data == b"%PDF" and read.mime_type == "application/pdf"
    assert "invoices/" not in str(row)  # never a path


@pytest.mark.parametrize(
    ("name", "content", "data"),
    [
        ("notes.txt", "grüße".encode(), "grüße"),
        ("table.csv", b"a,b", "a,b"),
        ("latin.txt", "grüße".encode("latin-1"), "grüße".encode("latin-1")),  # no UTF-8: a blob
        ("bill.pdf", b"plain", b"plain"),
    ],
)
def test_text_files_are_read_as_text(declare, alice, stored, name, content, data):
    stored.attachment.save(name, ContentFile(content))
    read = file(declare(), alice, f"model://shop/invoice/{stored.pk}/attachment")
    assert read.data == data


def test_its_template(declare, alice):
    template = declare().templates["model://shop/invoice/{pk}/{file}"]
    assert template._definition()["name"] == "invoice_file" and not template.listed
    assert template._origin().endswith("Rows of shop.Invoice")
    assert not template._is_public and not template._is_free
    assert template._is_allowed(asked(alice)) and not template._is_allowed(asked())


def test_its_address_is_completed(declare, alice, bob, stored):
    template = declare().templates["model://shop/invoice/{pk}/{file}"]
    assert list(template._completers["file"](asked(alice), "att", {})) == ["attachment"]
    assert list(template._completers["pk"](asked(alice), "A-1", {})) == [str(stored.pk)]
    assert list(template._completers["pk"](asked(bob), "A-1", {})) == []


def test_there_is_none_without_files(declare):
    assert list(declare(fields=["number"], search_fields=[], filter_fields=[], ordering=[])
                .templates) == ["model://shop/invoice/{pk}"]  # fmt: skip


@pytest.mark.parametrize("name", ["number", "metadata", "nonsense", "attachment.name", "pk"])
def test_only_files_that_are_shown(declare, alice, stored, name):
    with pytest.raises(ResourceNotFound):
        file(declare(), alice, f"model://shop/invoice/{stored.pk}/{name}")


def test_files_of_others_are_not_there(declare, alice, bob, stored):
    catalog, uri = declare(), f"model://shop/invoice/{stored.pk}/attachment"
    with pytest.raises(ResourceNotFound):
        file(catalog, bob, uri)
    with pytest.raises(ResourceNotFound):
        file(catalog, alice, f"model://shop/invoice/{stored.pk + 1}/attachment")
    with pytest.raises(ResourceNotFound):
        file(catalog, alice, "model://shop/invoice/x/attachment")


def test_a_file_may_be_watched_where_it_may_be_read(declare, alice, bob, stored):
    template = declare().templates["model://shop/invoice/{pk}/{file}"]
    variables = {"pk": str(stored.pk), "file": "attachment"}
    assert template._is_there(asked(alice), variables)
    assert not template._is_there(asked(bob), variables)
    assert not template._is_there(asked(alice), variables | {"file": "metadata"})
    for key in ("x", str(stored.pk + 1)):
        assert not template._is_there(asked(alice), variables | {"pk": key})


def test_a_row_without_a_file(declare, alice, invoice):
    with pytest.raises(ResourceNotFound):
        file(declare(), alice, f"model://shop/invoice/{invoice.pk}/attachment")


def test_a_file_that_is_gone(declare, alice, stored):
    default_storage.delete(stored.attachment.name)
    with pytest.raises(ResourceNotFound):
        file(declare(), alice, f"model://shop/invoice/{stored.pk}/attachment")


def test_a_file_that_is_too_large(declare, alice, stored, settings):
    settings.DJANGO_MCP = {"RESULT_SIZE": 3}
    with pytest.raises(ToolError, match="At most 3 are allowed"):
        file(declare(), alice, f"model://shop/invoice/{stored.pk}/attachment")
