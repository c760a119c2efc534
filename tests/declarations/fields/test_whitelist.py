"""The whitelist ``fields``: its values, schema and queries, and problems in its declaration."""

import json
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.core.files.base import ContentFile
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils.functional import cached_property
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from django_mcp.declarations.fields.entries import MAX_RELATED_KEYS
from django_mcp.declarations.fields.whitelist import FieldSet
from tests.declarations.helpers import A_THIRD
from tests.shop.models import (
    Badge,
    Company,
    Customer,
    Invoice,
    LedgerLine,
    LocalPlace,
    Note,
    Place,
    Sample,
    Tag,
    Warehouse,
    Wearer,
)

pytestmark = pytest.mark.django_db

INVOICE = [
    "pk",
    "number",
    "status",
    "total",
    "issued",
    "paid_at",
    "customer",
    "customer__name",
    "customer__company",
    "customer__referred_by__name",
    "tags",
    "attachment",
    "metadata",
]


def fits_schema(schema, value):
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    Draft202012Validator.check_schema(schema)
    errors = [error.message for error in validator.iter_errors(value)]
    assert not errors, errors
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    return True


@pytest.fixture
def shop(tmp_path):
    with override_settings(MEDIA_ROOT=tmp_path):
        company = Company.objects.create(name="Acme")
        uncle = Customer.objects.create(company=company, name="Uncle", notes="never tell")
        for number in range(3):
            customer = Customer.objects.create(
                company=company, name=f"C{number}", notes="never tell", referred_by=uncle
            )
            make_invoice(company, customer, number)
        yield company


def make_invoice(company, customer, number):
    invoice = Invoice.objects.create(
        company=company,
        customer=customer,
        number=f"A{number}",
        status="open",
        total="12.5",
        issued="2024-02-29",
        paid_at=datetime(2024, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))),
        metadata={"deep": [1, None, {"x": 0.5}]},
        attachment=ContentFile(b"hello", name="paper.pdf"),
    )
    tags = [Tag.objects.create(label=f"{number}-{label}") for label in range(3)]
    invoice.tags.set(tags)
    return invoice


def values_of(field_set, queryset, **options):
    return [field_set.values(row, **options) for row in field_set.select(queryset.order_by("pk"))]


def test_values_of_all_kinds_of_fields(shop):
    field_set = FieldSet(Invoice, INVOICE)
    assert field_set.problems() == []
    value = values_of(field_set, Invoice.objects.all(), make_uri=lambda name: f"model://x/{name}")[
        0
    ]
    invoice = Invoice.objects.order_by("pk").first()
    assert value == {
        "pk": invoice.pk,
        "number": "A0",
        "status": "open",
        "total": "12.50",
        "issued": "2024-02-29",
        "paid_at": "2024-03-01T10:00:00+00:00",
        "customer": invoice.customer_id,
        "customer__name": "C0",
        "customer__company": shop.pk,
        "customer__referred_by__name": "Uncle",
        "tags": sorted(tag.pk for tag in invoice.tags.all()),
        "attachment": {"name": "paper.pdf", "size": 5, "uri": "model://x/attachment"},
        "metadata": {"deep": [1, None, {"x": 0.5}]},
    }
    assert list(value) == INVOICE
    assert fits_schema(field_set.schema(), value)


def test_new_instance_has_the_same_values_as_its_loaded_row(shop):
    field_set = FieldSet(Invoice, INVOICE)
    made = make_invoice(shop, Customer.objects.first(), "made")
    assert field_set.values(made) == values_of(field_set, Invoice.objects.filter(pk=made.pk))[0]


