"""All that a server exposes, resolved: one owner for each name, one resource for each model."""

from typing import Annotated

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_mcp as mcp
from tests.shop.models import Company, Customer, Invoice, LocalPlace, Place, Warehouse

from .world import ids, only, right


class Names(mcp.ModelResource):
    fields = ["name"]


class Others(mcp.ModelResource):
    fields = ["name"]
    uri = "other://{pk}"


def one(request) -> str:
    return "one"


def two(request) -> str:
    return "two"


def named(request, name: str) -> str:
    return name


# Owners.


@pytest.mark.parametrize(
    "declare",
    [
        lambda server, function: server.tool(name="same")(function),
        lambda server, function: server.prompt(name="same")(function),
        lambda server, function: server.resource("x://same", name=function.__name__)(function),
    ],
)
def test_a_name_has_one_owner_and_a_clash_names_both(server, declare):
    declare(server, one)
    declare(server, two)
    message = only(server)
    assert message.id == "django_mcp.E001" and "same" in message.msg
    assert "test_catalogs.one" in message.msg and "test_catalogs.two" in message.msg


def test_a_clash_of_templates(server):
    server.resource("x://{name}", name="a")(named)
    server.resource("x://{name}", name="b")(named)
    assert ids(server) == ["E001"]


def test_a_clash_of_models_of_two_apps(server):
    """Both make a search tool of the same name."""

    class First(Names):
        search_fields = ["name"]
        name = "place"

    server.register(Customer, First)
    server.register(Company, First)
    message = only(server)
    assert message.id == "django_mcp.E001" and "'search_place'" in message.msg
    assert "of shop.Customer" in message.msg and "of shop.Company" in message.msg


def test_a_tool_and_a_prompt_may_share_a_name(server):
    server.tool(one)
    server.prompt(one)
    assert list(right(server).tools) == list(right(server).prompts) == ["one"]


def test_one_mistake_does_not_hide_another(server):
    server.register(Customer, type("Bad", (Names,), {"fields": ["nope"]}))
    server.tool(name="a b")(one)
    server.tool(two)
    server.resource("no uri")(one)
    assert ids(server) == ["E056", "E010", "E040"]
    assert list(server._catalog.tools) == ["two"] and server._catalog.resources == {}


@pytest.mark.parametrize("wrong", [{"meta": [1]}, {"icons": 5}, {"needs": 5}, {"name": 5}])
def test_whatever_an_attribute_is_the_others_are_checked_too(server, wrong):
    server.tool(**wrong)(one)
    server.tool(name="a b")(two)
    assert ids(server) == ["E060", "E010"]
    assert server.check()[0].hint and server._catalog.tools == {}


def test_declaration_that_fails_a_check_by_an_exception_does_not_hide_the_others(server, caplog):
    server.register(type("Odd", (mcp.Tool,), {"title": property(lambda self: 1 / 0)}))
    server.tool(name="a b")(two)
    assert ids(server) == ["E007", "E010"]
    assert "Traceback" in caplog.text and "ZeroDivisionError" in caplog.text
    assert server.check()[0].hint and server._catalog.tools == {}


# Models.


def test_declarations_come_in_any_order(server):
    """One app's tool takes another's model, whose mcp.py is imported later."""

    @server.tool
    def rename(request, customer: Customer) -> Customer:
        return customer

    server.register(Customer, Names)
    catalog = right(server)
    assert catalog.tools["rename"]._definition()["outputSchema"]["required"] == ["_uri", "name"]


def test_a_model_that_is_not_registered(server):
    @server.tool
    def rename(request, customer: Customer) -> str:
        return customer.name

    message = only(server)
    assert message.id == "django_mcp.E020"
    assert "shop.Customer is not registered on the server" in message.msg


def test_a_model_of_another_server(server):
    @server.tool
    def show(request) -> Invoice:
        raise NotImplementedError

    assert 'not registered on the server "a test\'s own"' in only(server).msg


