"""django-tenants: a user reaches only rows of their own tenant, however they ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import caches
from django.db import connection
from django.test import override_settings
from django_tenants.utils import get_public_schema_name, tenant_context

import django_mcp as mcp
from django_mcp.models import Approval, AuditEntry
from django_mcp.testing import RpcError
from tests.object_permissions.recipes import code_of, run

from .billing.models import Invoice

BY_USER, SETTING, BY_HOST = code_of("django-tenants")


@pytest.fixture(params=["tenant_of_user", "tenant_of_host"])
def around(request, monkeypatch) -> Iterator[str]:
    """Put one of the context managers of the recipe into ``AROUND``, and return its name."""
    module, given = ModuleType("shop.tenants"), dict[str, Any]()
    vars(module).update(run(BY_USER + BY_HOST, "shop"))
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.tenants", module)
    exec(SETTING, given)
    (path,) = given["DJANGO_MCP"]["AROUND"]
    path = path.replace("tenant_of_user", request.param)
    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, "AROUND": [path]}):
        yield request.param


@pytest.fixture
def acme(make_tenant, server) -> Any:
    """Declare invoices, and return a tenant. Invoices of all tenants have the same key."""

    @server.register(Invoice)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number", "total"]
        search_fields = ["number"]
        operations = ["create", "update", "delete"]
        operation_permissions = dict.fromkeys(operations, mcp.AUTHENTICATED)

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    @server.tool
    async def count(request) -> int:
        return await Invoice.objects.acount()

    @server.tool(approval="auth.delete_group")
    def pay(request, number: str) -> str:
        Invoice.objects.create(number=number)
        return connection.schema_name

    @server.tool(throttle=mcp.TotalThrottle("2/month"))
    def rare(request) -> str:
        return "counted"

    @server.tool(throttle=mcp.TotalThrottle("2/month", cache="limits"))
    def rare_for_all(request) -> str:
        return "counted"

    assert [str(message) for message in server.check()] == []
    return make_tenant("acme")


@pytest.fixture
def bolts(make_tenant) -> Any:
    return make_tenant("bolts")


def invoices(tenant: Any) -> list[tuple[str, int]]:
    with tenant_context(tenant):
        return list(Invoice.objects.order_by("pk").values_list("number", "total"))


def host_of(tenant: Any, around: str) -> dict[str, Any]:
    return {"host": f"{tenant.name}.shop.example"} if around == "tenant_of_host" else {}


def test_user_reaches_only_rows_of_their_tenant(around, acme, bolts, connect):
    client = connect(acme.users.get(), **host_of(acme, around))
    found = client.call("search_invoice").data["results"]
    assert [row["number"] for row in found] == ["acme-1"]
    assert client.call("search_invoice", query="bolts").data["results"] == []
    assert client.call("count").data == 1
    client.call("create_invoice", number="acme-2", total="3.00").assert_ok()
    client.call("update_invoice", invoice=1, total="5.00").assert_ok()
    assert client.read("model://billing/invoice/2").data["number"] == "acme-2"
    (template,) = client.templates()
    assert client.complete(template["uriTemplate"], "pk", "") == ["1", "2"]
    assert invoices(acme) == [("acme-1", 5), ("acme-2", 3)]
    assert invoices(bolts) == [("bolts-1", 1)]
    assert connection.schema_name == get_public_schema_name()


def test_row_of_another_tenant_cannot_be_reached(around, acme, bolts, connect):
    with tenant_context(bolts):
        Invoice.objects.create(number="bolts-2")  # with a key that acme does not have
    client = connect(acme.users.get(), **host_of(acme, around))
    uri = "model://billing/invoice/2"
    client.read(uri).assert_unknown()
    for tool in ("update_invoice", "delete_invoice"):
        client.call(tool, invoice=2).assert_error("There is no invoice")
    with pytest.raises(RpcError, match="Resource not found"):
        client.subscribe(uri)
    assert invoices(bolts) == [("bolts-1", 1), ("bolts-2", 1)]


def test_user_without_a_tenant_reaches_nothing(around, acme, connect, django_user_model):
    client = connect(django_user_model.objects.create_user("nobody"), **host_of(acme, around))
    client.call("search_invoice").assert_error("Permission denied.")
    client.call("create_invoice", number="x", total="1.00").assert_error("Permission denied.")
    assert invoices(acme) == [("acme-1", 1)]


def test_approvals_and_audit_entries_are_in_the_public_schema(
    around, acme, bolts, connect, server, django_user_model
):
    server.audit = True
    client = connect(acme.users.get(), **host_of(acme, around))
    client.call("pay", number="acme-2").assert_error("This call must be approved")
    assert Approval.objects.get().approve(django_user_model.objects.create_superuser("root"))
    assert client.call("pay", number="acme-2").text == "acme"
    client.read("model://billing/invoice/2")
    # The tests' connection is in the public schema.
    assert not Approval.objects.get().open
    entries = AuditEntry.objects.order_by("pk")
    assert [*entries.values_list("method", "outcome")] == [
        ("tools/call", "approval_pending"), ("tools/call", "ok"), ("resources/read", "ok")
    ]  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("SELECT schemaname FROM pg_tables WHERE tablename LIKE 'django_mcp_%%'")
        assert {schema for (schema,) in cursor.fetchall()} == {get_public_schema_name()}
    assert [number for number, _ in invoices(acme)] == ["acme-1", "acme-2"]
    assert [number for number, _ in invoices(bolts)] == ["bolts-1"]


@pytest.mark.parametrize(("tool", "for_all"), [("rare", False), ("rare_for_all", True)])
def test_throttles_count_by_the_keys_of_their_cache(around, acme, bolts, connect, tool, for_all):
    """The recipe names a cache without the schema in its keys."""
    for cache in caches.all():
        cache.clear()
    first = connect(acme.users.get(), **host_of(acme, around))
    assert [first.call(tool).text, first.call(tool).text] == ["counted"] * 2
    second = connect(bolts.users.get(), **host_of(bolts, around)).call(tool)
    if for_all:
        second.assert_error("Too many calls")
    else:
        second.assert_ok()


@pytest.mark.parametrize("around", ["tenant_of_host"], indirect=True)
def test_user_cannot_name_the_host_of_another_tenant(around, acme, bolts, connect):
    client = connect(acme.users.get(), host="bolts.shop.example")
    client.call("search_invoice").assert_error("Permission denied.")


@pytest.mark.parametrize("around", ["tenant_of_host"], indirect=True)
def test_user_of_several_tenants_chooses_by_host(around, acme, bolts, connect):
    user = acme.users.get()
    bolts.users.add(user)
    for name in ("acme", "bolts"):
        found = connect(user, host=f"{name}.shop.example").call("search_invoice").data["results"]
        assert [row["number"] for row in found] == [f"{name}-1"]


@pytest.mark.parametrize("around", ["tenant_of_user"], indirect=True)
def test_notification_of_a_row_with_the_same_key_has_only_the_uri(
    around, acme, bolts, connect, django_capture_on_commit_callbacks
):
    """The recipe names this limit."""
    client = connect(acme.users.get())
    client.subscribe("model://billing/invoice/1")
    with django_capture_on_commit_callbacks(execute=True), tenant_context(bolts):
        Invoice.objects.get().save()
    client.wait_for_update("model://billing/invoice/1")
    assert "bolts" not in str(client.notifications)
