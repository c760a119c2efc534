"""Records of what was declared: whatever was written, the checks say what is wrong with it."""

import pytest

from django_mcp.exceptions import AlreadyRegistered
from tests.shop.models import Customer, Invoice

from .world import Do, Rows, ids, nothing, only, right


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
def test_a_registration_never_applied(server, things, words):
    server.register(*things)
    message = only(server)
    assert message.id == "django_mcp.E002" and message.msg.startswith(words)


@pytest.mark.parametrize("cls", [Invoice, nothing, type("Plain", (), {})])
def test_what_is_no_declaration(server, cls):
    server.register(Invoice)(cls)
    assert only(server).id == "django_mcp.E003"


def test_a_model_resource_needs_a_model(server):
    server.register(Rows)
    message = only(server)
    assert message.id == "django_mcp.E003" and "with a model: @mcp.register" in message.msg


@pytest.mark.parametrize("subject", ["shop.Invoice", nothing, Do])
def test_a_model_resource_needs_nothing_but_models(server, subject):
    server.register(Invoice, subject, Rows)
    assert only(server).id == "django_mcp.E003"


def test_a_class_that_cannot_be_made(server):
    class Needy(Do):
        def __init__(self, what):
            self.what = what

    server.register(Needy)
    assert only(server).id == "django_mcp.E003"


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
def test_a_decorator_never_applied(server, declare, words):
    """Above all `@mcp.resource` without a URI, which swallows the function."""
    declare(server)
    message = only(server)
    assert message.id == "django_mcp.E002" and message.msg.startswith(words)


def test_a_decorator_that_is_applied_twice(server):
    expose = server.tool(title="Title")
    assert expose(nothing) is nothing

    @expose
    def other(request) -> str:
        return "x"

    assert list(right(server).tools) == ["nothing", "other"]


def test_a_resource_whose_uri_is_none(server):
    server.resource(7)(nothing)
    assert ids(server) == ["E040"]


def test_what_is_the_same_declaration(server):
    server.tool(nothing)
    server.register(Customer, Rows)
    with pytest.raises(AlreadyRegistered):
        server.tool(title="Another title")(nothing)
    with pytest.raises(AlreadyRegistered):
        server.register(Customer)(Rows)
    server.tool(name="another")(nothing)
    server.prompt(nothing)
    assert list(right(server).tools) == ["nothing", "another"]
