"""Results of tools: they fit the published schema, and rows show only their resource's fields."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

import django_mcp as mcp
from django_mcp.declarations.outputs import Mismatch, Output, is_free, output_of
from django_mcp.declarations.schemas import problem, violations
from tests.shop.models import Company, Customer, Invoice, LocalPlace, Place

from .helpers import make_request, problem_ids, single_problem, valid_catalog


class Size(enum.Enum):
    SMALL = "s"


@dataclass
class Refund:
    number: str
    amount: Decimal
    on: date | None = None
    lines: list[int] = field(default_factory=list)


@dataclass
class Positive:
    value: Annotated[int, Field(gt=0)]


class Person(BaseModel):
    name: str = Field(alias="fullName")
    born: date | None = None
    model_config = ConfigDict(populate_by_name=True)


class Box(TypedDict):
    width: int


class Pair(NamedTuple):
    left: int
    right: str = "x"


def find_no_model(model, chosen):
    raise ImproperlyConfigured("not registered")


def output_for(annotation, schema=None):
    return output_of(annotation, find_no_model, schema=schema)


# Typed values.

VALUES = [
    (int, 5, 5),
    (bool, True, True),
    (float, 1.5, 1.5),
    (Decimal, Decimal("12.50"), "12.50"),
    (date, date(2026, 1, 2), "2026-01-02"),
    (datetime, datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    (datetime, datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
    (time, time(10, 30), "10:30:00"),
    (timedelta, timedelta(hours=1), "PT1H"),
    (UUID, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Size, Size.SMALL, "s"),
    (Invoice.Status, Invoice.Status.OPEN, "open"),
    (Literal["a", 1], "a", "a"),
    (Refund, Refund("A", Decimal("1")), {"number": "A", "amount": "1", "on": None, "lines": []}),
    (Person, Person(name="A"), {"fullName": "A", "born": None}),
    (Box, {"width": 1}, {"width": 1}),
    (Pair, Pair(1), [1, "x"]),
    (list[int], [1, 2], [1, 2]),
    (list[str], ["a"], ["a"]),
    (set[int], {1}, [1]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (list[Refund] | None, None, None),
    (Optional[int], None, None),  # noqa: UP045
    (dict[str, Any], {"a": [date(2026, 1, 2), None]}, {"a": ["2026-01-02", None]}),
    (dict[str, Decimal], {"a": Decimal("1.10")}, {"a": "1.10"}),
    (dict, {"a": 1}, {"a": 1}),
    (dict[str, Any], {"a": float("nan")}, {"a": None}),
    (Sequence[int], [1], [1]),
    (Iterable[int], [1], [1]),
]


@pytest.mark.parametrize(("annotation", "value", "written"), VALUES)
def test_value_fits_the_published_schema(annotation, value, written):
    output = output_for(annotation)
    assert problem(output.schema) is None and "title" not in output.schema.get("properties", {})
    found = output.structured(value, make_request())
    assert found == written and type(found) is type(written)
    assert violations(output.schema, found, formats=False) == []


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "five"), (int, None), (int, 1.5),
        (float, float("nan")), (float, float("inf")), (list[float], [1.0, float("nan")]),
        (Decimal, Decimal("NaN")), (Decimal, "x"),
        (bool, "perhaps"),
        (Refund, {"number": "A"}), (Refund, None), (Refund, Refund("A", "much")),
        (Refund, Refund(None, Decimal(1))),
        (Positive, Positive(-1)),
        (Person, {"born": "never"}),
        (Box, {"width": "wide"}), (Box, {}),
        (list[int], 5), (list[int], [1, "x"]), (list[int], None),
        (Size, "m"), (Literal["a"], "b"),
        (dict[str, int], {"a": "x"}),
        (dict[str, Any], {"a": object()}),
    ],
)  # fmt: skip
def test_value_that_does_not_fit_raises_mismatch(annotation, value):
    with pytest.raises(Mismatch):
        output_for(annotation).structured(value, make_request())


@pytest.mark.parametrize("amount", ["1E+3", "1E-10", "-0", "123456789012345678901234567890.1"])
def test_unusual_decimal_fits_the_schema_or_is_refused(amount):
    """The written text must match the pattern of the schema."""
    output = output_for(Decimal)
    try:
        written = output.structured(Decimal(amount), make_request())
    except Mismatch:
        return
    assert violations(output.schema, written) == [] and Decimal(written) == Decimal(amount)


# Untyped values.


@pytest.mark.parametrize(
    "annotation",
    [
        None, type(None), str, bytes, Any, object, list, tuple,
        str | None, Annotated[str, "x"], list[Any], tuple[str, ...],
        mcp.Image, mcp.Text, list[mcp.Image], list[str | mcp.Image], mcp.Image | None,
        tuple[mcp.Text, ...], list[mcp.Message], QuerySet, QuerySet[Invoice],
    ],
)  # fmt: skip
def test_annotation_without_an_output_schema(annotation):
    assert is_free(annotation) and output_for(annotation).schema is None


@pytest.mark.parametrize(
    "annotation", [int, dict, list[str], list[int], Refund, int | None, str | int, Pair, Decimal]
)
def test_annotation_with_an_output_schema(annotation):
    assert not is_free(annotation) and output_for(annotation).schema is not None


def test_embedded_resource_in_an_annotation_is_recognized():
    assert (
        output_for(list[str | mcp.EmbeddedResource]).embeds
        and output_for(mcp.EmbeddedResource).embeds
    )
    assert not output_for(list[mcp.Image]).embeds and not output_for(str).embeds


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": Decimal("1.50"), "b": date(2026, 1, 2)}, {"a": "1.50", "b": "2026-01-02"}),
        ([Size.SMALL, {1}, (2,)], ["s", [1], [2]]),
        (Refund("A", Decimal(1)), {"number": "A", "amount": "1", "on": None, "lines": []}),
        ({"a": gettext_lazy("Yes")}, {"a": "Yes"}),
        ({"a": mark_safe("<b>")}, {"a": "<b>"}),
        ((number for number in (1, 2)), [1, 2]),
        ({"a": float("nan")}, {"a": None}),
        ({"a": Path("x")}, {"a": "x"}),
        (5, 5),
        (None, None),
    ],
)
def test_untyped_value_is_written_as_json(value, written):
    assert Output().structured(value, make_request()) == written


class Card:
    def __html__(self):
        return "<b>card</b>"

    def __str__(self):
        return "card"


# Forms of Django have ``__html__``, too, and could contain the values of a row.
@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, {"a": Card()}, print, {"a": {"b": lambda: 1}}]
)
def test_value_without_a_json_form_raises_mismatch(value):
    with pytest.raises(Mismatch, match="no JSON form"):
        Output().structured(value, make_request())


# Hand-written schemas.

WRITTEN = {
    "type": "object",
    "properties": {"when": {"type": "string", "format": "date"}, "n": {"$ref": "#/$defs/n"}},
    "required": ["n"],
    "$defs": {"n": {"type": "integer", "minimum": 1}},
}


def test_handwritten_schema_is_published_verbatim_and_enforced(server):
    server.tool(name="a", output_schema=WRITTEN)(lambda request: {"n": 1})
    tool = valid_catalog(server).tools["a"]
    assert tool._definition()["outputSchema"] == WRITTEN
    given = {"n": 1, "when": date(2026, 1, 2)}
    assert tool._output.structured(given, make_request()) == {"n": 1, "when": "2026-01-02"}
    for wrong in ({"n": 0}, {}, [], None, {"n": float("nan")}, {"n": object()}):
        with pytest.raises(Mismatch):
            tool._output.structured(wrong, make_request())


def test_handwritten_schema_overrides_the_annotation():
    assert output_for(int, schema=WRITTEN).schema == WRITTEN


@pytest.mark.parametrize("schema", [[], {"type": "nonsense"}, {"$ref": "https://evil.example/s"}])
def test_invalid_handwritten_schema_is_an_error(server, schema):
    server.tool(name="a", output_schema=schema)(lambda request: {})
    assert single_problem(server).id == "django_mcp.E021"


# Rows.


class Rows(mcp.ModelResource):
    fields = ["number", "total"]
    permission = mcp.AUTHENTICATED

    def get_queryset(self, request):
        return super().get_queryset(request).all()


class Names(Rows):
    fields = ["name"]


@pytest.fixture
def returning(server):
    """Return a function that makes the output of a tool with a return type."""

    def made(annotation):
        def ask(request): ...

        ask.__annotations__["return"] = annotation
        server.register(Invoice, Rows)
        server.tool(ask)
        return valid_catalog(server).tools["ask"]._output

    return made


def test_returned_row_has_the_fields_of_its_resource(returning, server, alice, invoice):
    output = returning(Invoice)
    shown = output.structured(invoice, make_request(alice, server))
    assert shown == {
        "_uri": f"model://shop/invoice/{invoice.pk}", "number": "A-1", "total": "12.50",
    }  # fmt: skip
    assert violations(output.schema, shown) == []
    assert output.schema["additionalProperties"] is False


@pytest.mark.parametrize("annotation", [Invoice | None, Optional[Invoice], None | Invoice])  # noqa: UP045
def test_optional_row_may_be_none(returning, server, alice, invoice, annotation):
    output = returning(annotation)
    for value in (invoice, None):
        shown = output.structured(value, make_request(alice, server))
        assert violations(output.schema, shown) == []
    assert shown is None


@pytest.mark.parametrize("annotation", [list[Invoice], Sequence[Invoice]])
def test_list_of_rows_loads_only_listed_columns(
    returning, server, alice, invoice, annotation, django_assert_num_queries
):
    output = returning(annotation)
    shown = output.structured([invoice], make_request(alice, server))
    assert shown[0]["number"] == "A-1" and violations(output.schema, shown) == []
    with django_assert_num_queries(2) as queries:
        assert output.structured(Invoice.objects.all(), make_request(alice, server)) == shown
    assert "metadata" not in queries[0]["sql"]  # only the listed columns
    assert output.structured(Invoice.objects.none(), make_request(alice, server)) == []


def test_annotation_can_choose_the_resource_of_a_row(server, alice, invoice):
    class Others(Names):
        uri = "other://{pk}"

    @server.tool
    def one(request) -> Annotated[Customer, Others]: ...

    @server.tool
    def many(request) -> list[Annotated[Customer, Others]]: ...

    @server.tool
    def perhaps(request) -> Annotated[Customer, Others] | None: ...

    server.register(Customer, Names)
    server.register(Customer, Others)
    tools = valid_catalog(server).tools
    request, uri = make_request(alice, server), f"other://{invoice.customer_id}"
    assert tools["one"]._output.structured(invoice.customer, request)["_uri"] == uri
    assert tools["many"]._output.structured([invoice.customer], request)[0]["_uri"] == uri
    assert tools["perhaps"]._output.structured(invoice.customer, request)["_uri"] == uri


@pytest.mark.parametrize("value", [None, {}, "A-1", 5])
def test_value_that_is_no_row_raises_mismatch(returning, value):
    with pytest.raises(Mismatch):
        returning(Invoice).structured(value, make_request())


def test_row_of_another_model_raises_mismatch(returning, invoice):
    output = returning(list[Invoice])
    with pytest.raises(Mismatch, match="Customer is not an instance of the declared model"):
        output.structured([invoice, invoice.customer], make_request())


@pytest.mark.parametrize(
    "annotation",
    [
        dict[str, Invoice],
        set[Invoice],
        tuple[Invoice, ...],
        Iterable[Invoice],
        Invoice | str,
        list[Invoice] | None,
        list[list[Invoice]],
        type[Invoice],
    ],
)
def test_model_in_an_unsupported_annotation_is_an_error(server, annotation):
    def ask(request): ...

    ask.__annotations__["return"] = annotation
    server.register(Invoice, Rows)
    server.tool(ask)
    message = single_problem(server)
    assert message.id == "django_mcp.E020" and "alone or in a list" in message.msg


@pytest.mark.parametrize("annotation", [Customer, list[Customer], Customer | None])
def test_annotation_with_an_unregistered_model_is_an_error(server, annotation):
    def ask(request): ...

    ask.__annotations__["return"] = annotation
    server.register(Invoice, Rows)
    server.tool(ask)
    message = single_problem(server)
    assert message.id == "django_mcp.E020" and "shop.Customer is not registered" in message.msg


@dataclass
class Holder:
    invoice: Invoice


class Loose(BaseModel):
    invoice: Invoice
    model_config = ConfigDict(arbitrary_types_allowed=True)


@pytest.mark.parametrize("annotation", [Holder, Loose, list[Holder], type("Odd", (), {})])
def test_annotation_without_a_json_schema_is_an_error(server, annotation):
    def ask(request): ...

    ask.__annotations__["return"] = annotation
    server.register(Invoice, Rows)
    server.tool(ask)
    assert problem_ids(server) == ["E020"]


# Rows in untyped values.


def test_rows_in_untyped_values_have_the_fields_of_their_resource(server, alice, invoice):
    server.register(Invoice, Rows)
    server.register(Place, Names)
    valid_catalog(server)
    request = make_request(alice, server)
    value = {"one": invoice, "many": Invoice.objects.all(), "held": Holder(invoice), "n": [invoice]}
    shown = Output().structured(value, request)
    row = shown["one"]
    assert set(row) == {"_uri", "number", "total"}
    assert shown == {"one": row, "many": [row], "held": {"invoice": row}, "n": [row]}
    child = LocalPlace.objects.create(name="P")
    assert Output().structured(child, request)["name"] == "P"


@pytest.mark.parametrize(
    "value",
    [
        lambda invoice: invoice.customer,
        lambda invoice: {"a": [invoice.customer]},
        lambda invoice: Customer.objects.all(),
        lambda invoice: Holder(invoice.customer),
        lambda invoice: Company.objects.get(name="Acme"),
    ],
)
def test_row_of_an_unregistered_model_is_not_sent(server, invoice, value):
    server.register(Invoice, Rows)
    valid_catalog(server)
    with pytest.raises(Mismatch, match="not registered"):
        Output().structured(value(invoice), make_request(server=server))


def test_row_of_an_unregistered_model_in_typed_data_is_not_sent(server, invoice):
    with pytest.raises(Mismatch):
        output_for(dict[str, Any]).structured({"a": invoice.customer}, make_request(server=server))


def test_values_queryset_is_refused(server, invoice):
    """It could expose columns that no resource lists."""
    server.register(Invoice, Rows)
    valid_catalog(server)
    with pytest.raises(Mismatch):
        Output().structured(Invoice.objects.values("metadata"), make_request(server=server))


@pytest.mark.parametrize("annotation", [None, dict[str, Any]])
@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (lambda invoice: Invoice.objects.values("number"), r"return list\(\.\.\.\) of a queryset"),
        (lambda invoice: Invoice.objects.values_list("pk"), r"return list\(\.\.\.\) of a queryset"),
        (lambda invoice: invoice.attachment, "return a file's name"),
        (lambda invoice: invoice.tags, r"return \.all\(\)"),
    ],
)
def test_queryset_file_or_manager_is_refused_with_a_hint(server, invoice, annotation, value, hint):
    server.register(Invoice, Rows)
    valid_catalog(server)
    output = Output() if annotation is None else output_for(annotation)
    with pytest.raises(Mismatch, match=hint):
        output.structured(value(invoice), make_request(server=server))
    with pytest.raises(Mismatch, match=hint):
        output.structured({"a": value(invoice)}, make_request(server=server))


def test_list_of_a_values_queryset_is_sent(server, invoice):
    listed = list(Invoice.objects.values("number"))
    assert Output().structured(listed, make_request(server=server)) == [{"number": invoice.number}]
    typed = output_for(list[dict[str, Any]])
    columns = Invoice.objects.values("number")
    assert typed.structured(columns, make_request(server=server)) == [{"number": invoice.number}]
