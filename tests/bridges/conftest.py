"""Rows of two companies, for the tests of APIs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from tests.shop.models import Company, Customer, Invoice


@pytest.fixture
def foreign_invoice(bob):
    """An invoice of another company than alice's."""
    bolts = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=bolts, name="Dora", notes="hunter2")
    return Invoice.objects.create(
        company=bolts, customer=customer, number="B-1", total=Decimal(7), issued=date(2026, 1, 3)
    )


@pytest.fixture
def more_invoices(invoice):
    """Five invoices of alice's company."""
    for number in range(2, 6):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{number}",
            total=Decimal(number), issued=date(2026, 1, number), status="draft",
        )  # fmt: skip
    return [*Invoice.objects.filter(company=invoice.company).order_by("number")]
