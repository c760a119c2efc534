"""Generic tools over HTTP: missing scopes, anonymous clients, durable calls and revocations."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.db import connection

import django_mcp as mcp
from django_mcp.models import Call
from tests.client import RpcError
from tests.declarations.test_generic_tools import Articles, Members
from tests.shop.models import Article, Invoice
from tests.storage.rows import given

from .test_scopes import SCOPES, refused

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def scoped(settings):
    verifiers = {"VERIFIERS": ["tests.transports.http.test_scopes.Scoped"], "SCOPES": SCOPES}
    settings.DJANGO_MCP = settings.DJANGO_MCP | verifiers


@pytest.fixture
def generic(server, alice):
    codenames = ("view_article", "change_article", "view_invoice")
    alice.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    server.register(Article, Articles)
    server.register(Invoice, type("Invoices", (Members,), {
        "permission": "shop.view_invoice", "get_queryset": lambda self, request:
        self.model.objects.all(),
    }))  # fmt: skip
    mcp.register_models("shop", generic=True, server=server)
    return server


def calling(client, tool, **arguments):
    return client.start("tools/call", name=tool, arguments=arguments)


def test_challenge_names_the_scopes_that_the_called_model_needs(http, generic):
    client = http("alice/view/app", server=generic)
    assert not client.call("search_rows", model="article").get("isError")
    update = {"model": "article", "operation": "update", "arguments": {}}
    assert {*refused(calling(client, "write_row", **update))} == {"view", "change"}
    listed = client.call("list_models")["structuredContent"]["models"]
    assert [one["operations"] for one in listed] == [
        ["search", "aggregate", "update"], ["search", "aggregate", "update"],
    ]  # fmt: skip


def test_no_challenge_for_an_operation_that_the_user_may_not_use(http, generic):
    client = http("alice/view/app", server=generic)
    create = {"operation": "create", "arguments": {}}
    # This token may write no model, so both get the error for the tool itself.
    assert client.failure("write_row", model="article", **create) == client.failure(
        "write_row", model="nothing", **create
    )
    client = http("alice/view change/app", server=generic)
    said = client.failure("write_row", model="article", **create)
    assert said == client.failure("write_row", model="nothing", **create).replace(
        "nothing", "article"
    )


def test_personal_token_without_the_scope_has_no_such_tool(http, generic):
    client = http("alice/basic", server=generic)
    for model in ("article", "nothing"):
        with pytest.raises(RpcError, match="Unknown tool: search_rows"):
            client.call("search_rows", model=model)
    names = [tool["name"] for tool in client.request("tools/list")["tools"]]
    assert "search_rows" not in names


def test_anonymous_client_gets_the_same_401_for_a_private_and_for_a_missing_model(http, server):
    server.register(Article, type("Public", (Articles,), {
        "permission": mcp.PUBLIC, "operations": (), "get_queryset": lambda self, request:
        self.model.objects.all(),
    }))  # fmt: skip
    server.register(Invoice, Members)
    mcp.register_models("shop", generic=True, server=server)
    client = http(server=server)
    assert not client.call("search_rows", model="article").get("isError")
    private = calling(client, "search_rows", model="invoice").wait()
    missing = calling(client, "search_rows", model="nothing").wait()
    assert private.status == missing.status == 401
    assert private.messages[0]["error"] == missing.messages[0]["error"]


def test_durable_server_stores_only_calls_of_models_that_the_caller_may_use(
    http, generic, alice, handshake
):
    generic.durable = True
    client = http("alice/view change/app", server=generic, revision=handshake)
    create = {"operation": "create", "arguments": {"title": "x"}}
    with given(JSON_GRACE=60):  # a slow call is stored, too
        for model in ("article", "nothing"):
            assert client.failure("write_row", model=model, **create)
    assert not Call.objects.exists()
    row = Article.objects.create(title="old")
    update = {"operation": "update", "arguments": {"article": row.pk, "title": "new"}}
    client.text("write_row", model="article", **update)
    row.refresh_from_db()
    assert row.title == "new"
    call = Call.objects.get()
    assert call.atomic == (connection.vendor != "sqlite")
