"""Keyset pagination: every row is on one page, also with NULLs, ties and concurrent changes."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections, models, transaction
from django.db.models import Count, F
from django.test.utils import CaptureQueriesContext, isolate_apps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_mcp.declarations.fields.keyset import Keyset
from tests.declarations.helpers import A_THIRD
from tests.shop.models import (
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

on_database = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Few values for each column, so that many rows are equal, and values that are easily misordered.
VALUES = {
    "name": ["", "a", "A", "a ", "b", "B", "é", "z", "10", "9", "%", "'", "\U0001f600"],
    "nickname": [None, "", "a", "B", "b"],
    "weight": [None, 0.0, -0.0, 0.1, 0.30000000000000004, 1e300, -2.5],
    "rank": [-1, 0, 1, 2**31 - 1],
    "price": [None, Decimal("0"), Decimal("0.1"), Decimal("0.100"), Decimal("-9.999"), Decimal(10)],
    "checked": [True, False],
    "day": [None, date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "moment": [
        None,
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 1, tzinfo=UTC),
    ],
    "clock": [None, time(0), time(10), time(10, 0, 0, 500000), time(23, 59, 59, 999999)],
    "lasts": [None, timedelta(-1), timedelta(0), timedelta(microseconds=1), timedelta(days=400)],
    "token": [None, UUID(int=0), UUID(int=1), UUID(int=2**127), UUID(int=2**64)],
    "address": [None, "10.0.0.1", "9.0.0.1", "::1"],
    "place": [None, 0, 1],
}
NAMES = [*VALUES, "place__name", "place__city", "pk"]

row_values = st.fixed_dictionaries({name: st.sampled_from(pool) for name, pool in VALUES.items()})
orderings = st.lists(
    st.tuples(st.sampled_from(["", "-"]), st.sampled_from(NAMES)),
    max_size=4,
    unique_by=lambda pair: pair[1],
).map(lambda pairs: [sign + name for sign, name in pairs])


def create_sample(values: dict[str, object], places: list[Place]) -> Sample:
    place = values["place"]
    chosen = None if place is None else places[int(str(place))]
    return Sample.objects.create(**(values | {"place": chosen}))


def expected_keys(ordering: list[str], queryset: models.QuerySet[Sample]) -> list[int]:
    """Return the keys of all rows in the order that Django itself gives."""
    terms = []
    for name in [*ordering, "-pk" if ordering and ordering[-1].startswith("-") else "pk"]:
        column = F(name.lstrip("-"))
        sort = column.desc if name.startswith("-") else column.asc
        terms.append(sort(nulls_last=True))
    return [row.pk for row in queryset.order_by(*terms)]


def pages_of(keyset, queryset, limit):
    after = None
    for _ in range(100):
        rows, after = keyset.page(queryset, json.loads(json.dumps(after)), limit)
        yield rows
        if after is None:
            return
    pytest.fail("The pages do not end.")


@pytest.mark.slow
@on_database
@given(
    ordering=orderings,
    rows=st.lists(row_values, max_size=14),
    limit=st.integers(1, 6),
)
def test_pages_contain_all_rows_in_order(ordering, rows, limit):
    with transaction.atomic():
        places = [Place.objects.create(name=name, city="x") for name in ("north", "South")]
        for values in rows:
            create_sample(values, places)
        keyset, queryset = Keyset(Sample, ordering), Sample.objects.all()
        assert keyset.problems() == []
        pages = list(pages_of(keyset, queryset, limit))
        expected = expected_keys(ordering, queryset)
        assert [row.pk for page in pages for row in page] == expected
        assert [row.pk for row in keyset.order(queryset)] == expected
        assert all(len(page) == limit for page in pages[:-1])
        transaction.set_rollback(True)


@pytest.mark.slow
@on_database
@given(
    ordering=orderings,
    rows=st.lists(row_values, min_size=3, max_size=12),
    limit=st.integers(1, 4),
    data=st.data(),
)
def test_rows_inserted_and_deleted_between_pages(ordering, rows, limit, data):
    with transaction.atomic():
        places = [Place.objects.create(name=name) for name in ("north", "South")]
        for values in rows:
            create_sample(values, places)
        keyset, queryset = Keyset(Sample, ordering), Sample.objects.all()
        page, after = keyset.page(queryset, None, limit)
        while after is not None:
            for values in data.draw(st.lists(row_values, max_size=1), label="inserted"):
                create_sample(values, places)
            whole = expected_keys(ordering, queryset)
            rest = whole[whole.index(page[-1].pk) + 1 :]
            gone = data.draw(st.sets(st.sampled_from(whole), max_size=3), label="deleted")
            Sample.objects.filter(pk__in=gone).delete()
            expected = [key for key in rest if key not in gone]
            page, after = keyset.page(queryset, after, limit)
            assert [row.pk for row in page] == expected[:limit]
            assert (after is None) == (len(expected) <= limit)
            # Without a last row, the next expected page cannot be computed.
            if len(whole) > 40 or not page:
                break
        transaction.set_rollback(True)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@on_database
@given(junk=junk, place=st.integers(-1, 14), name=st.sampled_from(NAMES))
def test_malformed_position_raises_value_error_and_no_database_error(junk, place, name):
    keyset = Keyset(Sample, [name, "moment", "price"])
    good = [keyset.fingerprint, *(None if term.nullable else 1 for term in keyset.terms)]
    position = [*good[: place % len(good)], junk, *good[place % len(good) + 1 :]]
    for bad in (position, junk, [*good, junk], good[:1]):
        try:
            with transaction.atomic():
                rows, after = keyset.page(Sample.objects.all(), bad, 1)
        except ValueError:
            continue
        assert (rows, after) == ([], None) and bad in (position, None)


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {},
        "x",
        ["00000000", 1],
        ["{fingerprint}"],
        ["{fingerprint}", None],
        ["{fingerprint}", True],
        ["{fingerprint}", "1"],
        ["{fingerprint}", 1.0],
        ["{fingerprint}", 2**63],
        ["{fingerprint}", 1, 1],
    ],
)
def test_position_that_was_not_issued_is_refused(bad):
    keyset = Keyset(Sample, ["pk"])
    if isinstance(bad, list):
        bad = [keyset.fingerprint if part == "{fingerprint}" else part for part in bad]
    with pytest.raises(ValueError, match="position|integer"):
        keyset.page(Sample.objects.all(), bad, 5)


def test_position_of_another_ordering_is_refused():
    Sample.objects.bulk_create(Sample(name=name, nickname=name) for name in "abc")
    _, after = Keyset(Sample, ["name"]).page(Sample.objects.all(), None, 1)
    with pytest.raises(ValueError, match="another order"):
        Keyset(Sample, ["-name"]).page(Sample.objects.all(), after, 1)


def test_nul_character_in_a_position_is_not_sent_to_postgresql():
    Sample.objects.create(name="a")
    keyset = Keyset(Sample, ["name"])
    position = [keyset.fingerprint, "\0", 0]
    if connection.vendor == "postgresql":
        with pytest.raises(ValueError, match="NUL"):
            keyset.page(Sample.objects.all(), position, 1)
    else:
        assert len(keyset.page(Sample.objects.all(), position, 1)[0]) == 1


@pytest.mark.parametrize("ordering", [["weight"], ["-weight"]])
def test_nulls_are_last_in_either_direction(ordering):
    Sample.objects.bulk_create(Sample(name="x", weight=weight) for weight in (None, 2.0, 1.0, None))
    pages = pages_of(Keyset(Sample, ordering), Sample.objects.all(), 1)
    weights = [row.weight for page in pages for row in page]
    assert weights == sorted([1.0, 2.0], reverse=ordering == ["-weight"]) + [None, None]


def test_stored_digits_beyond_the_decimal_places_are_compared():
    # On SQLite the update stores 0.3333..., which the field reads as 0.333. A cursor with the
    # rounded value would return the same row on every page.
    Sample.objects.bulk_create(Sample(name="x", price=Decimal(price)) for price in (1, 1, 2))
    Sample.objects.update(price=A_THIRD)
    pages = list(pages_of(Keyset(Sample, ["price"]), Sample.objects.all(), 1))
    assert [row.pk for page in pages for row in page] == expected_keys(
        ["price"], Sample.objects.all()
    )


@pytest.mark.parametrize("weight", [float("inf"), float("-inf"), float("nan")])
def test_infinities_and_nan_can_be_in_a_position(weight):
    if connection.vendor == "mysql" or (connection.vendor == "sqlite" and weight != weight):
        pytest.skip("this database has no such number")
    Sample.objects.bulk_create(Sample(name="x", weight=value) for value in (weight, 1.0, weight))
    pages = list(pages_of(Keyset(Sample, ["weight"]), Sample.objects.all(), 1))
    assert [row.pk for page in pages for row in page] == expected_keys(
        ["weight"], Sample.objects.all()
    )


@pytest.mark.parametrize("model", [Note, LocalPlace, Warehouse, Place, LedgerLine, Wearer])
@pytest.mark.parametrize("sign", ["", "-"])
def test_paging_by_keys_of_all_types(model, sign):
    company = Company.objects.create(name="Acme")
    for number in range(7):
        Note.objects.create(text="n")
        Warehouse.objects.create(name=f"w{number % 2}", capacity=number % 3 or None)
        LedgerLine.objects.create(company=company, line=number, text="t", amount=1)
    keyset = Keyset(model, [f"{sign}pk"]) if model is not LedgerLine else Keyset(model, ["-line"])
    keys = [row.pk for page in pages_of(keyset, model.objects.all(), 2) for row in page]
    wanted = keyset.order(model.objects.all())
    assert keys == [row.pk for row in wanted] and len(keys) == model.objects.count()


def test_paging_by_inherited_columns_with_nulls():
    for number in range(9):
        Warehouse.objects.create(name=f"w{number % 2}", capacity=[None, 1, 2][number % 3])
    keyset = Keyset(Warehouse, ["-capacity", "name"])
    rows = [row for page in pages_of(keyset, Warehouse.objects.all(), 2) for row in page]
    assert [row.capacity for row in rows] == [2, 2, 2, 1, 1, 1, None, None, None]
    assert len({row.pk for row in rows}) == 9


@pytest.mark.parametrize(
    ("model", "ordering", "terms"),
    [
        (Sample, [], ["id"]),
        (Sample, ["rank"], ["rank", "id"]),
        (Sample, ["name", "-rank"], ["name", "-rank", "-id"]),
        (Sample, ["rank", "-rank", "name"], ["rank", "name", "id"]),
        (Sample, ["pk", "name"], ["id"]),
        (Sample, ["-id"], ["-id"]),
        (Sample, ["place"], ["place_id", "id"]),
        (Sample, ["place_id"], ["place_id", "id"]),
        (Sample, ["place__pk"], ["place__id", "id"]),
        (Invoice, ["-number", "issued"], ["-number"]),
        (Invoice, ["company__name"], ["company__name", "id"]),
        (Warehouse, ["capacity"], ["capacity", "place_ptr_id"]),
        (Warehouse, ["id"], ["id"]),
        (Wearer, ["locker"], ["locker_id", "id"]),
        (LedgerLine, ["-amount"], ["-amount", "-company_id", "-line"]),
        (LedgerLine, ["line", "company"], ["line", "company_id"]),
    ],
)
def test_ordering_is_extended_until_it_is_unique(model, ordering, terms):
    assert [str(term) for term in Keyset(model, ordering).terms] == terms


@isolate_apps("tests.shop")
def test_unique_constraints_end_an_ordering_unless_a_column_is_nullable():
    class Seat(models.Model):
        row = models.IntegerField()
        number = models.IntegerField()
        hall = models.IntegerField()
        code = models.IntegerField(null=True, unique=True)
        later = models.IntegerField()

        class Meta:
            app_label = "shop"
            unique_together = [("row", "number"), ("code", "hall")]
            constraints = [
                models.UniqueConstraint(fields=["hall", "number"], name="a"),
                models.UniqueConstraint(
                    fields=["hall", "later"], name="b", deferrable=models.Deferrable.DEFERRED
                ),
                models.UniqueConstraint(fields=["hall"], name="c", condition=models.Q(row__gt=1)),
            ]

        def __str__(self):
            return ""

    def terms(*names):
        return [str(term) for term in Keyset(Seat, names).terms]

    assert terms("number", "-row", "hall") == ["number", "-row"]
    assert terms("hall", "number", "code") == ["hall", "number"]
    assert terms("code", "hall") == ["code", "hall", "id"]
    assert terms("code") == ["code", "id"]
    assert terms("hall", "later") == ["hall", "later", "id"]


@isolate_apps("tests.shop")
def test_unique_column_of_a_related_model_does_not_make_an_ordering_unique():
    class Holder(models.Model):
        code = models.IntegerField(unique=True)

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    class Holding(models.Model):
        holder = models.ForeignKey(Holder, models.CASCADE)
        code = models.IntegerField()
        label = models.IntegerField(null=True, unique=True)

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    def terms(*names):
        return [str(term) for term in Keyset(Holding, names).terms]

    assert terms("code", "holder__code") == ["code", "holder__code", "id"]
    assert terms("holder__code", "code") == ["holder__code", "code", "id"]
    assert terms("holder__code", "label") == ["holder__code", "label", "id"]


@pytest.mark.parametrize(
    ("model", "ordering", "words"),
    [
        (Sample, ["?"], "random"),
        (Sample, [F("name")], "expression"),
        (Sample, [F("name").desc()], "expression"),
        (Sample, "name", "string"),
        (Sample, ["nmae"], "Did you mean 'name'"),
        (Sample, [""], "no field"),
        (Sample, ["--name"], "no field"),
        (Sample, ["blob"], "BinaryField"),
        (Sample, ["place__wearer"], "without a column of its own"),
        (Sample, ["name__lower"], "is not a foreign key"),
        (Invoice, ["metadata"], "JSONField"),
        (Invoice, ["metadata__a"], "is not a foreign key"),
        (Invoice, ["attachment"], "FileField"),
        (Invoice, ["tags"], "without a column of its own"),
        (Invoice, ["tags__label"], "can only follow foreign keys"),
        (Invoice, ["customer"], "ambiguous"),
        (Invoice, ["customer__referred_by"], "ambiguous"),
        (Company, ["invoices__total"], "can only follow foreign keys"),
        (LedgerLine, ["pk"], "several columns"),
    ],
)
def test_ordering_that_cannot_be_paged_is_a_problem_and_raises(model, ordering, words):
    keyset = Keyset(model, ordering)
    assert len(keyset.problems()) == 1 and words in keyset.problems()[0]
    with pytest.raises(ImproperlyConfigured):
        keyset.page(model.objects.all(), None, 1)


def test_ordering_by_a_long_text_is_a_problem_on_mariadb():
    notes = Keyset(Note, ["text"]).problems()
    assert bool(notes) == (connection.vendor == "mysql")
    assert Keyset(Customer, ["email", "-name"]).problems() == []


def test_decimal_with_more_than_15_digits_is_a_problem_on_sqlite(monkeypatch):
    monkeypatch.setattr(Sample._meta.get_field("price"), "max_digits", 16)
    problems = Keyset(Sample, ["price"]).problems()
    assert bool(problems) == (connection.vendor == "sqlite")


def test_unsupported_database_is_a_problem(monkeypatch):
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    assert "oracle" in Keyset(Sample, ["name"]).problems()[0]


@pytest.mark.parametrize(
    "unpageable",
    [
        lambda: Sample.objects.all()[:5],
        lambda: Sample.objects.values("name"),
        lambda: Sample.objects.values_list("name"),
        lambda: Sample.objects.filter(rank=1).union(Sample.objects.filter(rank=2)),
        lambda: Sample.objects.distinct("name"),
    ],
)
def test_queryset_that_cannot_be_paged_raises(unpageable):
    with pytest.raises(TypeError):
        Keyset(Sample, ["name"]).page(unpageable(), None, 5)


def test_paging_keeps_annotations_joins_and_deferred_fields_of_the_queryset():
    company = Company.objects.create(name="Acme")
    customer = Customer.objects.create(company=company, name="Zoe")
    tags = [Tag.objects.create(label=label) for label in "ab"]
    for number in range(5):
        invoice = Invoice.objects.create(
            company=company, customer=customer, number=number, total=1, issued="2024-01-01"
        )
        invoice.tags.set(tags)
    queryset = Invoice.objects.filter(tags__in=tags).distinct().only("number")
    queryset = (
        queryset.annotate(marked=Count("tags")).order_by("?").select_related("customer__company")
    )
    queryset = queryset.only("number", "customer__name", "customer__company__name")
    rows = [row for page in pages_of(Keyset(Invoice, ["-issued"]), queryset, 2) for row in page]
    assert [row.number for row in rows] == list("43210")
    assert rows[0].get_deferred_fields() >= {"total", "issued"} and rows[0].marked == 2
    assert not [name for row in rows for name in vars(row) if name.startswith("_keyset")]


@pytest.mark.parametrize(
    "ordering", [["rank"], ["-weight"], ["rank", "-name"], ["price", "weight"]]
)
def test_page_loads_at_most_one_row_more_than_its_size(ordering):
    Sample.objects.bulk_create(
        Sample(name=f"{number % 5}", rank=number % 3, weight=number % 2 or None)
        for number in range(30)
    )
    keyset, after = Keyset(Sample, ordering), None
    for _ in range(4):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            rows, after = keyset.page(Sample.objects.all(), after, 7)
        statements = [query["sql"].upper() for query in queries]
        assert not [sql for sql in statements if "OFFSET" in sql or "COUNT(" in sql]
        assert all("LIMIT" in sql for sql in statements)
        limits = [int(sql.rpartition("LIMIT ")[2].split()[0]) for sql in statements]
        assert len(rows) == 7 and limits[0] == 8 and limits == sorted(limits, reverse=True)


def test_query_for_rows_with_null_is_limited_to_the_rest_of_the_page():
    Sample.objects.bulk_create(Sample(name="x", weight=weight) for weight in [1, 2, 3] + [None] * 9)
    with CaptureQueriesContext(connection) as queries:
        rows, _ = Keyset(Sample, ["weight"]).page(Sample.objects.all(), None, 5)
    limits = [query["sql"].rpartition("LIMIT ")[2].split()[0] for query in queries]
    assert limits == ["6", "3"] and [row.weight for row in rows] == [1, 2, 3, None, None]


INDEXED = [["pk"], ["-pk"], ["rank"], ["-rank"], ["weight"], ["-weight"]]


@pytest.mark.slow
@pytest.mark.parametrize("ordering", INDEXED)
def test_deep_page_uses_an_index_without_sorting(ordering):
    Sample.objects.bulk_create(
        Sample(name="x", rank=number * 7919 % 4000, weight=number % 5000 or None)
        for number in range(10_000)
    )
    if connection.vendor != "mysql":  # MariaDB would commit the transaction
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE shop_sample")
    keyset, queryset = Keyset(Sample, ordering), Sample.objects.all()
    _, after = keyset.page(queryset, None, 7000)
    for plan in query_plans(keyset, queryset, after):
        assert_index_search(plan)


def query_plans(keyset, queryset, after):
    """Yield the query plan of each statement of a page."""
    with CaptureQueriesContext(connection) as queries:
        keyset.page(queryset, after, 100)
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mysql": "EXPLAIN "}
    for query in list(queries):
        with connection.cursor() as cursor:
            cursor.execute(explain[connection.vendor] + query["sql"])
            yield "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())


def assert_index_search(plan):
    if connection.vendor == "sqlite":
        assert "SEARCH" in plan and "SCAN" not in plan and "TEMP B-TREE" not in plan
    elif connection.vendor == "postgresql":
        # With an index on (rank), only rows of equal rank are sorted.
        assert "Index Cond" in plan and "Seq Scan" not in plan
        assert "Sort" not in plan.replace("Incremental Sort", "").replace("Sort Key", "")
    else:
        assert " range " in plan and "filesort" not in plan and "temporary" not in plan


@pytest.mark.parametrize("hidden", [0, 1_001, 2_500])
def test_cursor_does_not_depend_on_rows_without_object_permission(hidden):
    Tag.objects.bulk_create([Tag(label=f"b{number}") for number in range(hidden)])
    Tag.objects.bulk_create([Tag(label="a"), Tag(label="c")])
    keyset, pages, position = Keyset(Tag, ["label"]), [], None
    while not pages or position:
        rows, position = keyset.page(
            Tag.objects.all(), position, 1, lambda tag: tag.label in ("a", "c")
        )
        pages.append([tag.label for tag in rows])
    assert pages == [["a"], ["c"]]
