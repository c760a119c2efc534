"""Objects without a declared permission are closed."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from tests.client import RpcError
from tests.shop.models import Company, Invoice

from .helpers import list_items, request_error, startup_errors

pytestmark = pytest.mark.django_db


@pytest.fixture
def unsaid(server):
    """A server whose things say nothing of who may use them."""

    @server.tool
    def work(request: mcp.Request) -> str:
        return "secret"

    @server.prompt
    def tell(request: mcp.Request, of: str = "") -> str:
        return "secret"

    @server.resource("thing://one")
    def one(request: mcp.Request) -> str:
        return "secret"

    @server.resource("thing://{id}/more")
    def more(request: mcp.Request, id: str) -> str:
        return "secret"

    @server.register(Invoice)
    class Invoices(mcp.ModelResource):
        fields = ["number"]
        uri = "invoice://{number}"
        search_fields = ["number"]
        listed = True

    return server


USES = {
    "tool": ("tools/call", {"name": "work"}, {"name": "none"}),
    "search": ("tools/call", {"name": "search_invoice"}, {"name": "none"}),
    "prompt": ("prompts/get", {"name": "tell"}, {"name": "none"}),
    "resource": ("resources/read", {"uri": "thing://one"}, {"uri": "thing://none"}),
    "template": ("resources/read", {"uri": "thing://a/more"}, {"uri": "thing://none"}),
    "row": ("resources/read", {"uri": "invoice://A-1"}, {"uri": "thing://none"}),
}


def words(error: RpcError, params):
    """An error without the name that was asked for."""
    name = next(iter(params.values()))
    return (error.code, error.message.replace(name, ""), str(error.data).replace(name, ""))


@pytest.mark.parametrize("use", USES)
def test_objects_without_permission_are_closed_to_anonymous_clients(
    connect, unsaid, invoice, revision, use
):
    method, params, nothing = USES[use]
    client = connect(server=unsaid, revision=revision)
    refused, missing = (
        request_error(client, method, **params),
        request_error(client, method, **nothing),
    )
    assert words(refused, params) == words(missing, nothing)
    kinds = ("tools", "prompts", "resources", "templates")
    assert [list_items(client, kind) for kind in kinds] == [
        [], [], [], [],
    ]  # fmt: skip


@pytest.mark.parametrize("use", ["search", "row"])
def test_rows_are_closed_without_the_view_permission(connect, unsaid, invoice, bob, use):
    method, params, nothing = USES[use]
    client = connect(bob, server=unsaid)
    refused, missing = (
        request_error(client, method, **params),
        request_error(client, method, **nothing),
    )
    assert words(refused, params) == words(missing, nothing)
    names = [item["name"] for item in list_items(client, "tools")]
    assert names == ["work"]  # which needs but a user


def test_public_model_resource_needs_fields_and_get_queryset(server):
    class Invoices(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["number"]

    class Companies(mcp.ModelResource):
        permission = mcp.PUBLIC

        def get_queryset(self, request):
            return super().get_queryset(request)

    server.register(Invoice, Invoices)
    server.register(Company, Companies)
    wrong = " ".join(startup_errors(server))
    assert "get_queryset" in wrong  # to show every row must be written out
    assert "fields" in wrong  # and so must every column


def test_permitted_objects_are_open(connect, unsaid, alice):
    """Show that the tests above could fail."""
    client = connect(alice, server=unsaid)
    for use in ("tool", "prompt", "resource", "template"):
        method, params, _ = USES[use]
        assert "secret" in str(client.request(method, **params))
