"""Tools of REST framework views: definitions, calls, results and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import django_filters
import pytest
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import pagination, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIClient
from rest_framework.versioning import URLPathVersioning
from rest_framework.views import APIView

import django_mcp as mcp
from django_mcp.bridges.views import ViewTools
from django_mcp.conf import settings
from tests.declarations.helpers import valid_catalog
from tests.shop.models import Customer, Invoice, Tag

from . import api
from .conftest import ALL

pytestmark = [pytest.mark.urls("tests.bridges.rest_framework.api"), pytest.mark.django_db]


@pytest.fixture
def add_urls(settings):
    """Return a function that adds viewsets, by their basename, and paths to the URLconf."""

    def added(*paths, **viewsets_by_name):
        from types import ModuleType

        router = SimpleRouter()
        for name, viewset in viewsets_by_name.items():
            router.register(name, viewset, basename=name)
        module = ModuleType("urls_of_test")
        module.urlpatterns = [*api.urlpatterns, *paths, *router.urls]  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = module

    return added


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def text(result):
    return result["content"][0]["text"]


def failure(result):
    assert result["isError"], result
    assert "hunter2" not in json.dumps(result)
    return text(result)


def definitions(server):
    return {name: tool._definition() for name, tool in valid_catalog(server).tools.items()}


# Definitions.


def test_names_hints_and_descriptions(expose):
    shown = definitions(expose(api.InvoiceViewSet, [*ALL, "remind", "approve"]))
    assert list(shown) == [
        "list_invoice", "retrieve_invoice", "create_invoice", "update_invoice",
        "partial_update_invoice", "destroy_invoice", "remind_invoice", "approve_invoice",
    ]  # fmt: skip
    hints = {name: one.get("annotations") for name, one in shown.items()}
    assert hints["list_invoice"] == hints["retrieve_invoice"] == {"readOnlyHint": True}
    assert hints["destroy_invoice"] == {"destructiveHint": True}
    assert hints["update_invoice"] == {"idempotentHint": True}
    assert hints["create_invoice"] is hints["partial_update_invoice"] is None
    described = {name: one["description"] for name, one in shown.items()}
    assert described["list_invoice"] == "List invoices. The invoices of your company."
    assert described["remind_invoice"] == "Remind the customer."
    assert described["approve_invoice"] == "Approve. The invoices of your company."
    assert shown["partial_update_invoice"]["title"] == "Partial update invoice"


def test_names_and_descriptions_can_be_set(expose):
    texts = {"names": {"list": "bills"}, "descriptions": {"list": "All bills."}}
    shown = definitions(expose(api.InvoiceViewSet, ["list"], **texts))
    assert shown["bills"]["description"] == "All bills."


def test_methods_of_views_are_tools(expose):
    stated = {"serializers": {"post": api.ReportSerializer}, "query": {"get": api.ReportQuery}}
    expose(api.ReportView, ["get", "post", "delete"], **stated)
    shown = definitions(expose(api.status_view, ["get", "post"]))
    assert list(shown) == [
        "get_report",
        "post_report",
        "delete_report",
        "get_status",
        "post_status",
    ]
    assert shown["get_report"]["description"] == "The monthly report."
    assert shown["post_report"]["description"] == "Write a report."
    assert shown["get_status"]["description"] == "How the shop is doing."
    assert shown["get_report"]["inputSchema"]["required"] == ["year"]
    assert shown["post_report"]["inputSchema"]["required"] == ["month", "kinds"]


def test_action_with_several_methods_is_several_tools(expose, connect, alice, invoice):
    server = expose(api.InvoiceViewSet, ["labels"])
    client = connect(alice, server=server)
    invoice.tags.add(Tag.objects.create(label="late"))
    assert list(server.ready().tools) == ["get_labels_invoice", "post_labels_invoice"]
    assert text(client.call("get_labels_invoice", pk=invoice.pk)) == "late"
    assert not client.call("post_labels_invoice", pk=invoice.pk)["isError"]
    assert not invoice.tags.exists()


def test_key_in_the_url_has_the_type_of_its_field(expose):
    expose(api.NoteViewSet, ["retrieve"])
    shown = definitions(expose(api.InvoiceViewSet, ["retrieve"]))
    (note, invoice) = (one["inputSchema"]["properties"]["pk"] for one in shown.values())
    assert note == {"type": "string", "format": "uuid"}
    assert invoice == {"type": "integer"}


def test_list_takes_filters_search_order_and_pages(expose):
    shown = definitions(expose(api.InvoiceViewSet, ["list"]))["list_invoice"]["inputSchema"]
    taken = shown["properties"]
    assert list(taken) == [
        "status", "status__in", "customer", "issued__gte", "total_min", "total_max", "paid",
        "search", "ordering", "page", "page_size",
    ]  # fmt: skip
    assert "required" not in shown and shown["additionalProperties"] is False
    assert taken["status"]["enum"] == ["draft", "open", "paid"]
    assert "open: Awaiting payment" in taken["status"]["description"]
    assert taken["customer"]["type"] == "integer"
    assert taken["ordering"]["items"]["enum"] == ["issued", "-issued", "total", "-total"]
    assert taken["search"]["description"] == "Text to search for in number, customer__name."
    assert (taken["page_size"]["maximum"], taken["paid"]["type"]) == (3, "boolean")
    assert all("type" in one for one in taken.values())


def test_schemas_are_made_without_queries(expose, django_assert_num_queries):
    expose(api.InvoiceViewSet, [*ALL, "remind"])
    expose(api.CompanyList, ["get", "post"])
    with django_assert_num_queries(0):
        assert len(definitions(expose(api.CustomerViewSet, ["list", "create"]))) == 11


# Lists.


class RowFilters(django_filters.FilterSet):
    name = django_filters.AllValuesFilter()
    notes = django_filters.AllValuesMultipleFilter()
    pick = django_filters.ChoiceFilter(
        field_name="name", choices=lambda: [(one.name, one.notes) for one in Customer.objects.all()]
    )
    status = django_filters.ChoiceFilter(choices=Invoice.Status, method="any_status")

    class Meta:
        model = Customer
        fields = ["email"]

    def any_status(self, queryset, name, value):
        return queryset


class RowFiltered(api.CustomerViewSet):
    filter_backends = [DjangoFilterBackend]
    filterset_class = RowFilters
    queryset = Customer.objects.all()


def test_filters_list_no_rows(add_urls, call, server, invoice, foreign_invoice):
    add_urls(filtered=RowFiltered)
    result = call(RowFiltered, "list", name="Carla", notes=["never pays"], pick="Carla")
    assert not result["isError"], result
    shown = definitions(server)["list_filtered"]["inputSchema"]["properties"]
    for secret in ("Carla", "Dora", "never pays", "hunter2"):
        assert secret not in json.dumps(shown)
    assert shown["name"] == {"type": "string"}
    assert shown["notes"] == {"type": "array", "items": {"type": "string"}}
    assert shown["pick"]["type"] == "string" and "enum" not in shown["pick"]
    assert shown["status"]["enum"] == [str(one) for one in Invoice.Status.values]
    assert "email" in shown


class OwnFilters(django_filters.FilterSet):
    """Filters whose rows depend on the user, as in django-filter's documentation."""

    company = django_filters.ModelChoiceFilter(queryset=lambda request: request.user.companies)
    company__in = django_filters.ModelMultipleChoiceFilter(
        field_name="company", queryset=lambda request: request.user.companies.all(), required=True
    )
    named = django_filters.ModelChoiceFilter(
        queryset=lambda request: request.user.companies.all(), method="any_customer"
    )
    starts = django_filters.CharFilter(method="starting", label="How does it start?")
    short = django_filters.BooleanFilter(method="any_customer")

    class Meta:
        model = Customer
        fields = ["email"]

    def starting(self, queryset, name, value):
        assert self.request.user.is_authenticated
        return queryset.filter(name__startswith=value)

    def any_customer(self, queryset, name, value):
        return queryset


