"""Search, filters, ordering and completion of a model's rows, and their arguments."""

from datetime import UTC, datetime

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from django_mcp.declarations.fields.search import (
    MAX_FILTER_VALUES,
    MAX_QUERY_LENGTH,
    MAX_WORDS,
    Search,
)
from tests.shop.models import (
    Badge,
    Company,
    Customer,
    Invoice,
    LedgerLine,
    Note,
    Place,
    Sample,
    Tag,
    Wearer,
)

pytestmark = pytest.mark.django_db


FILTERS = ["status", "total", "issued", "paid_at", "customer", "tags", "customer__name"]


@pytest.fixture
def search():
    return Search(
        Invoice,
        search_fields=["number", "customer__name"],
        filter_fields=[
            "status",
            "total",
            "issued",
            "paid_at",
            "customer",
            "tags",
            "customer__name",
        ],
        ordering=["-issued", "number"],
    )


@pytest.fixture
def invoices():
    company = Company.objects.create(name="Acme")
    tags = [Tag.objects.create(label=label) for label in ("new", "big")]
    rows = []
    for number, name in enumerate(["Zoe Zimmer", "Ann 100%", "Bob_Under", "ann Zimmer"]):
        customer = Customer.objects.create(company=company, name=name, notes="never tell")
        row = Invoice.objects.create(
            company=company,
            customer=customer,
            number=f"A-{number}",
            status=["draft", "open", "open", "paid"][number],
            total=number * 10,
            issued=f"2024-0{number + 1}-15",
            paid_at=datetime(2024, 5, 1, number, tzinfo=UTC) if number % 2 else None,
        )
        row.tags.set(tags[: number % 3])
        rows.append(row)
    return rows


def found_numbers(search, arguments):
    validator = Draft202012Validator(search.schema())
    assert not [error.message for error in validator.iter_errors(arguments)]
    return sorted(row.number for row in search.apply(Invoice.objects.all(), arguments))


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({}, "0123"),
        ({"query": ""}, "0123"),
        ({"query": "zimmer"}, "03"),
        ({"query": "  zimmer   ANN "}, "3"),
        ({"query": "zimmer a-0"}, "0"),
        ({"query": '"zoe zimmer"'}, "0"),
        ({"query": '"zimmer zoe"'}, ""),
        ({"query": "'"}, ""),
        ({"query": '""'}, "0123"),
        ({"query": "%"}, "1"),
        ({"query": "_"}, "2"),
        ({"query": "100%"}, "1"),
        ({"query": "\\"}, ""),
        ({"query": "never"}, ""),
        ({"query": "';--"}, ""),
        ({"status": "open"}, "12"),
        ({"status__in": ["open", "paid"]}, "123"),
        ({"total": "10"}, "1"),
        ({"total": 10.0}, "1"),
        ({"total__gte": "10.001"}, "23"),
        ({"total__lte": 10}, "01"),
        ({"total__gte": "5", "total__lte": "20.00"}, "12"),
        ({"issued": "2024-01-15"}, "0"),
        ({"issued__gte": "2024-02-15", "issued__lte": "2024-03-15"}, "12"),
        ({"paid_at": "2024-05-01T03:00:00+02:00"}, "1"),
        ({"paid_at__gte": "2024-05-01T01:00:00Z", "paid_at__lt": "2024-05-01T03:00:00Z"}, "1"),
        ({"paid_at__isnull": True}, "02"),
        ({"paid_at__isnull": False}, "13"),
        ({"customer__name": "Bob_Under"}, "2"),
        ({"status": "open", "query": "ann"}, "1"),
        ({"total__gte": "1" * 28}, ""),
        ({"limit": 5, "cursor": "x", "ordering": "issued"}, "0123"),
    ],
)
def test_query_and_filters_find_rows(search, invoices, arguments, numbers):
    assert found_numbers(search, arguments) == [f"A-{number}" for number in numbers]


def test_filters_by_keys_of_related_rows(search, invoices):
    first, second = invoices[0].customer_id, invoices[2].customer_id
    assert found_numbers(search, {"customer": first}) == ["A-0"]
    assert found_numbers(search, {"customer__in": [first, second, 10**6]}) == ["A-0", "A-2"]
    new, big = (tag.pk for tag in Tag.objects.order_by("pk"))
    assert found_numbers(search, {"tags": big}) == ["A-2"]
    assert found_numbers(search, {"tags": new}) == ["A-1", "A-2"]
    assert found_numbers(search, {"tags__in": [new, big]}) == ["A-1", "A-2"]  # each once


