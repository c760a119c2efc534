"""django-simple-history and django-reversion: what a client wrote is recorded with its user."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from reversion.models import Revision, Version

import django_mcp as mcp

from .models import Invoice
from .recipes import code_of, run


@pytest.fixture
def around(monkeypatch) -> Any:
    """Return a function that runs a section and puts its context manager into ``AROUND``."""

    def made(section: str, name: str) -> Any:
        (code,) = code_of(section)
        module = ModuleType("tests.object_permissions.around")
        vars(module).update(run(code, "tests.object_permissions"))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        given = {**settings.DJANGO_MCP, "AROUND": [f"{module.__name__}.{name}"]}
        return override_settings(DJANGO_MCP=given)

    return made


@pytest.fixture
def tools(server) -> None:
    """Declare tools that save an invoice."""

    @server.tool
    def rename(request, number: str, fails: bool = False) -> str:
        invoice = Invoice.objects.get()
        invoice.number = number
        invoice.save()
        if fails:
            raise mcp.ToolError("It failed.")
        return "renamed"

    @server.tool
    async def arename(request, number: str) -> str:
        invoice = await Invoice.objects.aget()
        invoice.number = number
        await invoice.asave()
        return "renamed"


@pytest.mark.parametrize("tool", ["rename", "arename"])
def test_history_has_the_caller(around, tools, connect, alice, bob, tool):
    invoice = Invoice.objects.create(owner=alice, number="A-1")
    with around("django-simple-history", "history_user"):
        connect(bob).call(tool, number="A-2").assert_ok()
        connect(alice).call(tool, number="A-3").assert_ok()
    invoice.refresh_from_db()
    invoice.save()
    found = invoice.history.order_by("pk").values_list("number", "history_user__username")
    assert list(found) == [("A-1", None), ("A-2", "bob"), ("A-3", "alice"), ("A-3", None)]


@pytest.mark.parametrize("tool", ["rename", "arename"])
def test_revision_has_the_caller_and_the_client(around, tools, connect, alice, bob, tool):
    invoice = Invoice.objects.create(owner=alice, number="A-1")
    with around("django-reversion", "revision"):
        client = connect(bob)
        client.call(tool, number="A-2").assert_ok()
        client.tools()
    revision = Revision.objects.get()
    assert revision.user == bob and revision.comment.startswith("MCP client: ")
    assert Version.objects.get_for_object(invoice).get().field_dict["number"] == "A-2"


def test_failed_call_makes_no_revision(around, tools, connect, alice):
    Invoice.objects.create(owner=alice, number="A-1")
    with around("django-reversion", "revision"):
        connect(alice).call("rename", number="A-2", fails=True).assert_error("It failed.")
    assert not Revision.objects.exists() and Invoice.objects.get().number == "A-1"
