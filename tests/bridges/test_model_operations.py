"""Tools that create, update and delete rows: definitions, permissions, validation and errors."""

import json
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.db.models import ProtectedError
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.declarations.declaration import decide
from django_mcp.declarations.schemas import problem
from tests.announcing import observing
from tests.client import RpcError
from tests.declarations.helpers import make_request, valid_catalog
from tests.shop.models import Company, Customer, Invoice, LedgerLine, Tag

from .billing import EVERYBODY, Bills, Companies, Customers, Tags, declare

UPDATING, DELETING = ({name: EVERYBODY[name]} for name in ("update", "delete"))
NEW = {"number": "A-2", "total": "7.50", "issued": "2026-03-01"}


@pytest.fixture
def bills(server, connect, alice, invoice):
    """Return a function that registers the billing and connects a client of alice."""

    def opened(user=alice, revision="2026-07-28", **options):
        if not server._records:
            declare(server, **options)
            valid_catalog(server)
        return connect(user, server=server, revision=revision)

    return opened


@pytest.fixture
def hidden(bob):
    """Create an invoice of a company that alice does not belong to."""
    company = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=company, name="Boris", notes="CANARY")
    return Invoice.objects.create(
        company=company, customer=customer, number="CANARY", total=Decimal(3),
        issued=date(2026, 1, 1),
    )  # fmt: skip


def new_invoice(invoice, **more):
    return NEW | {"company": invoice.company_id, "customer": invoice.customer_id} | more


def data(result):
    assert not result["isError"], result
    return json.loads(result["content"][0]["text"])


# Definitions.


def test_each_operation_is_a_tool_with_hints(server):
    declare(server)
    catalog = valid_catalog(server)
    made = {name: tool._definition() for name, tool in catalog.tools.items()}
    assert list(made) == ["create_invoice", "update_invoice", "delete_invoice"]
    hints = {name: one["annotations"] for name, one in made.items()}
    # Hints with the protocol's default values are omitted.
    changing = {"idempotentHint": True, "openWorldHint": False}
    adding = {"destructiveHint": False, "openWorldHint": False}
    assert list(hints.values()) == [adding, changing, changing]
    assert [tool.title for tool in catalog.tools.values()] == [
        "Create invoice", "Update invoice", "Delete invoice",
    ]  # fmt: skip
    for one in made.values():
        assert problem(one["inputSchema"]) is None
        assert (
            "title" not in one and "outputSchema" not in one
        )  # both would only repeat other information


def test_row_argument_has_the_name_of_the_resource(server):
    declare(server, name="bill")
    schema = valid_catalog(server).tools["update_bill"]._definition()["inputSchema"]
    assert schema["required"] == ["bill"]
    assert schema["properties"]["bill"]["type"] == ["integer", "string"]
    assert schema["properties"]["bill"]["description"] == "Key or URI of the invoice."


def test_description_of_delete_is_short(server):
    """It must not promise more, because ``delete_model`` of a project may only mark the row."""
    declare(server)
    assert valid_catalog(server).tools["delete_invoice"].description == "Delete one invoice."


def test_row_argument_is_renamed_if_a_field_has_its_name(server, connect, alice):
    tag = Tag.objects.create(label="old")
    operation = {"operations": ["update"], "operation_permissions": UPDATING}
    declare(server, Tag, Tags, name="label", **operation)
    assert data(connect(alice, server=server).call("update_label", _uri=tag.pk, label="new"))
    assert Tag.objects.get().label == "new"


def test_only_listed_operations_are_tools(server):
    declare(server, operations=["create"], operation_permissions={"create": mcp.AUTHENTICATED})
    assert list(valid_catalog(server).tools) == ["create_invoice"]


def test_several_resources_of_a_model_have_separate_tools(server):
    declare(server, default=True)
    server.register(Invoice, type("Drafts", (Bills,), {"name": "draft", "uri": "draft://{pk}"}))
    assert {"create_draft", "create_invoice"} <= valid_catalog(server).tools.keys()