@pytest.mark.parametrize("rows", [1, 3])
def test_number_of_queries_does_not_depend_on_the_number_of_rows(
    shop, rows, django_assert_num_queries
):
    keys = Invoice.objects.order_by("pk").values_list("pk", flat=True)[:rows]
    queryset = Invoice.objects.filter(pk__in=list(keys))
    with django_assert_num_queries(2):  # the rows, and their tags
        values_of(FieldSet(Invoice, INVOICE), queryset)
    with django_assert_num_queries(1):
        values_of(FieldSet(Invoice, ["number", "customer", "customer__name"]), queryset)


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["number"], {"shop_invoice": {"id", "number"}}),
        (["customer"], {"shop_invoice": {"id", "customer_id"}}),
        (
            ["customer__name"],
            {"shop_invoice": {"id", "customer_id"}, "shop_customer": {"id", "name"}},
        ),
    ],
)
def test_columns_that_are_not_listed_are_not_loaded(shop, names, columns):
    queryset = Invoice.objects.select_related("company").prefetch_related("tags").defer("number")
    with CaptureQueriesContext(connection) as queries:
        values_of(FieldSet(Invoice, names), queryset)
    assert len(queries) == 1
    sql = queries[0]["sql"].replace("`", '"').partition(" FROM ")[0].removeprefix("SELECT ")
    loaded: dict[str, set[str]] = {}
    for column in sql.split(", "):
        table, name = column.replace('"', "").split(".")
        loaded.setdefault(table, set()).add(name)
    assert loaded == columns


def test_unlisted_column_of_a_joined_row_is_not_queried(shop):
    with CaptureQueriesContext(connection) as queries:
        text = json.dumps(values_of(FieldSet(Invoice, INVOICE), Invoice.objects.all()))
    assert "never tell" not in text
    assert not [query for query in queries if "notes" in query["sql"]]


def test_property_gets_the_whole_row_and_keeps_the_joins_of_the_queryset(
    shop, django_assert_num_queries
):
    field_set = FieldSet(Invoice, ["number", "overdue", "customer__name"])
    assert field_set.problems() == []
    queryset = Invoice.objects.select_related("company").prefetch_related("tags").only("issued")
    with django_assert_num_queries(2):
        rows = list(field_set.select(queryset))
        values = [field_set.values(row) for row in rows]
        assert [(row.company.name, len(row.tags.all())) for row in rows] == [("Acme", 3)] * 3
    assert [value["overdue"] for value in values] == [True] * 3
    assert "notes" in rows[0].customer.get_deferred_fields()
    schema = field_set.schema()["properties"]["overdue"]
    assert schema["description"] == "Whether the customer should have paid by now."
    assert all(fits_schema(field_set.schema(), value) for value in values)


def test_select_whole_loads_all_columns(shop):
    row = FieldSet(Invoice, ["number"]).select(Invoice.objects.all(), whole=True)[0]
    assert not row.get_deferred_fields()


# Columns of related rows.


@pytest.fixture
def tagged_invoices():
    company = Company.objects.create(name="Tagged")
    carla = Customer.objects.create(company=company, name="Carla")
    others = [Customer.objects.create(company=company, name=name) for name in ("Ann", "Bob")]
    tags = [Tag.objects.create(label=label) for label in ("urgent", "big")]
    for number in range(3):
        made = Invoice.objects.create(
            company=company, customer=carla, number=f"T-{number}", total=1, issued=date(2026, 1, 1)
        )
        made.tags.set(tags[:number])
    return company, [carla, *others]


def test_column_of_related_rows_is_a_list(tagged_invoices):
    field_set = FieldSet(Invoice, ["number", "tags", "tags__label", "company__name"])
    rows = field_set.select(Invoice.objects.filter(number__startswith="T-").order_by("number"))
    listed = [field_set.values(row) for row in rows]
    assert [one["tags__label"] for one in listed] == [[], ["urgent"], ["urgent", "big"]]
    assert all(len(one["tags"]) == len(one["tags__label"]) for one in listed)
    assert field_set.schema()["properties"]["tags__label"] == {
        "type": "array", "items": {"type": "string"}, "maxItems": MAX_RELATED_KEYS,
    }  # fmt: skip
    assert all(fits_schema(field_set.schema(), one) for one in listed)


def test_columns_of_related_rows_cost_one_query_for_a_page(
    tagged_invoices, django_assert_num_queries
):
    field_set = FieldSet(Invoice, ["number", "tags__label"])
    with django_assert_num_queries(2):
        rows = field_set.select(Invoice.objects.filter(number__startswith="T-"))
        assert len([field_set.values(row) for row in rows]) == 3