def test_filters_by_rows_of_the_user_take_keys(add_urls, call, server, invoice, foreign_invoice):
    attributes = {"filterset_class": OwnFilters}
    view = type("OwnFiltered", (RowFiltered,), attributes)
    add_urls(filtered=view)
    own, foreign = invoice.company_id, foreign_invoice.company_id
    found = call(view, "list", company__in=[own], starts="Car")
    assert [row["name"] for row in json.loads(text(found))] == ["Carla"]
    assert json.loads(text(call(view, "list", company__in=[own], starts="D"))) == []
    assert failure(call(view, "list", company__in=[foreign])).startswith("company__in: ")
    assert server.check() == []
    schema = definitions(server)["list_filtered"]["inputSchema"]
    shown = schema["properties"]
    assert shown["company"] == {"type": "integer"}
    assert shown["company__in"] == {"type": "array", "items": {"type": "integer"}}
    assert shown["named"] == {"type": ["integer", "string"]}
    assert shown["starts"]["description"] == "How does it start?"
    assert shown["short"] == {"type": "boolean"}
    assert "email" in shown and schema["required"] == ["company__in"]


class RowOutput(serializers.Serializer):
    def get_fields(self):
        rows = [(one.pk, one.notes) for one in Customer.objects.all()]
        return {"customer": serializers.ChoiceField(rows, source="pk", read_only=True)}


