"""Five generic tools serve many models, with the permissions of each model's own tools."""

import json
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.auth import kill_switches
from django_mcp.declarations.schemas import problem
from django_mcp.declarations.server import Server
from django_mcp.exceptions import AlreadyRegistered
from django_mcp.models import AuditEntry, Switch
from tests.client import RpcError
from tests.shop.models import (
    Article,
    Badge,
    Company,
    Customer,
    Invoice,
    LedgerLine,
    Note,
    Place,
    Sample,
    Tag,
    Warehouse,
)  # fmt: skip

from .helpers import Rows, problem_ids, single_problem, valid_catalog

OPERATIONS = ["create", "update", "delete"]


class Members(mcp.ModelResource):
    """Invoices of the companies of the user."""

    fields = ["number", "customer", "status", "total", "issued"]
    search_fields = ["number"]
    filter_fields = ["status", "customer"]
    aggregate_fields = ["total"]
    group_fields = ["status"]
    operations = ["update"]
    readonly_fields = ["customer"]
    permission = mcp.AUTHENTICATED

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class Companies(Members):
    """Companies of the user."""

    fields = ["name"]
    search_fields = ["name"]
    filter_fields = aggregate_fields = group_fields = operations = readonly_fields = ()

    def get_queryset(self, request):
        return self.model.objects.filter(members=request.user)


class Articles(mcp.ModelResource):
    """Texts that need Django's permissions."""

    fields = ["title", "body"]
    search_fields = ["title"]
    aggregate_fields = ()
    group_fields = ["title"]
    operations = OPERATIONS


@pytest.fixture
def generic(server):
    server.register(Invoice, Members)
    server.register(Company, Companies)
    server.register(Article, Articles)
    mcp.register_models("shop", generic=True, server=server)
    valid_catalog(server)
    return server


@pytest.fixture
def other_invoice(bob):
    company = Company.objects.get(members=bob)
    customer = Customer.objects.create(company=company, name="Secret")
    return Invoice.objects.create(
        company=company, customer=customer, number="B-1", total=Decimal(99),
        issued=date(2026, 1, 1), status="paid",
    )  # fmt: skip


def grant(user, *codenames):
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    return User.objects.get(pk=user.pk)


def data(result):
    assert not result.get("isError"), result
    return result["structuredContent"]


def names(client):
    return [tool["name"] for tool in client.request("tools/list")["tools"]]


def models(client):
    found = data(client.call("list_models"))["models"]
    return {model["name"]: model["operations"] for model in found}


def switch_off(server, thing):
    Switch.objects.create(server=server.name, thing=thing)
    kill_switches.mark_stale()


# Lists and descriptions.


def test_generic_tools_replace_the_tools_of_models(generic, connect, alice):
    client = connect(alice, server=generic)
    assert names(client) == [
        "list_models", "describe_model", "search_rows", "aggregate_rows", "write_row"
    ]  # fmt: skip
    templates = client.request("resources/templates/list")["resourceTemplates"]
    assert "model://shop/invoice/{pk}" in [one["uriTemplate"] for one in templates]


def test_definitions_are_valid_and_have_hints(generic):
    tools = valid_catalog(generic).tools
    assert all(problem(tool._definition()["inputSchema"]) is None for tool in tools.values())
    assert all(tool._definition()["description"] for tool in tools.values())
    hints = {name: tool._definition()["annotations"] for name, tool in tools.items()}
    assert hints.pop("write_row") == {
        "readOnlyHint": False, "destructiveHint": True, "openWorldHint": False
    }  # fmt: skip
    assert all(one == {"readOnlyHint": True, "openWorldHint": False} for one in hints.values())


def test_list_has_only_models_and_operations_that_the_caller_may_use(generic, connect, alice):
    client = connect(alice, server=generic)
    assert models(client) == {"invoice": ["search", "aggregate", "update"], "company": ["search"]}
    client = connect(grant(alice, "view_article", "add_article"), server=generic)
    assert models(client)["article"] == ["search", "aggregate", "create"]


def test_entry_of_a_model_has_its_description_or_its_fields(server, connect, alice):
    server.register(Invoice, Members)
    server.register(Company, type("Plain", (Companies,), {}))
    mcp.register_models("shop", generic=True, server=server)
    found = data(connect(alice, server=server).call("list_models"))["models"]
    assert [(model["title"], model["description"]) for model in found] == [
        ("Invoice", "Invoices of the companies of the user."), ("Company", "Each row has name."),
    ]  # fmt: skip