def test_duplicate_tool_name_is_an_error_that_names_both_resources(server):
    declare(server, default=True)
    server.register(Invoice, type("Drafts", (Bills,), {"uri": "draft://{number}"}))
    messages = [message.msg for message in server.check()]
    assert "'create_invoice' is declared twice" in messages[0]
    assert "Written of shop.Invoice" in messages[0] and "Drafts of shop.Invoice" in messages[0]


# Creating.


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_create_returns_the_new_row(bills, alice, invoice, revision):
    tag = Tag.objects.create(label="urgent")
    client = bills(revision=revision)
    result = client.call(
        "create_invoice",
        **new_invoice(invoice, tags=[tag.pk], metadata={"a": [1]}, status="open", paid_at=None),
    )
    row = data(result)
    made = Invoice.objects.get(number="A-2")
    assert row["_uri"] == f"model://shop/invoice/{made.pk}" and row["tags"] == [tag.pk]
    assert (row["total"], row["customer__name"], row["overdue"]) == ("7.50", "Carla", True)
    assert made.metadata == {"a": [1]} and list(made.tags.all()) == [tag]
    links = [block for block in result["content"] if block["type"] == "resource_link"]
    assert [link["uri"] for link in links] == ([row["_uri"]] if links else [])


def test_decimal_may_be_given_as_a_number(bills, invoice):
    assert (
        data(bills().call("create_invoice", **new_invoice(invoice, total=12.5)))["total"] == "12.50"
    )


def test_related_row_may_be_given_by_uri(bills, invoice):
    customer = f"model://shop/customer/{invoice.customer_id}"
    row = data(bills().call("create_invoice", **new_invoice(invoice, customer=customer)))
    assert row["customer"] == invoice.customer_id


def test_get_initial_sets_fields_that_the_client_cannot(bills, alice, invoice):
    def get_initial(self, request):
        return {"company": Company.objects.get(members=request.user)}

    fields = [name for name in Bills.fields if name != "company"]
    client = bills(fields=fields, get_initial=get_initial)
    data(client.call("create_invoice", **NEW, customer=invoice.customer_id))
    assert Invoice.objects.get(number="A-2").company == invoice.company


def test_save_model_of_the_project_is_called(bills, invoice):
    calls = []

    def save_model(self, request, obj, created):
        calls.append((request.user.username, obj.number, created))
        obj.metadata = {"by": request.user.username}
        super(Bills, self).save_model(request, obj, created)

    client = bills(save_model=save_model)
    row = data(client.call("create_invoice", **new_invoice(invoice)))
    assert row["metadata"] == {"by": "alice"}
    data(client.call("update_invoice", invoice=row["_uri"], number="A-3"))
    assert calls == [("alice", "A-2", True), ("alice", "A-3", False)]


def test_validation_errors_name_the_field(bills, invoice):
    client = bills()
    words = client.failure("create_invoice", **new_invoice(invoice, total="7.505", issued="soon"))
    assert "issued: 'soon' is not a 'date'" in words
    words = client.failure("create_invoice", **new_invoice(invoice, total="7.505", number="x" * 21))
    assert "number" in words
    words = client.failure("create_invoice", **new_invoice(invoice, total="7.505"))
    assert words.startswith("total: Ensure that there are no more than 2 decimal places")
    words = client.failure("create_invoice", **new_invoice(invoice, number="A-1"))
    assert words == "number: Invoice with this Number already exists."
    assert Invoice.objects.count() == 1


def test_missing_required_field_is_named(bills, invoice):
    client = bills()
    schema = client.request("tools/list")["tools"][0]["inputSchema"]
    assert schema["required"] == ["number", "company", "customer", "total", "issued"]
    assert "'total' is a required property" in client.failure("create_invoice", number="A-2")


# Updating.


