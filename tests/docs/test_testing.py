"""The page on testing: its tests are collected here and run like those of a project."""

from __future__ import annotations

import re
import sys
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from django_mcp import testing
from tests.shop.models import Company, Customer, Invoice

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/testing.md"
REFERENCE = ROOT / "docs/reference/testing.md"
DECLARED = "# shop/mcp.py\n"


def make_user(name: str, permission: str = "") -> User:
    user = User.objects.create_user(name)
    if permission:
        user.user_permissions.add(Permission.objects.get(codename=permission.partition(".")[2]))
    return user


def make_invoice(number: str, seen_by: User) -> Invoice:
    company = Company.objects.create(name=f"Company of {number}")
    company.members.add(seen_by)
    customer = Customer.objects.create(company=company, name="Carla")
    return Invoice.objects.create(
        company=company, customer=customer, number=number, total=Decimal("12.50"),
        issued=date(2026, 1, 2), status=Invoice.Status.OPEN,
    )  # fmt: skip


def shown() -> ModuleType:
    """A module of the shop's tests that holds what the page shows."""
    factories = ModuleType("tests.shop.factories")
    factories.__dict__.update(make_user=make_user, make_invoice=make_invoice)
    sys.modules[factories.__name__] = factories
    module = ModuleType("tests.shop.test_shown")
    module.__package__ = "tests.shop"
    sys.modules[module.__name__] = module
    for code in blocks(PAGE, "python"):
        if code.startswith(DECLARED):
            continue
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    return module


SHOWN = shown()
TESTS = {name: one for name, one in vars(SHOWN).items() if re.match(r"test_|\w+Tests$", name)}
globals().update(TESTS)


@pytest.fixture(autouse=True)
def _the_files_of_this_test(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SHOWN, "__file__", str(tmp_path / "test_shown.py"), raising=False)
    monkeypatch.delenv("CI", raising=False)


def test_page_shows_the_tools_that_its_tests_call():
    shown = [code.removeprefix(DECLARED) for code in blocks(PAGE, "python") if DECLARED in code]
    source = (ROOT / "tests/shop/mcp.py").read_text("utf-8")
    assert len(shown) == 2 and all(code in source for code in shown)


def test_page_shows_the_expected_tests():
    assert {"RefundTests", "QuestionTests", "ConnectionTests", "CatalogTests"} <= set(TESTS)
    functions = {"test_a_refund_takes_few_queries", "test_refund_is_hidden_from_anonymous_clients"}
    assert functions <= set(TESTS)


def test_every_public_name_of_the_testing_package_is_in_the_reference():
    documented = re.findall(r"^### `django_mcp\.testing\.(\w+)`$", text(REFERENCE), re.M)
    assert sorted(documented) == sorted(testing.__all__)


def test_every_option_of_a_client_is_in_the_reference():
    section = text(REFERENCE).partition("## Options of a client")[2].partition("\n###")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert sorted(rows) == sorted(testing.Options.__annotations__)
