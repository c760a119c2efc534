"""Arguments whose type is a model: keys and URIs become rows that the caller may see."""

import uuid
from typing import Annotated, Any, Optional

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured

import django_mcp as mcp
from django_mcp.declarations.arguments import MAX_KEYS_PER_ARGUMENT, bind_annotation, holds
from django_mcp.declarations.schemas import violations
from django_mcp.declarations.server import Server
from django_mcp.exceptions import InvalidArguments
from tests.shop.models import Badge, Company, Customer, Invoice, LedgerLine, Note, Place, Warehouse

from .helpers import make_request, problem_ids, single_problem, valid_catalog


class OwnCompanies(mcp.ModelResource):
    """Rows of the caller's companies."""

    permission = mcp.AUTHENTICATED
    fields = ["name"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class ByNumber(OwnCompanies):
    uri = "invoice://{number}"
    fields = ["number"]


class Unrestricted(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["pk"]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


def make_tool(server, annotation, default=...):
    """Return a tool with an argument ``a`` of the given type."""

    def ask(request, a) -> str:
        return "x"

    ask.__annotations__["a"] = annotation
    ask.__defaults__ = () if default is ... else (default,)
    server.tool(ask)
    made = valid_catalog(server).tools["ask"]
    made.server = server
    return made


def bind_value(tool, user, value, write=False):
    """Return what the function gets for ``value``."""
    request = make_request(user, tool.server)
    values = tool._arguments.read({"a": value})
    return tool._arguments.bind(values, request, write=write)["a"]


@pytest.fixture
def shop(server):
    server.register(Customer, OwnCompanies)
    server.register(Invoice, ByNumber)

    return lambda annotation, default=...: make_tool(server, annotation, default)


def refusal_message(tool, user, value) -> str:
    with pytest.raises(InvalidArguments) as error:
        bind_value(tool, user, value)
    return error.value.message


# Binding of one row.


def test_key_is_bound_to_its_row(shop, alice, invoice):
    found = bind_value(shop(Customer), alice, invoice.customer_id)
    assert found == invoice.customer and found.notes == "never pays"  # all columns are loaded


def test_schema_accepts_key_or_uri(shop):
    ask = shop(Customer)
    assert ask._arguments.schema["properties"]["a"] == {
        "type": ["integer", "string"],
        "description": "Key or URI of the customer.",
    }


@pytest.mark.parametrize("model", [Customer, Invoice, Note, LedgerLine])
def test_key_and_uri_fit_the_published_schema(server, alice, model):
    """The primary keys are a number, a text, a UUID and two columns."""
    for one in (Customer, Invoice, Note, LedgerLine):
        server.register(one, ByNumber if one is Invoice else Unrestricted)
    arguments = make_tool(server, model)._arguments
    key = {Note: str(uuid.uuid4()), LedgerLine: [1, 2], Invoice: "A-1"}.get(model, 1)
    for given in (key, "invoice://A-1", "model://shop/note/x"):
        assert violations(arguments.schema, {"a": given}) == []
        assert arguments.read({"a": given}) == {"a": given}


def test_uri_is_bound_to_its_row(shop, alice, invoice):
    ask = shop(Customer)
    assert (
        bind_value(ask, alice, f"model://shop/customer/{invoice.customer_id}") == invoice.customer
    )
    assert bind_value(ask, alice, str(invoice.customer_id)) == invoice.customer


def test_key_is_the_lookup_field_of_the_uri(shop, alice, invoice):
    ask = shop(Invoice)
    assert bind_value(ask, alice, "A-1") == invoice == bind_value(ask, alice, "invoice://A-1")
    assert ask._arguments.schema["properties"]["a"]["type"] == "string"
    assert refusal_message(ask, alice, str(invoice.pk)) == f"There is no invoice '{invoice.pk}'."


def test_missing_and_forbidden_rows_have_the_same_message(shop, alice, bob, invoice):
    customers, key = shop(Customer), invoice.customer_id
    assert refusal_message(customers, bob, key) == f"There is no customer {key}."
    assert refusal_message(customers, bob, key + 1) == f"There is no customer {key + 1}."
    assert refusal_message(customers, alice, key + 1) == f"There is no customer {key + 1}."
    assert refusal_message(customers, None, key) == f"There is no customer {key}."


def test_missing_and_forbidden_text_keys_have_the_same_message(shop, alice, bob, invoice):
    invoices = shop(Invoice)
    assert refusal_message(invoices, bob, "A-1") == "There is no invoice 'A-1'."
    assert refusal_message(invoices, alice, "A-2") == "There is no invoice 'A-2'."


@pytest.mark.parametrize(
    "value",
    [
        "model://shop/company/1",  # of another resource
        "invoice://A-1",
        "model://shop/customer/",
        "model://shop/customer/1/",
        "model://shop/customer/x",
        "model://shop/customer/1?a=b",
        "MODEL://shop/customer/1",
        "01", "1.0", " 1", "+1", "-1", "1e0", "0x1", "", "\0", "x" * 5000, 10**30, -1,
    ],
)  # fmt: skip
def test_invalid_key_has_the_message_of_a_missing_row(shop, alice, invoice, value):
    message = refusal_message(shop(Customer), alice, value)
    assert message.startswith("There is no customer ") and len(message) < 200


@pytest.mark.parametrize("value", [1.0, True, None, {"pk": 1}, [1]])
def test_value_of_another_type_than_a_key_is_an_invalid_argument(shop, alice, value):
    with pytest.raises(InvalidArguments, match="Invalid arguments"):
        shop(Customer)._arguments.read({"a": value})


def test_uri_of_another_server_is_not_found(shop, alice, invoice):
    """The message is that of a missing row."""
    other = Server("another test's")

    class Elsewhere(OwnCompanies):
        uri = "elsewhere://{pk}"

    other.register(Customer, Elsewhere)
    valid_catalog(other)
    uri = f"elsewhere://{invoice.customer_id}"
    assert refusal_message(shop(Customer), alice, uri) == f"There is no customer {uri!r}."


def test_rows_of_a_resource_without_permission_are_not_found(server, alice, invoice):
    class Admins(OwnCompanies):
        permission = "auth.add_user"

    server.register(Customer, Admins)
    ask = make_tool(server, Customer)
    assert refusal_message(ask, alice, invoice.customer_id).startswith("There is no customer")
    boss = User.objects.create_superuser("boss")
    invoice.company.members.add(boss)
    assert bind_value(ask, boss, invoice.customer_id) == invoice.customer


def test_binding_checks_the_object_permission(server, alice, invoice):
    seen = []

    class Guarded(OwnCompanies):
        def has_object_permission(self, request, obj, operation):
            seen.append((request.user, obj, operation))
            return False

    server.register(Customer, Guarded)
    ask = make_tool(server, Customer)
    assert refusal_message(ask, alice, invoice.customer_id).startswith("There is no customer")
    assert seen == [(alice, invoice.customer, "view")]


def test_row_for_a_writing_tool_is_read_from_the_write_database(shop, alice, invoice, monkeypatch):
    """A replica may lag, so only read-only tools use it."""
    asked_for = []

    class Router:
        def db_for_write(self, model, **hints):
            asked_for.append(model)
            return "default"

    monkeypatch.setattr("django.db.router._routers", None, raising=False)
    monkeypatch.setattr("django.db.router.routers", [Router()])
    ask = shop(Customer)
    bind_value(ask, alice, invoice.customer_id, write=False)
    assert asked_for == []
    assert bind_value(ask, alice, invoice.customer_id, write=True)._state.db == "default"
    assert asked_for == [Customer]


# Optional arguments and lists.


@pytest.mark.parametrize("annotation", [Customer | None, Optional[Customer], None | Customer])  # noqa: UP045
def test_none_is_bound_without_a_query(shop, alice, invoice, annotation, django_assert_num_queries):
    ask = shop(annotation, None)
    assert bind_value(ask, alice, invoice.customer_id) == invoice.customer
    with django_assert_num_queries(0):
        assert bind_value(ask, alice, None) is None


@pytest.fixture
def customers(alice):
    company = Company.objects.get(name="Acme")
    return [Customer.objects.create(company=company, name=name) for name in "ABC"]


@pytest.mark.parametrize(
    "annotation",
    [
        list[Customer],
        list[Customer] | None,
        list[Annotated[Customer, OwnCompanies]],
        Annotated[list[Customer], OwnCompanies],
    ],
)
def test_list_of_keys_is_bound_in_one_query_and_in_order(
    shop, alice, customers, annotation, django_assert_num_queries
):
    ask = shop(annotation)
    keys = [customers[2].pk, f"model://shop/customer/{customers[0].pk}", customers[2].pk]
    request = make_request(alice, ask.server)
    values = ask._arguments.read({"a": keys})
    with django_assert_num_queries(1):
        found = ask._arguments.bind(values, request, write=True)["a"]
    assert found == [customers[2], customers[0], customers[2]]


def test_list_with_a_missing_row_is_refused(shop, alice, bob, customers, invoice):
    ask = shop(list[Customer])
    hidden = Customer.objects.create(company=Company.objects.get(name="Bolts"), name="D")
    keys = [one.pk for one in customers]
    assert refusal_message(ask, alice, [*keys, hidden.pk]) == f"There is no customer {hidden.pk}."
    assert refusal_message(ask, alice, [*keys, 0]) == "There is no customer 0."
    assert bind_value(ask, alice, []) == []


def test_number_of_keys_is_limited(shop, alice, customers):
    ask, key = shop(list[Customer]), customers[0].pk
    assert len(bind_value(ask, alice, [key] * MAX_KEYS_PER_ARGUMENT)) == MAX_KEYS_PER_ARGUMENT
    assert (
        refusal_message(ask, alice, [key] * (MAX_KEYS_PER_ARGUMENT + 1))
        == "At most 100 keys are allowed, not 101."
    )


# Types of keys.


@pytest.fixture
def register_unrestricted(server):
    def declared(model, **attributes):
        server.register(model, type("Rows", (Unrestricted,), attributes))
        return make_tool(server, model)

    return declared


def test_uuid_key(register_unrestricted, alice):
    note = Note.objects.create(text="x")
    ask = register_unrestricted(Note)
    assert "format" not in ask._arguments.schema["properties"]["a"]  # a URI is also accepted
    assert bind_value(ask, alice, str(note.pk)) == note
    assert bind_value(ask, alice, f"model://shop/note/{note.pk}") == note
    for wrong in (note.pk.hex, str(note.pk).upper(), f"{{{note.pk}}}", str(uuid.UUID(int=0)), 5):
        assert refusal_message(ask, alice, wrong).startswith("There is no note")


def test_text_key_with_reserved_characters(register_unrestricted, alice):
    badge = Badge.objects.create(code="a/b c%2F", colour="red")
    ask = register_unrestricted(Badge)
    assert bind_value(ask, alice, "a/b c%2F") == badge
    assert bind_value(ask, alice, "model://shop/badge/a%2Fb%20c%252F") == badge
    assert refusal_message(ask, alice, "a/b c/") == "There is no badge 'a/b c/'."


def test_composite_key(register_unrestricted, alice):
    company = Company.objects.get(name="Acme")
    line = LedgerLine.objects.create(company=company, line=7, text="x", amount=1)
    ask = register_unrestricted(LedgerLine, fields=["line"])
    schema, uri = ask._arguments.schema["properties"]["a"]["anyOf"]
    assert uri == {"type": "string"} and schema["type"] == "array"
    assert schema["minItems"] == schema["maxItems"] == 2
    assert bind_value(ask, alice, [company.pk, 7]) == line
    assert bind_value(ask, alice, f"{company.pk},7") == line
    assert bind_value(ask, alice, f"model://shop/ledgerline/{company.pk}%2C7") == line
    for wrong in ([company.pk], [company.pk, 8], [company.pk, "x"], 7, [7, company.pk, 1], []):
        assert refusal_message(ask, alice, wrong).startswith("There is no ledger line")


def test_list_of_composite_keys(server, alice):
    company = Company.objects.get(name="Acme")
    lines = [
        LedgerLine.objects.create(company=company, line=number, text="x", amount=1)
        for number in (1, 2)
    ]
    server.register(LedgerLine, type("Rows", (Unrestricted,), {"fields": ["line"]}))
    ask = make_tool(server, list[LedgerLine])
    assert bind_value(ask, alice, [[company.pk, 2], [company.pk, 1]]) == lines[::-1]


def test_key_of_a_model_with_multi_table_inheritance(register_unrestricted, alice):
    warehouse = Warehouse.objects.create(name="W")
    ask = register_unrestricted(Warehouse)
    assert bind_value(ask, alice, warehouse.pk) == warehouse
    assert refusal_message(ask, alice, Place.objects.create(name="P").pk).startswith(
        "There is no warehouse"
    )


def test_unique_relation_as_lookup_field_of_the_uri(register_unrestricted, alice):
    """The URI contains the key of the related row."""
    warehouse = Warehouse.objects.create(name="W")
    ask = register_unrestricted(Warehouse, uri="warehouse://{place_ptr}", fields=["place_ptr"])
    assert bind_value(ask, alice, warehouse.pk) == warehouse
    assert bind_value(ask, alice, f"warehouse://{warehouse.pk}") == warehouse


# Annotations that cannot be bound.


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
def test_model_in_an_unsupported_annotation_is_an_error(server, annotation):
    server.register(Customer, OwnCompanies)

    def ask(request, a) -> str:
        return "x"

    ask.__annotations__["a"] = annotation
    server.tool(ask)
    message = single_problem(server)
    assert message.id == "django_mcp.E020" and "M | None or list[M]" in message.msg


def test_unsupported_annotation_of_prompts_and_resources_is_an_error(server):
    def ask(request, a: list[list[Customer]]) -> str:
        return "x"

    server.register(Customer, OwnCompanies)
    server.prompt(ask)
    server.resource("x://{a}")(ask)
    assert problem_ids(server) == ["E030", "E043"]


def test_arguments_of_prompts_and_resources_are_bound(server, alice, bob, invoice):
    @server.prompt
    def ask(request, customer: Customer) -> str:
        return customer.name

    @server.resource("notes://{customer}")
    def notes(request, customer: Customer) -> str:
        return customer.notes

    server.register(Customer, OwnCompanies)
    catalog = valid_catalog(server)
    given = {"customer": str(invoice.customer_id)}
    for thing in (catalog.prompts["ask"], catalog.templates["notes://{customer}"]):
        values = thing._arguments.read_text(given)
        request = make_request(alice, server)
        assert thing._arguments.bind(values, request, write=False)["customer"] == invoice.customer
        with pytest.raises(InvalidArguments, match="There is no customer"):
            thing._arguments.bind(values, make_request(bob, server), write=False)


# Annotations.


def find_nothing(model, chosen):
    raise ImproperlyConfigured("not registered")


@pytest.mark.parametrize(
    "annotation", [int, str | None, list[int], list, Annotated[int, "x"], Any, dict[str, int]]
)
def test_annotation_without_models_is_unchanged(annotation):
    assert bind_annotation(annotation, find_nothing) == (annotation, None)


def test_other_metadata_of_an_annotation_is_kept(shop):
    from pydantic import Field

    ask = shop(Annotated[Customer, OwnCompanies, Field(description="Whom."), mcp.Complete(["1"])])
    assert ask._arguments.schema["properties"]["a"]["description"] == "Whom."
    assert ask._arguments.parameters["a"].complete.function == ["1"]


def test_holds_finds_models_in_nested_annotations():
    assert holds(dict[str, list[Customer] | None], Customer, Invoice)
    assert not holds(dict[str, list[Customer] | None], Invoice)
    assert not holds(Annotated[int, Customer], str)
