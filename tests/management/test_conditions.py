"""Conditions for access to a URI: they agree with what can be read, and name the unmet one."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User

import django_mcp as mcp
from django_mcp.calls.execution import surrounded
from django_mcp.calls.visibility import visible
from django_mcp.management.access_report import explain_read
from tests.declarations.helpers import make_request, valid_catalog
from tests.shop.models import Company, Customer, Invoice

HERE = "tests.management.test_conditions.catalog.<locals>"


@pytest.fixture
def catalog(server):
    @mcp.register(Invoice, server=server)
    class Invoices(mcp.ModelResource):
        uri = "invoice://{number}"
        fields = ["number", "attachment"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

        def has_object_permission(self, request, obj, operation):
            return obj.number != "secret"

    @mcp.register(Company, server=server)
    class Companies(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    @server.resource("total://{company}", permission=mcp.PUBLIC)
    def total(request: mcp.Request, company: Company) -> str:
        return company.name

    @server.resource("letter://{invoice}/{page}", permission=mcp.AUTHENTICATED)
    def letter(request: mcp.Request, invoice: Invoice, page: int = 1) -> str:
        return ""

    return valid_catalog(server)


@pytest.fixture
def rows(invoice):
    invoice.attachment = "a.txt"
    invoice.save()
    values = {"company": invoice.company, "total": 1, "issued": invoice.issued}
    bolts = Company.objects.create(name="Bolts & Co")
    nuts = Customer.objects.create(company=bolts, name="Nuts")
    Invoice.objects.create(number="secret", customer=invoice.customer, **values)
    Invoice.objects.create(number="theirs", customer=nuts, **values | {"company": bolts})
    return invoice


def uris():
    numbers = ["A-1", "secret", "theirs", "missing"]
    keys = [*map(str, Company.objects.values_list("pk", flat=True)), "0", "x"]
    yield from (f"invoice://{number}" for number in numbers)
    yield from (f"invoice://{number}/{name}" for number in numbers for name in ("attachment", "x"))
    yield from (f"model://shop/company/{key}" for key in keys)
    yield from (f"total://{key}" for key in keys)
    yield from (f"letter://{number}/{page}" for number in numbers for page in ("1", "x"))


@pytest.mark.slow
def test_conditions_agree_with_visibility(catalog, rows, alice, bob, server):
    viewer = User.objects.create_user("viewer")
    viewer.user_permissions.add(Permission.objects.get(codename="view_invoice"))
    seen = set()
    for user in (None, alice, bob, viewer, User.objects.create_superuser("boss")):
        request = make_request(user, server)
        with surrounded(request):
            for uri in uris():
                alternatives = [
                    explain_read(one, variables, request) for one, variables in catalog.at(uri)
                ]
                met = [
                    all(condition.allowed for condition in conditions_of_one)
                    for conditions_of_one in alternatives
                ]
                assert any(met) == (uri in visible(request, [uri])), (uri, user, alternatives)
                assert all(
                    condition.allowed
                    for conditions_of_one in alternatives
                    for condition in conditions_of_one[:-1]
                )
                seen.add((uri.partition(":")[0], any(met)))
    assert len(seen) == 8  # each kind, readable and not readable


def last_reason(catalog, request, uri):
    (words,) = (
        explain_read(one, variables, request)[-1].reason for one, variables in catalog.at(uri)
    )
    return words


def test_reason_names_the_unmet_condition(catalog, rows, alice, bob, server):
    request = make_request(alice, server)
    invoices = f"{HERE}.Invoices"
    assert (
        last_reason(catalog, request, "invoice://missing")
        == "invoice missing is not in the database"
    )
    assert (
        last_reason(catalog, request, "invoice://theirs")
        == f"get_queryset() of {invoices} leaves it out"
    )
    assert last_reason(catalog, request, "invoice://secret") == (
        f"has_object_permission() of {invoices} returned False"
    )
    assert last_reason(catalog, make_request(bob, server), "invoice://A-1") == (
        "lacks shop.view_invoice and shop.change_invoice"
    )
    assert last_reason(catalog, request, "invoice://A-1/x") == "'x' is not a file that fields shows"
    assert last_reason(catalog, request, "invoice://A-1/attachment").startswith(
        "'attachment' is a file"
    )
    assert last_reason(catalog, request, "model://shop/company/x") == "'x' is not a key of company"
    assert last_reason(catalog, request, "total://x").startswith("company: There is no company 'x'")
    assert last_reason(catalog, request, "letter://theirs/1") == (
        f"invoice: get_queryset() of {invoices} leaves it out"
    )
    assert "page" in last_reason(catalog, request, "letter://A-1/x")