def test_search_finds_only_rows_of_its_queryset(search, invoices):
    queryset = Invoice.objects.filter(number="A-1")
    assert [row.number for row in search.apply(queryset, {"query": "zimmer"})] == []
    assert [row.number for row in search.apply(queryset, {"status": "open"})] == ["A-1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"colour": "red"}, "Unknown argument 'colour'"),
        ({"notes": "x"}, "Unknown argument 'notes'"),
        ({"customer__notes": "x"}, "Unknown argument"),
        ({"status__regex": "x"}, "Unknown argument"),
        ({"issued__year": 2024}, "Unknown argument"),
        ({"query": 3}, "query: must be a string"),
        ({"query": None}, "query: must be a string"),
        ({"query": "x" * (MAX_QUERY_LENGTH + 1)}, "query: must be a string of at most"),
        ({"query": "a\0b"}, "query: must be a string"),
        ({"query": "\ud800"}, "query: must be a string"),
        ({"query": "a " * (MAX_WORDS + 1)}, "words"),
        ({"status": "nope"}, "status: must be one of draft, open, paid"),
        ({"status": None}, "status: must be one of"),
        ({"status": ["open"]}, "status: must be one of"),
        ({"status__in": "open"}, "status__in: must be a list"),
        ({"status__in": []}, "status__in: must be a list"),
        (
            {"customer__in": [1] * (MAX_FILTER_VALUES + 1)},
            "customer__in: must be a list of 1 to 100",
        ),
        ({"customer__in": [[1]]}, "customer__in"),
        ({"customer": True}, "customer"),
        ({"customer": 1.0}, "customer"),
        ({"customer": 2**63}, "customer"),
        ({"customer": "1 or 1=1"}, "not an integer"),
        ({"tags": {"pk": 1}}, "tags"),
        ({"total": "ten"}, "total: 'ten' is not a decimal number"),
        ({"total": "NaN"}, "total"),
        ({"total": float("inf")}, "total"),
        ({"total": "9" * 200}, "total"),
        ({"total__gte": "1e999999"}, "total__gte"),
        ({"issued": "yesterday"}, "issued: 'yesterday' is not a date"),
        ({"issued": "2024-02-30"}, "issued"),
        ({"issued__gte": 5}, "issued__gte"),
        ({"paid_at__gte": "0001-01-01T00:00:00+14:00"}, "paid_at__gte"),
        ({"paid_at__isnull": "yes"}, "true or false"),
        ({"paid_at__isnull": 1}, "true or false"),
        ({"customer__name": "x\0"}, "NUL"),
        ({"customer__name": "x" * 1001}, "at most 1000"),
        ({"customer__name": "\ud800"}, "not a string"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(search, arguments, words):
    with pytest.raises(ValueError, match="^[a-zA-Z_]+") as caught:
        search.apply(Invoice.objects.all(), arguments)
    assert words in str(caught.value) and len(str(caught.value)) < 400


ALL = ["name", "nickname", "weight", "rank", "price", "checked", "day", "moment", "clock", "lasts"]
ALL += ["token", "address", "place", "place__name"]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["2024-01-01", "10:00", "P1D", "::1", "1.5", "inf", "0" * 32, "\ud800", "\0"])
    | st.uuids().map(str)
    | st.datetimes().map(str)
    | st.decimals(allow_nan=True).map(str),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), value=values)
def test_no_argument_causes_a_database_error(data, value):
    search = Search(Sample, ["name", "nickname"], ALL, ["name"])
    name = data.draw(st.sampled_from(["query", *search.filters]))
    with transaction.atomic():
        try:
            assert list(search.apply(Sample.objects.all(), {name: value})) == []
        except ValueError as error:
            assert str(error).startswith(name)


def test_float_filter_refuses_nan_and_infinity():
    search = Search(Sample, (), ["weight"])
    for odd in (float("inf"), float("nan"), "nan", "inf"):
        with pytest.raises(ValueError, match="weight"):
            search.apply(Sample.objects.all(), {"weight": odd})


def test_filters_by_string_keys_and_to_field_keys():
    badge = Badge.objects.create(code="gold,1", colour="gold")
    wearer = Wearer.objects.create(badge=badge)
    search = Search(Wearer, (), ["badge", "locker"])
    assert search.schema()["properties"]["badge"]["type"] == "string"
    assert list(search.apply(Wearer.objects.all(), {"badge": "gold,1"})) == [wearer]
    assert list(search.apply(Wearer.objects.all(), {"badge": "gold"})) == []
    assert list(search.apply(Wearer.objects.all(), {"locker__isnull": True})) == [wearer]