@pytest.mark.parametrize("revision", ["2025-03-26", "2026-07-28"])
def test_update_changes_only_given_fields(bills, invoice, revision):
    client = bills(revision=revision)
    uri = f"model://shop/invoice/{invoice.pk}"
    row = data(client.call("update_invoice", invoice=uri, total="99", status="paid"))
    assert (row["total"], row["status"], row["number"]) == ("99.00", "paid", "A-1")
    invoice.refresh_from_db()
    assert (invoice.total, invoice.status) == (99, "paid")


def test_null_clears_a_nullable_field(bills, invoice):
    client = bills()
    row = data(client.call("update_invoice", invoice=invoice.pk, paid_at="2026-01-05T10:00:00Z"))
    assert row["paid_at"] == "2026-01-05T10:00:00+00:00"
    assert data(client.call("update_invoice", invoice=invoice.pk, paid_at=None))["paid_at"] is None
    words = client.failure("update_invoice", invoice=invoice.pk, total=None)
    assert words.startswith("Invalid arguments. total: None is not")


def test_update_without_changes_does_not_save(bills, invoice):
    client = bills()
    saved = []
    client.conversation.server._catalog.models[Invoice][0].save_model = lambda *a: saved.append(a)
    same = {"total": 12.5, "issued": "2026-01-02", "tags": [], "metadata": {}, "paid_at": None}
    row = data(client.call("update_invoice", invoice=invoice.pk, **same))
    assert row["total"] == "12.50" and saved == [] and not LogEntry.objects.exists()


def test_true_and_one_are_different_json_values(bills, invoice):
    client = bills()
    data(client.call("update_invoice", invoice=invoice.pk, metadata={"paid": 1}))
    data(client.call("update_invoice", invoice=invoice.pk, metadata={"paid": True}))
    invoice.refresh_from_db()
    assert invoice.metadata["paid"] is True


def test_update_notifies_subscribers_once(bills, invoice):
    uris = []

    class Listener:
        def receive(self, server, changes):
            uris.extend(changes.uris)

    client = bills()
    with observing(Listener()):
        data(client.call("update_invoice", invoice=invoice.pk, total="99"))
        client.failure("update_invoice", invoice=invoice.pk, total="9.999")
    assert uris.count(f"model://shop/invoice/{invoice.pk}") == 1


# Deleting.


@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
def test_delete_removes_the_row(bills, invoice, revision):
    result = bills(revision=revision).call("delete_invoice", invoice=invoice.pk)
    assert not result["isError"] and "The invoice is deleted." in result["content"][0]["text"]
    assert not Invoice.objects.exists()


def test_row_with_dependent_rows_is_not_deleted(bills, alice, invoice):
    operations = {"operations": ["delete"], "operation_permissions": DELETING}
    client = bills(model=Customer, base=Customers, **operations)
    words = client.failure("delete_customer", customer=invoice.customer_id)
    assert words == "This customer cannot be deleted: other rows depend on it."
    invoice.delete()
    data(client.call("delete_customer", customer=invoice.customer_id))


def test_cascade_requires_the_delete_permission(bills, alice, invoice, connect, server):
    invoice.delete()
    operations = {"operations": ["delete"], "operation_permissions": DELETING}
    client = bills(model=Company, base=Companies, **operations)
    words = client.failure("delete_company", company=invoice.company_id)
    assert words == "This company cannot be deleted: other rows depend on it."
    LedgerLine.objects.create(company=invoice.company, line=1, text="x", amount=1)
    alice.user_permissions.add(Permission.objects.get(codename="delete_customer"))
    client = connect(type(alice).objects.get(pk=alice.pk), server=server)
    assert "other rows depend" in client.failure("delete_company", company=invoice.company_id)
    LedgerLine.objects.all().delete()
    data(client.call("delete_company", company=invoice.company_id))
    assert not Customer.objects.exists()


def test_has_cascade_permission_decides(bills, invoice):
    invoice.delete()

    def has_cascade_permission(self, request, model):
        return model is Customer

    client = bills(
        model=Company, base=Companies, operations=["delete"],
        operation_permissions=DELETING,
        has_cascade_permission=has_cascade_permission,
    )  # fmt: skip
    data(client.call("delete_company", company=invoice.company_id))


