"""What an attacker tries, each attack as a test: over a pipe, as a user of few rights, in a row."""

from __future__ import annotations

import base64
import logging
import re
import tracemalloc
import zlib
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.auth.models import AnonymousUser

import django_mcp as mcp
from django_mcp.auth.principal import Principal
from django_mcp.calls import rate_limits
from django_mcp.calls.once import remembered
from django_mcp.declarations.cursors import seal, unseal
from tests.client import RpcError
from tests.shop.models import Invoice

pytestmark = pytest.mark.django_db


@pytest.fixture
def guarded(server, invoice):
    """Invoices of which those above 100 are nobody's business, and three rows: cheap, dear, dear.

    Its lists are of two rows a page.
    """
    for number, total in (("B-2", "900.00"), ("C-3", "800.00")):
        fields = {"company": invoice.company, "customer": invoice.customer, "total": Decimal(total)}
        Invoice.objects.create(number=number, issued=date(2026, 1, 3), **fields)

    @server.register(Invoice)
    class Guarded(mcp.ModelResource):
        uri = "invoice://{number}"
        permission = mcp.AUTHENTICATED
        fields = ["number", "total", "issued", "attachment"]
        search_fields = ["number"]
        filter_fields = ["total"]
        ordering = ["issued"]
        listed = True

        def get_queryset(self, request):
            return super().get_queryset(request).all()

        def has_object_permission(self, request, obj, operation):
            return obj.total < 100

    return server


def searched(client, **arguments):
    return client.call("search_invoice", **arguments)["structuredContent"]


# What is not shown is not to be learnt.


def test_a_search_does_not_count_rows_that_object_permission_hides(connect, guarded, alice):
    """Attack: filter by a value, a row a page; a page more, or an empty one, is a hidden row."""
    client = connect(alice, server=guarded)
    for arguments in ({"total__gte": "800"}, {"total__gte": "900"}, {"total__gte": "901"}):
        assert searched(client, limit=1, **arguments) == {"results": []}
    assert "next_cursor" not in searched(client, limit=1)


def test_a_search_finds_what_stands_behind_hidden_rows(connect, guarded, alice, invoice):
    """What closes the attack hides nothing that may be seen: pages are filled from further on."""
    Invoice.objects.filter(number="C-3").update(total=5, issued=date(2026, 1, 4))
    client = connect(alice, server=guarded)
    first = searched(client, limit=1)
    assert [row["number"] for row in first["results"]] == ["A-1"]
    second = searched(client, limit=1, cursor=first["next_cursor"])
    assert [row["number"] for row in second["results"]] == ["C-3"]
    assert "next_cursor" not in second


def test_a_list_does_not_count_rows_that_object_permission_hides(connect, guarded, alice, settings):
    """Attack: page through resources/list; a cursor behind the last row says there are others."""
    settings.DJANGO_MCP = {"PAGE_SIZE": 1}
    page = connect(alice, server=guarded).request("resources/list")
    assert [entry["uri"] for entry in page["resources"]] == ["invoice://A-1"]
    assert "nextCursor" not in page


def test_a_cursor_cannot_be_read(connect, server, alice, invoice):
    """Attack: decode a cursor, which holds the key of the last row, in ``fields`` or not."""
    sealed = seal(["secret-of-the-shop" * 5, invoice.pk], "here")
    for part in re.split("[:.]", sealed):
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        for text in (raw, part.encode(), _unpacked(raw)):
            assert b"secret-of" not in text
    assert unseal(sealed, "here") == ["secret-of-the-shop" * 5, invoice.pk]


def _unpacked(raw):
    try:
        return zlib.decompress(raw)
    except zlib.error:
        return b""


def test_a_cursor_of_an_older_key_opens(settings):
    """What closes the attack keeps cursors over a rotation of keys."""
    sealed = seal(["a"], "here")
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another" * 10
    assert unseal(sealed, "here") == ["a"]


def test_a_file_of_a_hidden_row_cannot_be_subscribed_to(connect, guarded, alice):
    """Attack: subscribe to the file of a row that cannot be read, and hear when it changes."""
    client = connect(alice, server=guarded)
    with pytest.raises(RpcError):
        client.request("resources/read", uri="invoice://B-2/attachment")
    id = client.start(
        "subscriptions/listen",
        notifications={"resourceSubscriptions": ["invoice://B-2/attachment", "invoice://A-1"]},
    )
    acknowledged = client.until(lambda: client.notes)[0]["params"]
    assert acknowledged["notifications"]["resourceSubscriptions"] == ["invoice://A-1"]
    client.notify("notifications/cancelled", requestId=id)