class TestOrdering:
    def test_declared_columns_can_be_ordered_in_both_directions(self, search):
        schema = search.schema()["properties"]["ordering"]
        assert schema["enum"] == ["issued", "-issued", "number", "-number"]
        orders = [str(term) for term in search.keyset({"ordering": "-number"}).terms]
        assert orders == ["-number"]
        assert [str(term) for term in search.keyset({"ordering": "issued"}).terms][0] == "issued"
        assert [str(term) for term in search.keyset({}).terms] == ["-issued", "number"]

    @pytest.mark.parametrize("ordering", ["total", "customer__notes", None, 3, ["issued"], "?", ""])
    def test_undeclared_ordering_is_refused(self, search, ordering):
        with pytest.raises(ValueError, match="ordering: must be one of issued"):
            search.keyset({"ordering": ordering})

    def test_without_declared_ordering_rows_are_ordered_by_key(self):
        search = Search(Invoice, ["number"])
        assert "ordering" not in search.schema()["properties"]
        assert [str(term) for term in search.keyset({}).terms] == ["id"]
        with pytest.raises(ValueError, match="none"):
            search.keyset({"ordering": "issued"})

    def test_search_results_are_paged_in_the_chosen_ordering(self, search, invoices):
        arguments = {"query": "a", "ordering": "issued"}
        keyset = search.keyset(arguments)
        queryset = search.apply(Invoice.objects.all(), arguments)
        rows, after = keyset.page(queryset, None, 3)
        more, end = keyset.page(queryset, after, 3)
        assert [row.number for row in [*rows, *more]] == ["A-0", "A-1", "A-2", "A-3"]
        assert end is None
        with pytest.raises(ValueError, match="another order"):
            search.keyset({}).page(queryset, after, 3)


@pytest.mark.parametrize(
    ("given_limit", "limit"), [({}, 20), ({"limit": 1}, 1), ({"limit": 100}, 100)]
)
def test_limit_of_a_search(search, given_limit, limit):
    assert search.limit(given_limit) == limit


@pytest.mark.parametrize("limit", [0, 101, -1, True, "5", None, 5.0])
def test_invalid_limit_is_refused(search, limit):
    with pytest.raises(ValueError, match="limit: must be an integer from 1 to 100"):
        search.limit({"limit": limit})


def test_filter_by_a_column_of_related_rows(invoices):
    search = Search(Invoice, (), ["tags__label"])
    properties = search.schema()["properties"]
    assert properties["tags__label"]["type"] == "string"
    found = search.apply(Invoice.objects.all(), {"tags__label": "big"})
    assert found.exists() and {*found} == {*Invoice.objects.filter(tags__label="big")}
    assert not search.apply(Invoice.objects.all(), {"tags__label": "none"}).exists()


def test_duration_filter_names_its_format():
    properties = Search(Sample, (), ["lasts"]).schema()["properties"]
    assert properties["lasts"] == {"type": "string", "format": "duration"}


def test_schema_contains_exactly_the_declared_arguments(search):
    schema = search.schema()
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {
        "query",
        "status",
        "status__in",
        "total",
        "total__gte",
        "total__lte",
        "issued",
        "issued__gte",
        "issued__lte",
        "paid_at",
        "paid_at__gte",
        "paid_at__lt",
        "paid_at__isnull",
        "customer",
        "customer__in",
        "customer__name",
        "tags",
        "tags__in",
        "ordering",
        "limit",
        "cursor",
    }
    assert schema["properties"]["status"]["enum"] == ["draft", "open", "paid"]
    assert schema["properties"]["total"]["title"] == "Amount due"
    assert schema["properties"]["issued"] == {"type": "string", "format": "date"}
    assert schema["properties"]["issued__gte"] == {"type": "string", "format": "date"}
    assert set(Search(Invoice).schema()["properties"]) == {"limit", "cursor"}
    with pytest.raises(ValueError, match="Unknown argument 'query'"):
        Search(Invoice).apply(Invoice.objects.all(), {"query": "x"})