def test_columns_of_reverse_relations_and_beyond_foreign_keys(tagged_invoices):
    company, customers = tagged_invoices
    names = ["customers__name", "customers__referred_by__name", "customers__company"]
    customers[0].referred_by = customers[1]
    customers[0].save()
    field_set = FieldSet(Company, names)
    assert field_set.values(field_set.select(Company.objects.filter(pk=company.pk)).get()) == {
        "customers__name": ["Carla", "Ann", "Bob"],
        "customers__referred_by__name": ["Ann", None, None],
        "customers__company": [company.pk] * 3,
    }
    assert field_set.values(company)["customers__name"] == ["Carla", "Ann", "Bob"]


def test_column_of_a_reverse_one_to_one_relation_is_a_single_value():
    place = Place.objects.create(name="Yard")
    Warehouse.objects.create(place_ptr=place, name="Yard", capacity=5)
    field_set = FieldSet(Place, ["warehouse__capacity"])
    selected = field_set.select(Place.objects.filter(pk=place.pk)).get()
    assert field_set.values(selected) == {"warehouse__capacity": 5}
    empty = Place.objects.create(name="Field")
    assert field_set.values(empty) == {"warehouse__capacity": None}
    assert field_set.schema()["properties"]["warehouse__capacity"]["type"] == ["integer", "null"]


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        (Company, "invoices__attachment", "file of another row"),
        (Company, "customers__invoices", "without a column of its own"),
        (Company, "customers__invoices__number", "is not a foreign key"),
        (Customer, "company__invoices__number", "is not a foreign key"),
        (Company, "customers__nam", "Did you mean 'name'?"),
        (Company, "customers__password", "has no field"),
    ],
)
def test_invalid_column_of_related_rows_is_a_problem(model, name, words):
    assert words in FieldSet(model, [name]).problems()[0]


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (3, 3),
        (None, None),
        (1.5, 1.5),
        (float("nan"), None),
        ("x", "x"),
        (gettext_lazy("yes"), "yes"),
        (Colour.RED, "red"),
        (Decimal("1E+2"), "100"),
        (uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00+00:00"),
        (date(2024, 1, 1), "2024-01-01"),
        (time(1, 2), "01:02:00"),
        (timedelta(days=1, seconds=1), "P1DT00H00M01S"),
        (b"ab", "YWI="),
        ([1, (Decimal(2), {3})], [1, ["2", [3]]]),
        ({"a": {1: Decimal(1)}}, {"a": {"1": "1"}}),
    ],
)
def test_property_values_are_encoded_as_json(monkeypatch, value, expected):
    monkeypatch.setattr(Note, "extra", property(lambda self: value), raising=False)
    field_set = FieldSet(Note, ["extra"])
    given_value = field_set.values(Note())
    assert given_value == {"extra": expected} and fits_schema(field_set.schema(), given_value)


@pytest.mark.parametrize("value", [Note(), [Note()], object(), {"a": Note.objects.none()}])
def test_property_that_returns_model_instances_raises(monkeypatch, value):
    monkeypatch.setattr(Note, "extra", property(lambda self: value), raising=False)
    with pytest.raises(TypeError, match="plain values"):
        FieldSet(Note, ["extra"]).values(Note())


@pytest.mark.parametrize(
    ("annotation", "value", "schema"),
    [
        (bool, True, {"type": "boolean"}),
        (int, 3, {"type": "integer"}),
        (float, 0.5, {"type": ["number", "null"]}),  # NaN is null
        (str, mark_safe("<b>"), {"type": "string"}),
        (str | None, None, {"type": ["string", "null"]}),
        ("bool", False, {"type": "boolean"}),
        (Annotated[int, "a note"], 3, {"type": "integer"}),
        (Decimal, Decimal("1.50"), {"type": "string"}),
        (date, date(2026, 1, 2), {"type": "string", "format": "date"}),
        (datetime, datetime(2026, 1, 2, tzinfo=UTC), {"type": "string", "format": "date-time"}),
        (timedelta, timedelta(1), {"type": "string"}),
        (uuid.UUID, uuid.UUID(int=1), {"type": "string", "format": "uuid"}),
        (bytes, b"x", {"type": "string", "contentEncoding": "base64"}),
        (list[str], ["a"], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], (1, 2), {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"a": 1}, {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list, [1, "a"], {"type": "array"}),
    ],
)
def test_schema_of_a_property_is_its_return_annotation(monkeypatch, annotation, value, schema):
    extra = lambda self: value  # noqa: E731
    extra.__annotations__["return"] = annotation
    monkeypatch.setattr(Note, "extra", property(extra), raising=False)
    field_set = FieldSet(Note, ["extra"])
    assert field_set.schema()["properties"]["extra"] == schema
    assert fits_schema(field_set.schema(), field_set.values(Note()))


