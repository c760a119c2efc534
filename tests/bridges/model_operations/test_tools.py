"""Rows written by those who may, through what they see; and everything else refused alike."""

import json
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import ProtectedError

import django_mcp as mcp
from django_mcp.declarations.permissions import decide
from django_mcp.declarations.schemas import problem
from tests.announcing import listening
from tests.client import RpcError
from tests.declarations.helpers import make_request, valid_catalog
from tests.shop.models import Company, Customer, Invoice, LedgerLine, Tag

from ..billing import EVERYBODY, Bills, Companies, Customers, Tags, declare

UPDATING, DELETING = ({name: EVERYBODY[name]} for name in ("update", "delete"))
NEW = {"number": "A-2", "total": "7.50", "issued": "2026-03-01"}


@pytest.fixture
def bills(server, connect, alice, invoice):
    """A client of Alice's, where the billing is declared."""

    def opened(user=alice, revision="2026-07-28", **options):
        if not server._records:
            declare(server, **options)
            valid_catalog(server)
        return connect(user, server=server, revision=revision)

    return opened


@pytest.fixture
def hidden(bob):
    """Rows of a company that is not Alice's."""
    company = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=company, name="Boris", notes="CANARY")
    return Invoice.objects.create(
        company=company, customer=customer, number="CANARY", total=Decimal(3),
        issued=date(2026, 1, 1),
    )  # fmt: skip


def mine(invoice, **more):
    return NEW | {"company": invoice.company_id, "customer": invoice.customer_id} | more


def data(result):
    assert not result["isError"], result
    return json.loads(result["content"][0]["text"])


# What is offered.


def test_each_operation_is_a_tool(server):
    declare(server)
    catalog = valid_catalog(server)
    made = {name: tool._definition() for name, tool in catalog.tools.items()}
    assert list(made) == ["create_invoice", "update_invoice", "delete_invoice"]
    hints = {name: one["annotations"] for name, one in made.items()}
    # Hints that equal the protocol's defaults are left out.
    changing = {"idempotentHint": True, "openWorldHint": False}
    adding = {"destructiveHint": False, "openWorldHint": False}
    assert list(hints.values()) == [adding, changing, changing]
    assert [tool.title for tool in catalog.tools.values()] == [
        "Create invoice", "Update invoice", "Delete invoice",
    ]  # fmt: skip
    for one in made.values():
        assert problem(one["inputSchema"]) is None
        assert "title" not in one and "outputSchema" not in one  # they would say nothing new


def test_a_row_is_named_by_what_the_resource_is_called(server):
    declare(server, name="bill")
    schema = valid_catalog(server).tools["update_bill"]._definition()["inputSchema"]
    assert schema["required"] == ["bill"]
    assert schema["properties"]["bill"]["type"] == ["integer", "string"]
    assert schema["properties"]["bill"]["description"] == "Key or URI of the invoice."


def test_delete_does_not_say_that_nothing_is_left(server):
    """``delete_model`` of a project may only mark the row."""
    declare(server)
    assert valid_catalog(server).tools["delete_invoice"].description == "Delete one invoice."


def test_unless_a_field_is_called_so(server, connect, alice):
    tag = Tag.objects.create(label="old")
    operation = {"operations": ["update"], "operation_permissions": UPDATING}
    declare(server, Tag, Tags, name="label", **operation)
    assert data(connect(alice, server=server).call("update_label", _uri=tag.pk, label="new"))
    assert Tag.objects.get().label == "new"


def test_there_are_none_that_are_not_named(server):
    declare(server, operations=["create"], operation_permissions={"create": mcp.AUTHENTICATED})
    assert list(valid_catalog(server).tools) == ["create_invoice"]


def test_several_resources_of_a_model_have_tools_of_their_own(server):
    declare(server, default=True)
    server.register(Invoice, type("Drafts", (Bills,), {"name": "draft", "uri": "draft://{pk}"}))
    assert {"create_draft", "create_invoice"} <= valid_catalog(server).tools.keys()


def test_two_of_one_name_are_told_apart(server):
    declare(server, default=True)
    server.register(Invoice, type("Drafts", (Bills,), {"uri": "draft://{number}"}))
    messages = [message.msg for message in server.check()]
    assert "'create_invoice' is declared twice" in messages[0]
    assert "Written of shop.Invoice" in messages[0] and "Drafts of shop.Invoice" in messages[0]