class RowOutputs(viewsets.ReadOnlyModelViewSet):
    queryset = Customer.objects.all()
    serializer_class = RowOutput
    pagination_class = None


def test_output_schema_contains_no_rows(add_urls, call, server, foreign_invoice):
    add_urls(shown=RowOutputs)
    result = call(RowOutputs, "list")
    assert json.loads(text(result)) == [{"customer": foreign_invoice.customer_id}]
    assert "outputSchema" not in definitions(server)["list_shown"]


def test_pages_name_the_arguments_of_other_pages(invoices, alice, more_invoices):
    client = invoices(alice)
    first = data(client.call("list_invoice"))
    assert [row["number"] for row in first["results"]] == ["A-1", "A-2"]
    assert (first["count"], first["next"], first["previous"]) == (5, {"page": 2}, None)
    second = data(client.call("list_invoice", **first["next"]))
    assert (second["next"], second["previous"]) == ({"page": 3}, {"page": 1})
    sized = data(client.call("list_invoice", page_size=3, status="draft"))
    assert len(sized["results"]) == 3
    assert sized["next"] == {"page": 2, "page_size": 3, "status": "draft"}
    assert failure(client.call("list_invoice", page=9)).startswith("Invalid page.")


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"status": "open"}, ["A-1"]),
        ({"status__in": ["open", "paid"]}, ["A-1"]),
        ({"total_min": 4, "total_max": "5.00"}, ["A-4", "A-5"]),
        ({"issued__gte": "2026-01-05"}, ["A-5"]),
        ({"paid": True}, []),
        ({"paid": False, "search": "a-3"}, ["A-3"]),
        ({"ordering": ["-total"], "page_size": 2}, ["A-1", "A-5"]),
        ({"ordering": ["issued", "total"], "page_size": 1}, ["A-2"]),
        ({"search": "Carla", "page": 3}, ["A-5"]),
    ],
)
def test_filters_search_and_order(invoices, alice, more_invoices, arguments, numbers):
    found = data(invoices(alice).call("list_invoice", **arguments))
    assert [row["number"] for row in found["results"]] == numbers


