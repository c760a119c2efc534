"""Rows in results of tools are sent only if the caller may read them or they are trusted."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import pytest
from django.core.paginator import Paginator
from django.db.models import F
from django.utils.functional import SimpleLazyObject, lazy
from pydantic import AliasPath, BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

import django_mcp as mcp
from django_mcp.declarations.outputs import HiddenRows, Mismatch, Output
from tests.shop.models import Company, Customer, Invoice, LedgerLine, Place, Warehouse

from .helpers import make_request, valid_catalog


class OwnInvoices(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["number", "customer__name"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class OwnCustomers(OwnInvoices):
    fields = ["name"]


class Cheap(OwnInvoices):
    def has_object_permission(self, request, obj, operation):
        return obj.total < 10


@dataclass
class Holder:
    invoice: Invoice


@pytest.fixture
def returning(server):
    """Return a function that makes the output of a tool with the given annotation."""

    def made(annotation: Any, resource: Any = OwnInvoices) -> Any:
        def ask(request): ...

        ask.__annotations__["return"] = annotation
        server.register(Invoice, resource)
        server.register(Customer, OwnCustomers)
        server.tool(ask)
        return valid_catalog(server).tools["ask"]._output

    return made


@pytest.fixture
def hidden(bob):
    """Create an invoice of a company that alice does not belong to."""
    company = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=company, name="Carl")
    return Invoice.objects.create(
        company=company, customer=customer, number="B-1", total=5, issued="2026-01-01"
    )


SHAPES = [
    (Invoice, lambda rows: rows[-1]),
    (Invoice | None, lambda rows: rows[-1]),
    (list[Invoice], lambda rows: rows),
    (list[Invoice], lambda rows: Invoice.objects.all()),
    (Any, lambda rows: rows[-1]),
    (Any, lambda rows: {"a": [{"b": rows}]}),
    (Any, lambda rows: {"a": Invoice.objects.all()}),
    (Any, lambda rows: [Holder(rows[-1])]),
    (Any, lambda rows: {"a": SimpleLazyObject(lambda: rows[-1])}),
    (Invoice, lambda rows: SimpleLazyObject(lambda: rows[-1])),
    (Any, lambda rows: Invoice.objects.filter(total=-1).union(Invoice.objects.all())),
    (list[Invoice], lambda rows: Invoice.objects.filter(total=-1).union(Invoice.objects.all())),
    (Any, lambda rows: {"a": Paginator(Invoice.objects.order_by("pk"), 10).page(1)}),
    (Any, lambda rows: Paginator(rows, 10).page(1)),
    (list[Invoice], lambda rows: Paginator(Invoice.objects.order_by("pk"), 10).page(1)),
    (Any, lambda rows: Invoice.objects.raw("SELECT * FROM shop_invoice")),
    (list[Invoice], lambda rows: Invoice.objects.raw("SELECT * FROM shop_invoice")),
]


@pytest.mark.parametrize(("annotation", "shape"), SHAPES)
def test_row_that_the_caller_may_not_read_is_not_sent(
    returning, server, alice, bob, invoice, hidden, annotation, shape
):
    output = returning(annotation)
    with pytest.raises(HiddenRows, match=r"^Not found\.$") as raised:
        output.structured(shape([invoice, hidden]), make_request(alice, server))
    assert raised.value.detail == f"model=shop.Invoice count=1 pk={hidden.pk}"


@pytest.mark.parametrize(("annotation", "shape"), SHAPES)
def test_row_that_the_caller_may_read_is_sent(returning, server, alice, invoice, annotation, shape):
    assert "A-1" in str(
        returning(annotation).structured(shape([invoice]), make_request(alice, server))
    )


@pytest.mark.parametrize(("annotation", "shape"), SHAPES)
def test_trusted_rows_are_sent_without_a_permission_query(
    returning, server, alice, invoice, hidden, annotation, shape, django_assert_max_num_queries
):
    output, value = returning(annotation), shape([invoice, hidden])
    # The first call loads the columns of related rows.
    assert "B-1" in str(output.structured(mcp.trusted(value), make_request(alice, server)))
    with django_assert_max_num_queries(1) as queries:  # the query of a queryset
        output.structured(mcp.trusted(value), make_request(alice, server))
    assert not any("members" in query["sql"] for query in queries)


def test_trusted_rows_show_only_the_fields_of_their_resource(returning, server, alice, hidden):
    shown = returning(Any).structured({"a": mcp.trusted([hidden])}, make_request(alice, server))
    assert set(shown["a"][0]) == {"_uri", "number", "customer__name"}


def test_trusted_row_in_a_list_of_the_model_is_sent(returning, server, alice, invoice, hidden):
    output, request = returning(list[Invoice]), make_request(alice, server)
    shown = output.structured([invoice, mcp.trusted(hidden)], request)
    assert [row["number"] for row in shown] == ["A-1", "B-1"]
    with pytest.raises(HiddenRows):
        output.structured([hidden, mcp.trusted(invoice)], request)


def test_rows_beside_trusted_ones_are_checked(returning, server, alice, hidden):
    value = {"a": mcp.trusted(hidden), "b": hidden}
    with pytest.raises(HiddenRows):
        returning(Any).structured(value, make_request(alice, server))


def test_one_query_checks_all_rows_of_a_model(
    returning, server, alice, invoice, django_assert_num_queries
):
    rows = [invoice] + [
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{n}", total=n,
            issued=invoice.issued,
        )
        for n in range(2, 6)
    ]  # fmt: skip
    output = returning(Any)
    with django_assert_num_queries(2):  # one for each model
        output.structured({"a": rows, "b": invoice.customer}, make_request(alice, server))


def test_object_permission_of_returned_rows_is_checked(returning, server, alice, invoice):
    output = returning(Invoice, Cheap)
    with pytest.raises(HiddenRows):
        output.structured(invoice, make_request(alice, server))
    Invoice.objects.update(total=5)
    assert output.structured(Invoice.objects.get(), make_request(alice, server))["number"] == "A-1"


def test_row_of_a_resource_without_permission_is_not_sent(returning, server, invoice):
    """``get_queryset`` is not called, because there is no user to filter by."""
    with pytest.raises(HiddenRows):
        returning(Invoice).structured(invoice, make_request(server=server))


@pytest.mark.parametrize("change", ["delete", "new", "moved"])
def test_row_that_is_not_in_the_database_is_not_sent(
    returning, server, alice, bob, invoice, change
):
    if change == "delete":
        invoice.delete()
    elif change == "new":
        invoice = Invoice(number="X-1", customer=invoice.customer)
    else:
        invoice.company = Company.objects.get(name="Bolts")
        invoice.save()
    with pytest.raises(HiddenRows):
        returning(Invoice).structured(invoice, make_request(alice, server))


def saved_with_a_text_key(alice):
    place = Place(pk="77", name="P")
    place.save()
    return place


def child_of_the_model(alice):
    return Warehouse.objects.create(name="P")


def row_with_a_composite_key(alice):
    company = Company.objects.get(name="Acme")
    return LedgerLine.objects.create(company=company, line=3, text="P", amount=1)


@pytest.mark.parametrize(
    ("made", "model", "field"),
    [
        (saved_with_a_text_key, Place, "name"),
        (child_of_the_model, Place, "name"),
        (row_with_a_composite_key, LedgerLine, "text"),
    ],
)
def test_rows_with_text_inherited_and_composite_keys_are_checked(server, alice, made, model, field):
    class Rows(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = [field]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    server.register(model, Rows)
    valid_catalog(server)
    assert Output().structured(made(alice), make_request(alice, server))[field] == "P"


# Types of the project that pydantic fills with the attributes of rows.


class CustomerOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    name: str


class InvoiceOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    number: str


class NestedOut(InvoiceOut):
    customer: CustomerOut


class AliasedOut(InvoiceOut):
    who: CustomerOut = Field(validation_alias="customer")


class ReachingOut(InvoiceOut):
    customer_name: str = Field(validation_alias=AliasPath("customer", "name"))


class HolderOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    invoice: InvoiceOut


class Root(RootModel[list[InvoiceOut]]):
    pass


class PageOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    object_list: list[InvoiceOut]
    number: int


class Described(TypedDict):
    invoice: InvoiceOut


class Named(NamedTuple):
    invoice: Any


class NamedOut(NamedTuple):
    invoice: InvoiceOut


@dataclass
class Held:
    invoice: InvoiceOut


class ByProperty:
    def __init__(self, row):
        self._row = row

    @property
    def invoice(self):
        return self._row


@dataclass(slots=True)
class Slotted:
    invoice: Invoice


def generated(rows):
    yield from rows


def raw(rows):
    return Invoice.objects.raw("SELECT * FROM shop_invoice ORDER BY id")


class MetadataOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    metadata: HolderOut


class DefaultOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    default: HolderOut


TYPED = [
    (InvoiceOut, lambda rows: rows[-1]),
    (InvoiceOut | None, lambda rows: rows[-1]),
    (Annotated[InvoiceOut, "a note"], lambda rows: rows[-1]),
    (InvoiceOut, lambda rows: SimpleLazyObject(lambda: rows[-1])),
    (InvoiceOut, lambda rows: Invoice.objects.only("number").order_by("-pk")[0]),
    (
        InvoiceOut,
        lambda rows: Invoice.objects.annotate(twice=F("total") * 2).order_by("-pk").first(),
    ),
    (list[InvoiceOut], lambda rows: rows),
    (list[InvoiceOut], lambda rows: Invoice.objects.all()),
    (list[InvoiceOut], lambda rows: Invoice.objects.iterator()),
    (list[InvoiceOut], generated),
    (list[InvoiceOut], lambda rows: filter(None, rows)),
    (list[InvoiceOut], lambda rows: deque(rows)),
    (list[InvoiceOut], lambda rows: dict(enumerate(rows)).values()),
    (list[InvoiceOut], raw),
    (list[InvoiceOut], lambda rows: Paginator(Invoice.objects.order_by("pk"), 10).page(1)),
    (Iterable[InvoiceOut], generated),
    (dict[str, InvoiceOut], lambda rows: {"a": rows[-1]}),
    (dict[str, list[InvoiceOut]], lambda rows: {"a": generated(rows)}),
    (tuple[InvoiceOut, ...], tuple),
    (Root, lambda rows: rows),
    (PageOut, lambda rows: Paginator(Invoice.objects.order_by("pk"), 10).page(1)),
    (Described, lambda rows: {"invoice": rows[-1]}),
    (NamedOut, lambda rows: Named(rows[-1])),
    (Held, lambda rows: {"invoice": rows[-1]}),
    (Held, lambda rows: Held(rows[-1])),
    (list[Held], lambda rows: [Held(rows[-1])]),
    (HolderOut, lambda rows: {"invoice": rows[-1]}),
    (HolderOut, lambda rows: Holder(rows[-1])),
    (HolderOut, lambda rows: Slotted(rows[-1])),
    (HolderOut, lambda rows: SimpleNamespace(invoice=rows[-1])),
    # Field names that are also keys in core schemas of pydantic.
    (MetadataOut, lambda rows: SimpleNamespace(metadata=SimpleNamespace(invoice=rows[-1]))),
    (DefaultOut, lambda rows: SimpleNamespace(default=SimpleNamespace(invoice=rows[-1]))),
    (HolderOut, lambda rows: Named(rows[-1])),
    (HolderOut, lambda rows: ByProperty(rows[-1])),
]


@pytest.mark.parametrize(("annotation", "shape"), TYPED)
def test_row_that_the_caller_may_not_read_is_not_sent_in_a_declared_type(
    returning, server, alice, bob, invoice, hidden, annotation, shape
):
    with pytest.raises(HiddenRows) as raised:
        returning(annotation).structured(shape([invoice, hidden]), make_request(alice, server))
    assert raised.value.detail == f"model=shop.Invoice count=1 pk={hidden.pk}"


@pytest.mark.parametrize(("annotation", "shape"), TYPED)
def test_row_that_the_caller_may_read_is_sent_in_a_declared_type(
    returning, server, alice, invoice, annotation, shape
):
    assert "A-1" in str(
        returning(annotation).structured(shape([invoice]), make_request(alice, server))
    )


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (InvoiceOut, lambda row: mcp.trusted(row)),
        (list[InvoiceOut], lambda row: mcp.trusted(Invoice.objects.all())),
        (dict[str, InvoiceOut], lambda row: {"a": mcp.trusted(row)}),
    ],
)
def test_trusted_row_is_sent_in_a_declared_type(
    returning, server, alice, hidden, annotation, value
):
    assert "B-1" in str(
        returning(annotation).structured(value(hidden), make_request(alice, server))
    )


@pytest.mark.parametrize("annotation", [NestedOut, AliasedOut])
def test_related_row_in_a_declared_type_is_checked(
    returning, server, alice, bob, invoice, annotation
):
    output = returning(annotation)
    assert "Carla" in str(output.structured(invoice, make_request(alice, server)))
    Customer.objects.filter(pk=invoice.customer.pk).update(
        company=Company.objects.get(name="Bolts")
    )
    with pytest.raises(HiddenRows, match="Not found"):
        output.structured(Invoice.objects.get(pk=invoice.pk), make_request(alice, server))


def test_alias_path_reads_a_column_of_a_related_row_without_a_check(
    returning, server, alice, bob, invoice
):
    Customer.objects.filter(pk=invoice.customer.pk).update(
        company=Company.objects.get(name="Bolts")
    )
    shown = returning(ReachingOut).structured(invoice, make_request(alice, server))
    assert shown == {"number": "A-1", "customer_name": "Carla"}


def test_row_without_a_resource_is_sent_in_a_declared_type(server, alice, invoice):
    def ask(request) -> InvoiceOut: ...

    server.tool(ask)
    output = valid_catalog(server).tools["ask"]._output
    assert output.structured(invoice, make_request(alice, server)) == {"number": "A-1"}


def test_iterator_that_cannot_be_read_twice_is_refused_with_a_hint(
    returning, server, alice, invoice
):
    value = SimpleNamespace(object_list=generated([invoice]), number=1)
    with pytest.raises(Mismatch, match="return a list"):
        returning(PageOut).structured(value, make_request(alice, server))


class StrictOut(BaseModel):
    number: str


@dataclass
class HeldStrict:
    invoice: StrictOut


def test_row_in_a_dataclass_is_checked_before_validation(returning, server, alice, bob, hidden):
    with pytest.raises(HiddenRows):
        returning(HeldStrict).structured(HeldStrict(hidden), make_request(alice, server))


def test_typed_value_without_rows_costs_no_query(
    returning, server, alice, django_assert_num_queries
):
    output = returning(list[InvoiceOut])
    with django_assert_num_queries(0):
        shown = output.structured([{"number": "A"}] * 3, make_request(alice, server))
    assert shown == [{"number": "A"}] * 3


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[str, Any], lambda row: {"a": row}),
        (list[dict[str, Any]], lambda row: [{"a": {row}}]),
        (dict[str, int], lambda row: {row: 1}),
        (list[str], lambda row: [row]),
    ],
)
def test_visible_row_that_does_not_fit_the_type_is_refused(
    returning, server, alice, invoice, annotation, value
):
    with pytest.raises(Mismatch):
        returning(annotation).structured(value(invoice), make_request(alice, server))


@pytest.mark.parametrize(
    "value",
    [
        lambda row: {row},
        lambda row: {"a": row}.values(),
        lambda row: [{"a": row}.items()],
        lambda row: generated([row]),
        lambda row: Invoice.objects.iterator(),
        lambda row: SimpleLazyObject(lambda: row),
        lambda row: lazy(lambda: row, Invoice)(),
        lambda row: [lazy(lambda: [row], list)()],
    ],
)
def test_row_in_any_container_has_only_its_fields_and_is_checked(
    returning, server, alice, bob, invoice, hidden, value
):
    output = returning(Any)
    Invoice.objects.filter(pk=hidden.pk).delete()
    shown = str(output.structured(value(invoice), make_request(alice, server)))
    assert "A-1" in shown and "_uri" in shown and "total" not in shown
    hidden.save(force_insert=True)
    with pytest.raises(HiddenRows):
        output.structured(value(hidden), make_request(alice, server))


def test_row_as_a_dict_key_is_refused(returning, server, alice, invoice):
    with pytest.raises(Mismatch):
        returning(Any).structured({invoice: 1}, make_request(alice, server))