# Creating.


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_a_row_is_created(bills, alice, invoice, revision):
    tag = Tag.objects.create(label="urgent")
    client = bills(revision=revision)
    result = client.call(
        "create_invoice",
        **mine(invoice, tags=[tag.pk], metadata={"a": [1]}, status="open", paid_at=None),
    )
    row = data(result)
    made = Invoice.objects.get(number="A-2")
    assert row["_uri"] == f"model://shop/invoice/{made.pk}" and row["tags"] == [tag.pk]
    assert (row["total"], row["customer__name"], row["overdue"]) == ("7.50", "Carla", True)
    assert made.metadata == {"a": [1]} and list(made.tags.all()) == [tag]
    links = [block for block in result["content"] if block["type"] == "resource_link"]
    assert [link["uri"] for link in links] == ([row["_uri"]] if links else [])


def test_numbers_may_be_numbers(bills, invoice):
    assert data(bills().call("create_invoice", **mine(invoice, total=12.5)))["total"] == "12.50"


def test_a_uri_names_a_row_as_well(bills, invoice):
    customer = f"model://shop/customer/{invoice.customer_id}"
    row = data(bills().call("create_invoice", **mine(invoice, customer=customer)))
    assert row["customer"] == invoice.customer_id


def test_the_project_gives_what_the_client_does_not(bills, alice, invoice):
    def get_initial(self, request):
        return {"company": Company.objects.get(members=request.user)}

    fields = [name for name in Bills.fields if name != "company"]
    client = bills(fields=fields, get_initial=get_initial)
    data(client.call("create_invoice", **NEW, customer=invoice.customer_id))
    assert Invoice.objects.get(number="A-2").company == invoice.company


def test_the_project_saves(bills, invoice):
    told = []

    def save_model(self, request, obj, created):
        told.append((request.user.username, obj.number, created))
        obj.metadata = {"by": request.user.username}
        super(Bills, self).save_model(request, obj, created)

    client = bills(save_model=save_model)
    row = data(client.call("create_invoice", **mine(invoice)))
    assert row["metadata"] == {"by": "alice"}
    data(client.call("update_invoice", invoice=row["_uri"], number="A-3"))
    assert told == [("alice", "A-2", True), ("alice", "A-3", False)]


def test_what_is_wrong_is_said_of_each_field(bills, invoice):
    client = bills()
    words = client.failure("create_invoice", **mine(invoice, total="7.505", issued="soon"))
    assert "issued: 'soon' is not a 'date'" in words
    words = client.failure("create_invoice", **mine(invoice, total="7.505", number="x" * 21))
    assert "number" in words
    words = client.failure("create_invoice", **mine(invoice, total="7.505"))
    assert words.startswith("total: Ensure that there are no more than 2 decimal places")
    words = client.failure("create_invoice", **mine(invoice, number="A-1"))
    assert words == "number: Invoice with this Number already exists."
    assert Invoice.objects.count() == 1


def test_what_is_needed_is_told(bills, invoice):
    client = bills()
    schema = client.request("tools/list")["tools"][0]["inputSchema"]
    assert schema["required"] == ["number", "company", "customer", "total", "issued"]
    assert "'total' is a required property" in client.failure("create_invoice", number="A-2")


# Updating.


@pytest.mark.parametrize("revision", ["2025-03-26", "2026-07-28"])
def test_a_row_is_changed(bills, invoice, revision):
    client = bills(revision=revision)
    uri = f"model://shop/invoice/{invoice.pk}"
    row = data(client.call("update_invoice", invoice=uri, total="99", status="paid"))
    assert (row["total"], row["status"], row["number"]) == ("99.00", "paid", "A-1")
    invoice.refresh_from_db()
    assert (invoice.total, invoice.status) == (99, "paid")


def test_null_empties(bills, invoice):
    client = bills()
    row = data(client.call("update_invoice", invoice=invoice.pk, paid_at="2026-01-05T10:00:00Z"))
    assert row["paid_at"] == "2026-01-05T10:00:00+00:00"
    assert data(client.call("update_invoice", invoice=invoice.pk, paid_at=None))["paid_at"] is None
    words = client.failure("update_invoice", invoice=invoice.pk, total=None)
    assert words.startswith("Invalid arguments. total: None is not")


