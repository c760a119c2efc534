"""Aggregate tools, which a model resource creates."""

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import django_mcp as mcp
from django_mcp.declarations.schemas import problem, violations
from django_mcp.exceptions import InvalidArguments
from tests.shop.models import Company, Customer, Invoice, LedgerLine, Place, Sample, Tag, Warehouse

from .helpers import A_THIRD, make_request, problem_ids, single_problem, valid_catalog


class Own(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["number", "customer", "customer__name", "status", "total", "issued", "paid_at"]
    search_fields = ["number"]
    filter_fields = ["status", "issued", "customer"]
    aggregate_fields = ["total", "issued"]
    group_fields = ["status", "customer", "customer__name", "issued", "paid_at"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class Every(mcp.ModelResource):
    """All rows of a model."""

    permission = mcp.AUTHENTICATED

    def get_queryset(self, request):
        return super().get_queryset(request).all()


@pytest.fixture
def declare(server):
    def declared(model=Invoice, base=Own, **attributes):
        server.register(model, type("Rows", (base,), attributes))
        return valid_catalog(server)

    return declared


@pytest.fixture
def invoices(invoice, bob):
    """Four invoices of alice's company, and one of another company."""
    dora = Customer.objects.create(company=invoice.company, name="Dora")
    rows = [
        ("A-2", invoice.customer, "20.10", date(2026, 1, 20), "paid"),
        ("A-3", dora, "30.20", date(2026, 2, 1), "paid"),
        ("A-4", dora, "0.05", date(2027, 2, 2), "draft"),
    ]
    for number, customer, total, issued, status in rows:
        Invoice.objects.create(
            company=invoice.company, customer=customer, number=number,
            total=Decimal(total), issued=issued, status=status,
        )  # fmt: skip
    other = Company.objects.create(name="Other")
    other.members.add(bob)
    theirs = Customer.objects.create(company=other, name="Secret")
    Invoice.objects.create(
        company=other, customer=theirs, number="B-1",
        total=Decimal("99999.99"), issued=date(1999, 1, 1), status="paid",
    )  # fmt: skip
    return Invoice.objects.filter(company=invoice.company)


def aggregate(catalog, user, model="invoice", **arguments):
    """Return the result of the tool. Arguments and result must fit their schemas."""
    tool = catalog.tools[f"aggregate_{model}"]
    request = make_request(user, catalog.server)
    values = tool._arguments.read(arguments)
    found = tool._output.structured(tool._implementation(request, **values), request)
    assert violations(tool._output.schema, found) == []
    return found


def groups(*args, **arguments):
    found = aggregate(*args, **arguments)
    assert found["more"] is False
    return found["groups"]


# Definition.


def test_definition_of_an_aggregate_tool(declare):
    shown = declare().tools["aggregate_invoice"]._definition()
    properties = shown["inputSchema"]["properties"]
    assert shown["title"] == "Aggregate invoices"
    assert shown["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert problem(shown["inputSchema"]) is None and problem(shown["outputSchema"]) is None
    assert properties["measures"]["items"]["enum"] == [
        "count", "total__sum", "total__avg", "total__min", "total__max",
        "issued__min", "issued__max",
    ]  # fmt: skip
    assert properties["group_by"]["items"]["enum"] == [
        "status", "customer", "customer__name", "issued__year", "issued__month", "issued__day",
        "paid_at__year", "paid_at__month", "paid_at__day",
    ]  # fmt: skip
    assert {"query", "status", "status__in", "issued__gte", "customer"} < properties.keys()
    assert "cursor" not in properties


def test_resource_without_aggregate_and_group_fields_has_no_aggregate_tool(declare):
    assert "aggregate_invoice" not in declare(aggregate_fields=[], group_fields=[]).tools


def test_rows_can_be_counted_in_groups_without_fields_to_aggregate(declare, alice, invoices):
    catalog = declare(aggregate_fields=[], group_fields=["status"])
    assert groups(catalog, alice, group_by=["status"], ordering="-count") == [
        {"status": "paid", "count": 2},
        {"status": "draft", "count": 1},
        {"status": "open", "count": 1},
    ]


def test_tool_without_group_fields_has_one_group(declare, alice, invoices):
    catalog = declare(group_fields=[])
    properties = catalog.tools["aggregate_invoice"]._definition()["inputSchema"]["properties"]
    assert not {"group_by", "ordering", "limit"} & properties.keys()
    assert groups(catalog, alice) == [{"count": 4}]


# Results.


def test_all_rows_are_one_group_without_group_by(declare, alice, invoices):
    total = sum(one.total for one in invoices)
    measures = ["count", "total__sum", "total__avg", "total__min", "total__max", "issued__max"]
    (found,) = groups(declare(), alice, measures=measures)
    assert found == {
        "count": 4,
        "total__sum": str(total),
        "total__avg": str((total / 4).quantize(Decimal("1.000000"))),
        "total__min": "0.05",
        "total__max": "30.20",
        "issued__max": "2027-02-02",
    }


def test_group_of_no_rows_has_no_values(declare, alice, bob):
    catalog, measures = declare(), ["count", "total__sum", "total__avg", "issued__min"]
    assert groups(catalog, alice, measures=measures) == [
        {"count": 0, "total__sum": None, "total__avg": None, "issued__min": None}
    ]
    assert groups(catalog, alice, measures=measures, group_by=["status"]) == []


def test_groups_are_in_the_order_of_group_by(declare, alice, invoices):
    found = groups(declare(), alice, group_by=["issued__month", "status"])
    assert [tuple(one.values()) for one in found] == [
        ("2026-01", "open", 1),
        ("2026-01", "paid", 1),
        ("2026-02", "paid", 1),
        ("2027-02", "draft", 1),
    ]


def test_groups_can_be_ordered_by_a_measure(declare, alice, invoices):
    catalog, arguments = declare(), {"group_by": ["status"], "measures": ["total__sum"]}
    found = groups(catalog, alice, **arguments, ordering="-total__sum")
    assert [one["total__sum"] for one in found] == ["50.30", "12.50", "0.05"]
    found = groups(catalog, alice, **arguments, ordering="-status")
    assert [one["status"] for one in found] == ["paid", "open", "draft"]


def test_number_of_groups_is_limited_in_the_database(declare, alice, invoices):
    catalog = declare()
    with CaptureQueriesContext(connection) as captured:
        found = aggregate(catalog, alice, group_by=["issued__day"], limit=2)
    assert [one["issued__day"] for one in found["groups"]] == ["2026-01-02", "2026-01-20"]
    assert found["more"] is True
    (query,) = captured.captured_queries  # one query computes everything
    assert "LIMIT 3" in query["sql"]
    assert aggregate(catalog, alice, group_by=["issued__day"], limit=4)["more"] is False


def test_foreign_key_is_grouped_by_its_key(declare, alice, invoices):
    carla, dora = Customer.objects.filter(company__name="Acme").order_by("name")
    found = groups(declare(), alice, group_by=["customer", "customer__name"], ordering="-customer")
    assert found == [
        {"customer": dora.pk, "customer__name": "Dora", "count": 2},
        {"customer": carla.pk, "customer__name": "Carla", "count": 2},
    ]


def test_filters_and_query_select_rows(declare, alice, invoices):
    catalog = declare()
    assert groups(catalog, alice, status="paid", issued__gte="2026-02-01") == [{"count": 1}]
    assert groups(catalog, alice, query="A-4", measures=["total__sum"]) == [{"total__sum": "0.05"}]
    dora = Customer.objects.get(name="Dora")
    assert groups(catalog, alice, customer=dora.pk) == [{"count": 2}]


def test_filter_accepts_the_uri_of_a_visible_row_only(server, alice, bob, invoices):
    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        uri = "customer://{pk}"
        fields = ["name"]
        search_fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    server.register(Customer, Customers)
    server.register(Invoice, Own)
    catalog = valid_catalog(server)
    dora = Customer.objects.get(name="Dora")
    assert groups(catalog, alice, customer=f"customer://{dora.pk}") == [{"count": 2}]
    secret = Customer.objects.get(name="Secret")
    assert groups(catalog, alice, customer=f"customer://{secret.pk}") == [{"count": 0}]


def test_sum_of_decimals_is_exact(declare, alice, invoice):
    # A sum of these as floats ends in ...99.
    Invoice.objects.all().delete()
    Invoice.objects.bulk_create(
        Invoice(
            company=invoice.company, customer=invoice.customer, number=f"C-{number}",
            total=Decimal("12345678.10"), issued=date(2026, 1, 1),
        )
        for number in range(1001)
    )  # fmt: skip
    (found,) = groups(declare(), alice, measures=["total__sum", "total__avg"])
    assert found == {
        "total__sum": str(1001 * Decimal("12345678.10")),
        "total__avg": "12345678.100000",
    }


SAMPLES = ["rank", "weight", "price", "day", "moment", "clock", "lasts"]


def test_every_type_of_column_is_aggregated(declare, alice):
    moments = [datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 2, 12, 30, tzinfo=UTC)]
    for number, moment in enumerate(moments, start=1):
        Sample.objects.create(
            name="x", rank=number, weight=number / 4, price=Decimal(number) / 8,
            day=moment.date(), moment=moment, clock=moment.time(), lasts=timedelta(minutes=number),
        )  # fmt: skip
    Sample.objects.create(name="x", rank=4)  # NULLs are not aggregated
    catalog = declare(Sample, Every, fields=["name", *SAMPLES], aggregate_fields=SAMPLES)
    names = list(catalog.tools["aggregate_sample"]._resource._aggregates.measures)
    found = {}
    for start in range(0, len(names), 10):
        found |= groups(catalog, alice, "sample", measures=names[start : start + 10])[0]
    # MariaDB calculates the average of integers with four decimal places.
    assert found.pop("rank__avg") == pytest.approx(7 / 3, abs=1e-4)
    assert found == {
        "count": 3,
        "rank__sum": 7, "rank__min": 1, "rank__max": 4,
        "weight__sum": 0.75, "weight__avg": 0.375, "weight__min": 0.25, "weight__max": 0.5,
        "price__sum": "0.375", "price__avg": "0.1875000",
        "price__min": "0.125", "price__max": "0.250",
        "day__min": "2026-03-01", "day__max": "2026-03-02",
        "moment__min": "2026-03-01T12:00:00+00:00", "moment__max": "2026-03-02T12:30:00+00:00",
        "clock__min": "12:00:00", "clock__max": "12:30:00",
        "lasts__sum": "P0DT00H03M00S", "lasts__avg": "P0DT00H01M30S",
        "lasts__min": "P0DT00H01M00S", "lasts__max": "P0DT00H02M00S",
    }  # fmt: skip


def test_decimals_with_more_digits_than_shown_are_summed_as_shown(declare, alice):
    Sample.objects.create(name="x", price=Decimal("1.000"))
    Sample.objects.create(name="x", price=Decimal("1.000"))
    Sample.objects.update(price=A_THIRD)
    catalog = declare(Sample, Every, fields=["price"], aggregate_fields=["price"])
    assert groups(catalog, alice, "sample", measures=["price__sum"]) == [{"price__sum": "0.666"}]


GROUPED = ["nickname", "rank", "price", "checked", "clock", "lasts", "token", "address", "place"]


@pytest.mark.parametrize("name", GROUPED)
def test_every_type_of_column_is_grouped_and_null_is_a_group(declare, alice, name):
    place = Place.objects.create(name="Hall")
    values = {
        "nickname": "x", "rank": 3, "price": Decimal("0.125"), "checked": True,
        "clock": datetime(2026, 1, 1, 12, 30).time(), "lasts": timedelta(seconds=90),
        "token": "0" * 32, "address": "10.0.0.1", "place": place,
    }  # fmt: skip
    shown = values | {
        "price": "0.125", "clock": "12:30:00", "lasts": "P0DT00H01M30S",
        "token": "00000000-0000-0000-0000-000000000000", "place": place.pk,
    }  # fmt: skip
    empty = {"rank": 5, "checked": False}
    for _ in range(2):
        Sample.objects.create(name="x", **{name: values[name]})
    Sample.objects.create(name="x", **{name: empty.get(name)})
    catalog = declare(Sample, Every, fields=[name], group_fields=[name])
    found = groups(catalog, alice, "sample", group_by=[name], ordering="-count")
    assert found == [{name: shown[name], "count": 2}, {name: empty.get(name), "count": 1}]
    found = groups(catalog, alice, "sample", group_by=[name])
    assert name in empty or found[-1][name] is None  # NULL is last


def test_dates_are_grouped_in_the_current_time_zone(declare, alice):
    for moment in (datetime(2026, 12, 31, 23, 30, tzinfo=UTC), None):
        Sample.objects.create(name="x", moment=moment)
    catalog = declare(Sample, Every, fields=["moment"], group_fields=["moment"])
    names = ["moment__year", "moment__month", "moment__day"]
    with timezone.override("UTC"):
        found = groups(catalog, alice, "sample", group_by=names)
    assert [tuple(one.values()) for one in found] == [
        ("2026", "2026-12", "2026-12-31", 1),
        (None, None, None, 1),
    ]
    with timezone.override("Europe/Vienna"):
        if connection.vendor == "mysql" and not connection.features.has_zoneinfo_database:
            with pytest.raises(ImproperlyConfigured, match="time zone tables are empty"):
                aggregate(catalog, alice, "sample", group_by=names)
            return
        found = groups(catalog, alice, "sample", group_by=names)
    assert [tuple(one.values()) for one in found] == [
        ("2027", "2027-01", "2027-01-01", 1),
        (None, None, None, 1),
    ]


def test_rows_with_a_composite_or_inherited_key_are_aggregated(declare, server, alice):
    acme = Company.objects.get(name="Acme")
    for line in range(1, 4):
        LedgerLine.objects.create(company=acme, line=line, text="x", amount=Decimal("1.10"))
    Warehouse.objects.create(name="North", city="Graz", capacity=5)
    server.register(Warehouse, type("W", (Every,), {
        "fields": ["city", "capacity"], "aggregate_fields": ["capacity"], "group_fields": ["city"],
    }))  # fmt: skip
    catalog = declare(LedgerLine, Every, fields=["amount"], aggregate_fields=["amount"])
    assert groups(catalog, alice, "ledgerline", measures=["amount__sum"]) == [
        {"amount__sum": "3.30"}
    ]
    found = groups(catalog, alice, "warehouse", group_by=["city"], measures=["capacity__sum"])
    assert found == [{"city": "Graz", "capacity__sum": 5}]


# Rows that a queryset returns several times are counted once.


def _joined(self, request):
    return Invoice.objects.filter(company__members__username__in=["alice", "bob"])


def _distinct(self, request):
    return _joined(self, request).distinct()


def _annotated(self, request):
    rows = Invoice.objects.filter(company__members=request.user, tags__isnull=False)
    return rows.annotate(labels=Count("tags")).filter(labels__gt=1).order_by("labels")


def _combined(self, request):
    rows = Invoice.objects.filter(company__members=request.user)
    return rows.filter(status="open") | rows.filter(tags__label__startswith="t")


@pytest.mark.parametrize("get_queryset", [_joined, _distinct, _annotated, _combined])
def test_row_that_a_join_repeats_counts_once(declare, alice, bob, invoice, get_queryset):
    invoice.company.members.add(bob)
    invoice.tags.set([Tag.objects.create(label=label) for label in ("t1", "t2", "t3")])
    catalog = declare(get_queryset=get_queryset)
    measures = ["count", "total__sum"]
    assert groups(catalog, alice, measures=measures) == [{"count": 1, "total__sum": "12.50"}]
    found = groups(catalog, alice, measures=measures, group_by=["status"], query="A")
    assert found == [{"status": "open", "count": 1, "total__sum": "12.50"}]


# Attacks.


@pytest.mark.parametrize(
    "measure", ["count", "total__sum", "total__avg", "total__min", "total__max", "issued__min"]
)
def test_rows_of_others_are_in_no_aggregate(declare, alice, bob, invoices, measure):
    catalog = declare()
    for group_by in ([], ["status"], ["issued__year"], ["customer__name"]):
        before = aggregate(catalog, alice, measures=[measure], group_by=group_by)
        changed = Invoice.objects.get(number="B-1")
        changed.total, changed.issued = Decimal("0.01"), date(3000, 1, 1)
        changed.save()
        assert aggregate(catalog, alice, measures=[measure], group_by=group_by) == before
        text = str(before)
        assert "Secret" not in text and "99999" not in text and "1999" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        {"measures": ["metadata__max"]},
        {"measures": ["customer__notes__max"]},
        {"measures": ["pk__sum"]},
        {"measures": ["total"]},
        {"measures": ["total__variance"]},
        {"measures": ["tags__count"]},
        {"measures": []},
        {"measures": "count"},
        {"measures": [["count"]]},
        {"measures": [None]},
        {"measures": ["count", "count"]},
        {"group_by": ["customer__notes"]},
        {"group_by": ["company"]},
        {"group_by": ["tags"]},
        {"group_by": ["issued"]},
        {"group_by": ["issued__week"]},
        {"group_by": ["status", "status"]},
        {"group_by": "status"},
        {"group_by": [{"status": 1}]},
        {"ordering": "customer__notes"},
        {"ordering": "total__sum"},  # not computed
        {"ordering": "status"},  # not in group_by
        {"ordering": "--count"},
        {"ordering": ""},
        {"ordering": ["count"]},
        {"limit": 0},
        {"limit": 1001},
        {"limit": True},
        {"limit": "5"},
        {"cursor": "x"},
        {"customer__notes": "x"},
        {"customer__notes__startswith": "x"},
        {"total__gte": "1"},
        {"status__startswith": "p"},
        {"status": "lost"},
        {"issued__gte": "x"},
    ],
)
def test_invalid_arguments_are_refused(declare, alice, invoices, arguments):
    catalog = declare()
    with CaptureQueriesContext(connection) as captured, pytest.raises(InvalidArguments) as refused:
        aggregate(catalog, alice, **arguments)
    assert next(iter(arguments)) in refused.value.message
    assert len(refused.value.message) < 2_000 and not captured.captured_queries


