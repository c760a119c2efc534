"""The catalog of a server: unique names, one resource for each model, and lookup by URI."""

from typing import Annotated

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_mcp as mcp
from tests.shop.models import Company, Customer, Invoice, LocalPlace, Place, Warehouse

from .helpers import problem_ids, single_problem, valid_catalog


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


# Duplicate names.


@pytest.mark.parametrize(
    "declare",
    [
        lambda server, function: server.tool(name="same")(function),
        lambda server, function: server.prompt(name="same")(function),
        lambda server, function: server.resource("x://same", name=function.__name__)(function),
    ],
)
def test_duplicate_name_is_an_error_that_names_both_functions(server, declare):
    declare(server, one)
    declare(server, two)
    message = single_problem(server)
    assert message.id == "django_mcp.E001" and "same" in message.msg
    assert "test_catalog.one" in message.msg and "test_catalog.two" in message.msg


def test_duplicate_uri_template_is_an_error(server):
    server.resource("x://{name}", name="a")(named)
    server.resource("x://{name}", name="b")(named)
    assert problem_ids(server) == ["E001"]


def test_duplicate_name_of_model_resources_is_an_error(server):
    """Both resources create a search tool of the same name."""

    class First(Names):
        search_fields = ["name"]
        name = "place"

    server.register(Customer, First)
    server.register(Company, First)
    message = single_problem(server)
    assert message.id == "django_mcp.E001" and "'search_place'" in message.msg
    assert "of shop.Customer" in message.msg and "of shop.Company" in message.msg


def test_tool_and_prompt_may_have_the_same_name(server):
    server.tool(one)
    server.prompt(one)
    assert list(valid_catalog(server).tools) == list(valid_catalog(server).prompts) == ["one"]


def test_check_reports_the_problems_of_all_declarations(server):
    server.register(Customer, type("Bad", (Names,), {"fields": ["nope"]}))
    server.tool(name="a b")(one)
    server.tool(two)
    server.resource("no uri")(one)
    assert problem_ids(server) == ["E056", "E010", "E040"]
    assert list(server._catalog.tools) == ["two"] and server._catalog.resources == {}


@pytest.mark.parametrize("wrong", [{"meta": [1]}, {"icons": 5}, {"needs": 5}, {"name": 5}])
def test_invalid_attribute_does_not_prevent_checks_of_other_declarations(server, wrong):
    server.tool(**wrong)(one)
    server.tool(name="a b")(two)
    assert problem_ids(server) == ["E060", "E010"]
    assert server.check()[0].hint and server._catalog.tools == {}


def test_exception_during_a_check_is_reported_and_other_declarations_are_checked(server, caplog):
    server.register(type("Odd", (mcp.Tool,), {"title": property(lambda self: 1 / 0)}))
    server.tool(name="a b")(two)
    assert problem_ids(server) == ["E007", "E010"]
    assert "Traceback" in caplog.text and "ZeroDivisionError" in caplog.text
    assert server.check()[0].hint and server._catalog.tools == {}


# Models.


def test_tool_may_be_declared_before_the_model_it_uses(server):
    """The ``mcp.py`` that registers the model may be imported later."""

    @server.tool
    def rename(request, customer: Customer) -> Customer:
        return customer

    server.register(Customer, Names)
    catalog = valid_catalog(server)
    assert catalog.tools["rename"]._definition()["outputSchema"]["required"] == ["_uri", "name"]


def test_argument_with_an_unregistered_model_is_an_error(server):
    @server.tool
    def rename(request, customer: Customer) -> str:
        return customer.name

    message = single_problem(server)
    assert message.id == "django_mcp.E020"
    assert "shop.Customer is not registered on the server" in message.msg


def test_model_registered_only_on_another_server_is_an_error(server):
    @server.tool
    def show(request) -> Invoice:
        raise NotImplementedError

    assert 'not registered on the server "a test\'s own"' in single_problem(server).msg


def test_model_with_several_resources_and_no_default_is_an_error(server):
    server.register(Customer, Names)
    server.register(Customer, Others)

    @server.tool
    def rename(request, customer: Customer) -> str:
        return customer.name

    message = single_problem(server)
    assert message.id == "django_mcp.E020" and "default = True" in message.msg


def test_default_resource_of_a_model_is_used(server):
    default = type("Default", (Others,), {"default": True})
    server.register(Customer, Names)
    server.register(Customer, default)
    assert type(valid_catalog(server).find(Customer)) is default


def test_model_with_two_default_resources_raises(server):
    server.register(Customer, type("A", (Names,), {"default": True}))
    server.register(Customer, type("B", (Others,), {"default": True}))
    with pytest.raises(ImproperlyConfigured, match="default"):
        valid_catalog(server).find(Customer)


def test_annotation_can_choose_the_resource_of_a_model(server):
    server.register(Customer, Names)
    server.register(Customer, Others)

    @server.tool
    def rename(request, customer: Annotated[Customer, Others]) -> Annotated[Customer, Names]:
        return customer

    tool = valid_catalog(server).tools["rename"]
    assert type(tool._arguments.parameters["customer"].binding.resource) is Others


def test_chosen_resource_that_is_not_registered_is_an_error(server):
    server.register(Customer, Names)

    @server.tool
    def rename(request, customer: Annotated[Customer, Others]) -> str:
        return customer.name

    assert "shop.Customer with Others is not registered" in single_problem(server).msg


def test_error_mentions_that_the_models_resource_is_invalid(server):
    server.register(Customer, type("Bad", (Names,), {"fields": ["nope"]}))

    @server.tool
    def rename(request, customer: Customer) -> str:
        return customer.name

    assert problem_ids(server) == ["E056", "E020"]
    assert "has an error of its own" in server.check()[1].msg


def test_private_model_attribute_of_a_tool_is_not_a_registered_model(server):
    class Ask(mcp.Tool):
        _model = "a language model"

        def handle(self, request) -> str:
            return self._model

    server.register(Ask)
    assert valid_catalog(server).models == {}


def test_proxy_and_child_models_use_the_resource_of_their_parent(server):
    server.register(Place, Names)
    catalog = valid_catalog(server)
    resource = catalog.find(Place)
    assert catalog.resource_of(Place) is catalog.resource_of(LocalPlace) is resource
    assert catalog.resource_of(Warehouse) is resource
    with pytest.raises(ValueError, match=r"shop\.Customer is not registered"):
        catalog.resource_of(Customer)


# Lookup by URI.


def test_uri_is_resolved_to_resources_and_variables(server):
    server.resource("x://a")(one)
    server.resource("x://{name}", name="any")(named)
    server.register(Customer, Names)
    catalog = valid_catalog(server)
    found = [(resource.name, variables) for resource, variables in catalog.at("x://a")]
    assert found == [("one", {}), ("any", {"name": "a"})]
    ((resource, variables),) = catalog.at("model://shop/customer/5")
    assert resource is catalog.find(Customer) and variables == {"pk": "5"}
    assert list(catalog.at("y://a")) == []


# Public declarations.


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
def test_catalog_knows_whether_some_or_all_declarations_are_public(
    server, kind, permissions, has, all_of_it
):
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
    valid_catalog(server)
    assert (server._catalog.has_public, server._catalog.is_public) == (has, all_of_it)