def test_delete_model_of_the_project_is_called(bills, invoice):
    def delete_model(self, request, obj):
        obj.status = "draft"
        obj.save()

    data(bills(delete_model=delete_model).call("delete_invoice", invoice=invoice.pk))
    invoice.refresh_from_db()
    assert invoice.status == "draft"


def test_protected_error_of_delete_model_is_reported(bills, invoice):
    def delete_model(self, request, obj):
        raise ProtectedError("held by CANARY", {obj})

    words = bills(delete_model=delete_model).failure("delete_invoice", invoice=invoice.pk)
    assert words == "This invoice cannot be deleted: other rows depend on it."
    assert not LogEntry.objects.exists()


# The log of the admin.


def test_operations_are_logged_for_the_admin(bills, alice, invoice):
    client = bills()
    row = data(client.call("create_invoice", **new_invoice(invoice, metadata={"CANARY": 1})))
    data(client.call("update_invoice", invoice=row["_uri"], total="5", metadata={"CANARY": 2}))
    data(client.call("delete_invoice", invoice=row["_uri"]))
    entries = list(LogEntry.objects.order_by("pk"))
    told = [entry.get_change_message() for entry in entries]
    assert told == ["Added.", "Changed Amount due and Metadata.", ""]
    assert {entry.user for entry in entries} == {alice} and entries[2].is_deletion()
    assert {entry.object_id for entry in entries} == {row["_uri"].rpartition("/")[2]}
    assert not LogEntry.objects.filter(change_message__contains="CANARY").exists()


# Permissions.


def test_default_permissions_are_those_of_django(bills, alice, invoice, connect, server):
    client = bills(operation_permissions={})
    names = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert names == {"update_invoice"}  # alice has only change_invoice
    with pytest.raises(RpcError, match="Unknown tool"):
        client.call("create_invoice", **new_invoice(invoice))
    for verb in ("add", "delete"):
        alice.user_permissions.add(Permission.objects.get(codename=f"{verb}_invoice"))
    client = connect(type(alice).objects.get(pk=alice.pk), server=server)
    assert len(client.request("tools/list")["tools"]) == 3
    data(client.call("create_invoice", **new_invoice(invoice)))


def test_public_read_permission_does_not_allow_writing(server, connect, bob, invoice):
    declare(
        server, permission=mcp.PUBLIC, operation_permissions={},
        get_queryset=lambda self, request: Invoice.objects.all(),
    )  # fmt: skip
    for user in (None, bob):
        client = connect(user, server=server)
        assert client.request("tools/list")["tools"] == []
        with pytest.raises(RpcError):
            client.call("delete_invoice", invoice=invoice.pk)
    assert Invoice.objects.exists()


def test_operations_require_the_permission_of_the_resource(server, connect, alice, invoice):
    declare(server, permission="shop.delete_company")
    assert connect(alice, server=server).request("tools/list")["tools"] == []


def test_anonymous_user_cannot_write(server, connect, invoice):
    declare(
        server, permission=mcp.PUBLIC, has_operation_permission=lambda *a: True,
        get_queryset=lambda self, request: Invoice.objects.all(),
    )  # fmt: skip
    client = connect(server=server)
    assert client.request("tools/list")["tools"] == []
    with pytest.raises(RpcError):
        client.call("delete_invoice", invoice=invoice.pk)


def test_has_operation_permission_decides(bills, alice, bob, invoice, connect, server):
    def has_operation_permission(self, request, operation):
        return operation == "update" and request.user.username == "alice"

    client = bills(has_operation_permission=has_operation_permission)
    assert [tool["name"] for tool in client.request("tools/list")["tools"]] == ["update_invoice"]
    assert connect(bob, server=server).request("tools/list")["tools"] == []