def test_description_has_fields_and_the_arguments_of_allowed_operations(generic, connect, alice):
    found = data(connect(alice, server=generic).call("describe_model", model="invoice"))
    own = valid_catalog(generic).model_tools
    assert found["uri"] == "model://shop/invoice/{pk}"
    assert {"number", "total", "_uri"} < found["fields"].keys()
    assert found["arguments"] == {
        "search": own["search_invoice"]._arguments.schema,
        "aggregate": own["aggregate_invoice"]._arguments.schema,
        "update": own["update_invoice"]._arguments.schema,
    }


def test_models_of_other_apps_and_excluded_models_keep_their_tools(server, connect, alice):
    server.register(Invoice, Members)
    server.register(Company, Companies)
    mcp.register_models("shop", generic=True, exclude=[Company], server=server)
    assert valid_catalog(server).tools.keys() == {
        "search_company", "list_models", "describe_model", "search_rows", "aggregate_rows",
        "write_row",
    }  # fmt: skip


def test_models_can_be_named_in_several_calls(server):
    server.register(Invoice, Members)
    server.register(Company, Companies)
    mcp.register_models(Company, generic=True, server=server)
    assert {"search_rows", "search_invoice"} < valid_catalog(server).tools.keys()
    server._forget()
    mcp.register_models(Invoice, generic=True, server=server)
    assert valid_catalog(server).model_tools.keys() >= {"search_company", "search_invoice"}
    assert "search_invoice" not in server._catalog.tools


def test_tools_that_no_model_needs_do_not_exist(server):
    server.register(Company, Companies)
    mcp.register_models(Company, generic=True, server=server)
    assert [*valid_catalog(server).tools] == ["list_models", "describe_model", "search_rows"]


def test_list_for_100_models_has_less_than_12_kilobytes(server, connect, alice):
    for number in range(100):
        attributes = {"name": f"invoice_{number}", "uri": f"invoices{number}://{{pk}}"}
        attributes["default"] = not number
        server.register(Invoice, type("Rows", (Members,), attributes))
    mcp.register_models("shop", generic=True, server=server)
    client = connect(alice, server=server)
    found = client.request("tools/list")
    assert len(json.dumps(found)) < 4_000 < 12_000
    assert len(models(client)) == 100


# Equality with the own tools.

ALL = {
    Article: ["title", "body", "team"],
    Badge: None,
    Company: ["name"],
    Customer: ["name", "company", "email"],
    Invoice: ["number", "company", "customer", "customer__name", "status", "total", "issued"],
    LedgerLine: None,
    Note: ["text"],
    Place: ["name", "city"],
    Sample: ["name", "weight", "rank", "price", "checked", "day", "moment"],
    Tag: ["label"],
    Warehouse: ["name", "city", "capacity"],
}


def everything(model):
    """Return a resource of ``model`` with all that it can have."""
    names = ALL[model] or [field.name for field in model._meta.concrete_fields]
    columns = {field.name: field for field in model._meta.concrete_fields}
    plain = [name for name in names if name in columns and not columns[name].primary_key]
    texts = [n for n in plain if columns[n].get_internal_type() in ("CharField", "TextField")]
    numbers = [n for n in plain if columns[n].get_internal_type() in ("DecimalField", "DateField")]
    return type("Everything", (mcp.ModelResource,), {
        "permission": mcp.AUTHENTICATED, "fields": names, "search_fields": texts,
        "filter_fields": plain, "aggregate_fields": numbers, "group_fields": plain[:2],
        "operations": OPERATIONS, "get_queryset": lambda self, request: self.model.objects.all(),
        "operation_permissions": dict.fromkeys(OPERATIONS, mcp.AUTHENTICATED),
        "has_cascade_permission": lambda self, request, model: True,
        "get_initial": lambda self, request: {},
    })  # fmt: skip


@pytest.fixture
def rows(invoice, other_invoice):
    Article.objects.create(title="Mice", body="They eat.", team=invoice.company)
    Note.objects.create(text="remember")
    Place.objects.create(name="Shop", city="Berlin")
    Warehouse.objects.create(name="Store", city="Bonn", capacity=3)
    Tag.objects.create(label="late")


