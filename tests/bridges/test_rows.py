"""Writing of rows: keys, locking, validation, transactions and errors."""

import threading
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, connections, models, transaction
from django.test.utils import CaptureQueriesContext

from django_mcp.bridges import model_operations as operation_rows
from django_mcp.bridges.model_operations import (
    locked_row,
    translate_errors,
    validate_row,
    visible_row,
)
from django_mcp.exceptions import InvalidArguments, ToolError
from tests.declarations.helpers import make_request, valid_catalog
from tests.http import HttpClient
from tests.settings import DATABASES
from tests.shop.models import (
    Badge,
    Company,
    Customer,
    Invoice,
    LedgerLine,
    LocalPlace,
    Note,
    Place,
    Tag,
    Warehouse,
)

from .billing import Free, declare, read, writer


@pytest.fixture
def write(server, connect, alice):
    return writer(server, connect, alice)


# Types of keys.


def test_natural_key_cannot_be_changed(write):
    client = write((Badge, ["code", "colour"]))
    row = read(client.text("create_badge", code="a/b", colour="red"))
    assert row == {"_uri": "model://shop/badge/a%2Fb", "code": "a/b", "colour": "red"}
    client.text("update_badge", badge=row["_uri"], colour="blue")
    assert Badge.objects.get().colour == "blue"
    assert "Additional" in client.failure("update_badge", badge="a/b", code="c")
    client.text("delete_badge", badge="a/b")
    assert not Badge.objects.exists()


def test_creating_a_row_with_an_existing_key_is_refused(write, monkeypatch):
    Badge.objects.create(code="taken", colour="red")
    client = write((Badge, ["code", "colour"]))
    words = client.failure("create_badge", code="taken", colour="blue")
    assert words == "code: Badge with this Code already exists."
    # The database refuses a duplicate if validation does not find it.
    monkeypatch.setattr(Badge, "validate_unique", lambda self, exclude=None: None)
    words = client.failure("create_badge", code="taken", colour="blue")
    assert words == "Nothing was saved: it would be in conflict with other data."
    assert Badge.objects.get().colour == "red"


def test_generated_key_is_returned(write):
    client = write((Note, ["id", "text", "written"]))
    row = read(client.text("create_note", text="one"))
    assert row["id"] == str(Note.objects.get().pk) and row["written"]
    client.text("update_note", note=row["id"], text="two")
    assert Note.objects.get().text == "two"


def test_composite_key(write, alice):
    company = Company.objects.get(name="Acme")
    fields = ["pk", "company", "line", "text", "amount"]
    client = write((LedgerLine, fields), (Company, ["name"]))
    new = {"company": company.pk, "line": 3, "text": "rent", "amount": "-7.10"}
    row = read(client.text("create_ledgerline", **new))
    assert row["pk"] == [company.pk, 3] and row["_uri"].endswith(f"/{company.pk}%2C3")
    client.text("update_ledgerline", ledgerline=row["_uri"], text="more rent")
    client.text("update_ledgerline", ledgerline=row["pk"], amount=-8)
    line = LedgerLine.objects.get()
    assert (line.text, line.amount) == ("more rent", -8)
    assert "already exists" in client.failure("create_ledgerline", **new)
    words = client.failure("update_ledgerline", ledgerline=[company.pk, 4], text="x")
    assert "that you may change" in words
    client.text("delete_ledgerline", ledgerline=row["_uri"])
    assert not LedgerLine.objects.exists()


def test_row_is_named_by_the_lookup_field_of_its_uri(write, invoice):
    client = write(
        (Tag, ["label"]),
        uri="tag://{label}",
    )
    row = read(client.text("create_tag", label="old"))
    assert row["_uri"] == "tag://old"
    row = read(client.text("update_tag", tag="old", label="new"))
    assert row["_uri"] == "tag://new"
    assert "that you may change" in client.failure("update_tag", tag="old", label="x")


def test_model_with_multi_table_inheritance(write):
    client = write((Warehouse, ["name", "city", "capacity"]))
    row = read(client.text("create_warehouse", name="W", capacity=5))
    client.text("update_warehouse", warehouse=row["_uri"], city="Graz")
    assert Warehouse.objects.get().city == Place.objects.get().city == "Graz"
    client.text("delete_warehouse", warehouse=row["_uri"])
    assert not Place.objects.exists()


def test_deleting_a_parent_row_requires_permission_for_the_child(write):
    place = Warehouse.objects.create(name="W").place_ptr
    client = write((Place, ["name"]))
    assert "other rows depend" in client.failure("delete_place", place=place.pk)