def test_what_changes_nothing_saves_nothing(bills, invoice):
    client = bills()
    saved = []
    client.conversation.server._catalog.models[Invoice][0].save_model = lambda *a: saved.append(a)
    same = {"total": 12.5, "issued": "2026-01-02", "tags": [], "metadata": {}, "paid_at": None}
    row = data(client.call("update_invoice", invoice=invoice.pk, **same))
    assert row["total"] == "12.50" and saved == [] and not LogEntry.objects.exists()


def test_true_is_not_one_to_json(bills, invoice):
    client = bills()
    data(client.call("update_invoice", invoice=invoice.pk, metadata={"paid": 1}))
    data(client.call("update_invoice", invoice=invoice.pk, metadata={"paid": True}))
    invoice.refresh_from_db()
    assert invoice.metadata["paid"] is True


def test_subscribers_are_told(bills, invoice):
    heard = []

    class Ear:
        def hear(self, server, news):
            heard.extend(news.uris)

    client = bills()
    with listening(Ear()):
        data(client.call("update_invoice", invoice=invoice.pk, total="99"))
        client.failure("update_invoice", invoice=invoice.pk, total="9.999")
    assert heard.count(f"model://shop/invoice/{invoice.pk}") == 1


# Deleting.


@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
def test_a_row_is_deleted(bills, invoice, revision):
    result = bills(revision=revision).call("delete_invoice", invoice=invoice.pk)
    assert not result["isError"] and "The invoice is deleted." in result["content"][0]["text"]
    assert not Invoice.objects.exists()


def test_what_others_depend_on_stays(bills, alice, invoice):
    operations = {"operations": ["delete"], "operation_permissions": DELETING}
    client = bills(model=Customer, base=Customers, **operations)
    words = client.failure("delete_customer", customer=invoice.customer_id)
    assert words == "This customer cannot be deleted: other rows depend on it."
    invoice.delete()
    data(client.call("delete_customer", customer=invoice.customer_id))


def test_what_would_go_along_needs_permission_too(bills, alice, invoice, connect, server):
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


def test_the_project_says_what_may_go_along(bills, invoice):
    invoice.delete()

    def has_cascade_permission(self, request, model):
        return model is Customer

    client = bills(
        model=Company, base=Companies, operations=["delete"],
        operation_permissions=DELETING,
        has_cascade_permission=has_cascade_permission,
    )  # fmt: skip
    data(client.call("delete_company", company=invoice.company_id))


def test_the_project_deletes(bills, invoice):
    def delete_model(self, request, obj):
        obj.status = "draft"
        obj.save()

    data(bills(delete_model=delete_model).call("delete_invoice", invoice=invoice.pk))
    invoice.refresh_from_db()
    assert invoice.status == "draft"


def test_the_project_may_hold_a_row(bills, invoice):
    def delete_model(self, request, obj):
        raise ProtectedError("held by CANARY", {obj})

    words = bills(delete_model=delete_model).failure("delete_invoice", invoice=invoice.pk)
    assert words == "This invoice cannot be deleted: other rows depend on it."
    assert not LogEntry.objects.exists()


# The admin's log.


def test_the_admin_tells_of_it(bills, alice, invoice):
    client = bills()
    row = data(client.call("create_invoice", **mine(invoice, metadata={"CANARY": 1})))
    data(client.call("update_invoice", invoice=row["_uri"], total="5", metadata={"CANARY": 2}))
    data(client.call("delete_invoice", invoice=row["_uri"]))
    entries = list(LogEntry.objects.order_by("pk"))
    told = [entry.get_change_message() for entry in entries]
    assert told == ["Added.", "Changed Amount due and Metadata.", ""]
    assert {entry.user for entry in entries} == {alice} and entries[2].is_deletion()
    assert {entry.object_id for entry in entries} == {row["_uri"].rpartition("/")[2]}
    assert not LogEntry.objects.filter(change_message__contains="CANARY").exists()


# Who may.