@pytest.mark.parametrize("method", [None, lambda self, request, operation: operation == "create"])
@pytest.mark.parametrize("stated", [EVERYBODY, {}, {"create": lambda request: False}])
def test_reason_agrees_with_the_decision(server, alice, bob, stated, method):
    more = {"has_operation_permission": method} if method else {}
    declare(server, operation_permissions=stated, **more)
    for tool in valid_catalog(server).tools.values():
        for user in (alice, bob, None):
            request = make_request(user, server)
            decision = decide(tool, request)
            assert decision.allowed == tool._is_allowed(request) and decision.reason
        assert ("and " in tool._rule) == bool(method or stated is not EVERYBODY)
        assert ("has_operation_permission() of" in tool._rule) == bool(method)


def test_reason_may_name_the_permission_of_the_resource(server, alice):
    declare(server, permission="shop.delete_company")
    tool = valid_catalog(server).tools["create_invoice"]
    decision = decide(tool, make_request(alice, server))
    assert not decision.allowed and "shop.delete_company" in decision.reason


def test_object_permission_is_checked_before_and_after_a_change(bills, invoice):
    other = Invoice.objects.create(
        company=invoice.company, customer=invoice.customer, number="LOCKED", total=1,
        issued=date(2026, 1, 1),
    )  # fmt: skip

    def has_object_permission(self, request, obj, operation):
        return operation == "view" or obj.number != "LOCKED"

    client = bills(has_object_permission=has_object_permission)
    words = client.failure("update_invoice", invoice=other.pk, total="2")
    assert words == f"There is no invoice {other.pk} that you may change."
    words = client.failure("delete_invoice", invoice=other.pk)
    assert words == f"There is no invoice {other.pk} that you may delete."
    other.number = "FREE"
    other.save()
    words = client.failure("create_invoice", **new_invoice(invoice, number="LOCKED"))
    assert words == "You may not add the invoice like this."
    words = client.failure("update_invoice", invoice=invoice.pk, number="LOCKED")
    assert words == "You may not change the invoice like this."
    assert not Invoice.objects.filter(number="LOCKED").exists()
    assert not LogEntry.objects.exists()


# Hidden rows and fields.


def test_hidden_and_missing_rows_have_the_same_message(bills, invoice, hidden):
    client = bills()
    for tool, verb in (("update_invoice", "change"), ("delete_invoice", "delete")):
        words = {
            client.failure(tool, invoice=pk).replace(str(pk), "N") for pk in (hidden.pk, 999_999)
        }
        assert words == {f"There is no invoice N that you may {verb}."}
    assert "'nonsense' that you may change" in client.failure("update_invoice", invoice="nonsense")


def test_hidden_and_missing_related_rows_have_the_same_message(bills, invoice, hidden):
    client = bills()
    for name, pk in (("customer", hidden.customer_id), ("company", hidden.company_id)):
        for tool, more in (
            ("create_invoice", new_invoice(invoice)),
            ("update_invoice", {"invoice": invoice.pk}),
        ):
            found = client.failure(tool, **(more | {name: pk}))
            absent = client.failure(tool, **(more | {name: 999_999}))
            assert found.replace(str(pk), "N") == absent.replace("999999", "N")
            assert found == f"There is no {name} {pk}."


def test_row_cannot_be_moved_out_of_the_users_queryset(bills, alice, bob, invoice, hidden):
    """alice may see both companies, but only the invoices of her own."""
    see_all = {"get_queryset": lambda self, request: Company.objects.all()}
    client = bills(model=Company, base=Companies, **see_all)
    words = client.failure("create_invoice", **new_invoice(invoice, company=hidden.company_id))
    assert words == "You may not add the invoice like this."
    words = client.failure("update_invoice", invoice=invoice.pk, company=hidden.company_id)
    assert words == "You may not change the invoice like this."
    invoice.refresh_from_db()
    assert invoice.company.name == "Acme" and Invoice.objects.count() == 2
    assert not LogEntry.objects.exists()