@pytest.mark.parametrize("allowed", [False, True])
def test_cascade_to_rows_of_the_same_model_requires_permission(
    write, invoice, monkeypatch, allowed
):
    """A user who may delete their own row may not delete rows of others that refer to it."""
    field = Customer._meta.get_field("referred_by")
    monkeypatch.setattr(field.remote_field, "on_delete", models.CASCADE)
    first = Customer.objects.create(company=invoice.company, name="First")
    Customer.objects.create(company=invoice.company, name="Second", referred_by=first)
    client = write(
        (Customer, ["name"]),
        get_initial=dict,
        has_cascade_permission=lambda self, request, model: allowed,
    )
    assert client.call("delete_customer", customer=first.pk)["isError"] != allowed
    assert Customer.objects.filter(name="Second").exists() != allowed


def test_proxy_model_writes_the_row_of_its_parent(write):
    place = LocalPlace.objects.create(name="Here")
    client = write((LocalPlace, ["name"]))
    client.text("update_localplace", localplace=place.pk, name="There")
    assert LogEntry.objects.get().content_type.model == "localplace"
    client.text("delete_localplace", localplace=place.pk)
    assert not Place.objects.exists()


# Locking.


def test_missing_row_raises_invalid_arguments(server, alice, invoice):
    declare(server)
    resource = valid_catalog(server).models[Invoice][0]
    request = make_request(alice, server)
    with transaction.atomic():
        assert locked_row(resource, request, invoice.pk, "change") == invoice
        with pytest.raises(InvalidArguments):
            locked_row(resource, request, 0, "change")
        assert visible_row(resource, request, invoice, "change") == invoice


def test_hidden_and_missing_rows_cause_the_same_queries(server, connect, bob, invoice):
    declare(server)
    client = connect(bob, server=server)
    invoice.pk, invoice.number = 777_777, "A-7"
    invoice.save()
    statements = []
    for pk in (777_777, 999_999):
        with CaptureQueriesContext(connection) as queries:
            client.failure("update_invoice", invoice=pk, total="1")
        plain = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
        statements.append([sql.replace(str(pk), "N") for sql in plain])
    assert statements[0] == statements[1] and "= N" in statements[0][-1]


COUNTS = [
    ("create_invoice", {"number": "B-1", "total": "1", "issued": "2026-01-01"}),
    ("update_invoice", {"total": "2"}),
    ("delete_invoice", {}),
]


@pytest.mark.parametrize(("tool", "given"), COUNTS, ids=[tool for tool, _ in COUNTS])
def test_number_of_queries_of_each_operation(server, connect, alice, invoice, tool, given):
    declare(server)
    client = connect(alice, server=server)
    if tool == "create_invoice":
        given = given | {"company": invoice.company_id, "customer": invoice.customer_id}
    else:
        given = given | {"invoice": invoice.pk}
    client.request("tools/list")
    LogEntry.objects.log_actions(alice.pk, [invoice], 2)  # this caches the content type
    with CaptureQueriesContext(connection) as queries:
        client.text(tool, **given)
    kinds = [query["sql"].split()[0].strip('"') for query in queries]
    lock = 1 if connection.features.has_select_for_update and tool != "create_invoice" else 0
    expected = {
        # company, customer, both again as choices, the unique number, the row and its tags
        "create_invoice": {"SELECT": 7, "INSERT": 2},
        # the row, company and customer as choices, the unique number, the row and its tags
        "update_invoice": {"SELECT": 6 + lock, "UPDATE": 1, "INSERT": 1},
        # the row, and its relations twice
        "delete_invoice": {"SELECT": 1 + lock, "DELETE": 2, "INSERT": 1},
    }[tool]
    assert {kind: kinds.count(kind) for kind in expected} == expected, kinds
    assert {*kinds} - {*expected} <= {"SAVEPOINT", "RELEASE"}


