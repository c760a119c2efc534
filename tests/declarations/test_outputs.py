"""What a function returns: it fits the schema that was published, and rows leave by a resource."""

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

from .world import asked, ids, only, right


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


def no_model(model, chosen):
    raise ImproperlyConfigured("not registered")


def of(annotation, schema=None):
    return output_of(annotation, no_model, schema=schema)


# Values with a type.

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
def test_values_fit_their_published_schema(annotation, value, written):
    output = of(annotation)
    assert problem(output.schema) is None and "title" not in output.schema.get("properties", {})
    found = output.structured(value, asked())
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
def test_what_does_not_fit_is_a_bug_and_no_result(annotation, value):
    with pytest.raises(Mismatch):
        of(annotation).structured(value, asked())


@pytest.mark.parametrize("amount", ["1E+3", "1E-10", "-0", "123456789012345678901234567890.1"])
def test_any_decimal_fits_or_is_refused(amount):
    """What is written of it must be what the schema's pattern promises."""
    output = of(Decimal)
    try:
        written = output.structured(Decimal(amount), asked())
    except Mismatch:
        return
    assert violations(output.schema, written) == [] and Decimal(written) == Decimal(amount)


# Values without one.


@pytest.mark.parametrize(
    "annotation",
    [
        None, type(None), str, bytes, Any, object, list, tuple,
        str | None, Annotated[str, "x"], list[Any], tuple[str, ...],
        mcp.Image, mcp.Text, list[mcp.Image], list[str | mcp.Image], mcp.Image | None,
        tuple[mcp.Text, ...], list[mcp.Message], QuerySet, QuerySet[Invoice],
    ],
)  # fmt: skip
def test_types_that_promise_nothing(annotation):
    assert is_free(annotation) and of(annotation).schema is None


@pytest.mark.parametrize(
    "annotation", [int, dict, list[str], list[int], Refund, int | None, str | int, Pair, Decimal]
)
def test_types_that_promise_something(annotation):
    assert not is_free(annotation) and of(annotation).schema is not None


def test_whole_resources_are_announced():
    assert of(list[str | mcp.EmbeddedResource]).embeds and of(mcp.EmbeddedResource).embeds
    assert not of(list[mcp.Image]).embeds and not of(str).embeds


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
def test_anything_with_a_json_form(value, written):
    assert Output().structured(value, asked()) == written


class Card:
    def __html__(self):
        return "<b>card</b>"

    def __str__(self):
        return "card"


# A form of Django has ``__html__``, too, and the values of its row in it.
@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, {"a": Card()}, print, {"a": {"b": lambda: 1}}]
)
def test_what_has_no_json_form(value):
    with pytest.raises(Mismatch, match="no JSON form"):
        Output().structured(value, asked())


# Hand-written schemas.

WRITTEN = {
    "type": "object",
    "properties": {"when": {"type": "string", "format": "date"}, "n": {"$ref": "#/$defs/n"}},
    "required": ["n"],
    "$defs": {"n": {"type": "integer", "minimum": 1}},
}


def test_a_handwritten_schema_is_published_verbatim_and_enforced(server):
    server.tool(name="a", output_schema=WRITTEN)(lambda request: {"n": 1})
    tool = right(server).tools["a"]
    assert tool._definition()["outputSchema"] == WRITTEN
    given = {"n": 1, "when": date(2026, 1, 2)}
    assert tool._output.structured(given, asked()) == {"n": 1, "when": "2026-01-02"}
    for wrong in ({"n": 0}, {}, [], None, {"n": float("nan")}, {"n": object()}):
        with pytest.raises(Mismatch):
            tool._output.structured(wrong, asked())


def test_a_handwritten_schema_counts_more_than_the_annotation():
    assert of(int, schema=WRITTEN).schema == WRITTEN


@pytest.mark.parametrize("schema", [[], {"type": "nonsense"}, {"$ref": "https://evil.example/s"}])
def test_a_handwritten_schema_with_mistakes(server, schema):
    server.tool(name="a", output_schema=schema)(lambda request: {})
    assert only(server).id == "django_mcp.E021"


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
    """The output of a tool with a return type, where invoices are registered."""

    def made(annotation):
        def ask(request): ...

        ask.__annotations__["return"] = annotation
        server.register(Invoice, Rows)
        server.tool(ask)
        return right(server).tools["ask"]._output

    return made


def test_an_instance_leaves_by_its_resources_fields(returning, server, alice, invoice):
    output = returning(Invoice)
    shown = output.structured(invoice, asked(alice, server))
    assert shown == {
        "_uri": f"model://shop/invoice/{invoice.pk}", "number": "A-1", "total": "12.50",
    }  # fmt: skip
    assert violations(output.schema, shown) == []
    assert output.schema["additionalProperties"] is False


