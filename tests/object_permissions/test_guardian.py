"""django-guardian: a user without an object permission cannot find, read, change or follow rows."""

from __future__ import annotations

from typing import Any

import pytest
from guardian.shortcuts import assign_perm, remove_perm

from django_mcp.testing import Client, RpcError

from .models import Invoice
from .recipes import code_of, run

PACKAGE = "tests.object_permissions"


@pytest.fixture
def invoices(alice, bob, server) -> list[Any]:
    """Return an invoice that Alice may change, one that she may view, and one of Bob's."""
    (code,) = code_of("django-guardian")
    run(code, PACKAGE, server)
    assert [str(message) for message in server.check()] == []
    made = [Invoice.objects.create(owner=bob, number=f"A-{number}") for number in range(3)]
    for number, names in enumerate(("view change delete", "view")):
        for name in names.split():
            assign_perm(f"billing.{name}_invoice", alice, made[number])
    assign_perm("billing.view_invoice", bob, made[2])
    return made


def numbers(client: Client) -> set[str]:
    return {row["number"] for row in client.call("search_invoice").data["results"]}


def test_rows_with_the_permission_are_found_and_changed(invoices, connect, alice):
    changeable, viewable, _ = invoices
    client = connect(alice)
    assert numbers(client) == {"A-0", "A-1"}
    assert client.read(viewable).data["number"] == "A-1"
    client.call("update_invoice", invoice=changeable.pk, total="5.00").assert_ok()
    client.call("update_invoice", invoice=viewable.pk, total="5.00").assert_error("There is no")
    client.call("delete_invoice", invoice=viewable.pk).assert_error("There is no")
    assert list(Invoice.objects.order_by("pk").values_list("total", flat=True)) == [5, 1, 1]
    client.call("delete_invoice", invoice=changeable.pk).assert_ok()
    assert Invoice.objects.count() == 2


def test_rows_without_the_permission_cannot_be_reached(invoices, connect, alice):
    hidden = invoices[2]
    client = connect(alice)
    client.read(hidden).assert_unknown()
    assert client.call("search_invoice", query="A-2").data["results"] == []
    for tool in ("update_invoice", "delete_invoice"):
        client.call(tool, invoice=hidden.pk).assert_error("There is no")
    (template,) = client.templates()
    assert str(hidden.pk) not in client.complete(template["uriTemplate"], "pk", "")
    with pytest.raises(RpcError, match="Resource not found"):
        client.subscribe(hidden)


def test_permission_that_is_removed_ends_notifications(
    invoices, connect, alice, django_capture_on_commit_callbacks
):
    first, second, _ = invoices
    uris = [f"model://billing/invoice/{row.pk}" for row in (first, second)]
    client = connect(alice)
    client.subscribe(first, second)
    remove_perm("billing.view_invoice", alice, first)

    def changed() -> list[str]:
        client.notifications.clear()
        with django_capture_on_commit_callbacks(execute=True):
            first.save()
            second.save()
        client.wait_for_update(second)
        return sorted(one["params"]["uri"] for one in client.notifications)

    assert changed() == uris  # the last one: the client learns that it cannot read the row any more
    assert changed() == uris[1:]
    client.read(first).assert_unknown()