def test_concurrent_changes_of_a_row_are_serialized(server, shared_db, alice, invoice):
    """Each change adds to the value that it has read. No addition is lost."""
    declare(server)
    resource = valid_catalog(server).models[Invoice][0]

    def add():
        try:
            with transaction.atomic():
                row = locked_row(resource, make_request(alice, server), invoice.pk, "change")
                row.total += 1
                row.save()
        finally:
            connection.close()

    adding = [threading.Thread(target=add) for _ in range(8)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    invoice.refresh_from_db()
    assert invoice.total == Decimal("20.50")


@pytest.mark.parametrize(
    "get_queryset",
    [
        lambda self, request: Invoice.objects.filter(company__members=request.user).distinct(),
        lambda self, request: Invoice.objects.annotate(n=models.Count("tags")).filter(n=0),
        lambda self, request: Invoice.objects.select_related("customer__referred_by"),
        lambda self, request: Invoice.objects.order_by("customer__name", "-total"),
        lambda self, request: Invoice.objects.filter(company__members__isnull=False),
    ],
    ids=["distinct", "group", "outer join", "ordered", "repeated"],
)
def test_row_of_any_kind_of_queryset_can_be_locked_and_written(
    server, connect, alice, bob, invoice, get_queryset
):
    invoice.company.members.add(bob)
    declare(server, get_queryset=get_queryset)
    client = connect(alice, server=server)
    assert read(client.text("update_invoice", invoice=invoice.pk, total="5"))["total"] == "5.00"
    client.text("delete_invoice", invoice=invoice.pk)


def test_annotations_of_the_queryset_are_available_for_permissions(server, connect, alice, invoice):
    def has_object_permission(self, request, obj, operation):
        return obj.big

    def get_queryset(self, request):
        return Invoice.objects.annotate(big=models.Q(total__gt=10))

    declare(server, get_queryset=get_queryset, has_object_permission=has_object_permission)
    client = connect(alice, server=server)
    client.text("update_invoice", invoice=invoice.pk, total="11")
    words = client.failure("update_invoice", invoice=invoice.pk, total="9")
    assert words == "You may not change the invoice like this."


# Validation.


def test_uniqueness_of_unwritten_fields_is_validated(invoice):
    with pytest.raises(ValidationError) as error:
        validate_row(Company(name="Acme"), [])
    assert "already exists" in str(error.value)


def test_values_of_unwritten_fields_are_not_validated(invoice):
    invoice.number = ""
    validate_row(invoice, ["total"])
    with pytest.raises(ValidationError):
        validate_row(invoice, ["number"])


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (ValidationError("Whole."), "Whole."),
        (
            ValidationError({"total": "T.", "company": "CANARY"}),
            "T. " + operation_rows.HIDDEN_FIELD_INVALID,
        ),
        (ValidationError({"company": ["CANARY"]}), operation_rows.HIDDEN_FIELD_INVALID),
        (ValidationError({"__all__": ["All."], "company": "CANARY"}), "All. "),
    ],
)
def test_validation_errors_of_hidden_fields_are_replaced(server, raised, words):
    declare(server, fields=["number", "total", "tags"], operations=[], operation_permissions={})
    resource = valid_catalog(server).models[Invoice][0]
    with pytest.raises(ValidationError) as error, translate_errors(resource):
        raise raised
    assert words in " ".join(error.value.messages) and "CANARY" not in str(error.value)


def test_database_error_is_logged_without_its_details(server, caplog):
    declare(server)
    resource = valid_catalog(server).models[Invoice][0]
    with pytest.raises(ToolError) as error, translate_errors(resource):
        raise IntegrityError("duplicate key\nDETAIL: CANARY")
    assert "CANARY" not in str(error.value) + caplog.text and "duplicate key" in caplog.text


# Over HTTP.


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_operations_over_http(server, alice, invoice, revision):
    from django_mcp.models import Token

    declare(server)
    _, token = Token.make(alice, "tests")
    with HttpClient(server=server, revision=revision, token=token) as client:
        given = {"company": invoice.company_id, "customer": invoice.customer_id}
        new = {"number": "H-1", "total": "1.00", "issued": "2026-01-01"}
        row = client.call("create_invoice", **new, **given)["structuredContent"]
        row = client.call("update_invoice", invoice=row["_uri"], total=2)["structuredContent"]
        assert row["total"] == "2.00"
        failed = client.call("update_invoice", invoice=row["_uri"], total="NaN")
        assert failed["isError"]
        deleted = client.call("delete_invoice", invoice=row["id"])["structuredContent"]
        assert deleted == {"_uri": row["_uri"], "message": "The invoice is deleted."}
    assert Invoice.objects.get() == invoice and LogEntry.objects.count() == 3
    assert date(2026, 1, 2) == Invoice.objects.get().issued


# Transactions.


@pytest.fixture(params=DATABASES)
def alias(request, shared_db, settings):
    """Yield each database in turn, in which the model ``Tag`` has a table and is written."""
    name = request.param
    missing = Tag._meta.db_table not in connections[name].introspection.table_names()

    class Router:
        def db_for_write(self, model, **hints):
            return name if model is Tag else None

        db_for_read = db_for_write

    if missing:
        with connections[name].schema_editor() as editor:
            editor.create_model(Tag)
    settings.DATABASE_ROUTERS = [Router(), *settings.DATABASE_ROUTERS]
    yield name
    if missing:
        with connections[name].schema_editor() as editor:
            editor.delete_model(Tag)


@pytest.mark.parametrize("fails", [False, True])
def test_transaction_is_in_the_database_of_the_model(alias, write, fails):
    seen = []

    def save_model(self, request, obj, created):
        super(Free, self).save_model(request, obj, created)
        seen.extend(name for name in connections if connections[name].in_atomic_block)
        if fails:
            raise ToolError("No.")

    client = write((Tag, ["label"]), save_model=save_model)
    assert client.call("create_tag", label="new")["isError"] == fails
    assert seen == [alias] and Tag.objects.using(alias).count() == (not fails)
