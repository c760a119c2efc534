"""The number of queries for rows of a model resource does not depend on the number of rows."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from tests.shop.models import Company, Customer, Invoice, Tag


@pytest.fixture
def forty_invoices(invoice):
    """Create forty invoices, each with a customer of its own, with two tags."""
    acme = Company.objects.get(name="Acme")
    tags = [Tag.objects.create(label=label) for label in ("late", "large")]
    for number in range(39):
        customer = Customer.objects.create(company=acme, name=f"Customer {number}")
        made = Invoice.objects.create(
            company=acme, customer=customer, number=f"B-{number}", total=Decimal(number),
            issued=date(2026, 2, 1),
        )  # fmt: skip
        made.tags.set(tags)
    return acme


@pytest.fixture
def guarded(server):
    """Register invoices with an object permission that reads a field not listed in ``fields``."""

    @mcp.register(Invoice, server=server)
    class Guarded(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number", "customer__name", "tags"]
        search_fields = ["number"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

        def has_object_permission(self, request, obj, operation):
            return obj.total < 30 and obj.metadata == {}

    return server


def queries(client, connection, limit):
    with CaptureQueriesContext(connection) as captured:
        result = client.call("search_invoice", limit=limit)["structuredContent"]["results"]
    return len(captured), len(result)


def test_object_permission_does_not_cost_a_query_for_each_row(
    connect, alice, forty_invoices, guarded
):
    from django.db import connection

    client = connect(alice, server=guarded)
    client.call("search_invoice", limit=1)
    one, many_rows = queries(client, connection, 1), queries(client, connection, 40)
    assert many_rows[1] == 31  # invoices with a total below 30, and the one of the fixture
    assert many_rows[0] <= one[0] + 1  # the tags of all rows


def test_number_of_queries_of_the_shop_does_not_depend_on_rows(connect, alice, forty_invoices):
    from django.db import connection

    client = connect(alice)
    client.call("search_invoice", limit=1)
    assert queries(client, connection, 40)[0] <= queries(client, connection, 1)[0] + 1