@pytest.mark.parametrize("name", ["measures", "group_by"])
def test_long_lists_are_refused_without_work(declare, alice, name):
    catalog = declare()
    given = {"measures": ["count"] * 100_000, "group_by": ["status"] * 100_000}
    started = time.process_time()
    with pytest.raises(InvalidArguments) as refused:
        aggregate(catalog, alice, **{name: given[name]})
    assert len(refused.value.message) < 2_000
    assert time.process_time() - started < 5


def test_arguments_are_validated_without_their_schema_too(declare, alice, invoices):
    aggregates = declare().tools["aggregate_invoice"]._resource._aggregates
    for arguments in (
        {"measures": ["count"] * 11},
        {"measures": ["x"]},
        {"measures": []},
        {"group_by": ["status"] * 6},
        {"ordering": 5},
        {"limit": 1001},
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            aggregates.read(arguments)


def test_permission_of_the_aggregate_tool_is_that_of_its_resource(declare, alice, bob):
    catalog = declare(has_permission=lambda self, request: request.user.username == "alice")
    tool = catalog.tools["aggregate_invoice"]
    assert tool._is_allowed(make_request(alice)) and not tool._is_allowed(make_request(bob))
    assert not tool._is_allowed(make_request()) and not tool._is_public


def test_default_permission_is_required_for_aggregates(declare, alice, bob):
    class Stating(mcp.ModelResource):
        fields = ["total"]
        aggregate_fields = ["total"]

    tool = declare(base=Stating).tools["aggregate_invoice"]
    assert tool._is_allowed(make_request(alice)) and not tool._is_allowed(make_request(bob))


# Checks.


@pytest.mark.parametrize("option", ["aggregate_fields", "group_fields"])
@pytest.mark.parametrize("name", ["metadata", "company__name", "pk_sum"])
def test_name_that_is_not_in_fields_is_an_error(server, option, name):
    server.register(Invoice, type("Rows", (Own,), {option: [name]}))
    message = single_problem(server)
    assert message.id == "django_mcp.E055" and f"{option}: {name!r}" in message.msg


@pytest.mark.parametrize(
    "name",
    ["number", "customer", "tags", "tags__label", "overdue", "metadata", "attachment", "shown"],
)
def test_field_that_cannot_be_aggregated_is_an_error(server, name):
    class Rows(Every):
        fields = [name]
        aggregate_fields = [name]

        def shown(self, row, request) -> int:
            return 1

    server.register(Invoice, Rows)
    message = single_problem(server)
    assert message.id == "django_mcp.E230" and repr(name) in message.msg


@pytest.mark.parametrize("name", ["tags", "tags__label", "overdue", "metadata", "attachment"])
def test_field_that_cannot_be_grouped_by_is_an_error(server, name):
    server.register(
        Invoice, type("Rows", (Every,), {"fields": [name], "group_fields": [name]})
    )  # fmt: skip
    message = single_problem(server)
    assert message.id == "django_mcp.E231" and repr(name) in message.msg


def test_object_permission_and_aggregates_are_an_error(server):
    def few(self, request, obj, action):
        return False

    server.register(Invoice, type("Rows", (Own,), {"has_object_permission": few}))
    assert single_problem(server).id == "django_mcp.E232"


def test_filter_with_the_name_of_an_argument_is_an_error(server, monkeypatch):
    field = Invoice._meta.get_field("status")
    monkeypatch.setattr(
        "django_mcp.declarations.model_resources.AGGREGATE_ARGUMENTS", (field.name,)
    )
    server.register(Invoice, Own)
    assert problem_ids(server) == ["E233"]


def test_search_tool_is_the_same_with_and_without_aggregates(declare, server):
    plain = {"name": "bill", "uri": "bill://{pk}", "aggregate_fields": [], "group_fields": []}
    server.register(Invoice, type("Bills", (Own,), plain))
    tools = declare().tools
    assert "aggregate_bill" not in tools
    search, other = (tools[name]._definition() for name in ("search_invoice", "search_bill"))
    assert {**search, "name": ""} == {**other, "name": ""}