@pytest.mark.parametrize("annotation", [Note, "Nowhere", object, int | str, Literal["a"], Any])
def test_property_with_an_unsupported_annotation_may_have_any_plain_value(monkeypatch, annotation):
    extra = lambda self: 3  # noqa: E731
    extra.__annotations__["return"] = annotation
    monkeypatch.setattr(Note, "extra", property(extra), raising=False)
    field_set = FieldSet(Note, ["extra"])
    assert len(field_set.schema()["properties"]["extra"]["type"]) == 6
    assert field_set.values(Note()) == {"extra": 3}


@pytest.mark.parametrize(
    ("annotation", "value"), [(bool, None), (bool, 1), (str, 1), (list[int], ["a"]), (int, True)]
)
def test_property_value_that_does_not_fit_its_annotation_raises(monkeypatch, annotation, value):
    """Values must fit the published schema."""
    extra = lambda self: value  # noqa: E731
    extra.__annotations__["return"] = annotation
    monkeypatch.setattr(Note, "extra", property(extra), raising=False)
    with pytest.raises(TypeError, match=r"Note\.extra returned .* does not fit its annotation"):
        FieldSet(Note, ["extra"]).values(Note())


def test_cached_property_can_be_listed(monkeypatch):
    extra = cached_property(lambda self: 1)
    extra.__set_name__(Note, "extra")
    monkeypatch.setattr(Note, "extra", extra, raising=False)
    assert FieldSet(Note, ["extra"]).values(Note()) == {"extra": 1}


class TestRelations:
    def test_reverse_relations_are_lists_of_at_most_100_keys(self, shop, django_assert_num_queries):
        other = Company.objects.create(name="Other")
        Customer.objects.bulk_create(
            Customer(company=other, name=f"{number:03}", notes="never tell")
            for number in range(MAX_RELATED_KEYS + 5)
        )
        field_set = FieldSet(Company, ["name", "customers", "invoices", "members"])
        with django_assert_num_queries(4):
            acme, rest = values_of(field_set, Company.objects.all())
        assert len(acme["customers"]) == 4 and len(acme["invoices"]) == 3
        assert acme["members"] == []
        assert rest["customers"] == sorted(rest["customers"]) and len(rest["customers"]) == 100
        assert fits_schema(field_set.schema(), acme) and fits_schema(field_set.schema(), rest)
        assert field_set.values(other)["customers"] == rest["customers"]

    def test_only_keys_of_related_rows_are_loaded(self, shop):
        with CaptureQueriesContext(connection) as queries:
            values_of(FieldSet(Company, ["customers"]), Company.objects.all())
        assert len(queries) == 2 and "notes" not in queries[1]["sql"]

    def test_many_to_many_relation_can_be_listed_from_both_models(
        self, shop, django_assert_num_queries
    ):
        with django_assert_num_queries(2):
            values = values_of(FieldSet(Tag, ["label", "invoices"]), Tag.objects.all())
        assert len(values) == 9 and {len(value["invoices"]) for value in values} == {1}

    def test_reverse_relation_can_be_listed_by_accessor_or_query_name(self, shop):
        sample = Sample.objects.create(name="s", place=Place.objects.create(name="p"))
        for name in ("sample", "sample_set"):
            assert FieldSet(Place, [name]).problems() == []
            value = values_of(FieldSet(Place, [name]), Place.objects.all())[0]
            assert value == {name: [sample.pk]}

    def test_reverse_one_to_one_relation_is_one_key_or_null(self, django_assert_num_queries):
        badge = Badge.objects.create(code="b", colour="red")
        places = [Place.objects.create(name=name) for name in "ab"]
        wearer = Wearer.objects.create(badge=badge, locker=places[0])
        field_set = FieldSet(Place, ["wearer"])
        with django_assert_num_queries(2):
            values = values_of(field_set, Place.objects.all())
        assert values == [{"wearer": wearer.pk}, {"wearer": None}]
        assert [field_set.values(place) for place in places] == values
        assert all(fits_schema(field_set.schema(), value) for value in values)

    def test_inherited_relations_cost_no_query_per_row(self, django_assert_num_queries):
        for number in range(3):
            warehouse = Warehouse.objects.create(name="w", capacity=number)
            Sample.objects.create(name="s", place=warehouse)
        field_set = FieldSet(Warehouse, ["capacity", "sample", "wearer"])
        with django_assert_num_queries(3):
            values = values_of(field_set, Warehouse.objects.all())
        assert [len(value["sample"]) for value in values] == [1, 1, 1]

    def test_foreign_key_with_to_field_has_the_primary_key_of_its_row(
        self, django_assert_num_queries
    ):
        badge = Badge.objects.create(code="gold-1", colour="gold")
        for _ in range(2):
            Wearer.objects.create(badge=badge)
        field_set = FieldSet(Wearer, ["badge", "locker"])
        with django_assert_num_queries(1):
            values = values_of(field_set, Wearer.objects.all())
        assert values == [{"badge": "gold-1", "locker": None}] * 2
        assert field_set.target("badge") is Badge and field_set.target("locker") is Place
        assert fits_schema(field_set.schema(), values[0])
        back = FieldSet(Badge, ["wearers"])
        assert len(values_of(back, Badge.objects.all())[0]["wearers"]) == 2

    def test_target_returns_the_model_that_a_key_belongs_to(self):
        field_set = FieldSet(Invoice, [*INVOICE, "overdue"])
        targets = {name: target for name in INVOICE if (target := field_set.target(name))}
        assert targets == {"customer": Customer, "customer__company": Company}
        assert FieldSet(Place, ["wearer"]).target("wearer") is Wearer


