"""Tools of ninja operations: definitions, arguments, results and errors."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest
from django.test import Client
from django.urls import include, path
from ninja import NinjaAPI, Path, Router

from django_mcp.conf import settings
from django_mcp.protocol.revisions import REVISIONS
from tests.declarations.helpers import single_problem, valid_catalog
from tests.shop.models import Invoice

from . import api

pytestmark = [pytest.mark.urls("tests.bridges.ninja.api"), pytest.mark.django_db]


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def text(result):
    return result["content"][0]["text"]


def failure(result):
    assert result["isError"], result
    return text(result)


def definitions(server):
    return {name: tool._definition() for name, tool in valid_catalog(server).tools.items()}


def test_transaction_is_in_the_named_database(expose):
    server = expose("create_invoice", "list_invoices", atomic=settings.DATABASE)
    tools = valid_catalog(server).tools
    assert tools["create_invoice"]._transaction == settings.DATABASE
    assert tools["list_invoices"]._transaction is False


def test_transaction_in_an_unknown_database_is_reported(expose):
    assert single_problem(expose("create_invoice", atomic="nowhere")).id == "django_mcp.E025"


CRUD = ("list_invoices", "create_invoice", "get_invoice", "replace_invoice", "delete_invoice")


# Definitions.


def test_names_hints_and_descriptions(expose):
    shown = definitions(expose(*CRUD))
    assert list(shown) == [*CRUD]
    assert [shown[name].get("annotations") for name in CRUD] == [
        {"readOnlyHint": True}, None, {"readOnlyHint": True}, {"idempotentHint": True},
        {"destructiveHint": True},
    ]  # fmt: skip
    assert shown["list_invoices"]["description"] == "List the invoices of your company."
    assert shown["get_invoice"]["description"] == "Show one invoice."
    assert shown["create_invoice"]["description"] == "Create Invoice."
    assert shown["create_invoice"]["title"] == "Create invoice"


def test_names_and_descriptions_can_be_set(expose):
    texts = {"names": {"list_invoices": "bills"}, "descriptions": {"list_invoices": "All bills."}}
    shown = definitions(expose("list_invoices", **texts))
    assert shown["bills"]["description"] == "All bills."


def test_operation_with_several_methods_is_several_tools(expose, connect, alice):
    client = connect(alice, server=expose("either"))
    assert data(client.call("post_either")) == "POST"
    assert data(client.call("patch_either")) == "PATCH"


def test_router_is_exposed_with_the_routers_in_it(expose, connect, alice):
    server = expose("list_of_customers", "list_of_notes", subject=api.customers)
    client = connect(alice, server=server)
    assert data(client.call("list_of_customers")) == []
    assert data(client.call("list_of_notes", customer_id=7)) == ["note of 7"]


def test_fields_of_the_body_are_arguments(expose):
    shown = definitions(expose("replace_invoice"))["replace_invoice"]["inputSchema"]
    taken = shown["properties"]
    assert list(taken) == ["pk", "number", "customer_id", "total", "issued", "lines"]
    assert shown["required"] == ["pk", "number", "customer_id", "total"]
    assert shown["additionalProperties"] is False
    assert taken["number"] == {
        "description": "Printed on the paper.", "maxLength": 20, "type": "string"
    }  # fmt: skip
    line = shown["$defs"]["LineIn"]
    assert line["required"] == ["price"] and line["additionalProperties"] is False


def test_filters_and_pages_are_arguments(expose):
    shown = definitions(expose("list_invoices"))["list_invoices"]["inputSchema"]
    assert list(shown["properties"]) == ["status", "number", "page", "page_size"]
    assert shown["properties"]["number"] == {"items": {"type": "string"}, "type": "array"}
    assert shown["properties"]["page"] == {"default": 1, "minimum": 1, "type": "integer"}
    assert "required" not in shown


def test_output_schema_is_that_of_the_response(expose):
    expose("create_invoice", "latest", "delete_invoice", "unset", "walk_invoices")
    shown = {name: one.get("outputSchema") for name, one in definitions(expose("row")).items()}
    assert shown["create_invoice"] == shown["row"]
    assert shown["row"]["required"] == ["id", "number", "total", "customer_name"]
    (found, nothing) = shown["latest"]["anyOf"]
    assert found == {"$ref": "#/$defs/InvoiceOut"} and nothing["maxProperties"] == 0
    assert shown["delete_invoice"] is None
    assert shown["unset"]["type"] == "array"
    assert "required" not in shown["unset"]["$defs"]["LineIn"]
    assert shown["walk_invoices"]["properties"]["next"]["type"] == ["object", "null"]


def test_schemas_are_made_without_queries(expose, django_assert_num_queries):
    expose(*CRUD, subject=api.invoices)
    with django_assert_num_queries(0):
        assert len(definitions(expose("send_form", "mix", "several"))) == 8


# Arguments.


@pytest.mark.parametrize(
    ("operation", "arguments", "result"),
    [
        (
            "send_form", {"x": 1, "tags": ["a&b", "c"], "when": "2026-01-02"},
            {"x": 1, "y": 0, "tags": ["a&b", "c"], "when": "2026-01-02"},
        ),
        ("mix", {"point": {"x": 1}, "name": '"a"'},
         {"point": {"x": 1, "y": 0}, "name": '"a"', "upload": None}),
        (
            "mix", {"point": {"x": 1}, "name": "é", "upload": {"name": "a.txt", "data": "aGk="}},
            {"point": {"x": 1, "y": 0}, "name": "é", "upload": "hi"},
        ),
        ("send_files", {"uploads": [{"name": "a.txt", "data": "aGk="}, {"name": "b", "data": ""}]},
         ["a.txt text/plain 2", "b application/octet-stream 0"]),
        ("several", {"a": {"x": 1}}, {"a": {"x": 1, "y": 0}, "b": [], "c": None}),
        ("several", {"a": {"x": 1}, "b": [2], "c": {"price": 1, "words": "w"}},
         {"a": {"x": 1, "y": 0}, "b": [2], "c": "w"}),
        ("add_all", {"points": [{"x": 1}, {"x": 2}]}, [3]),
        ("optional", {}, {"point": None}),
        ("optional", {"point": {"x": 1}}, {"point": {"x": 1, "y": 0}}),
        ("anything", {"given": {"x": 1, "other": [2]}}, {"x": 1}),
        ("typed", {"day": "2026-01-02", "name": "a b/", "flag": True, "n": [1, 2]}, None),
        ("typed", {"day": "2026-01-02", "name": "a b", "flag": True, "n": [1, 2]},
         {"day": "2026-01-02", "name": "a b", "flag": True, "n": [1, 2]}),
    ],
)  # fmt: skip
def test_arguments_reach_the_operation(call, operation, arguments, result):
    found = call(operation, **arguments)
    if result is None:
        assert "Invalid arguments" in failure(found)
    else:
        assert data(found) == result


def test_constraints_of_a_schema_apply(call, invoice):
    given = {"number": "A-9", "customer_id": invoice.customer_id, "total": "5"}
    told = failure(call("create_invoice", **given, lines=[{"price": 1}, {"price": -1}]))
    assert "lines.1.price" in told
    assert not Invoice.objects.filter(number="A-9").exists()


WRONG = "Value error, Choose another text."


@pytest.mark.parametrize(
    ("operation", "arguments", "place"),
    [
        ("create_invoice", {"number": "none", "customer_id": 1, "total": 1}, "number"),
        (
            "create_invoice",
            {"number": "1", "customer_id": 1, "total": 1, "lines": [{"price": 1, "words": "none"}]},
            "lines.0.words",
        ),
        ("several", {"a": {"x": 1}, "c": {"price": 1, "words": "none"}}, "c.words"),
        ("list_invoices", {"status": "none"}, "status"),
    ],
)
def test_errors_of_the_operations_validation_name_the_argument(call, operation, arguments, place):
    assert failure(call(operation, **arguments)) == f"{place}: {WRONG}"


def test_errors_are_told_one_line_for_each_field(call):
    given = {"number": "none", "customer_id": 1, "total": 1, "lines": [{"price": 1}]}
    given["lines"] = [{"price": 1, "words": "none"}]
    told = failure(call("create_invoice", **given))
    assert told == f"number: {WRONG}\nlines.0.words: {WRONG}"


# Results.


def test_pages_have_items_and_count(call, more_invoices):
    first = data(call("list_invoices"))
    assert ([one["number"] for one in first["items"]], first["count"]) == (["A-1", "A-2"], 5)
    assert first["items"][0] == {
        "id": more_invoices[0].pk, "number": "A-1", "total": "12.50", "customer_name": "Carla"
    }  # fmt: skip
    last = data(call("list_invoices", page=2, status="draft"))
    assert ([one["number"] for one in last["items"]], last["count"]) == (["A-4", "A-5"], 4)
    found = data(call("list_invoices", number=["A-3", "A-5"]))
    assert [one["number"] for one in found["items"]] == ["A-3", "A-5"]


def test_links_of_pages_are_arguments(call, more_invoices):
    found, page = [], {"status": "draft"}
    while page:
        result = data(call("walk_invoices", **page))
        found += [one["number"] for one in result["results"]]
        page = result["next"]
        assert page is None or set(page) == {"status", "cursor"}
    assert found == ["A-2", "A-3", "A-4", "A-5"]
    assert set(result["previous"]) == {"status", "cursor"}


def test_row_is_created(call, invoice):
    given = {"customer_id": invoice.customer_id, "total": "5"}
    made = data(call("create_invoice", number="A-9", **given))
    assert (made["number"], made["total"]) == ("A-9", "5")
    assert Invoice.objects.filter(pk=made["id"]).exists()


def test_no_content_is_a_result(expose, connect, alice, invoice):
    alice.is_staff = True
    alice.save()
    expose("latest")
    client = connect(alice, server=expose("delete_invoice"))
    assert data(client.call("latest"))["number"] == "A-1"
    assert text(client.call("delete_invoice", pk=invoice.pk)) == "Done."
    assert data(client.call("latest")) == {}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("operation", ["list_invoices", "add_all", "either", "latest"])
def test_results_fit_the_schema_of_every_revision(
    expose, connect, alice, invoice, revision, operation
):
    server = expose(operation, subject=api.api)
    client = connect(alice, server=server, revision=revision)
    given = {"points": [{"x": 1}]} if operation == "add_all" else {}
    name = "post_either" if operation == "either" else operation
    result = client.call(name, **given)
    assert not result.get("isError"), result


def test_response_that_does_not_fit_its_schema_is_logged(call, caplog):
    assert data(call("unfit")) == {"other": 1}
    (record,) = [one for one in caplog.records if "does not fit" in one.getMessage()]
    assert "tool=unfit fields=(all)" in record.getMessage()


# Errors.


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("denied", "Only on Mondays."),
        ("http", "No bad luck."),
        ("gone", "It is sold."),
        ("teapot", "418 I'm a Teapot. Short and stout."),
        ("signed_out", "Permission denied."),
        ("moved", "The view redirects to another address, which a tool does not follow."),
        ("plain", "400 Bad Request."),
    ],
)
@pytest.mark.parametrize("operation", ["fail", "afail"])
def test_errors_are_told(call, operation, kind, told):
    assert failure(call(operation, kind=kind)) == told


def test_error_of_an_exception_handler_is_told(call):
    assert failure(call("busy")) == "409 Conflict. error.code: busy"


# The HTTP endpoint.


def test_result_is_that_of_the_endpoint(call, alice, more_invoices):
    client = Client()
    client.force_login(alice)
    options = {"headers": {"host": "shop.example"}, "secure": True}
    endpoint = client.get("/api/invoices?status=draft&page=2", **options).json()
    assert data(call("list_invoices", status="draft", page=2)) == endpoint


# Where an API can be.


def test_api_below_arguments_of_the_urlconf(settings, server, call):
    from types import ModuleType

    inner = NinjaAPI(urls_namespace="inner")
    router = Router()

    @router.get("/things/{thing}", response=str)
    def show_thing(request, thing: int, tenant: str = Path(...)):  # noqa: B008
        return f"{tenant}: {thing}"

    inner.add_router("", router)
    module = ModuleType("urls_of_test")
    module.urlpatterns = [  # type: ignore[attr-defined]
        path("<slug:tenant>/", include([path("api/", inner.urls)]))
    ]
    settings.ROOT_URLCONF = module
    assert data(call("show_thing", subject=router, tenant="acme", thing=3)) == "acme: 3"


def test_router_of_two_apis_runs_in_the_registered_api(settings, call):
    from types import ModuleType

    router, first, second = Router(), *(NinjaAPI(urls_namespace=f"v{n}") for n in (1, 2))

    @router.get("/where", response=str)
    def where(request):
        return request.path

    first.add_router("", router)
    second.add_router("", router)
    module = ModuleType("urls_of_test")
    module.urlpatterns = [path("v1/", first.urls), path("v2/", second.urls)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    assert data(call("where", subject=second)) == "/v2/where"


# The extra.


def test_missing_ninja_says_what_to_install(tmp_path):
    code = """
        import sys
        sys.modules["ninja"] = None
        import django_mcp.bridges.ninja
    """
    made = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False
    )
    assert 'Install "django-modelcontext[ninja]".' in made.stderr
    assert made.returncode == 1
