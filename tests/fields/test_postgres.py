"""Fields of PostgreSQL: filters by what arrays and ranges contain, and generated columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.db.backends.postgresql.psycopg_any import (
    DateRange,
    DateTimeTZRange,
    NumericRange,
)

import django_mcp as mcp
from django_mcp.declarations.fields.search import MAX_FILTER_VALUES

from .models import Booking, Stay

pytestmark = pytest.mark.django_db
FILTERED = ["tags", "kinds", "sizes", "moments", "period", "opened", "numbers", "big", "prices"]
JANUARY = DateRange(date(2026, 1, 1), date(2026, 2, 1))


class Bookings(mcp.ModelResource):
    fields = ["label", *FILTERED, "parts"]
    filter_fields = [*FILTERED, "parts"]


@pytest.fixture
def search(server: Any, admin: Any, connect: Any) -> Callable[..., Any]:
    """Return a function that searches bookings and returns their labels, or the error."""
    server.register(Booking, Bookings)
    assert [str(message) for message in server.check()] == []
    client = connect(admin)

    def searched(**arguments: Any) -> Any:
        result = client.call("search_booking", **arguments)
        assert not result.bugs, result
        return result.text if result.is_error else [row["label"] for row in result.data["results"]]

    return searched


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        ({"tags__contains": ["red"]}, ["a", "b"]),
        ({"tags__contains": ["red", "old"]}, ["a"]),
        ({"tags__overlap": ["old", "new"]}, ["a", "c"]),
        ({"tags__overlap": ["none"]}, []),
        ({"tags__isnull": True}, ["d"]),
        ({"tags__contains": ["red"], "tags__overlap": ["old", "new"]}, ["a"]),
        ({"kinds__overlap": ["a", "c"]}, ["a"]),
        ({"sizes__contains": [3]}, ["b"]),
        ({"moments__contains": ["2026-01-02T13:00:00+01:00"]}, ["a"]),
        ({"period__contains": "2026-01-31"}, ["a"]),
        ({"period__contains": "2026-02-01"}, ["c"]),
        ({"period__overlap": {"lower": "2026-01-31", "upper": "2026-02-02"}}, ["a", "c"]),
        ({"period__overlap": {"lower": "2026-01-31"}}, ["a", "c"]),
        ({"period__overlap": {"empty": True}}, []),
        ({"period__isnull": False}, ["a", "c"]),
        ({"opened__contains": "2026-01-02T12:00:00Z"}, ["a"]),
        ({"numbers__contains": 5}, ["a"]),
        ({"numbers__overlap": {"lower": 9, "upper": 20, "bounds": "(]"}}, ["b"]),
        ({"numbers__contains": 2**31 - 1}, []),
        ({"big__contains": 2**40}, ["a"]),
        ({"prices__contains": "1.75"}, ["a"]),
        ({"parts__contains": ["a"]}, ["a"]),
    ],
)
def test_rows_are_found_by_what_arrays_and_ranges_contain(search, arguments, labels):
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    night = datetime(2026, 1, 2, 23, tzinfo=UTC)
    Booking.objects.create(
        label="a", tags=["red", "old"], kinds=["a"], sizes=[1, 2], moments=[noon], period=JANUARY,
        opened=DateTimeTZRange(noon, night), numbers=NumericRange(1, 10),
        big=NumericRange(0, 2**50), prices=NumericRange(1, 2),
    )  # fmt: skip
    Booking.objects.create(
        label="b", tags=["red"], kinds=["b"], sizes=[3], numbers=NumericRange(10, 12)
    )
    Booking.objects.create(label="c", tags=["new"], period=DateRange(date(2026, 2, 1), None))
    Booking.objects.create(label="d")
    assert search(**arguments) == labels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tags__contains": []}, "a list of 1 to 100"),
        ({"tags__contains": ["x"] * (MAX_FILTER_VALUES + 1)}, "a list of 1 to 100"),
        ({"tags__contains": [None]}, "tags__contains"),
        ({"tags__contains": ["\0"]}, "NUL"),
        # PostgreSQL would cut it to "longe" and find other rows.
        ({"tags__overlap": ["longer"]}, "at most 5 characters"),
        ({"kinds__overlap": ["z"]}, "kinds__overlap"),
        ({"sizes__contains": [2**40]}, "less than or equal to"),
        ({"sizes__contains": [True]}, "sizes__contains"),
        ({"numbers__contains": 2**40}, "less than or equal to"),
        ({"numbers__overlap": {"lower": 2**40}}, "less than or equal to"),
        ({"numbers__overlap": {"upper": 2**31 - 1, "bounds": "[]"}}, "less than or equal to"),
        ({"numbers__overlap": {"lower": 5, "upper": 1}}, "lower must not be above upper"),
        ({"period__contains": "soon"}, "period__contains"),
        ({"period__overlap": {"lower": "soon"}}, "'soon' is not a 'date'"),
        ({"prices__contains": "1" * 200}, "not a decimal number"),
        ({"period": {"lower": "2026-01-01"}}, "period"),
        ({"tags__len": 1}, "tags__len"),
    ],
)
def test_value_that_a_column_cannot_hold_is_an_error_of_the_client(search, arguments, message):
    assert message in search(**arguments)


def test_integer_after_the_end_of_a_written_range_must_fit_the_column(server, admin, connect):
    rows = {"fields": ["label", "numbers"], "operations": ["create"]}
    server.register(Booking, type("Rows", (mcp.ModelResource,), rows))
    client = connect(admin)

    def write(**numbers: Any) -> Any:
        return client.call("create_booking", label="x", numbers=numbers)

    made = write(lower=1, upper=5, bounds="(]").data
    assert made["numbers"] == {"lower": 2, "upper": 6, "bounds": "[)"}
    assert write(lower=5, upper=5, bounds="()").data["numbers"] == {"empty": True}
    for upper in (2**31 - 1, 2**40):
        refused = write(lower=1, upper=upper, bounds="[]")
        assert refused.is_error and not refused.bugs and "less than or equal" in refused.text


def test_filters_lead_over_relations(server, admin, connect):
    server.register(
        Stay,
        type("Stays", (mcp.ModelResource,), {
            "fields": ["nights", "booking__tags"], "filter_fields": ["booking__tags"],
        }),
    )  # fmt: skip
    server.register(
        Booking,
        type("Rows", (mcp.ModelResource,), {
            "fields": ["label", "stays__nights"], "filter_fields": ["stays__nights"],
        }),
    )  # fmt: skip
    client = connect(admin)
    for label in ("red", "old"):
        booking = Booking.objects.create(label=label, tags=[label])
        Stay.objects.bulk_create(Stay(booking=booking, nights=JANUARY) for _ in range(2))
    found = client.call("search_stay", booking__tags__contains=["old"]).data["results"]
    assert [row["booking__tags"] for row in found] == [["old"]] * 2
    found = client.call("search_booking", stays__nights__contains="2026-01-05").data["results"]
    assert [row["label"] for row in found] == ["red", "old"]


def test_array_of_arrays_has_no_filters(server):
    rows = {"fields": ["grid"], "filter_fields": ["grid"]}
    server.register(Booking, type("Rows", (mcp.ModelResource,), rows))
    (message,) = server.check()
    assert message.id == "django_mcp.E061" and "'grid' is a ArrayField" in message.msg


@pytest.mark.parametrize("option", ["ordering", "search_fields"])
def test_arrays_and_ranges_have_no_order_and_no_text(server, option):
    for name in ("tags", "period"):
        rows = {"fields": [name], option: [name]}
        server.register(Booking, type("Rows", (mcp.ModelResource,), {**rows, "name": name}))
    assert {message.id for message in server.check()} >= {"django_mcp.E061"}


def test_search_vector_has_no_value_to_show(server):
    server.register(Booking, type("Rows", (mcp.ModelResource,), {"fields": ["document"]}))
    (message,) = server.check()
    assert message.id == "django_mcp.E056"
    assert "'document' is a SearchVectorField, which has no value to show" in message.msg
    assert "full_text_search" in message.msg


def test_generated_array_is_shown_and_never_written(server, admin, connect):
    rows = {"fields": ["label", "parts"], "operations": ["create", "update"]}
    server.register(Booking, type("Rows", (mcp.ModelResource,), rows))
    client = connect(admin)
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in client.tools()}
    assert "parts" not in {**tools["create_booking"], **tools["update_booking"]}
    made = client.call("create_booking", label="x,y").data
    assert made["parts"] == ["x", "y"]
    changed = client.call("update_booking", booking=made["_uri"], label="z").data
    assert changed["parts"] == ["z"]
    assert client.call("create_booking", label="x", parts=["q"]).is_error