def test_composite_key_is_encoded_as_a_list():
    company = Company.objects.create(name="Acme")
    LedgerLine.objects.create(company=company, line=7, text="t", amount=1)
    field_set = FieldSet(LedgerLine, ["pk", "company__name", "line"])
    value = values_of(field_set, LedgerLine.objects.all())[0]
    assert value == {"pk": [company.pk, 7], "company__name": "Acme", "line": 7}
    assert fits_schema(field_set.schema(), value)
    lines = values_of(FieldSet(Company, ["ledger"]), Company.objects.all())[0]
    assert lines == {"ledger": [[company.pk, 7]]}
    assert fits_schema(FieldSet(Company, ["ledger"]).schema(), lines)


def test_proxy_models_and_inherited_models(shop):
    Warehouse.objects.create(name="w", city="Graz", capacity=None)
    assert values_of(FieldSet(LocalPlace, ["name"]), LocalPlace.objects.all()) == [{"name": "w"}]
    field_set = FieldSet(Warehouse, ["pk", "name", "city", "capacity", "place_ptr__name"])
    value = values_of(field_set, Warehouse.objects.all())[0]
    assert value["name"] == value["place_ptr__name"] == "w" and value["capacity"] is None
    assert fits_schema(field_set.schema(), value)


class TestFiles:
    def test_empty_file_field_is_null(self, shop):
        Invoice.objects.update(attachment="")
        field_set = FieldSet(Invoice, ["attachment"])
        assert values_of(field_set, Invoice.objects.all())[0] == {"attachment": None}
        assert fits_schema(field_set.schema(), {"attachment": None})

    @pytest.mark.parametrize("path", ["secret/folder/a.txt", "secret\\folder\\a.txt"])
    def test_missing_file_has_a_name_without_a_path_and_no_size(self, shop, path):
        Invoice.objects.update(attachment=path)
        field_set = FieldSet(Invoice, ["attachment"])
        value = values_of(field_set, Invoice.objects.all())[0]
        assert value == {"attachment": {"name": "a.txt", "size": None}}
        assert fits_schema(field_set.schema(), value)

    def test_file_fields_and_their_mime_types(self, shop):
        field_set = FieldSet(Invoice, INVOICE)
        assert field_set.files == ["attachment"]
        invoice = Invoice.objects.first()
        assert field_set.mime_type(invoice, "attachment") == "application/pdf"
        invoice.attachment.name = "x/noext"
        assert field_set.mime_type(invoice, "attachment") == "application/octet-stream"