@pytest.mark.parametrize("annotation", [Invoice | None, Optional[Invoice], None | Invoice])  # noqa: UP045
def test_or_none(returning, server, alice, invoice, annotation):
    output = returning(annotation)
    for value in (invoice, None):
        shown = output.structured(value, asked(alice, server))
        assert violations(output.schema, shown) == []
    assert shown is None


@pytest.mark.parametrize("annotation", [list[Invoice], Sequence[Invoice]])
def test_several(returning, server, alice, invoice, annotation, django_assert_num_queries):
    output = returning(annotation)
    shown = output.structured([invoice], asked(alice, server))
    assert shown[0]["number"] == "A-1" and violations(output.schema, shown) == []
    with django_assert_num_queries(2) as queries:
        assert output.structured(Invoice.objects.all(), asked(alice, server)) == shown
    assert "metadata" not in queries[0]["sql"]  # just what the fields show
    assert output.structured(Invoice.objects.none(), asked(alice, server)) == []


def test_a_resource_may_be_chosen(server, alice, invoice):
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
    tools = right(server).tools
    request, uri = asked(alice, server), f"other://{invoice.customer_id}"
    assert tools["one"]._output.structured(invoice.customer, request)["_uri"] == uri
    assert tools["many"]._output.structured([invoice.customer], request)[0]["_uri"] == uri
    assert tools["perhaps"]._output.structured(invoice.customer, request)["_uri"] == uri


@pytest.mark.parametrize("value", [None, {}, "A-1", 5])
def test_what_is_no_row(returning, value):
    with pytest.raises(Mismatch):
        returning(Invoice).structured(value, asked())


def test_another_models_row(returning, invoice):
    output = returning(list[Invoice])
    with pytest.raises(Mismatch, match="Customer is not an instance of the declared model"):
        output.structured([invoice, invoice.customer], asked())


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
def test_rows_in_odd_places(server, annotation):
    def ask(request): ...

    ask.__annotations__["return"] = annotation
    server.register(Invoice, Rows)
    server.tool(ask)
    message = only(server)
    assert message.id == "django_mcp.E020" and "alone or in a list" in message.msg


@pytest.mark.parametrize("annotation", [Customer, list[Customer], Customer | None])
def test_rows_of_a_model_that_is_not_registered(server, annotation):
    def ask(request): ...

    ask.__annotations__["return"] = annotation
    server.register(Invoice, Rows)
    server.tool(ask)
    message = only(server)
    assert message.id == "django_mcp.E020" and "shop.Customer is not registered" in message.msg


@dataclass
class Holder:
    invoice: Invoice


class Loose(BaseModel):
    invoice: Invoice
    model_config = ConfigDict(arbitrary_types_allowed=True)


@pytest.mark.parametrize("annotation", [Holder, Loose, list[Holder], type("Odd", (), {})])
def test_types_without_a_schema(server, annotation):
    def ask(request): ...

    ask.__annotations__["return"] = annotation
    server.register(Invoice, Rows)
    server.tool(ask)
    assert ids(server) == ["E020"]


# Rows where nothing was promised.


def test_registered_rows_leave_by_their_fields_wherever_they_are(server, alice, invoice):
    server.register(Invoice, Rows)
    server.register(Place, Names)
    right(server)
    request = asked(alice, server)
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
def test_rows_of_an_unregistered_model_never_leave(server, invoice, value):
    server.register(Invoice, Rows)
    right(server)
    with pytest.raises(Mismatch, match="not registered"):
        Output().structured(value(invoice), asked(server=server))


def test_nor_do_they_in_data_with_a_type(server, invoice):
    with pytest.raises(Mismatch):
        of(dict[str, Any]).structured({"a": invoice.customer}, asked(server=server))


def test_values_of_a_queryset_are_no_rows(server, invoice):
    """They would show columns that no resource names."""
    server.register(Invoice, Rows)
    right(server)
    with pytest.raises(Mismatch):
        Output().structured(Invoice.objects.values("metadata"), asked(server=server))


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
def test_a_value_without_a_json_form_is_refused_with_a_hint(
    server, invoice, annotation, value, hint
):
    server.register(Invoice, Rows)
    right(server)
    output = Output() if annotation is None else of(annotation)
    with pytest.raises(Mismatch, match=hint):
        output.structured(value(invoice), asked(server=server))
    with pytest.raises(Mismatch, match=hint):
        output.structured({"a": value(invoice)}, asked(server=server))


def test_values_that_a_tool_lists_itself_are_sent(server, invoice):
    listed = list(Invoice.objects.values("number"))
    assert Output().structured(listed, asked(server=server)) == [{"number": invoice.number}]
    typed = of(list[dict[str, Any]])
    columns = Invoice.objects.values("number")
    assert typed.structured(columns, asked(server=server)) == [{"number": invoice.number}]
