"""The functions ``tool``, ``prompt``, ``resource`` and ``register``, and the option ``server``."""

import pytest

import django_mcp as mcp
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server
from tests.shop.models import Customer

from .helpers import single_problem, valid_catalog


@pytest.fixture
def default(server, monkeypatch):
    """Use a new server as the default server."""
    monkeypatch.setattr(servers, "default_server", server)
    return server


def nothing(request) -> str:
    """Do nothing."""
    return "nothing"


class Rows(mcp.ModelResource):
    fields = ["name"]


class Do(mcp.Tool):
    def handle(self, request) -> str:
        return "done"


def test_decorators_register_on_the_default_server_and_return_their_argument(default):
    assert mcp.tool(nothing) is nothing
    assert mcp.tool(name="again", read_only=True)(nothing) is nothing
    assert mcp.prompt(nothing) is nothing
    assert mcp.prompt(title="Again", name="again")(nothing) is nothing
    assert mcp.resource("x://y", mime_type="text/plain")(nothing) is nothing
    assert mcp.register(Do) is Do
    assert mcp.register(Customer)(Rows) is Rows
    catalog = valid_catalog(default)
    assert list(catalog.tools) == ["nothing", "again", "do"]
    assert catalog.tools["again"].read_only is True
    assert list(catalog.prompts) == ["nothing", "again"]
    assert catalog.resources["x://y"].mime_type == "text/plain"
    assert list(catalog.models) == [Customer]


def test_default_server_of_decorators_is_mcp_server():
    assert servers.default_server is mcp.server


def test_decorators_register_on_the_given_server(default):
    other = Server("another for decorators")
    mcp.tool(server=other)(nothing)
    mcp.prompt(server=other)(nothing)
    mcp.resource("x://y", server=other)(nothing)
    mcp.register(Customer, Rows, server=other)
    mcp.register(server=other)(Do)
    assert default._is_empty
    catalog = valid_catalog(other)
    assert list(catalog.tools) == ["nothing", "do"] and list(catalog.models) == [Customer]
    assert list(catalog.prompts) == ["nothing"] and list(catalog.resources) == ["x://y"]


def test_empty_server_can_be_given_as_an_option(default):
    """An empty server must not count as no server."""
    other = Server("an empty one for decorators")
    mcp.tool(server=other)(nothing)
    assert not other._is_empty


@pytest.mark.parametrize("decorate", [mcp.tool, mcp.prompt])
def test_unknown_option_is_an_error(default, decorate):
    decorate(nonsense=1)(nothing)
    message = single_problem(default)
    assert message.id == "django_mcp.E003" and "'nonsense'" in message.msg


def test_resource_requires_a_uri_as_first_argument(default):
    with pytest.raises(TypeError):
        mcp.resource(nothing, "x://y")
    with pytest.raises(TypeError):
        mcp.resource(uri="x://y")


def test_resource_decorator_without_a_call_is_an_error(default):
    """``@mcp.resource`` directly above a function receives the function as its URI."""
    mcp.resource(nothing)
    assert single_problem(default).id == "django_mcp.E002"