def test_row_cannot_be_changed_so_that_the_user_may_no_longer_change_it(
    bills, alice, invoice, hidden
):
    """Every user may see every row."""

    def has_object_permission(self, request, obj, operation):
        return operation == "view" or obj.company.name == "Acme"

    everything = {"get_queryset": lambda self, request: self.model.objects.all()}
    client = bills(has_object_permission=has_object_permission, **everything)
    hidden.company.members.add(alice)
    words = client.failure("update_invoice", invoice=invoice.pk, company=hidden.company_id)
    assert words == "You may not change the invoice like this."
    words = client.failure("create_invoice", **new_invoice(invoice, company=hidden.company_id))
    assert words == "You may not add the invoice like this."
    invoice.refresh_from_db()
    assert invoice.company.name == "Acme" and Invoice.objects.count() == 2


@pytest.mark.parametrize(
    "given",
    [
        {"id": 77},
        {"pk": 77},
        {"customer__name": "Mallory"},
        {"customer_id": 1},
        {"overdue": False},
        {"notes": "x"},
        {"_state": {}},
        {"self": 1},
        {"request": 1},
        {"tags__label": "x"},
    ],
)
def test_field_that_is_not_writable_is_refused(bills, invoice, given):
    client = bills()
    words = client.failure("update_invoice", invoice=invoice.pk, **given)
    assert "Additional properties are not allowed" in words
    words = client.failure("create_invoice", **(new_invoice(invoice) | given))
    assert "Additional properties are not allowed" in words


def test_read_only_field_is_shown_but_refused_as_an_argument(bills, invoice):
    client = bills(readonly_fields=["total"], get_initial=lambda self, request: {"total": 5})
    words = client.failure("update_invoice", invoice=invoice.pk, total="1")
    assert "Additional properties are not allowed" in words
    given = {name: value for name, value in new_invoice(invoice).items() if name != "total"}
    assert data(client.call("create_invoice", **given))["total"] == "5.00"


def test_relations_to_hidden_rows_are_kept(bills, invoice):
    seen, secret = Tag.objects.create(label="seen"), Tag.objects.create(label="secret")
    invoice.tags.add(secret)
    client = bills()
    data(client.call("update_invoice", invoice=invoice.pk, tags=[seen.pk]))
    assert set(invoice.tags.all()) == {seen, secret}
    data(client.call("update_invoice", invoice=invoice.pk, tags=[]))
    assert set(invoice.tags.all()) == {secret}
    for tool, more in (
        ("create_invoice", new_invoice(invoice)),
        ("update_invoice", {"invoice": invoice.pk}),
    ):
        words = client.failure(tool, **more, tags=[seen.pk, secret.pk])
        assert words == f"There is no tag {secret.pk}."


def test_number_of_queries_does_not_reveal_whether_all_links_are_hidden(bills, invoice):
    seen, secret = Tag.objects.create(label="seen"), Tag.objects.create(label="secret")
    client = bills()
    ContentType.objects.get_for_model(Invoice)  # it is cached, so only the first call would ask
    for tags in ([], [seen.pk]):
        numbers = set()
        for linked in ([secret], []):
            invoice.tags.set(linked)
            with CaptureQueriesContext(connection) as queries:
                data(client.call("update_invoice", invoice=invoice.pk, tags=tags))
            assert {tag.pk for tag in invoice.tags.all()} == {*tags, *(tag.pk for tag in linked)}
            numbers.add(len(queries))
        assert len(numbers) == 1, tags


def test_relations_to_rows_without_object_permission_are_kept(bills, invoice):
    seen, closed = Tag.objects.create(label="seen"), Tag.objects.create(label="closed")
    invoice.tags.add(closed)

    def has_object_permission(self, request, obj, operation):
        return obj != closed

    client = bills(model=Tag, base=Tags, has_object_permission=has_object_permission)
    data(client.call("update_invoice", invoice=invoice.pk, tags=[seen.pk]))
    assert set(invoice.tags.all()) == {seen, closed}
    assert "There is no tag" in client.failure(
        "update_invoice", invoice=invoice.pk, tags=[closed.pk]
    )