def test_schema_has_titles_descriptions_and_choices(shop):
    properties = FieldSet(Invoice, INVOICE).schema()["properties"]
    assert properties["total"]["title"] == "Amount due"
    assert properties["number"]["description"] == "Printed on the paper."
    assert "title" not in properties["customer__name"]  # it would only repeat the name
    assert properties["status"]["examples"] == ["draft", "open", "paid"]
    assert properties["status"]["description"] == "open: Awaiting payment"
    assert properties["paid_at"]["type"] == ["string", "null"]
    assert properties["customer__referred_by__name"]["type"] == ["string", "null"]
    assert properties["customer"]["type"] == "integer"


def test_value_that_is_no_longer_a_choice_fits_the_schema(shop):
    Invoice.objects.update(status="legacy")
    field_set = FieldSet(Invoice, ["status"])
    value = values_of(field_set, Invoice.objects.all())[0]
    assert value == {"status": "legacy"} and fits_schema(field_set.schema(), value)


def test_naive_datetime_is_read_in_the_current_time_zone():
    field_set = FieldSet(Sample, ["moment"])
    with override_settings(TIME_ZONE="Europe/Vienna"):
        sample = Sample(moment=datetime(2024, 7, 1, 12))
        assert field_set.values(sample) == {"moment": "2024-07-01T10:00:00+00:00"}


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
samples = st.fixed_dictionaries(
    {
        "name": texts,
        "nickname": st.none() | texts,
        "weight": st.none() | st.floats(allow_nan=True),
        "rank": st.integers(-(2**31), 2**31 - 1),
        "price": st.none() | st.decimals("-99999", "99999", places=3),
        "checked": st.booleans(),
        "day": st.none() | st.dates(),
        "moment": st.none() | st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
        "clock": st.none() | st.times(),
        "lasts": st.none() | st.timedeltas(),
        "token": st.none() | st.uuids(version=4),
        "address": st.none() | st.ip_addresses().map(str),
        "blob": st.none() | st.binary(max_size=20),
    }
)
SAMPLE_NAMES = [
    "name",
    "nickname",
    "weight",
    "rank",
    "price",
    "checked",
    "day",
    "moment",
    "clock",
    "lasts",
    "token",
    "address",
    "blob",
    "place",
    "place__name",
]


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(values=samples)
def test_values_always_fit_the_schema(values):
    field_set = FieldSet(Sample, SAMPLE_NAMES)
    assert fits_schema(field_set.schema(), field_set.values(Sample(**values)))


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=samples)
def test_stored_values_are_read_unchanged_and_fit_the_schema(values):
    field_set = FieldSet(Sample, SAMPLE_NAMES)
    stored = values | {"lasts": values["lasts"] and timedelta(seconds=values["lasts"].seconds)}
    if not -1e300 < (values["weight"] or 0) < 1e300:  # MariaDB has neither NaN nor infinities
        stored["weight"] = None
    if values["moment"]:
        year = min(max(values["moment"].year, 1900), 2100)
        stored["moment"] = values["moment"].replace(year=year, day=1, tzinfo=UTC)
    with transaction.atomic():
        sample = Sample.objects.create(**stored)
        read = values_of(field_set, Sample.objects.filter(pk=sample.pk))[0]
        transaction.set_rollback(True)
    assert read == field_set.values(sample) and fits_schema(field_set.schema(), read)


def test_decimal_is_rounded_to_the_decimal_places_of_its_field():
    Sample.objects.create(name="s", price=1)
    Sample.objects.update(price=A_THIRD)
    field_set = FieldSet(Sample, ["price"])
    value = values_of(field_set, Sample.objects.all())[0]
    assert value == {"price": "0.333"} and fits_schema(field_set.schema(), value)