def test_django_says_who_may_write(bills, alice, invoice, connect, server):
    client = bills(operation_permissions={})
    names = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert names == {"update_invoice"}  # change_invoice is all that Alice has
    with pytest.raises(RpcError, match="Unknown tool"):
        client.call("create_invoice", **mine(invoice))
    for verb in ("add", "delete"):
        alice.user_permissions.add(Permission.objects.get(codename=f"{verb}_invoice"))
    client = connect(type(alice).objects.get(pk=alice.pk), server=server)
    assert len(client.request("tools/list")["tools"]) == 3
    data(client.call("create_invoice", **mine(invoice)))


def test_to_read_is_not_to_write(server, connect, bob, invoice):
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


def test_who_may_not_read_may_not_write(server, connect, alice, invoice):
    declare(server, permission="shop.delete_company")
    assert connect(alice, server=server).request("tools/list")["tools"] == []


def test_nobody_writes_without_signing_in(server, connect, invoice):
    declare(
        server, permission=mcp.PUBLIC, has_operation_permission=lambda *a: True,
        get_queryset=lambda self, request: Invoice.objects.all(),
    )  # fmt: skip
    client = connect(server=server)
    assert client.request("tools/list")["tools"] == []
    with pytest.raises(RpcError):
        client.call("delete_invoice", invoice=invoice.pk)


def test_a_method_says_who_may(bills, alice, bob, invoice, connect, server):
    def has_operation_permission(self, request, operation):
        return operation == "update" and request.user.username == "alice"

    client = bills(has_operation_permission=has_operation_permission)
    assert [tool["name"] for tool in client.request("tools/list")["tools"]] == ["update_invoice"]
    assert connect(bob, server=server).request("tools/list")["tools"] == []


@pytest.mark.parametrize("method", [None, lambda self, request, operation: operation == "create"])
@pytest.mark.parametrize("stated", [EVERYBODY, {}, {"create": lambda request: False}])
def test_a_reason_says_what_is_done(server, alice, bob, stated, method):
    more = {"has_operation_permission": method} if method else {}
    declare(server, operation_permissions=stated, **more)
    for tool in valid_catalog(server).tools.values():
        for user in (alice, bob, None):
            request = make_request(user, server)
            decision = decide(tool, request)
            assert decision.allowed == tool._is_allowed(request) and decision.reason
        assert ("and " in tool._rule) == bool(method or stated is not EVERYBODY)
        assert ("has_operation_permission() of" in tool._rule) == bool(method)


def test_a_reason_may_be_that_of_reading(server, alice):
    declare(server, permission="shop.delete_company")
    tool = valid_catalog(server).tools["create_invoice"]
    decision = decide(tool, make_request(alice, server))
    assert not decision.allowed and "shop.delete_company" in decision.reason


def test_objects_have_permissions_too(bills, invoice):
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
    words = client.failure("create_invoice", **mine(invoice, number="LOCKED"))
    assert words == "You may not add the invoice like this."
    words = client.failure("update_invoice", invoice=invoice.pk, number="LOCKED")
    assert words == "You may not change the invoice like this."
    assert not Invoice.objects.filter(number="LOCKED").exists()
    assert not LogEntry.objects.exists()


# What is not told.


def test_hidden_and_missing_rows_are_alike(bills, invoice, hidden):
    client = bills()
    for tool, verb in (("update_invoice", "change"), ("delete_invoice", "delete")):
        words = {
            client.failure(tool, invoice=pk).replace(str(pk), "N") for pk in (hidden.pk, 999_999)
        }
        assert words == {f"There is no invoice N that you may {verb}."}
    assert "'nonsense' that you may change" in client.failure("update_invoice", invoice="nonsense")


def test_a_hidden_row_is_not_pointed_to(bills, invoice, hidden):
    client = bills()
    for name, pk in (("customer", hidden.customer_id), ("company", hidden.company_id)):
        for tool, more in (
            ("create_invoice", mine(invoice)),
            ("update_invoice", {"invoice": invoice.pk}),
        ):
            found = client.failure(tool, **(more | {name: pk}))
            absent = client.failure(tool, **(more | {name: 999_999}))
            assert found.replace(str(pk), "N") == absent.replace("999999", "N")
            assert found == f"There is no {name} {pk}."


