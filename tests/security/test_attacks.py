"""Attacks over a pipe by a user with few permissions: hidden rows, large inputs, log injection."""

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
from django_mcp.calls import throttling
from django_mcp.calls.once import in_memory_steps
from django_mcp.declarations.cursors import seal, unseal
from tests.client import RpcError
from tests.shop.models import Invoice

pytestmark = pytest.mark.django_db


@pytest.fixture
def guarded_server(server, invoice):
    """A server with three invoices, two of which object permissions hide. Two rows are a page."""
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


def search(client, **arguments):
    return client.call("search_invoice", **arguments)["structuredContent"]


# Hidden data must not be inferable.


def test_search_does_not_reveal_the_number_of_hidden_rows(connect, guarded_server, alice):
    """Attack: filter by a value with one row a page; another or an empty page is a hidden row."""
    client = connect(alice, server=guarded_server)
    for arguments in ({"total__gte": "800"}, {"total__gte": "900"}, {"total__gte": "901"}):
        assert search(client, limit=1, **arguments) == {"results": []}
    assert "next_cursor" not in search(client, limit=1)


def test_search_finds_visible_rows_after_hidden_ones(connect, guarded_server, alice, invoice):
    """The protection hides no visible rows: pages are filled from further on."""
    Invoice.objects.filter(number="C-3").update(total=5, issued=date(2026, 1, 4))
    client = connect(alice, server=guarded_server)
    first = search(client, limit=1)
    assert [row["number"] for row in first["results"]] == ["A-1"]
    second = search(client, limit=1, cursor=first["next_cursor"])
    assert [row["number"] for row in second["results"]] == ["C-3"]
    assert "next_cursor" not in second


def test_list_does_not_reveal_the_number_of_hidden_rows(connect, guarded_server, alice, settings):
    """Attack: page through resources/list; a cursor after the last row reveals more rows."""
    settings.DJANGO_MCP = {"PAGE_SIZE": 1}
    page = connect(alice, server=guarded_server).request("resources/list")
    assert [entry["uri"] for entry in page["resources"]] == ["invoice://A-1"]
    assert "nextCursor" not in page


def test_cursor_is_encrypted(connect, server, alice, invoice):
    """Attack: decode a cursor, which contains the key of the last row."""
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


def test_cursor_survives_a_key_rotation(settings):
    """The protection keeps cursors valid when SECRET_KEY is rotated."""
    sealed = seal(["a"], "here")
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another" * 10
    assert unseal(sealed, "here") == ["a"]


def test_file_of_a_hidden_row_cannot_be_subscribed_to(connect, guarded_server, alice):
    """Attack: subscribe to the file of an unreadable row, and learn when it changes."""
    client = connect(alice, server=guarded_server)
    with pytest.raises(RpcError):
        client.request("resources/read", uri="invoice://B-2/attachment")
    id = client.start(
        "subscriptions/listen",
        notifications={"resourceSubscriptions": ["invoice://B-2/attachment", "invoice://A-1"]},
    )
    acknowledged = client.until(lambda: client.notes)[0]["params"]
    assert acknowledged["notifications"]["resourceSubscriptions"] == ["invoice://A-1"]
    client.notify("notifications/cancelled", requestId=id)


def test_inactive_user_gets_no_rows_from_public_tools(connect, server, invoice, alice):
    """Attack: use PUBLIC tools as a user whose account was closed."""
    alice.is_active = False
    assert isinstance(Principal(alice).user, AnonymousUser)

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def mine(request: mcp.Request) -> list[str]:
        return [str(one) for one in Invoice.objects.filter(company__members=request.user.pk)]

    assert connect(alice, server=server).call("mine")["structuredContent"] == []


@pytest.mark.parametrize("what", ["several", "nested", "queryset"])
def test_rows_are_returned_only_through_their_resource(connect, server, invoice, what):
    """Attack: ``__str__`` of a model, which ``fields`` does not limit, reveals hidden values."""
    customers = type(invoice.customer).objects.all()
    values = {"several": [*customers], "nested": {"a": [*customers]}, "queryset": customers}

    @server.resource("row://{kind}", permission=mcp.PUBLIC)
    def rows(request: mcp.Request, kind: str) -> object:
        return values[kind]

    with pytest.raises(RpcError) as refused:
        connect(server=server).request("resources/read", uri=f"row://{what}")
    assert "Carla" not in str(refused.value)


# Large inputs.


def test_many_invalid_values_give_one_short_error(connect, alice, invoice):
    """Attack: a list of 200,000 invalid values in 600 kB, each of which makes an error."""
    words = connect(alice).failure("search_invoice", status__in=[0] * 200_000)
    assert words.startswith("Invalid arguments.") and len(words) < 5_000


def test_many_argument_errors_do_not_fill_the_memory(server):
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


def test_too_many_keys_are_rejected_before_parsing(connect, guarded_server, alice):
    """Attack: a list of very many keys, each of which would be parsed first."""

    @guarded_server.tool(permission=mcp.AUTHENTICATED, read_only=True)
    def count(request: mcp.Request, invoices: list[Invoice]) -> int:
        return len(invoices)

    keys = ["X" * 2000, *(f"X-{number}" for number in range(50_000))]  # the first is invalid
    assert (
        connect(alice, server=guarded_server).failure("count", invoices=keys).startswith("At most")
    )


def test_too_many_subscriptions_make_no_query(
    connect, guarded_server, alice, django_assert_num_queries
):
    """Attack: one message with more URIs than allowed, all of which would be looked up."""
    client = connect(alice, server=guarded_server)
    uris = [f"invoice://X-{number}" for number in range(throttling.MAX_SUBSCRIPTIONS + 1)]
    with django_assert_num_queries(0), pytest.raises(RpcError):
        client.request("subscriptions/listen", notifications={"resourceSubscriptions": uris})


def test_finished_calls_are_removed_from_memory(connect, server):
    """Attack: call a tool that remembers a step until no call can remember one."""

    @server.tool(permission=mcp.PUBLIC)
    def draw(request: mcp.Request, fails: bool = False) -> int:
        return int(request.once("n", lambda: 1 // (not fails)))

    client, before = connect(server=server), len(in_memory_steps._calls)
    assert client.text("draw") == "1"
    assert client.call("draw", fails=True)["isError"]
    assert len(in_memory_steps._calls) == before


def test_line_break_in_a_uri_does_not_forge_a_log_record(connect, server, caplog):
    """Attack: a line break in a URI, followed by text like another record."""

    @server.resource("note://{name}", permission=mcp.PUBLIC)
    def note(request: mcp.Request, name: str) -> str:
        raise RuntimeError("broken")

    with caplog.at_level(logging.ERROR), pytest.raises(RpcError):
        connect(server=server).request("resources/read", uri="note://a\nINFO root logged in")
    assert "\n" not in caplog.records[-1].getMessage()