def calls_of(model, fields):
    """Yield operations and arguments, of which some are wrong."""
    name, row = model._meta.model_name, model.objects.order_by("pk").first()
    key = None if row is None else row.pk if isinstance(row.pk, int) else str(row.pk)
    text = next((n for n in fields if n in ("name", "title", "text", "number", "label")), None)
    for given in ({}, {"limit": 1}, {"ordering": "nonsense"}, {"nonsense": 1}, {"limit": "x"}):
        yield "search", given
    for given in ({}, {"measures": ["count"], "group_by": ["nonsense"]}, {"limit": 2}):
        yield "aggregate", given
    if text:
        yield "search", {"query": "e"}
        yield "search", {f"{text}": "B-1"}
        yield "aggregate", {"group_by": [text]}
        yield "create", {text: "new"}
        yield "update", {name: key, text: "changed"}
    yield "create", {}
    yield "create", {"nonsense": 1}
    yield "update", {name: 987654321}
    yield "update", {}
    yield "delete", {name: 987654321}
    if key is not None:
        yield "delete", {name: key}


GENERIC = dict.fromkeys(OPERATIONS, "write_row")
GENERIC |= {"search": "search_rows", "aggregate": "aggregate_rows"}


def undone(client, tool, arguments):
    """Return the result and the number of queries of a call, whose writes are rolled back."""
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        result = client.call(tool, **arguments)
        transaction.set_rollback(True)
    return result, len(captured)


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
def test_generic_tool_returns_what_the_own_tool_returns(connect, alice, rows, model):
    own, generic = Server("own tools"), Server("generic tools")
    for server in (own, generic):
        for one in ALL:
            server.register(one, everything(one))
    mcp.register_models("shop", generic=True, server=generic)
    assert not [message for message in generic.check() if message.is_serious()]
    separate, together = connect(alice, server=own), connect(alice, server=generic)
    name, cases = model._meta.model_name, 0
    for operation, given in calls_of(model, everything(model).fields):
        if f"{operation}_{name}" not in own._catalog.tools:
            continue
        choice = {"operation": operation} if operation in OPERATIONS else {}
        call = {"model": name, "arguments": given} | choice
        expected, count = undone(separate, f"{operation}_{name}", given)
        found, generic_count = undone(together, GENERIC[operation], call)
        # Cursors and the name belong to a server, and sequences of keys are not rolled back.
        for result in (expected, found):
            shown = result.get("structuredContent", {})
            del result["_meta"]
            if shown.pop("next_cursor", None) or operation == "create":
                result["content"] = shown.pop("_uri", None) and None
        assert found == expected, (operation, given)
        assert generic_count <= count, (operation, given)
        cases += 1
    assert cases > 10


def test_next_page_of_a_search(generic, connect, alice, invoice):
    invoice.pk, invoice.number = None, "A-2"
    invoice.save()
    client = connect(alice, server=generic)
    seen, cursor = [], {}
    while cursor is not None:
        given = {"limit": 1, **cursor}
        page = data(client.call("search_rows", model="invoice", arguments=given))
        seen += [row["number"] for row in page["results"]]
        cursor = {"cursor": page["next_cursor"]} if "next_cursor" in page else None
    assert sorted(seen) == ["A-1", "A-2"]


# Gates.

NO_INVOICES = "There is no model 'invoice' of which you may {} rows."


def attempts(model):
    """Yield a call of each generic tool that takes a model."""
    yield "describe_model", {"model": model}
    yield "search_rows", {"model": model}
    yield "aggregate_rows", {"model": model}
    for operation in OPERATIONS:
        yield "write_row", {"model": model, "operation": operation, "arguments": {}}


def test_rows_of_another_tenant_are_neither_found_counted_nor_written(
    generic, connect, alice, invoice, other_invoice
):
    client = connect(alice, server=generic)
    rows = data(client.call("search_rows", model="invoice"))["results"]
    assert [row["number"] for row in rows] == ["A-1"]
    groups = data(client.call("aggregate_rows", model="invoice"))["groups"]
    assert groups == [{"count": 1}]
    assert client.failure(
        "write_row", model="invoice", operation="update",
        arguments={"invoice": other_invoice.pk, "status": "draft"},
    ) == f"There is no invoice {other_invoice.pk} that you may change."  # fmt: skip
    hidden = {"customer": other_invoice.customer_id}
    found = client.call("search_rows", model="invoice", arguments=hidden)
    assert data(found)["results"] == []


@pytest.mark.parametrize(
    "given", [{"metadata": 1}, {"customer__notes": "never"}, {"ordering": "metadata"}]
)
def test_hidden_field_is_no_argument(generic, connect, alice, invoice, given):
    client = connect(alice, server=generic)
    assert "Invalid arguments" in client.failure("search_rows", model="invoice", arguments=given)
    both = {"invoice": invoice.pk} | given
    call = {"model": "invoice", "operation": "update", "arguments": both}
    assert "Invalid arguments" in client.failure("write_row", **call)
    shown = json.dumps(data(client.call("describe_model", model="invoice")))
    assert "metadata" not in shown and "notes" not in shown