def test_pages_of_a_filtered_list_have_the_same_filters(invoices, alice, more_invoices):
    client = invoices(alice)
    arguments, numbers = {"search": "Carla", "ordering": ["-total"], "page_size": 1}, []
    while arguments is not None:
        page = data(client.call("list_invoice", **arguments))
        numbers += [row["number"] for row in page["results"]]
        arguments = page["next"]
    found = data(client.call("list_invoice", search="Carla", ordering=["-total"], page_size=3))
    assert len(numbers) == found["count"] > 1
    assert numbers[:3] == [row["number"] for row in found["results"]]


class OtherLinks(api.InvoiceViewSet):
    def list(self, request):
        self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        other = "https://shop.example/?page=abc&page_size=2"
        return Response({"next": other, "previous": "http://["})


def test_links_to_something_else_are_no_error(add_urls, call, invoice):
    add_urls(other=OtherLinks)
    assert data(call(OtherLinks, "list")) == {"next": {"page_size": 2}, "previous": None}


class Cursor(pagination.CursorPagination):
    page_size = 2
    ordering = "number"


class ByCursor(api.InvoiceViewSet):
    pagination_class = Cursor
    filter_backends = []


class ByOffset(api.InvoiceViewSet):
    class pagination_class(pagination.LimitOffsetPagination):
        default_limit = 2
        max_limit = 4

    filter_backends = []


@pytest.mark.parametrize("viewset", [ByCursor, ByOffset])
def test_all_pages_can_be_read(add_urls, expose, connect, alice, more_invoices, viewset):
    add_urls(paged=viewset)
    client = connect(alice, server=expose(viewset, ["list"]))
    numbers, following = [], {}
    while following is not None:
        page = data(client.call("list_paged", **following))
        numbers += [row["number"] for row in page["results"]]
        following = page["next"]
    assert numbers == ["A-1", "A-2", "A-3", "A-4", "A-5"]
    assert data(client.call("list_paged", **page["previous"]))["results"]


def test_list_without_pages_is_an_array(call, invoice):
    found = call(api.CustomerViewSet, "list", company_pk=invoice.company_id)
    assert data(found) == [{"id": invoice.customer_id, "name": "Carla", "email": ""}]


def test_list_in_every_revision(expose, connect, alice, invoice, revision):
    server = expose(api.CustomerViewSet, ["list"])
    client = connect(alice, server=server, revision=revision)
    (tool,) = client.result("tools/list", {})["tools"]
    assert tool.get("outputSchema", {}).get("type") in (None, "object", "array")
    result = client.call("list_customer", company_pk=invoice.company_id)
    assert json.loads(text(result))[0]["name"] == "Carla"


# Reading and writing.


def test_row_is_written_and_read(invoices, alice, invoice):
    client = invoices(alice)
    given = {"number": "A-9", "customer": invoice.customer_id, "total": 5, "issued": "2026-02-01"}
    made = data(client.call("create_invoice", **given))
    assert (made["number"], made["total"], made["status"]) == ("A-9", "5.00", "draft")
    changed = data(client.call("partial_update_invoice", pk=made["id"], status="open"))
    assert (changed["status"], changed["number"]) == ("open", "A-9")
    replaced = given | {"number": "A-8"}
    assert data(client.call("update_invoice", pk=made["id"], **replaced))["number"] == "A-8"
    assert data(client.call("retrieve_invoice", pk=made["id"]))["customer_name"] == "Carla"
    assert text(client.call("partial_update_invoice", pk=invoice.pk))
    assert Invoice.objects.get(number="A-8").company == invoice.company


def test_row_is_deleted(invoices, alice, invoice):
    Invoice.objects.update(status="draft")
    assert text(invoices(alice).call("destroy_invoice", pk=invoice.pk)) == "Done."
    assert not Invoice.objects.exists()


def test_action_has_its_own_serializer_and_arguments_of_the_url(call, invoice):
    assert data(call(api.InvoiceViewSet, "remind", pk=invoice.pk, text="Pay!")) == {"sent": 1}
    assert Tag.objects.get().label == "A-1: Pay!"
    assert "text" in failure(call(api.InvoiceViewSet, "remind", pk=invoice.pk, text="x" * 101))


