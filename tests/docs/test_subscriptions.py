"""The page on subscriptions: its test passes, and its changes are announced."""

from __future__ import annotations

import unittest
from types import ModuleType
from typing import Any

import pytest

from django_mcp.changes import capture
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server
from tests.shop.models import Company, Invoice

from .pages import ROOT, blocks
from .test_testing import make_invoice, make_user

PAGE = ROOT / "docs/how-to/subscriptions.md"


@pytest.fixture
def page_module(monkeypatch) -> Any:
    """The code of the page, on its own server."""
    server = Server("of subscriptions")
    monkeypatch.setattr(servers, "default_server", server)
    module = ModuleType("tests.shop.shown_subscriptions")
    module.__package__ = "tests.shop"
    for code in blocks(PAGE, "python"):
        code = code.replace("billing/invoice", "shop/invoice")
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    module.__dict__["server"] = server
    yield module
    servers._servers.pop("of subscriptions", None)


def test_test_case_of_the_page_passes(page_module, django_db_blocker, django_db_setup):
    class Tests(page_module.SubscriptionTests):
        mcp_options = {"server": page_module.server}

        @classmethod
        def setUpTestData(cls) -> None:
            cls.alice = make_user("alice")
            make_invoice("A-1", cls.alice)

    with django_db_blocker.unblock():
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Tests)
        result = unittest.TextTestRunner(verbosity=0).run(suite)
    assert result.testsRun == 1 and result.wasSuccessful(), result.failures + result.errors


@pytest.mark.django_db
def test_bulk_update_with_notify_changed_is_announced(
    page_module, monkeypatch, django_capture_on_commit_callbacks
):
    announced: list[Any] = []
    monkeypatch.setattr(capture, "notify_this_process", announced.extend)
    invoice = make_invoice("A-1", make_user("alice"))
    Invoice.objects.update(status=Invoice.Status.DRAFT)
    with django_capture_on_commit_callbacks(execute=True):
        page_module.close(Company.objects.get())
    assert Invoice.objects.get().status == Invoice.Status.OPEN
    ((kind, subject),) = announced
    assert kind == "row" and subject["shop.invoice"]["pk"] == str(invoice.pk)