def test_forbidden_model_looks_like_a_model_that_does_not_exist(generic, connect, alice, rows):
    client = connect(alice, server=generic)
    missing = [client.call(name, **given) for name, given in attempts("nothing")]
    forbidden = [client.call(name, **given) for name, given in attempts("article")]
    assert all(result["isError"] for result in missing)
    assert json.loads(json.dumps(forbidden).replace("article", "nothing")) == missing
    assert "There is no model 'nothing' of which you may search rows." in str(missing)


def test_forbidden_model_needs_as_many_transactions_as_a_missing_one(generic, connect, alice, rows):
    client, counts = connect(alice, server=generic), []
    for model in ("article", "nothing"):
        call = {"model": model, "operation": "create", "arguments": {}}
        client.call("write_row", **call)  # caches
        with CaptureQueriesContext(connection) as captured:
            client.call("write_row", **call)
        counts.append(len(captured))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "wrong",
    [{"arguments": []}, {"other": 1}, {"model": 1}, {"arguments": None}, {"operation": "drop"}],
)
def test_wrong_arguments_do_not_tell_whether_a_model_exists(generic, connect, alice, wrong):
    client = connect(alice, server=generic)
    said = []
    for model in ("article", "nothing", "invoice"):
        given = {"model": model, "operation": "update"} | wrong
        said.append(client.failure("write_row", **given))
    assert said[0] == said[1] == said[2] and said[0].startswith("Invalid arguments")


def test_forbidden_operation_looks_like_one_that_does_not_exist(generic, connect, alice, rows):
    client = connect(alice, server=generic)  # may change invoices, but not add or delete them
    for operation in ("create", "delete"):
        call = {"model": "invoice", "operation": operation, "arguments": {}}
        assert client.failure("write_row", **call).startswith(NO_INVOICES.format(operation))


def test_caller_without_any_model_sees_no_generic_tool(server, connect, bob):
    server.register(Article, Articles)
    mcp.register_models("shop", generic=True, server=server)
    server.tool(name="hello")(lambda request: "hello")
    client = connect(bob, server=server)
    assert names(client) == ["hello"]
    for name, given in [("list_models", {}), *attempts("article"), *attempts("nothing")]:
        with pytest.raises(RpcError, match=f"Unknown tool: {name}"):
            client.call(name, **given)


def test_permission_that_is_revoked_between_list_and_call(generic, connect, alice, rows):
    client = connect(grant(alice, "view_article", "add_article"), server=generic)
    assert models(client)["article"] == ["search", "aggregate", "create"]
    alice.user_permissions.remove(*Permission.objects.filter(content_type__model="article"))
    client.user = User.objects.get(pk=alice.pk)
    call = {"model": "article", "operation": "create", "arguments": {"title": "x"}}
    assert "There is no model 'article'" in client.failure("write_row", **call)
    assert "There is no model 'article'" in client.failure("search_rows", model="article")
    assert "There is no model 'article'" in client.failure("describe_model", model="article")
    assert "article" not in models(client)
    assert not Article.objects.filter(title="x").exists()


@pytest.mark.parametrize("thing", ["resource:invoice", "tool:search_invoice", "tool:search_rows"])
def test_kill_switches_of_the_model_its_tool_and_the_generic_tool(
    generic, connect, alice, invoice, thing
):
    client = connect(alice, server=generic)
    data(client.call("search_rows", model="invoice"))
    switch_off(generic, thing)
    if thing == "tool:search_rows":
        assert thing[5:] not in names(client)
        with pytest.raises(RpcError, match="Unknown tool: search_rows"):
            client.call("search_rows", model="invoice")
        with pytest.raises(RpcError, match="Unknown tool: search_rows"):
            client.call("search_rows", model="nothing")
    else:
        assert NO_INVOICES.format("search") in client.failure("search_rows", model="invoice")
        data(client.call("search_rows", model="company"))
    assert "search" not in models(client).get("invoice", [])


@pytest.mark.parametrize("thing", ["resource:invoice", "tool:search_invoice", "tool:search_rows"])
def test_limits_of_the_model_its_tool_and_the_generic_tool(generic, connect, alice, invoice, thing):
    client = connect(alice, server=generic)
    Switch.objects.create(server=generic.name, thing=thing, rate="1/month")
    data(client.call("search_rows", model="invoice"))
    limited = "Too many calls of " + thing.partition(":")[2]
    assert limited in client.failure("search_rows", model="invoice")
    if thing == "tool:search_rows":
        assert limited in client.failure("search_rows", model="company")
    else:
        data(client.call("search_rows", model="company"))