def test_arguments_of_a_nested_url(call, invoice):
    made = call(api.CustomerViewSet, "create", company_pk=invoice.company_id, name="Eve")
    assert data(made)["name"] == "Eve"
    assert Customer.objects.get(name="Eve").company == invoice.company


def test_post_without_serializer_has_no_body(call, alice):
    assert data(call(api.status_view, "post")) == {"user": "alice", "method": "POST"}


def test_query_and_body_of_a_plain_view(expose, connect, alice, settings):
    stated = {"serializers": {"post": api.ReportSerializer}, "query": {"get": api.ReportQuery}}
    client = connect(
        alice, server=expose(api.ReportView, ["post", "delete"], **stated | {"query": {}})
    )
    made = data(client.call("post_report", month="2026-01", kinds=["b", "a"]))
    assert made == {"month": "2026-01", "kinds": ["a", "b"]}


# Errors.


class RangeQuery(serializers.Serializer):
    kinds = serializers.ListField(child=serializers.IntegerField(), required=False)
    matches = serializers.JSONField(required=False)


class Ranges(APIView):
    def get(self, request):
        """What the query says."""
        given = RangeQuery(data=request.query_params)
        given.is_valid(raise_exception=True)
        return Response(given.data)


def test_query_contains_lists_and_json(add_urls, call):
    from django.urls import path

    add_urls(path("ranges/", Ranges.as_view(), name="ranges"))
    given = {"kinds": [1, 2], "matches": {"a": [True, None]}}
    assert data(call(Ranges, "get", attributes={"query": {"get": RangeQuery}}, **given)) == given


def test_validation_errors_are_reported_field_by_field(invoices, alice, invoice):
    client = invoices(alice)
    given = {"number": "none", "customer": 10**6, "total": "5.001", "issued": "2026-02-01"}
    lines = failure(client.call("create_invoice", **given)).splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == ["customer", "number", "total"]
    assert "number: Choose another number." in lines
    told = failure(client.call("partial_update_invoice", pk=invoice.pk, total=13))
    assert told == "No bad luck."


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("nested", "lines.1.price: Too much.\na.b: c"),
        ("list", "One. Two."),
        ("denied", "Only on Mondays."),
        ("conflict", "409 Conflict. error: It is closed."),
        ("plain", "418 I'm a Teapot."),
        ("down", "503 Service Unavailable. The printer is out of paper."),
        ("bug", "Something went wrong on the server; the error was logged there."),
        ("moved", "The view redirects to another address, which a tool does not follow."),
    ],
)
def test_errors_of_views(call, invoice, number, told):
    Invoice.objects.update(number=number)
    assert failure(call(api.InvoiceViewSet, "fail", pk=invoice.pk)) == told


def test_missing_row_is_not_found(call, invoice):
    assert failure(call(api.InvoiceViewSet, "retrieve", pk=0)) == "Not found."


def test_write_runs_in_the_database_of_the_rows(expose):
    server = expose(api.InvoiceViewSet, ["create", "list"])
    tools = valid_catalog(server).tools
    assert tools["create_invoice"]._transaction == "default"
    assert tools["list_invoice"]._transaction is False


@pytest.mark.parametrize("atomic", [False, settings.DATABASE])
def test_transaction_of_the_class_replaces_that_of_the_rows(expose, atomic):
    server = expose(api.InvoiceViewSet, ["create"], atomic=atomic)
    assert valid_catalog(server).tools["create_invoice"]._transaction == atomic


# Queries.