def test_a_row_stays_in_sight(bills, alice, bob, invoice, hidden):
    """Alice sees both companies, and only her own one's invoices."""
    see_all = {"get_queryset": lambda self, request: Company.objects.all()}
    client = bills(model=Company, base=Companies, **see_all)
    words = client.failure("create_invoice", **mine(invoice, company=hidden.company_id))
    assert words == "You may not add the invoice like this."
    words = client.failure("update_invoice", invoice=invoice.pk, company=hidden.company_id)
    assert words == "You may not change the invoice like this."
    invoice.refresh_from_db()
    assert invoice.company.name == "Acme" and Invoice.objects.count() == 2
    assert not LogEntry.objects.exists()


def test_a_row_does_not_change_hands(bills, alice, invoice, hidden):
    """Where everybody sees every row, one's own does not become what one may not change."""

    def has_object_permission(self, request, obj, operation):
        return operation == "view" or obj.company.name == "Acme"

    everything = {"get_queryset": lambda self, request: self.model.objects.all()}
    client = bills(has_object_permission=has_object_permission, **everything)
    hidden.company.members.add(alice)
    words = client.failure("update_invoice", invoice=invoice.pk, company=hidden.company_id)
    assert words == "You may not change the invoice like this."
    words = client.failure("create_invoice", **mine(invoice, company=hidden.company_id))
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
def test_what_is_not_writable_is_no_argument(bills, invoice, given):
    client = bills()
    words = client.failure("update_invoice", invoice=invoice.pk, **given)
    assert "Additional properties are not allowed" in words
    words = client.failure("create_invoice", **(mine(invoice) | given))
    assert "Additional properties are not allowed" in words


def test_what_is_read_only_is_shown_and_no_argument(bills, invoice):
    client = bills(readonly_fields=["total"], get_initial=lambda self, request: {"total": 5})
    words = client.failure("update_invoice", invoice=invoice.pk, total="1")
    assert "Additional properties are not allowed" in words
    given = {name: value for name, value in mine(invoice).items() if name != "total"}
    assert data(client.call("create_invoice", **given))["total"] == "5.00"


def test_links_to_hidden_rows_stay(bills, invoice):
    seen, secret = Tag.objects.create(label="seen"), Tag.objects.create(label="secret")
    invoice.tags.add(secret)
    client = bills()
    data(client.call("update_invoice", invoice=invoice.pk, tags=[seen.pk]))
    assert set(invoice.tags.all()) == {seen, secret}
    data(client.call("update_invoice", invoice=invoice.pk, tags=[]))
    assert set(invoice.tags.all()) == {secret}
    for tool, more in (
        ("create_invoice", mine(invoice)),
        ("update_invoice", {"invoice": invoice.pk}),
    ):
        words = client.failure(tool, **more, tags=[seen.pk, secret.pk])
        assert words == f"There is no tag {secret.pk}."


def test_links_to_forbidden_rows_stay_too(bills, invoice):
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


def test_lists_are_bounded(bills, invoice):
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
def test_nothing_is_bent_until_it_fits(bills, invoice, given):
    client = bills()
    for tool, more in (
        ("create_invoice", mine(invoice)),
        ("update_invoice", {"invoice": invoice.pk}),
    ):
        words = client.failure(tool, **(more | given))
        assert next(iter(given)) in words or "There is no" in words, words
    before = Invoice.objects.get()
    assert (before.number, before.total, before.metadata) == ("A-1", Decimal("12.50"), {})


def test_rules_of_what_is_hidden_are_kept_and_not_told(bills, invoice, monkeypatch):
    def clean(self):
        raise ValidationError({"number": "Wrong number.", "company": "CANARY is the limit."})

    monkeypatch.setattr(Invoice, "clean", clean)
    fields = [name for name in Bills.fields if name != "company"]
    words = bills(fields=fields, operations=["update"], operation_permissions={}).failure(
        "update_invoice", invoice=invoice.pk, total="1"
    )
    assert words == "number: Wrong number. Something that is not shown here would not be valid."


def test_constraints_over_what_is_hidden_are_kept(bills, alice, invoice, monkeypatch):
    """One bill a day and company, where the client has nothing to do with companies."""
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


def test_what_the_database_refuses_is_told_in_words(bills, invoice, monkeypatch, caplog):
    monkeypatch.setattr(Invoice, "validate_unique", lambda self, exclude=None: None)
    words = bills().failure("create_invoice", **mine(invoice, number="A-1"))
    assert words == "Nothing was saved: it would be in conflict with other data."
    assert "was not saved" in caplog.text and "Carla" not in caplog.text
