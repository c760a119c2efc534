"""The test cases of the kit, run by unittest as in a project, inside the test's transaction."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.test import AsyncClient as HttpClient
from django.test import TransactionTestCase

import django_mcp as mcp
from django_mcp.auth.principal import verifiers_of_tests
from django_mcp.conf import settings
from django_mcp.models import Session
from django_mcp.runtime.runtime import Environment, environment
from django_mcp.testing import MCPTestCase, MCPTestMixin, MCPTransactionTestCase
from tests.shop.models import Company, Customer, Invoice


def make_invoice(number: str, company: Company) -> Invoice:
    customer = Customer.objects.create(company=company, name=f"Customer of {number}")
    return Invoice.objects.create(
        company=company, customer=customer, number=number, total=Decimal("12.50"),
        issued=date(2026, 1, 2), status=Invoice.Status.OPEN,
    )  # fmt: skip


class Refunds(MCPTestCase):
    @classmethod
    def setUpTestData(cls):
        cls.alice, cls.bob = (User.objects.create_user(name) for name in ("alice", "bob"))
        cls.alice.user_permissions.add(Permission.objects.get(codename="change_invoice"))
        company = Company.objects.create(name="Acme")
        company.members.add(cls.alice)
        cls.invoice = make_invoice("2026-7", company)
        cls.other = make_invoice("2026-8", Company.objects.create(name="Bolts"))

    def test_refund(self):
        alice = self.mcp.acting_as(self.alice, revision="2025-11-25", transport="http")
        alice.answers(elicit=lambda message, schema: "12.50" in message)
        alice.call("refund", invoice=self.invoice.number, reason="broken").assert_ok()
        alice.call("refund", invoice=self.other, reason="x").assert_error("There is no invoice")
        alice.read(self.invoice).assert_sees("2026-7")
        bob = self.mcp.acting_as(self.bob)
        self.assertNotIn("refund", bob.tools())
        self.assertIn("refund", alice.tools())

    def test_queries(self):
        alice = self.mcp.acting_as(self.alice).answers(elicit=True)
        arguments = {"invoice": self.invoice, "reason": "broken", "amount": 1}
        with self.assertNumQueries(4 + 2):  # the tool's savepoint adds two queries
            alice.call("refund", **arguments).assert_num_queries(4)

    def test_rows_are_rolled_back(self):
        self.assertEqual(Invoice.objects.get(number="2026-7").status, "open")
        alice = self.mcp.acting_as(self.alice)
        alice.call("refund", invoice=self.invoice, reason="broken", amount=1).assert_ok()
        self.assertEqual(Invoice.objects.get(number="2026-7").status, "draft")

    test_rows_are_rolled_back_again = test_rows_are_rolled_back

    async def test_async(self):
        alice = self.async_mcp.acting_as(self.alice, transport="http")
        result = await alice.call("refund", invoice=self.invoice, reason="broken", amount=1)
        result.assert_ok().assert_num_queries(4)
        invoice = await Invoice.objects.aget(number="2026-7")
        self.assertEqual(invoice.status, "draft")
        self.assertEqual((await HttpClient().get("/nowhere")).status_code, 404)


class OlderRevision(MCPTestCase):
    mcp_options = {"revision": "2025-06-18", "transport": "http"}

    def test_options(self):
        self.mcp.call("chatty").assert_ok()
        self.assertEqual(Session.objects.get().revision, "2025-06-18")
        self.assertEqual(self.databases, {"default", settings.DATABASE})


class Committed(MCPTransactionTestCase):
    def test_rows_are_committed(self):
        user = User.objects.create_user("carol")
        self.mcp.acting_as(user).call("count_invoices").assert_data(count=0)

    def test_stdio(self):
        self.mcp.acting_as(None, transport="stdio").call("add", a=1).assert_data(2)


class Mixed(MCPTestMixin, TransactionTestCase):
    databases = {"default"}

    def test_mixin_provides_a_client(self):
        self.mcp.call("add", a=1).assert_data(2)
        self.assertEqual(self.databases, {"default"})


class Snapshot(MCPTestCase):
    __test__ = False  # the tests below create and run it
    folder = ""

    def runTest(self):
        self.assertCatalogMatches(Path(self.folder) / "catalog.json")


def test_catalog_is_written_once_and_then_compared(tmp_path, monkeypatch, db):
    monkeypatch.setattr(Snapshot, "folder", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    case = Snapshot("runTest")
    case.runTest()
    names = [tool["name"] for tool in json.loads((tmp_path / "catalog.json").read_text())["tools"]]
    assert "add" in names and "refund" not in names
    case.assertCatalogMatches(tmp_path / "catalog.json")
    monkeypatch.setattr(mcp.server._catalog.tools["add"], "description", "Multiply.")
    with pytest.raises(AssertionError, match="(?s)has changed.*add"):
        case.assertCatalogMatches(tmp_path / "catalog.json")
    case.doCleanups()


def test_snapshot_path_is_relative_to_the_test_file(monkeypatch, db):
    calls = []
    case = Snapshot("runTest")
    monkeypatch.setattr(case.mcp, "assert_catalog", calls.append)
    case.assertCatalogMatches("snapshots/catalog.json")
    assert calls == [Path(__file__).parent / "snapshots/catalog.json"]
    case.doCleanups()


def test_cases_leave_no_verifier_and_environment():
    assert verifiers_of_tests == [] and type(environment()) is Environment