@pytest.mark.parametrize(
    ("tool", "url", "arguments"),
    [
        ("list_invoice", "/api/invoices/", {}),
        ("retrieve_invoice", "/api/invoices/{}/", {"pk": 0}),
    ],
)
def test_number_of_queries_is_that_of_the_http_endpoint(
    invoices, alice, more_invoices, tool, url, arguments
):
    pk = more_invoices[0].pk
    client, http = invoices(alice), APIClient()
    http.force_authenticate(alice)
    given = dict.fromkeys(arguments, pk)
    client.call(tool, **given)  # fills caches
    with CaptureQueriesContext(connection) as by_http:
        assert http.get(url.format(pk)).status_code == 200
    with CaptureQueriesContext(connection) as by_tool:
        data(client.call(tool, **given))
    assert len(by_http) > 0
    assert len(by_tool) == len(by_http)


# Kinds of views and responses.


class Camel(JSONRenderer):
    def render(self, data, *args, **kwargs):
        renamed = {"".join(["first", name.title()]): value for name, value in data.items()}
        return super().render(renamed, *args, **kwargs)


class Renamed(viewsets.GenericViewSet):
    renderer_classes = [Camel]
    queryset = Invoice.objects.all()
    serializer_class = api.InvoiceSerializer

    def retrieve(self, request, pk=None):
        return Response({"number": 1})


def test_data_are_those_of_the_renderer(add_urls, call, invoice):
    add_urls(renamed=Renamed)
    assert data(call(Renamed, "retrieve", pk=invoice.pk)) == {"firstNumber": 1}


class Misfit(viewsets.ReadOnlyModelViewSet):
    queryset = Invoice.objects.order_by("pk")

    class serializer_class(serializers.ModelSerializer):
        total = serializers.SerializerMethodField()

        class Meta:
            model = Invoice
            fields = ["number", "total"]

        def get_total(self, row) -> int:
            return "hunter"  # type: ignore[return-value]


def test_data_that_do_not_fit_the_schema_are_sent_and_logged(add_urls, call, invoice, caplog):
    add_urls(misfit=Misfit)
    assert data(call(Misfit, "retrieve", pk=invoice.pk)) == {"number": "A-1", "total": "hunter"}
    (record,) = [one for one in caplog.records if "does not fit" in one.message]
    assert "tool=retrieve_misfit fields=total" in record.message
    assert "hunter" not in record.message


class Silent(api.NoteViewSet):
    def create(self, request, *args, **kwargs):
        super().create(request, *args, **kwargs)
        return Response(status=201)

    def retrieve(self, request, pk=None):
        self.get_serializer()
        return HttpResponse("a page")

    def update(self, request, pk=None):
        return HttpResponse(b"\x89PNG", content_type="image/png")


def test_standard_actions_may_return_other_things(add_urls, expose, connect, alice):
    add_urls(silent=Silent)
    server = expose(Silent, ["create", "retrieve", "update"])
    schemas = [one.get("outputSchema", {}).get("type") for one in definitions(server).values()]
    assert schemas == ["object", "object", None]
    client = connect(alice, server=server)
    assert data(client.call("create_silent", text="x")) == {}
    key = str(api.Note.objects.get().pk)
    assert "text/html in place of JSON" in failure(client.call("retrieve_silent", pk=key))
    image = client.call("update_silent", pk=key, text="x")
    assert image["content"][0]["type"] == "image"


