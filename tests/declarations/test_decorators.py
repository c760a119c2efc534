"""`tool`, `prompt`, `resource`, `register`: on the default server, or on another."""

import pytest

import django_mcp as mcp
from django_mcp.declarations import decorators
from django_mcp.declarations.server import Server
from tests.shop.models import Customer

from .world import only, right


@pytest.fixture
def default(server, monkeypatch):
    """A server in the default one's place."""
    monkeypatch.setattr(decorators, "default_server", server)
    return server


def nothing(request) -> str:
    """Do nothing."""
    return "nothing"


class Rows(mcp.ModelResource):
    fields = ["name"]


class Do(mcp.Tool):
    def handle(self, request) -> str:
        return "done"


def test_they_record_and_give_back_what_they_were_given(default):
    assert mcp.tool(nothing) is nothing
    assert mcp.tool(name="again", read_only=True)(nothing) is nothing
    assert mcp.prompt(nothing) is nothing
    assert mcp.prompt(title="Again", name="again")(nothing) is nothing
    assert mcp.resource("x://y", mime_type="text/plain")(nothing) is nothing
    assert mcp.register(Do) is Do
    assert mcp.register(Customer)(Rows) is Rows
    catalog = right(default)
    assert list(catalog.tools) == ["nothing", "again", "do"]
    assert catalog.tools["again"].read_only is True
    assert list(catalog.prompts) == ["nothing", "again"]
    assert catalog.resources["x://y"].mime_type == "text/plain"
    assert list(catalog.models) == [Customer]


def test_the_default_server_is_the_one_there_is():
    assert decorators.default_server is mcp.server


def test_another_server(default):
    other = Server("another for decorators")
    mcp.tool(server=other)(nothing)
    mcp.prompt(server=other)(nothing)
    mcp.resource("x://y", server=other)(nothing)
    mcp.register(Customer, Rows, server=other)
    mcp.register(server=other)(Do)
    assert default._is_empty
    catalog = right(other)
    assert list(catalog.tools) == ["nothing", "do"] and list(catalog.models) == [Customer]
    assert list(catalog.prompts) == ["nothing"] and list(catalog.resources) == ["x://y"]


def test_a_server_that_is_empty_is_a_server_all_the_same(default):
    """What has a length of nothing would count as nothing."""
    other = Server("an empty one for decorators")
    mcp.tool(server=other)(nothing)
    assert not other._is_empty


@pytest.mark.parametrize("decorate", [mcp.tool, mcp.prompt])
def test_options_that_are_none(default, decorate):
    decorate(nonsense=1)(nothing)
    message = only(default)
    assert message.id == "django_mcp.E003" and "'nonsense'" in message.msg


def test_a_resource_has_a_uri_first(default):
    with pytest.raises(TypeError):
        mcp.resource(nothing, "x://y")
    with pytest.raises(TypeError):
        mcp.resource(uri="x://y")


def test_a_resource_without_brackets(default):
    """`@mcp.resource` above a function takes the function for its URI."""
    mcp.resource(nothing)
    assert only(default).id == "django_mcp.E002"
