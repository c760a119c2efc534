"""The kit's test cases, run as a project's tests are: by unittest, in the test's transaction."""

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


def an_invoice(number: str, company: Company) -> Invoice:
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
        cls.invoice = an_invoice("2026-7", company)
        cls.other = an_invoice("2026-8", Company.objects.create(name="Bolts"))

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
        with self.assertNumQueries(4 + 2):  # with the savepoint of the tool, and its end
            alice.call("refund", **arguments).assert_num_queries(4)

    def test_rows_are_rolled_back(self):
        self.assertEqual(Invoice.objects.get(number="2026-7").status, "open")
        alice = self.mcp.acting_as(self.alice)
        alice.call("refund", invoice=self.invoice, reason="broken", amount=1).assert_ok()
        self.assertEqual(Invoice.objects.get(number="2026-7").status, "draft")

    test_and_again = test_rows_are_rolled_back

    async def test_async(self):
        alice = self.async_mcp.acting_as(self.alice, transport="http")
        told = await alice.call("refund", invoice=self.invoice, reason="broken", amount=1)
        told.assert_ok().assert_num_queries(4)
        invoice = await Invoice.objects.aget(number="2026-7")
        self.assertEqual(invoice.status, "draft")
        self.assertEqual((await HttpClient().get("/nowhere")).status_code, 404)


class Spoken(MCPTestCase):
    mcp_options = {"revision": "2025-06-18", "transport": "http"}

    def test_options(self):
        self.mcp.call("chatty").assert_ok()
        self.assertEqual(Session.objects.get().revision, "2025-06-18")
        self.assertEqual(self.databases, {"default", settings.DATABASE})


class Committed(MCPTransactionTestCase):
    def test_what_commits_commits(self):
        user = User.objects.create_user("carol")
        self.mcp.acting_as(user).call("count_invoices").assert_data(count=0)

    def test_over_a_pipe(self):
        self.mcp.acting_as(None, transport="stdio").call("add", a=1).assert_data(2)


class Mixed(MCPTestMixin, TransactionTestCase):
    databases = {"default"}

    def test_a_mixin_does_too(self):
        self.mcp.call("add", a=1).assert_data(2)
        self.assertEqual(self.databases, {"default"})


class Snapshot(MCPTestCase):
    __test__ = False  # it is made and run below
    folder = ""

    def runTest(self):
        self.assertCatalogMatches(Path(self.folder) / "catalog.json")


def test_a_catalog_is_written_once_and_then_compared(tmp_path, monkeypatch, db):
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


def test_a_path_is_relative_to_the_file_of_the_test(monkeypatch, db):
    asked = []
    case = Snapshot("runTest")
    monkeypatch.setattr(case.mcp, "assert_catalog", asked.append)
    case.assertCatalogMatches("snapshots/catalog.json")
    assert asked == [Path(__file__).parent / "snapshots/catalog.json"]
    case.doCleanups()


def test_nothing_is_left_of_a_case():
    assert verifiers_of_tests == [] and type(environment()) is Environment