@pytest.mark.parametrize("number", ["conflict", "denied", "nested"])
def test_atomic_requests_are_rolled_back(call, invoice, monkeypatch, number):
    """REST framework marks the connection for rollback. Later queries of the call still work."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    Invoice.objects.update(number=number)
    assert failure(call(api.InvoiceViewSet, "fail", pk=invoice.pk))
    assert not Tag.objects.exists() and not connection.needs_rollback


class Versioned(api.NoteViewSet):
    class versioning_class(URLPathVersioning):
        default_version = "v1"
        allowed_versions = ["v1", "v2"]

    @action(detail=False)
    def which(self, request, version=None):
        """Which version."""
        return Response({"version": request.version})


def test_version_in_the_url_is_the_default_version(expose, connect, alice, settings):
    from types import ModuleType

    from django.urls import include, re_path

    router = SimpleRouter()
    router.register("notes", Versioned, basename="note")
    module = ModuleType("urls_of_test")
    module.urlpatterns = [re_path(r"^(?P<version>v\d)/", include(router.urls))]
    settings.ROOT_URLCONF = module
    server = expose(Versioned, ["which"])
    assert valid_catalog(server).tools["which_note"]._arguments.schema["properties"] == {}
    assert data(connect(alice, server=server).call("which_note")) == {"version": "v1"}


class Asking(APIView):
    def post(self, request):
        """Ask."""
        Tag.objects.create(label="asked")
        sure = request.mcp.elicit("Sure?", bool)
        return Response({"sure": sure, "user": str(request.user)})


def test_view_can_ask_the_user(add_urls, expose, connect, alice):
    from django.urls import path

    add_urls(path("asking/", Asking.as_view()))
    accept = {
        "elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}
    }
    client = connect(alice, server=expose(Asking, ["post"]), answers=accept)
    assert data(client.call("post_asking")) == {"sure": True, "user": "alice"}
    assert Tag.objects.count() == 1


def test_views_and_rest_framework_views_can_be_tools_together(expose, server, alice):
    server.register(type("Plain", (ViewTools,), {"get": ["report"], "pages": "text"}))
    expose(api.InvoiceViewSet, ["list"])
    assert list(valid_catalog(server).tools) == ["report", "list_invoice"]


# Installation.


def run(code):
    return subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False
    )


def test_missing_rest_framework_is_an_error_with_the_name_of_the_extra():
    done = run(
        """
        import sys
        from django.conf import settings
        settings.configure()
        sys.modules["rest_framework"] = None
        import django_mcp.bridges.rest_framework
        """
    )
    assert done.returncode == 1
    assert 'Install "django-modelcontext[drf]".' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("hidden", ["django_filters", "drf_spectacular", "markdownify", "bs4"])
def test_optional_packages_are_not_needed(hidden):
    done = run(
        f"""
        import sys
        from django.conf import settings
        apps = ["django.contrib.contenttypes", "django.contrib.auth", "django_mcp"]
        settings.configure(USE_TZ=True, SECRET_KEY="x", INSTALLED_APPS=apps)
        sys.modules["{hidden}"] = None
        import django
        django.setup()
        from django_mcp.bridges.rest_framework import ViewSetTools
        """
    )
    assert done.returncode == 0, done.stderr


def test_tools_need_a_user_by_default(expose, server):
    expose(api.NoteViewSet, ["list"])
    (tool,) = valid_catalog(server).tools.values()
    assert not tool._is_public and tool._views.permission is mcp.AUTHENTICATED


class Closing(api.InvoiceViewSet):
    @action(detail=True, methods=["post"])
    def close(self, request, pk=None):
        """Close it, and show it."""
        invoice = self.get_object()
        Invoice.objects.filter(pk=pk).update(status="paid")
        invoice.refresh_from_db()
        return Response(self.get_serializer(invoice).data)

    @action(detail=True, methods=["post"])
    def annotate(self, request, pk=None):
        """Write a memo."""
        given = self.get_serializer(self.get_object(), data=self.given(), partial=True)
        given.is_valid(raise_exception=True)
        return Response(given.validated_data["memo"])

    def given(self):
        return self.request.data


def test_serializer_that_only_writes_the_result_is_no_input(
    add_urls, expose, connect, alice, invoice
):
    add_urls(closing=Closing)
    server = expose(Closing, ["close", "annotate"])
    arguments = {k: one["inputSchema"]["properties"] for k, one in definitions(server).items()}
    assert [*arguments["close_closing"]] == ["pk"] and "memo" in arguments["annotate_closing"]
    client = connect(alice, server=server)
    assert data(client.call("close_closing", pk=invoice.pk))["status"] == "paid"