@pytest.mark.parametrize(
    ("model", "names", "words"),
    [
        (Invoice, "number", "not a list"),
        (Invoice, "__all__", "not a list"),
        (Invoice, [], "not a list"),
        (Invoice, ["number", "number"], "twice"),
        (Invoice, ["nubmer"], "Did you mean 'number'"),
        (Invoice, ["customer__nmae"], "Did you mean 'name'"),
        (Invoice, ["overdeu"], "'overdue'"),
        (Invoice, ["__class__"], "no field"),
        (Invoice, ["delete"], "no field"),
        (Invoice, ["objects"], "no field"),
        (Invoice, [3], "no field"),
        (Company, ["customers__invoices__number"], "can only follow foreign keys"),
        (Invoice, ["customer__invoices"], "without a column of its own"),
        (Invoice, ["number__x"], "is not a foreign key"),
        (User, ["password"], "secret"),
        (Wearer, ["badge__wearers__badge"], "can only follow foreign keys"),
        (LedgerLine, ["company__pk__x"], "is not a foreign key"),
    ],
)
def test_invalid_whitelist_is_a_problem(model, names, words):
    problems = FieldSet(model, names).problems()
    assert len(problems) == 1 and words in problems[0]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("old_password_hash", True),
        ("api_key", True),
        ("client_secret", True),
        ("refresh_token", True),
        ("token_count", False),
        ("secretary", False),
        ("key", False),
    ],
)
def test_name_that_looks_like_a_secret_is_a_problem(monkeypatch, name, secret):
    monkeypatch.setattr(Note, name, property(lambda self: 1), raising=False)
    assert bool(FieldSet(Note, [name]).problems()) == secret


class Odd(models.Field):
    def get_internal_type(self):
        return "Odd"


@isolate_apps("tests.shop", "django.contrib.contenttypes")
def test_file_path_choice_json_and_generic_fields():
    class Photo(models.Model):
        image = models.FileField()
        path = models.FilePathField(path="/srv")
        level = models.IntegerField(choices=[(0, "low"), (1, "high")], default=0)
        many = models.IntegerField(choices=[(number, str(number)) for number in range(300)])
        odd = Odd()
        extra = models.JSONField(null=True, encoder=DjangoJSONEncoder)
        kind = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
        number = models.IntegerField()
        about = GenericForeignKey("kind", "number")
        albums = models.ManyToManyField("Album")

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    class Album(models.Model):
        cover = models.ForeignKey(Photo, models.CASCADE)
        photos = GenericRelation(Photo, "number", "kind")

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    field_set = FieldSet(Photo, ["path", "level", "many", "extra", "albums"])
    photo = Photo(pk=1, path="/srv/secret/a.png", level=1, many=299)
    photo.extra = {"when": date(2024, 1, 1), "nan": float("nan")}
    entries = {name: entry for name, entry in field_set.entries.items() if name != "albums"}
    value = {name: entry.value(photo, None) for name, entry in entries.items()}
    extra = {"when": "2024-01-01", "nan": None}
    assert value == {"path": "a.png", "level": 1, "many": 299, "extra": extra}
    schema = field_set.schema()
    assert fits_schema(schema, value | {"albums": [1]})
    assert schema["properties"]["level"]["examples"] == [0, 1]
    assert "examples" not in schema["properties"]["many"]

    assert (
        "'odd' is a Odd, which cannot be written as JSON" in FieldSet(Photo, ["odd"]).problems()[0]
    )
    assert "without keys to show" in FieldSet(Photo, ["about"]).problems()[0]
    assert "without keys to show" in FieldSet(Album, ["photos"]).problems()[0]
    assert "file of another row" in FieldSet(Album, ["cover__image"]).problems()[0]
    assert FieldSet(Album, ["cover__level", "photo"]).problems() == []
    assert "no field" in FieldSet(ContentType, ["photo_set"]).problems()[0]


@isolate_apps("tests.shop")
def test_related_rows_whose_key_cannot_be_in_a_uri_are_a_problem():
    class Parent(models.Model):
        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    class Child(models.Model):
        key = models.BinaryField(primary_key=True)
        parent = models.ForeignKey(Parent, models.CASCADE)

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    assert "cannot be a key" in FieldSet(Parent, ["child"]).problems()[0]


def test_decimal_with_more_digits_than_max_digits_is_not_rounded():
    field_set = FieldSet(Sample, ["price"])
    value = field_set.values(Sample(price=Decimal("1" * 40)))
    assert value == {"price": "1" * 40} and fits_schema(field_set.schema(), value)
