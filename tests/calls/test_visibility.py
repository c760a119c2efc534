"""ClientStream, subscribing and notifying use the same visibility check."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db.utils import ConnectionDoesNotExist

import django_mcp as mcp
from django_mcp.auth.principal import Principal
from django_mcp.calls import visibility
from django_mcp.calls.visibility import visible
from django_mcp.declarations.request import Request
from tests.client import RpcError
from tests.shop.models import Badge, Invoice, LedgerLine, Tag


@pytest.fixture
def visible_to(server):
    """What of some URIs a user sees."""

    def asked(user, *uris):
        return set(visible(Request(Principal(user), server), uris))

    return asked


def everything(self, request):
    return self.model._default_manager.all()


@pytest.fixture
def tags(server):
    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["label"]
        get_queryset = everything

        def has_object_permission(self, request, obj, operation):
            return obj.label != "secret"


def test_rows_are_visible_through_the_queryset_of_their_resource(
    db, server, visible_to, tags, queries
):
    one, two, secret = (Tag.objects.create(label=label) for label in ("one", "two", "secret"))
    uris = [f"model://shop/tag/{tag.pk}" for tag in (one, two, secret)]
    before = len(queries)
    assert visible_to(AnonymousUser(), *uris, "model://shop/tag/0", "model://shop/tag/x") == set(
        uris[:2]
    )
    assert len(queries) - before == 1


def test_row_is_visible_by_each_spelling_of_its_uri(db, server, visible_to):
    @server.register(Badge)
    class BadgeResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["code"]
        uri = "badge://{code}"
        get_queryset = everything

    Badge.objects.create(code="A-1", colour="red")
    assert visible_to(AnonymousUser(), "badge://A-1", "badge://A%2D1") == {
        "badge://A-1",
        "badge://A%2D1",
    }


def test_row_with_a_composite_key_is_visible(db, server, visible_to, alice):
    from tests.shop.models import Company

    @server.register(LedgerLine)
    class LedgerResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["text"]
        get_queryset = everything

    acme = Company.objects.get(name="Acme")
    line = LedgerLine.objects.create(company=acme, line=7, text="x", amount=1)
    uri = server._catalog.find(LedgerLine)._uri_of(line)
    assert visible_to(AnonymousUser(), uri) == {uri}


def test_declared_resource_is_visible_by_its_permission(db, server, visible_to, alice):
    @server.resource("shop://public", permission=mcp.PUBLIC)
    def public(request: mcp.Request) -> str:
        return ""

    @server.resource("shop://private")
    def private(request: mcp.Request) -> str:
        return ""

    uris = {"shop://public", "shop://private", "shop://none", "nonsense", ""}
    assert visible_to(AnonymousUser(), *uris) == {"shop://public"}
    assert visible_to(alice, *uris) == {"shop://public", "shop://private"}
    alice.is_active = False
    assert visible_to(alice, *uris) == {"shop://public"}


def test_template_uri_with_invalid_arguments_is_invisible(db, server, visible_to):
    @server.resource("day://{number}", permission=mcp.PUBLIC)
    def day(request: mcp.Request, number: int) -> str:
        return ""

    assert visible_to(AnonymousUser(), "day://7", "day://monday") == {"day://7"}


def test_template_uri_of_a_row_is_visible_if_the_row_is(
    db, server, visible_to, alice, bob, invoice
):
    @server.register(Invoice)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number"]
        uri = "invoice://{number}"

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    @server.resource("report://{invoice}")
    def report(request: mcp.Request, invoice: Invoice) -> str:
        return ""

    uris = ["report://A-1", "invoice://A-1"]
    assert visible_to(alice, *uris) == set(uris)
    assert visible_to(bob, *uris) == visible_to(AnonymousUser(), *uris) == set()


def test_any_row_takes_one_query_and_is_no_uri(db, server, visible_to, tags, queries):
    rows, before = visibility.AnyRow("shop.tag"), len(queries)
    assert (
        visible_to(AnonymousUser(), rows) == set() and len(queries) - before == 0
    )  # none is listed
    server._catalog.models[Tag][0].listed = True
    assert visible_to(AnonymousUser(), rows) == set() and len(queries) - before == 1
    Tag.objects.create(label="secret")
    assert visible_to(AnonymousUser(), rows) == set()
    Tag.objects.create(label="one")
    assert visible_to(AnonymousUser(), rows, "shop.tag ") == {rows}
    assert visible_to(AnonymousUser(), "shop.tag") == set()


class Replica:
    """For a router: badges and tags are read where none has arrived yet."""

    def db_for_read(self, model, **hints):
        return "behind" if model in (Badge, Tag) else None

    def db_for_write(self, model, **hints):
        return "default" if model in (Badge, Tag) else None


@pytest.fixture
def behind(db, server, settings):
    """From when it is called. There is no such connection: to be asked is to fail."""

    def made():
        assert server._catalog.messages == []
        settings.DATABASE_ROUTERS = [Replica(), *settings.DATABASE_ROUTERS]

    return made


def test_visibility_is_checked_in_the_database_of_the_write(server, visible_to, behind):
    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["label"]
        listed = True
        get_queryset = everything

    behind()
    tag = Tag.objects.using("default").create(label="one")
    uri, rows = f"model://shop/tag/{tag.pk}", visibility.AnyRow("shop.tag")
    assert visible_to(AnonymousUser(), uri, rows) == {uri, rows}


def test_database_named_by_the_queryset_is_used(db, server, visible_to, behind):
    @server.register(Badge)
    class BadgeResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["code"]
        listed = True

        def get_queryset(self, request):
            return super().get_queryset(request).using("behind")

    behind()
    Badge.objects.using("default").create(code="A", colour="red")
    for one in ("model://shop/badge/A", visibility.AnyRow("shop.badge")):
        with pytest.raises(ConnectionDoesNotExist, match="behind"):
            visible_to(AnonymousUser(), one)


@pytest.mark.parametrize("who", ["alice", "bob", None])
def test_resource_can_be_subscribed_to_if_it_can_be_read(
    connect, alice, bob, invoice, who, handshake
):
    client = connect({"alice": alice, "bob": bob}.get(who), revision=handshake)
    for uri in (
        "invoice://A-1", "invoice://none", "shop://opening-hours", "policy://returns",
        f"model://shop/company/{invoice.company_id}", f"model://shop/customer/{invoice.customer_id}",
        "shop://none",
    ):  # fmt: skip
        outcomes = {allowed(client, method, uri) for method in ("read", "subscribe")}
        assert len(outcomes) == 1, uri


def allowed(client, method, uri):
    try:
        client.request(f"resources/{method}", uri=uri)
    except RpcError as error:
        return error.code, error.message
    return True
