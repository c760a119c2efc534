"""A model as the type of an argument: what its key opens is what the caller may see."""

import uuid
from typing import Annotated, Any, Optional

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured

import django_mcp as mcp
from django_mcp.declarations.arguments import MAX_KEYS, bind_annotation, holds
from django_mcp.declarations.schemas import violations
from django_mcp.declarations.server import Server
from django_mcp.exceptions import InvalidArguments
from tests.shop.models import Badge, Company, Customer, Invoice, LedgerLine, Note, Place, Warehouse

from .world import asked, ids, only, right


class Own(mcp.ModelResource):
    """Rows of the caller's companies."""

    permission = mcp.AUTHENTICATED
    fields = ["name"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class Numbered(Own):
    uri = "invoice://{number}"
    fields = ["number"]


class Free(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["pk"]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


def tool(server, annotation, default=...):
    """A tool that takes ``a`` of the given type."""

    def ask(request, a) -> str:
        return "x"

    ask.__annotations__["a"] = annotation
    ask.__defaults__ = () if default is ... else (default,)
    server.tool(ask)
    made = right(server).tools["ask"]
    made.server = server
    return made


def bind(tool, user, value, write=False):
    """What the function gets for ``value``."""
    request = asked(user, tool.server)
    values = tool._arguments.read({"a": value})
    return tool._arguments.bind(values, request, write=write)["a"]


@pytest.fixture
def shop(server):
    server.register(Customer, Own)
    server.register(Invoice, Numbered)

    return lambda annotation, default=...: tool(server, annotation, default)


def refused(tool, user, value) -> str:
    with pytest.raises(InvalidArguments) as error:
        bind(tool, user, value)
    return error.value.message


# One row.


def test_a_key_becomes_an_object(shop, alice, invoice):
    found = bind(shop(Customer), alice, invoice.customer_id)
    assert found == invoice.customer and found.notes == "never pays"  # whole, for code


def test_the_schema_is_that_of_a_key_or_uri(shop):
    ask = shop(Customer)
    assert ask._arguments.schema["properties"]["a"] == {
        "type": ["integer", "string"],
        "description": "Key or URI of the customer.",
    }


@pytest.mark.parametrize("model", [Customer, Invoice, Note, LedgerLine])
def test_key_and_uri_fit_the_published_schema(server, alice, model):
    """Whatever the primary key is: a number, a text, a UUID, two columns."""
    for one in (Customer, Invoice, Note, LedgerLine):
        server.register(one, Numbered if one is Invoice else Free)
    arguments = tool(server, model)._arguments
    key = {Note: str(uuid.uuid4()), LedgerLine: [1, 2], Invoice: "A-1"}.get(model, 1)
    for given in (key, "invoice://A-1", "model://shop/note/x"):
        assert violations(arguments.schema, {"a": given}) == []
        assert arguments.read({"a": given}) == {"a": given}


def test_a_uri_will_do(shop, alice, invoice):
    ask = shop(Customer)
    assert bind(ask, alice, f"model://shop/customer/{invoice.customer_id}") == invoice.customer
    assert bind(ask, alice, str(invoice.customer_id)) == invoice.customer


def test_the_key_is_the_one_of_the_uri(shop, alice, invoice):
    ask = shop(Invoice)
    assert bind(ask, alice, "A-1") == invoice == bind(ask, alice, "invoice://A-1")
    assert ask._arguments.schema["properties"]["a"]["type"] == "string"
    assert refused(ask, alice, str(invoice.pk)) == f"There is no invoice '{invoice.pk}'."


def test_what_is_missing_and_what_is_forbidden_are_the_same_words(shop, alice, bob, invoice):
    customers, key = shop(Customer), invoice.customer_id
    assert refused(customers, bob, key) == f"There is no customer {key}."
    assert refused(customers, bob, key + 1) == f"There is no customer {key + 1}."
    assert refused(customers, alice, key + 1) == f"There is no customer {key + 1}."
    assert refused(customers, None, key) == f"There is no customer {key}."


def test_texts_are_echoed_alike(shop, alice, bob, invoice):
    invoices = shop(Invoice)
    assert refused(invoices, bob, "A-1") == "There is no invoice 'A-1'."
    assert refused(invoices, alice, "A-2") == "There is no invoice 'A-2'."


@pytest.mark.parametrize(
    "value",
    [
        "model://shop/company/1",  # another resource's
        "invoice://A-1",
        "model://shop/customer/",
        "model://shop/customer/1/",
        "model://shop/customer/x",
        "model://shop/customer/1?a=b",
        "MODEL://shop/customer/1",
        "01", "1.0", " 1", "+1", "-1", "1e0", "0x1", "", "\0", "x" * 5000, 10**30, -1,
    ],
)  # fmt: skip
def test_what_is_no_key(shop, alice, invoice, value):
    said = refused(shop(Customer), alice, value)
    assert said.startswith("There is no customer ") and len(said) < 200


@pytest.mark.parametrize("value", [1.0, True, None, {"pk": 1}, [1]])
def test_what_is_no_key_at_all(shop, alice, value):
    with pytest.raises(InvalidArguments, match="Invalid arguments"):
        shop(Customer)._arguments.read({"a": value})


def test_a_uri_of_another_server(shop, alice, invoice):
    """The same words: another server's addresses mean nothing here."""
    other = Server("another test's")

    class Elsewhere(Own):
        uri = "elsewhere://{pk}"

    other.register(Customer, Elsewhere)
    right(other)
    uri = f"elsewhere://{invoice.customer_id}"
    assert refused(shop(Customer), alice, uri) == f"There is no customer {uri!r}."


def test_a_model_resource_without_permission_opens_nothing(server, alice, invoice):
    class Admins(Own):
        permission = "auth.add_user"

    server.register(Customer, Admins)
    ask = tool(server, Customer)
    assert refused(ask, alice, invoice.customer_id).startswith("There is no customer")
    boss = User.objects.create_superuser("boss")
    invoice.company.members.add(boss)
    assert bind(ask, boss, invoice.customer_id) == invoice.customer


def test_objects_have_permissions_too(server, alice, invoice):
    seen = []

    class Guarded(Own):
        def has_object_permission(self, request, obj, operation):
            seen.append((request.user, obj, operation))
            return False

    server.register(Customer, Guarded)
    ask = tool(server, Customer)
    assert refused(ask, alice, invoice.customer_id).startswith("There is no customer")
    assert seen == [(alice, invoice.customer, "view")]


def test_a_row_is_read_where_it_will_be_written(shop, alice, invoice, monkeypatch):
    """Unless the tool only reads, a replica that lags must not decide."""
    asked_for = []

    class Router:
        def db_for_write(self, model, **hints):
            asked_for.append(model)
            return "default"

    monkeypatch.setattr("django.db.router._routers", None, raising=False)
    monkeypatch.setattr("django.db.router.routers", [Router()])
    ask = shop(Customer)
    bind(ask, alice, invoice.customer_id, write=False)
    assert asked_for == []
    assert bind(ask, alice, invoice.customer_id, write=True)._state.db == "default"
    assert asked_for == [Customer]


# Optional and many.


@pytest.mark.parametrize("annotation", [Customer | None, Optional[Customer], None | Customer])  # noqa: UP045
def test_none_is_none(shop, alice, invoice, annotation, django_assert_num_queries):
    ask = shop(annotation, None)
    assert bind(ask, alice, invoice.customer_id) == invoice.customer
    with django_assert_num_queries(0):
        assert bind(ask, alice, None) is None


@pytest.fixture
def customers(alice):
    company = Company.objects.get(name="Acme")
    return [Customer.objects.create(company=company, name=name) for name in "ABC"]


@pytest.mark.parametrize(
    "annotation",
    [
        list[Customer],
        list[Customer] | None,
        list[Annotated[Customer, Own]],
        Annotated[list[Customer], Own],
    ],
)
def test_many_come_in_one_query_and_in_the_order_given(
    shop, alice, customers, annotation, django_assert_num_queries
):
    ask = shop(annotation)
    keys = [customers[2].pk, f"model://shop/customer/{customers[0].pk}", customers[2].pk]
    request = asked(alice, ask.server)
    values = ask._arguments.read({"a": keys})
    with django_assert_num_queries(1):
        found = ask._arguments.bind(values, request, write=True)["a"]
    assert found == [customers[2], customers[0], customers[2]]


def test_all_or_an_error(shop, alice, bob, customers, invoice):
    ask = shop(list[Customer])
    hidden = Customer.objects.create(company=Company.objects.get(name="Bolts"), name="D")
    keys = [one.pk for one in customers]
    assert refused(ask, alice, [*keys, hidden.pk]) == f"There is no customer {hidden.pk}."
    assert refused(ask, alice, [*keys, 0]) == "There is no customer 0."
    assert bind(ask, alice, []) == []


def test_not_too_many(shop, alice, customers):
    ask, key = shop(list[Customer]), customers[0].pk
    assert len(bind(ask, alice, [key] * MAX_KEYS)) == MAX_KEYS
    assert refused(ask, alice, [key] * (MAX_KEYS + 1)) == "At most 100 keys are allowed, not 101."


# Keys of other kinds.


@pytest.fixture
def free(server):
    def declared(model, **attributes):
        server.register(model, type("Rows", (Free,), attributes))
        return tool(server, model)

    return declared


def test_a_uuid(free, alice):
    note = Note.objects.create(text="x")
    ask = free(Note)
    assert "format" not in ask._arguments.schema["properties"]["a"]  # a URI is no UUID
    assert bind(ask, alice, str(note.pk)) == note
    assert bind(ask, alice, f"model://shop/note/{note.pk}") == note
    for wrong in (note.pk.hex, str(note.pk).upper(), f"{{{note.pk}}}", str(uuid.UUID(int=0)), 5):
        assert refused(ask, alice, wrong).startswith("There is no note")


def test_a_text(free, alice):
    badge = Badge.objects.create(code="a/b c%2F", colour="red")
    ask = free(Badge)
    assert bind(ask, alice, "a/b c%2F") == badge
    assert bind(ask, alice, "model://shop/badge/a%2Fb%20c%252F") == badge
    assert refused(ask, alice, "a/b c/") == "There is no badge 'a/b c/'."


def test_a_composite_key(free, alice):
    company = Company.objects.get(name="Acme")
    line = LedgerLine.objects.create(company=company, line=7, text="x", amount=1)
    ask = free(LedgerLine, fields=["line"])
    schema, uri = ask._arguments.schema["properties"]["a"]["anyOf"]
    assert uri == {"type": "string"} and schema["type"] == "array"
    assert schema["minItems"] == schema["maxItems"] == 2
    assert bind(ask, alice, [company.pk, 7]) == line
    assert bind(ask, alice, f"{company.pk},7") == line
    assert bind(ask, alice, f"model://shop/ledgerline/{company.pk}%2C7") == line
    for wrong in ([company.pk], [company.pk, 8], [company.pk, "x"], 7, [7, company.pk, 1], []):
        assert refused(ask, alice, wrong).startswith("There is no ledger line")


def test_many_composite_keys(server, alice):
    company = Company.objects.get(name="Acme")
    lines = [
        LedgerLine.objects.create(company=company, line=number, text="x", amount=1)
        for number in (1, 2)
    ]
    server.register(LedgerLine, type("Rows", (Free,), {"fields": ["line"]}))
    ask = tool(server, list[LedgerLine])
    assert bind(ask, alice, [[company.pk, 2], [company.pk, 1]]) == lines[::-1]


def test_a_model_that_inherits_its_key(free, alice):
    warehouse = Warehouse.objects.create(name="W")
    ask = free(Warehouse)
    assert bind(ask, alice, warehouse.pk) == warehouse
    assert refused(ask, alice, Place.objects.create(name="P").pk).startswith(
        "There is no warehouse"
    )


def test_a_unique_relation_names_a_row(free, alice):
    """The address holds the key of the row it points to."""
    warehouse = Warehouse.objects.create(name="W")
    ask = free(Warehouse, uri="warehouse://{place_ptr}", fields=["place_ptr"])
    assert bind(ask, alice, warehouse.pk) == warehouse
    assert bind(ask, alice, f"warehouse://{warehouse.pk}") == warehouse


# What cannot be bound.


@pytest.mark.parametrize(
    "annotation",
    [
        Customer | Invoice,
        Customer | int,
        list[list[Customer]],
        list[Customer | None],
        dict[str, Customer],
        tuple[Customer, ...],
        set[Customer],
        type[Customer],
        Annotated[dict[str, Customer], "x"],
    ],
)
def test_models_in_odd_places(server, annotation):
    server.register(Customer, Own)

    def ask(request, a) -> str:
        return "x"

    ask.__annotations__["a"] = annotation
    server.tool(ask)
    message = only(server)
    assert message.id == "django_mcp.E020" and "M | None or list[M]" in message.msg


def test_it_is_checked_of_prompts_and_resources_too(server):
    def ask(request, a: list[list[Customer]]) -> str:
        return "x"

    server.register(Customer, Own)
    server.prompt(ask)
    server.resource("x://{a}")(ask)
    assert ids(server) == ["E030", "E043"]


def test_prompts_and_resources_bind(server, alice, bob, invoice):
    @server.prompt
    def ask(request, customer: Customer) -> str:
        return customer.name

    @server.resource("notes://{customer}")
    def notes(request, customer: Customer) -> str:
        return customer.notes

    server.register(Customer, Own)
    catalog = right(server)
    given = {"customer": str(invoice.customer_id)}
    for thing in (catalog.prompts["ask"], catalog.templates["notes://{customer}"]):
        values = thing._arguments.read_text(given)
        request = asked(alice, server)
        assert thing._arguments.bind(values, request, write=False)["customer"] == invoice.customer
        with pytest.raises(InvalidArguments, match="There is no customer"):
            thing._arguments.bind(values, asked(bob, server), write=False)


# Annotations.


def unfound(model, chosen):
    raise ImproperlyConfigured("not registered")


@pytest.mark.parametrize(
    "annotation", [int, str | None, list[int], list, Annotated[int, "x"], Any, dict[str, int]]
)
def test_other_types_are_left_alone(annotation):
    assert bind_annotation(annotation, unfound) == (annotation, None)


def test_what_else_an_annotation_says_is_kept(shop):
    from pydantic import Field

    ask = shop(Annotated[Customer, Own, Field(description="Whom."), mcp.Complete(["1"])])
    assert ask._arguments.schema["properties"]["a"]["description"] == "Whom."
    assert ask._arguments.parameters["a"].complete.function == ["1"]


def test_what_stands_in_a_type():
    assert holds(dict[str, list[Customer] | None], Customer, Invoice)
    assert not holds(dict[str, list[Customer] | None], Invoice)
    assert not holds(Annotated[int, Customer], str)
