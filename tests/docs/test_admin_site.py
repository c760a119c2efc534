"""The page on Django's admin: its code can be served and called."""

from __future__ import annotations

import json

import pytest
from django.contrib import admin
from django.contrib.auth.models import User

from django_mcp.declarations import server as servers
from tests.bridges.admin_site import office
from tests.shop.models import Company, Customer

from .pages import ROOT, blocks

pytestmark = [pytest.mark.urls("tests.bridges.admin_site.office"), pytest.mark.django_db]
GUIDE, REFERENCE = ROOT / "docs/how-to/admin-site.md", ROOT / "docs/reference/admin-site.md"
FIRST, LIMITED, PREFIXED = blocks(GUIDE, "python")
(OPTIONS,) = blocks(REFERENCE, "python")
(ROWS,) = blocks(GUIDE, "json")


@pytest.fixture
def run(monkeypatch, server, settings):
    """Return a function that runs code of the page beside the shop's admin, on ``server``."""
    from django_mcp.bridges import admin_site

    settings.ALLOWED_HOSTS = ["*"]
    monkeypatch.setattr(servers, "default_server", server)
    monkeypatch.setattr(admin_site, "default_server", server)
    monkeypatch.setattr(admin, "site", office.office)

    def run(code):
        namespace = {"__name__": "tests.shop.mcp", "__package__": "tests.shop"}
        exec(compile(code, "<admin-site.md>", "exec", dont_inherit=True), namespace)
        assert [str(message) for message in server.check()] == []
        return [*server._catalog.tools]

    return run


@pytest.fixture
def root(connect, server):
    return lambda: connect(User.objects.create_superuser("root"), server=server)


def test_tools_of_the_page_can_be_called(run, root, invoice):
    names = (
        "search_customer read_customer search_invoice read_invoice update_invoice mark_paid_invoice"
    )
    assert run(FIRST) == names.split()
    result = root().call("mark_paid_invoice", _keys=[invoice.pk])
    assert result["content"][0]["text"] == "1 paid"


def test_limits_of_the_page(run, server):
    assert run(LIMITED) == ["search_customer", "read_customer", "search_invoice", "read_invoice"]
    owner = server._catalog.tools["read_invoice"]._owner
    assert (owner.throttle, owner.timeout, owner.audit) == ("60/min", 30, True)


def test_prefix_of_the_page(run):
    assert run(PREFIXED) == ["search_invoice", "admin_search_invoice", "admin_read_invoice"]


def test_options_of_the_reference(run):
    names = "search_invoice read_invoice create_invoice update_invoice mark_paid_invoice"
    assert run(OPTIONS) == names.split()


def test_rows_of_the_page_are_accepted(server, run, root, invoice):
    import django_mcp as mcp

    mcp.register_admin(office.office, [Company], operations=["update"], server=server)
    given = json.loads(ROWS)
    acme = Company.objects.get(name="Acme")
    old = Customer.objects.create(company=acme, name="Old")
    given["_key"], given["customers"][1]["_key"] = acme.pk, old.pk
    server.ready()
    result = root().call("update_company", **given)
    assert not result["isError"], result
    assert {*acme.customers.values_list("name", flat=True)} == {"Carla", "Dora"}