@pytest.mark.parametrize(
    ("search_fields", "filter_fields", "words"),
    [
        (["total"], (), "search_fields: 'total' is not a text"),
        (["customer"], (), "search_fields: 'customer' is not a text"),
        (["attachment"], (), "search_fields: 'attachment' is not a text"),
        (["nubmer"], (), "Did you mean 'number'"),
        (["tags__label"], (), "can only follow foreign keys"),
        (["^number"], (), "no field"),
        ((), ["metadata"], "JSONField"),
        ((), ["attachment"], "FileField"),
        ((), ["overdue"], "is not a column"),
        ((), ["customer__invoices__number"], "can only follow foreign keys"),
        ((), ["statsu"], "Did you mean 'status'"),
    ],
)
def test_invalid_search_or_filter_field_is_a_problem(search_fields, filter_fields, words):
    problems = Search(Invoice, search_fields, filter_fields).problems()
    assert len(problems) == 1 and words in problems[0]


def test_relations_composite_keys_and_reserved_names_are_problems(search, monkeypatch):
    assert search.problems() == []
    assert "is not a column" in Search(Company, (), ["invoices"]).problems()[0]
    assert "is not a column" in Search(LedgerLine, (), ["pk"]).problems()[0]
    monkeypatch.setattr(Invoice._meta.get_field("number"), "name", "limit")
    assert "every search" in Search(Invoice, (), ["limit"]).problems()[0]


class TestCompletions:
    def completed_values(self, search, text, lookup="number", limit=100):
        return [
            getattr(row, lookup)
            for row in search.completions(Invoice.objects.all(), text, lookup, limit)
        ]

    def test_completions_are_sorted_by_relevance(self, search, invoices):
        Invoice.objects.filter(number="A-3").update(number="B-A-1", issued="2030-01-01")
        assert self.completed_values(search, "A-1") == ["A-1", "B-A-1"]
        assert self.completed_values(search, "a-") == ["A-0", "A-1", "A-2", "B-A-1"]
        assert self.completed_values(search, "zimmer") == ["B-A-1", "A-0"]
        assert self.completed_values(search, "nobody") == []

    def test_completions_are_limited_in_the_database(self, search, invoices):
        with CaptureQueriesContext(connection) as queries:
            assert self.completed_values(search, "a", limit=2) == ["A-0", "A-1"]
            assert self.completed_values(search, "", limit=2) == ["A-3", "A-2"]
        assert all("LIMIT 2" in query["sql"] for query in queries)

    def test_completions_include_the_row_with_that_key(self, search, invoices):
        key = invoices[1].pk
        assert self.completed_values(search, str(key), "pk")[0] == key
        assert self.completed_values(Search(Invoice), str(key), "pk") == [key]
        assert self.completed_values(Search(Invoice), f"0{key}", "pk") == []

    @pytest.mark.parametrize("text", ["\0", "\ud800", "x" * 201, "'", '"', "\\"])
    def test_unusual_texts_complete_to_nothing(self, search, invoices, text):
        assert self.completed_values(search, text) == []

    def test_rows_without_object_permission_do_not_count_towards_the_limit(self):
        tags = [Tag(label=f"a-{n:03}") for n in range(70)]
        shown = Tag.objects.bulk_create(tags)[-1]
        search = Search(Tag, ["label"], ordering=["label"])
        for text in ("", "a-"):
            found = search.completions(
                Tag.objects.all(), text, "label", 10, lambda row: row.pk == shown.pk
            )
            assert found == [shown]

    def test_completions_are_limited_to_the_queryset(self, search, invoices):
        assert search.completions(Invoice.objects.none(), "A-1", "number", 5) == []

    def test_completions_with_an_invalid_ordering_raise(self):
        with pytest.raises(ImproperlyConfigured):
            Search(Invoice, ordering=["tags"]).completions(Invoice.objects.all(), "x")


def test_completions_of_composite_uuid_and_named_keys():
    company = Company.objects.create(name="Acme")
    line = LedgerLine.objects.create(company=company, line=3, text="x", amount=1)
    lines = Search(LedgerLine, ["text"]).completions(LedgerLine.objects.all(), f"{company.pk},3")
    assert lines == [line]
    note, place = Note.objects.create(text="hello"), Place.objects.create(name="Graz")
    assert Search(Note).completions(Note.objects.all(), str(note.pk)) == [note]
    assert Search(Note, ["text"]).completions(Note.objects.all(), "ell") == [note]
    assert Search(Place, ["name"]).completions(Place.objects.all(), "gr", "name") == [place]
