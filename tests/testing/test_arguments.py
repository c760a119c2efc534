"""What a test passes, as a client would write it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.server import default_server
from django_mcp.testing.async_client import as_json, as_text, as_uri
from tests.shop.models import Invoice, LedgerLine, Tag


@dataclass
class Point:
    x: int
    at: date


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (Decimal("1.50"), "1.50"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC), "2026-01-02T03:04:05.678901Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Invoice.Status.PAID, "paid"),
        (Point(1, date(2026, 1, 2)), {"x": 1, "at": "2026-01-02"}),
        (gettext_lazy("Hello"), "Hello"),
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
    ],
)
def test_values(given, written):
    assert as_json(default_server, given) == written
    assert as_json(default_server, {"deep": [given]}) == {"deep": [written]}


def test_rows_are_their_keys(invoice):
    assert as_json(default_server, {"one": invoice}) == {"one": "A-1"}
    assert as_json(default_server, [invoice.customer]) == [invoice.customer.pk]
    assert as_json(default_server, Invoice.objects.all()) == ["A-1"]
    assert as_text(default_server, invoice.customer) == str(invoice.customer.pk)


def test_of_what_is_not_registered_the_primary_key(db, server):
    tag = Tag.objects.create(label="red")
    assert as_json(default_server, tag) == tag.pk
    line = LedgerLine(company_id=3, line=4)
    assert as_json(server, line) == [3, 4]


def test_an_argument_of_a_prompt_is_text():
    assert as_text(default_server, "plain") == "plain"
    assert as_text(default_server, 3) == "3"
    assert as_text(default_server, True) == "true"
    assert as_text(default_server, date(2026, 1, 2)) == "2026-01-02"


def test_addresses(invoice):
    assert as_uri(default_server, invoice) == "invoice://A-1"
    assert as_uri(default_server, "policy://returns") == "policy://returns"
    with pytest.raises(ValueError, match="shop.Tag is not registered"):
        as_uri(default_server, Tag(label="red"))


def test_what_no_client_can_send():
    with pytest.raises(TypeError, match="nothing that a client can send"):
        as_json(mcp.server, object())
