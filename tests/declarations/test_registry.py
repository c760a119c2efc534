"""Registration of declarations: the checks report decorators and classes that are used wrongly."""

import pytest

from django_mcp.exceptions import AlreadyRegistered
from tests.shop.models import Customer, Invoice

from .helpers import Do, Rows, nothing, problem_ids, single_problem, valid_catalog


@pytest.mark.parametrize(
    ("things", "words"),
    [
        ((Invoice,), "register(Invoice)"),
        ((), "register()"),
        ((nothing,), "register(nothing)"),
        (("shop.Invoice",), "register('shop.Invoice')"),
        ((Do, Invoice), "register(Do, Invoice)"),
    ],
)
def test_register_without_a_class_is_an_error(server, things, words):
    server.register(*things)
    message = single_problem(server)
    assert message.id == "django_mcp.E002" and message.msg.startswith(words)


@pytest.mark.parametrize("cls", [Invoice, nothing, type("Plain", (), {})])
def test_registering_another_class_or_function_is_an_error(server, cls):
    server.register(Invoice)(cls)
    assert single_problem(server).id == "django_mcp.E003"


def test_registering_a_model_resource_without_a_model_is_an_error(server):
    server.register(Rows)
    message = single_problem(server)
    assert message.id == "django_mcp.E003" and "with a model: @mcp.register" in message.msg


@pytest.mark.parametrize("subject", ["shop.Invoice", nothing, Do])
def test_registering_a_model_resource_for_something_else_is_an_error(server, subject):
    server.register(Invoice, subject, Rows)
    assert single_problem(server).id == "django_mcp.E003"


def test_class_that_cannot_be_instantiated_is_an_error(server):
    class Needy(Do):
        def __init__(self, what):
            self.what = what

    server.register(Needy)
    assert single_problem(server).id == "django_mcp.E003"


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda server: server.tool(name="a"), "tool(name='a')"),
        (lambda server: server.tool(), "tool()"),
        (lambda server: server.prompt(title="A"), "prompt(title='A')"),
        (lambda server: server.resource("x://y"), "resource(uri='x://y')"),
        (lambda server: server.resource(nothing), "resource(uri=<function nothing"),
    ],
)
def test_decorator_without_a_function_is_an_error(server, declare, words):
    """The most frequent case is ``@mcp.resource`` without a URI, which receives the function."""
    declare(server)
    message = single_problem(server)
    assert message.id == "django_mcp.E002" and message.msg.startswith(words)


def test_decorator_can_be_applied_to_several_functions(server):
    expose = server.tool(title="Title")
    assert expose(nothing) is nothing

    @expose
    def other(request) -> str:
        return "x"

    assert list(valid_catalog(server).tools) == ["nothing", "other"]


def test_uri_that_is_no_text_is_an_error(server):
    server.resource(7)(nothing)
    assert problem_ids(server) == ["E040"]


def test_registering_the_same_function_or_class_twice_raises(server):
    server.tool(nothing)
    server.register(Customer, Rows)
    with pytest.raises(AlreadyRegistered):
        server.tool(title="Another title")(nothing)
    with pytest.raises(AlreadyRegistered):
        server.register(Customer)(Rows)
    server.tool(name="another")(nothing)
    server.prompt(nothing)
    assert list(valid_catalog(server).tools) == ["nothing", "another"]