def test_a_user_who_was_deactivated_has_no_rows(connect, server, invoice, alice):
    """Attack: go on with what is PUBLIC, as a user whose account was closed."""
    alice.is_active = False
    assert isinstance(Principal(alice).user, AnonymousUser)

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def mine(request: mcp.Request) -> list[str]:
        return [str(one) for one in Invoice.objects.filter(company__members=request.user.pk)]

    assert connect(alice, server=server).call("mine")["structuredContent"] == []


@pytest.mark.parametrize("what", ["several", "nested", "queryset"])
def test_a_row_leaves_by_its_resource_or_not_at_all(connect, server, invoice, what):
    """Attack: let a model's ``__str__``, which no whitelist bounds, tell what ``fields`` hides."""
    customers = type(invoice.customer).objects.all()
    values = {"several": [*customers], "nested": {"a": [*customers]}, "queryset": customers}

    @server.resource("row://{kind}", permission=mcp.PUBLIC)
    def rows(request: mcp.Request, kind: str) -> object:
        return values[kind]

    with pytest.raises(RpcError) as refused:
        connect(server=server).request("resources/read", uri=f"row://{what}")
    assert "Carla" not in str(refused.value)


# What a client sends costs what it is worth.


def test_a_flood_of_wrong_values_is_refused_at_once(connect, alice, invoice):
    """Attack: a list of 200,000 wrong values in 600 kB, each of which makes an error to be told."""
    words = connect(alice).failure("search_invoice", status__in=[0] * 200_000)
    assert words.startswith("Invalid arguments.") and len(words) < 5_000


def test_errors_of_arguments_take_no_memory_by_their_number(server):
    """Attack: the same at a tool with a typed list, whose errors pydantic writes out."""

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def total(request: mcp.Request, numbers: list[int]) -> int:
        return sum(numbers)

    arguments = server.ready().tools["total"]._arguments
    tracemalloc.start()
    try:
        with pytest.raises(mcp.ToolError, match="numbers"):
            arguments.read({"numbers": [""] * 50_000})
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_too_many_keys_are_counted_before_they_are_read(connect, guarded, alice):
    """Attack: a list of a great many keys, each to be parsed before they are counted."""

    @guarded.tool(permission=mcp.AUTHENTICATED, read_only=True)
    def count(request: mcp.Request, invoices: list[Invoice]) -> int:
        return len(invoices)

    keys = ["X" * 2000, *(f"X-{number}" for number in range(50_000))]  # the first is refused
    assert connect(alice, server=guarded).failure("count", invoices=keys).startswith("At most")


def test_a_listen_to_too_much_costs_no_query(connect, guarded, alice, django_assert_num_queries):
    """Attack: one message that names more URIs than may be subscribed to, all to be looked up."""
    client = connect(alice, server=guarded)
    uris = [f"invoice://X-{number}" for number in range(rate_limits.MAX_SUBSCRIPTIONS + 1)]
    with django_assert_num_queries(0), pytest.raises(RpcError):
        client.request("subscriptions/listen", notifications={"resourceSubscriptions": uris})


def test_calls_that_are_over_fill_no_memory(connect, server):
    """Attack: call a tool that remembers a step, again and again, until no call can remember."""

    @server.tool(permission=mcp.PUBLIC)
    def draw(request: mcp.Request, fails: bool = False) -> int:
        return int(request.once("n", lambda: 1 // (not fails)))

    client, before = connect(server=server), len(remembered._calls)
    assert client.text("draw") == "1"
    assert client.call("draw", fails=True)["isError"]
    assert len(remembered._calls) == before


def test_a_uri_writes_no_line_of_the_log(connect, server, caplog):
    """Attack: a line break in a URI, and behind it what looks like another record."""

    @server.resource("note://{name}", permission=mcp.PUBLIC)
    def note(request: mcp.Request, name: str) -> str:
        raise RuntimeError("broken")

    with caplog.at_level(logging.ERROR), pytest.raises(RpcError):
        connect(server=server).request("resources/read", uri="note://a\nINFO root logged in")
    assert "\n" not in caplog.records[-1].getMessage()