def test_anonymous_caller_sees_only_public_models(server, connect, rows):
    server.register(Article, type("Public", (Articles,), {
        "permission": mcp.PUBLIC, "operations": (), "get_queryset": lambda self, request:
        self.model.objects.all(),
    }))  # fmt: skip
    server.register(Invoice, Members)
    mcp.register_models("shop", generic=True, server=server)
    client = connect(server=server)
    assert models(client) == {"article": ["search", "aggregate"]}
    assert len(data(client.call("search_rows", model="article"))["results"]) == 1
    assert "There is no model 'invoice'" in client.failure("search_rows", model="invoice")


def test_permission_functions_are_asked_for_the_called_model_only(server, connect, alice):
    asked = []
    for model in (Invoice, Company):
        name = model._meta.model_name
        server.register(model, type("Asking", (Companies,), {
            "fields": ["number"] if model is Invoice else ["name"],
            "search_fields": ["number"] if model is Invoice else ["name"],
            "permission": lambda self, request=None, name=name: asked.append(name) or True,
            "get_queryset": lambda self, request: self.model.objects.all(),
        }))  # fmt: skip
    mcp.register_models("shop", generic=True, server=server)
    data(connect(alice, server=server).call("search_rows", model="company"))
    assert set(asked) == {"company"}


# Messages for developers.


def test_origin_and_rules_of_model_tools(generic, alice):
    tool = valid_catalog(generic).model_tools["search_article"]
    assert tool._rule == "shop.view_article or shop.change_article"
    assert generic._catalog.tools["search_rows"]._rule == "the permission of a model"


# System checks.


def test_subject_that_is_neither_an_app_nor_a_model(server):
    server.register(Invoice, Members)
    mcp.register_models("shpo", generic=True, server=server)
    message = single_problem(server)
    assert message.id == "django_mcp.E250" and "shop" in message.hint


@pytest.mark.parametrize(("subjects", "id"), [((), "E255"), ((3,), "E250")])
def test_no_subject_and_a_wrong_one(server, subjects, id):
    mcp.register_models(*subjects, generic=True, server=server)
    assert problem_ids(server) == [id]


@pytest.mark.parametrize("subject", ["auth", Invoice])
def test_app_or_model_without_a_model_resource(server, subject):
    mcp.register_models(subject, generic=True, server=server)
    assert single_problem(server).id == "django_mcp.E251"


def test_generic_must_be_true(server):
    server.register(Invoice, Members)
    mcp.register_models("shop", generic=False, server=server)
    assert single_problem(server).id == "django_mcp.E252"


def test_two_models_with_the_same_name(server):
    server.register(Invoice, type("One", (Rows,), {
        "fields": ["number"], "name": "thing", "search_fields": ["number"],
    }))  # fmt: skip
    server.register(Company, type("Other", (Rows,), {"name": "thing", "listed": True}))
    mcp.register_models("shop", generic=True, server=server)
    found = [message for message in server.check() if message.id == "django_mcp.E253"]
    assert len(found) == 2 and 'name = "shop_invoice"' in found[0].hint


def test_exclude_of_a_model_that_is_not_served(server):
    server.register(Invoice, Members)
    mcp.register_models("shop", generic=True, exclude=[Company], server=server)
    assert single_problem(server).id == "django_mcp.E254"


def test_tool_of_the_project_with_the_name_of_a_generic_or_model_tool(server):
    server.register(Invoice, Members)
    server.tool(name="list_models")(lambda request: "mine")
    server.tool(name="search_invoice")(lambda request: "mine")
    mcp.register_models("shop", generic=True, server=server)
    assert problem_ids(server) == ["E001", "E001"]


def test_same_call_twice(server):
    mcp.register_models("shop", generic=True, server=server)
    with pytest.raises(AlreadyRegistered, match="register_models is already registered"):
        mcp.register_models("shop", generic=True, server=server)


# The audit log.


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search_rows", {"model": "article"}),
        ("search_rows", {"model": "unknown"}),
        ("describe_model", {"model": "article"}),
        ("write_row", {"model": "article", "operation": "delete", "arguments": {}}),
    ],
)
def test_call_for_a_forbidden_model_is_audited_as_denied(generic, connect, alice, name, arguments):
    generic.audit = True
    client = connect(alice, server=generic)
    client.failure(name, **arguments)
    client.failure("search_rows", model="invoice", arguments={"wrong": 1})
    found = AuditEntry.objects.order_by("pk").values_list("outcome", flat=True)
    assert list(found) == ["denied", "error"]
