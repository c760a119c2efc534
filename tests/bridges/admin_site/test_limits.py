"""``audit``, ``throttle`` and ``timeout`` of ``register_admin``."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User

import django_mcp as mcp
from django_mcp.models import AuditEntry
from tests.shop.models import Company, Customer, Invoice

from .office import CompanyAdmin, office
from .test_attacks import data, error

pytestmark = [pytest.mark.urls("tests.bridges.admin_site.office"), pytest.mark.django_db]
SECONDS = 60  # to wait for what comes at once, however busy the machine is


@pytest.fixture
def root(connect, server):
    user = User.objects.create_superuser("root")
    return lambda: connect(user, server=server)


def test_tools_of_one_model_share_the_count_of_a_throttle(root, server, invoice):
    mcp.register_admin(office, [Invoice, Customer], throttle="2/day", server=server)
    mcp.register_admin(office, [Invoice], prefix="more_", throttle="1/day", server=server)
    client = root()
    data(client.call("search_invoice"))
    data(client.call("read_invoice", _key=invoice.pk))
    told = error(client.call("search_invoice"))
    assert told.startswith("Too many calls of invoice: 2 per day.")
    data(client.call("search_customer"))  # another model
    data(client.call("more_search_invoice"))  # other tools of the model
    assert "1 per day" in error(client.call("more_read_invoice", _key=invoice.pk))


def test_call_that_takes_too_long_is_rolled_back(root, server, monkeypatch, invoice):
    mcp.register_admin(office, [Company], operations=["update"], timeout=0.05, server=server)

    def save_model(self, request, obj, form, change):
        obj.save()
        end = time.monotonic() + SECONDS
        while not request.mcp.cancelled:
            assert time.monotonic() < end
            time.sleep(0.005)

    monkeypatch.setattr(CompanyAdmin, "save_model", save_model)
    told = error(root().call("update_company", _key=invoice.company_id, name="Late"))
    assert told.startswith("update_company took longer than 0.05 s and was stopped.")
    assert not Company.objects.filter(name="Late").exists()


@pytest.mark.parametrize(
    ("of_server", "audit", "stored"),
    [(False, None, 0), (True, None, 2), (True, False, 0), (False, True, 2)],
)
def test_calls_are_audited_as_declared(root, server, of_server, audit, stored, invoice):
    server.audit = of_server
    mcp.register_admin(office, [Company], operations=["update"], audit=audit, server=server)
    client = root()
    data(client.call("search_company"))
    data(client.call("update_company", _key=invoice.company_id, name="Acme 2"))
    assert AuditEntry.objects.count() == stored


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"throttle": "often"}, "E066"), ({"throttle": 5}, "E066"), ({"timeout": 0}, "E067"),
        ({"timeout": "5"}, "E067"), ({"audit": "yes"}, "E060"), ({"operations": "create"}, "E060"),
    ],
)  # fmt: skip
def test_wrong_limits_are_errors_and_expose_nothing(server, options, number):
    mcp.register_admin(office, [Company], server=server, **options)
    messages = server.check()
    assert [message.id for message in messages] == [f"django_mcp.{number}"]
    assert messages[0].hint and not server._catalog.tools