def test_a_model_with_several_resources(server):
    server.register(Customer, Names)
    server.register(Customer, Others)

    @server.tool
    def rename(request, customer: Customer) -> str:
        return customer.name

    message = only(server)
    assert message.id == "django_mcp.E020" and "default = True" in message.msg


def test_the_default_resource_is_taken(server):
    default = type("Default", (Others,), {"default": True})
    server.register(Customer, Names)
    server.register(Customer, default)
    assert type(right(server).find(Customer)) is default


def test_two_defaults_are_none(server):
    server.register(Customer, type("A", (Names,), {"default": True}))
    server.register(Customer, type("B", (Others,), {"default": True}))
    with pytest.raises(ImproperlyConfigured, match="default"):
        right(server).find(Customer)


def test_a_resource_may_be_named(server):
    server.register(Customer, Names)
    server.register(Customer, Others)

    @server.tool
    def rename(request, customer: Annotated[Customer, Others]) -> Annotated[Customer, Names]:
        return customer

    tool = right(server).tools["rename"]
    assert type(tool._arguments.parameters["customer"].binding.resource) is Others


def test_a_resource_that_is_named_and_not_registered(server):
    server.register(Customer, Names)

    @server.tool
    def rename(request, customer: Annotated[Customer, Others]) -> str:
        return customer.name

    assert "shop.Customer with Others is not registered" in only(server).msg


def test_a_misdeclared_resource_is_said_to_be(server):
    server.register(Customer, type("Bad", (Names,), {"fields": ["nope"]}))

    @server.tool
    def rename(request, customer: Customer) -> str:
        return customer.name

    assert ids(server) == ["E056", "E020"]
    assert "has an error of its own" in server.check()[1].msg


def test_a_tools_own_attribute_is_no_model(server):
    class Ask(mcp.Tool):
        _model = "a language model"

        def handle(self, request) -> str:
            return self._model

    server.register(Ask)
    assert right(server).models == {}


def test_whose_fields_apply_to_an_instance(server):
    server.register(Place, Names)
    catalog = right(server)
    resource = catalog.find(Place)
    assert catalog.resource_of(Place) is catalog.resource_of(LocalPlace) is resource
    assert catalog.resource_of(Warehouse) is resource
    with pytest.raises(ValueError, match=r"shop\.Customer is not registered"):
        catalog.resource_of(Customer)


# Addresses.


def test_what_is_at_an_address(server):
    server.resource("x://a")(one)
    server.resource("x://{name}", name="any")(named)
    server.register(Customer, Names)
    catalog = right(server)
    found = [(resource.name, variables) for resource, variables in catalog.at("x://a")]
    assert found == [("one", {}), ("any", {"name": "a"})]
    ((resource, variables),) = catalog.at("model://shop/customer/5")
    assert resource is catalog.find(Customer) and variables == {"pk": "5"}
    assert list(catalog.at("y://a")) == []


# Who may use it.


@pytest.mark.parametrize(
    ("permissions", "has", "all_of_it"),
    [
        ([], False, True),
        ([mcp.PUBLIC, mcp.PUBLIC], True, True),
        ([mcp.PUBLIC, mcp.AUTHENTICATED], True, False),
        ([mcp.AUTHENTICATED], False, False),
    ],
)
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource", "template"])
def test_what_is_for_everybody(server, kind, permissions, has, all_of_it):
    declare = {
        "tool": server.tool,
        "prompt": server.prompt,
        "resource": lambda *, name, permission: server.resource(
            f"x://{name}", name=name, permission=permission
        ),
        "template": lambda *, name, permission: server.resource(
            f"x://{name}/{{name}}", name=name, permission=permission
        ),
    }[kind]
    for number, permission in enumerate(permissions):
        function = named if kind == "template" else one
        declare(name=f"thing{number}", permission=permission)(function)
    right(server)
    assert (server._catalog.has_public, server._catalog.is_public) == (has, all_of_it)
