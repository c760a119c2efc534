"""django-rules: predicates decide which rows a user sees and changes."""

from __future__ import annotations

from typing import Any

import pytest
import rules

from django_mcp.testing import RpcError

from .models import Invoice
from .recipes import code_of, run

PACKAGE = "tests.object_permissions"


@pytest.fixture
def declared(server) -> Any:
    """Run the recipe, and forget its rules after the test."""
    predicates, resource = code_of("django-rules")
    run(predicates, PACKAGE)
    yield run(resource, PACKAGE, server)["InvoiceResource"]
    for name in ("view", "change"):
        rules.remove_perm(f"billing.{name}_invoice")


def test_rows_of_others_cannot_be_reached(declared, server, connect, alice, bob):
    assert [str(message) for message in server.check()] == []
    own = Invoice.objects.create(owner=alice, number="A-1")
    foreign = Invoice.objects.create(owner=bob, number="B-1")
    client = connect(alice)
    assert [row["number"] for row in client.call("search_invoice").data["results"]] == ["A-1"]
    client.call("update_invoice", invoice=own.pk, total="5.00").assert_ok()
    client.call("update_invoice", invoice=foreign.pk, total="5.00").assert_error("There is no")
    client.read(foreign).assert_unknown()
    with pytest.raises(RpcError, match="Resource not found"):
        client.subscribe(foreign)
    foreign.refresh_from_db()
    assert foreign.total == 1


def test_row_that_is_not_a_draft_cannot_be_changed(declared, connect, alice):
    sent = Invoice.objects.create(owner=alice, number="A-1", status="sent")
    client = connect(alice)
    assert client.read(sent).data["status"] == "sent"
    client.call("update_invoice", invoice=sent.pk, total="5.00").assert_error("There is no")


def test_predicate_decides_although_the_queryset_has_all_rows(
    declared, connect, monkeypatch, alice, bob
):
    """A mistake in the queryset shows no row that the predicate denies."""
    monkeypatch.setattr(declared, "get_queryset", lambda self, request: Invoice.objects.all())
    foreign = Invoice.objects.create(owner=bob, number="B-1")
    client = connect(alice)
    assert client.call("search_invoice").data["results"] == []
    client.read(foreign).assert_unknown()