def test_number_of_related_rows_is_limited(bills, invoice):
    tags = Tag.objects.bulk_create(Tag(label=f"tag {number}") for number in range(101))
    keys = [tag.pk for tag in Tag.objects.all()]
    client = bills()
    assert "too long" in client.failure("update_invoice", invoice=invoice.pk, tags=keys)
    data(client.call("update_invoice", invoice=invoice.pk, tags=keys[:100]))
    invoice.tags.add(*tags)
    words = client.failure("update_invoice", invoice=invoice.pk, tags=keys[:1])
    assert words == "tags: there are too many to be replaced."
    assert invoice.tags.count() == 101


@pytest.mark.parametrize(
    "given",
    [
        {"total": "NaN"},
        {"total": "Infinity"},
        {"total": "1e5"},
        {"total": True},
        {"total": [1]},
        {"total": {}},
        {"number": 5},
        {"number": ["A-2"]},
        {"number": "x" * 21},
        {"number": ""},
        {"number": "a\0b"},
        {"metadata": {"a": ["\0"]}},
        {"metadata": {"\0": 1}},
        {"issued": 5},
        {"issued": "2026-13-01"},
        {"status": "nonsense"},
        {"status": None},
        {"customer": True},
        {"customer": [1]},
        {"customer": {"pk": 1}},
        {"customer": None},
        {"tags": "all"},
        {"tags": [[1]]},
        {"tags": None},
        {"attachment": "/etc/passwd"},
        {"attachment": {"name": "x"}},
        {"attachment": {"name": "x", "data": "no base64"}},
        {"attachment": {"name": "..", "data": "aGVsbG8="}},
        {"attachment": {"name": "a/", "data": "aGVsbG8="}},
        {"attachment": {"name": "empty.txt", "data": ""}},
    ],
)
def test_invalid_value_is_refused_and_changes_nothing(bills, invoice, given):
    client = bills()
    for tool, more in (
        ("create_invoice", new_invoice(invoice)),
        ("update_invoice", {"invoice": invoice.pk}),
    ):
        words = client.failure(tool, **(more | given))
        assert next(iter(given)) in words or "There is no" in words, words
    before = Invoice.objects.get()
    assert (before.number, before.total, before.metadata) == ("A-1", Decimal("12.50"), {})


def test_validation_error_of_a_hidden_field_is_not_revealed(bills, invoice, monkeypatch):
    def clean(self):
        raise ValidationError({"number": "Wrong number.", "company": "CANARY is the limit."})

    monkeypatch.setattr(Invoice, "clean", clean)
    fields = [name for name in Bills.fields if name != "company"]
    words = bills(fields=fields, operations=["update"], operation_permissions={}).failure(
        "update_invoice", invoice=invoice.pk, total="1"
    )
    assert words == "number: Wrong number. Something that is not shown here would not be valid."


def test_constraint_with_a_hidden_field_is_validated(bills, alice, invoice, monkeypatch):
    """One bill is allowed for each day and company, and the client does not see the company."""
    once = models.UniqueConstraint(
        fields=["company", "issued"], name="once", violation_error_message="One bill a day."
    )
    monkeypatch.setattr(Invoice._meta, "constraints", [once])
    fields = [name for name in Bills.fields if name != "company"]
    client = bills(fields=fields, get_initial=lambda self, request: {"company": invoice.company})
    given = {"customer": invoice.customer_id} | NEW
    words = client.failure("create_invoice", **(given | {"issued": "2026-01-02"}))
    assert words == "One bill a day."
    data(client.call("create_invoice", **given))
    words = client.failure("update_invoice", invoice=invoice.pk, issued="2026-03-01")
    assert words == "One bill a day."


def test_integrity_error_has_a_generic_message(bills, invoice, monkeypatch, caplog):
    monkeypatch.setattr(Invoice, "validate_unique", lambda self, exclude=None: None)
    words = bills().failure("create_invoice", **new_invoice(invoice, number="A-1"))
    assert words == "Nothing was saved: it would be in conflict with other data."
    assert "Row not saved" in caplog.text and "Carla" not in caplog.text
