"""Explanations of permission decisions for ``mcp_explain``: they agree with the decisions."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.exceptions import PermissionDenied

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls.execution import surrounded
from django_mcp.declarations.declaration import decide
from django_mcp.declarations.permissions import both, sources
from tests.shop.models import Company, Customer, Invoice, Note

from .helpers import make_request, valid_catalog

CHANGE_INVOICE = "shop.change_invoice"


class Strict:
    """A backend that grants one permission to every user, and denies another to every user."""

    def authenticate(self, request, **credentials):
        return None

    def has_perm(self, user, name, obj=None):
        if name == "shop.delete_invoice":
            raise PermissionDenied
        return name == "shop.add_note"


BACKENDS = [
    "tests.declarations.test_permission_reasons.Strict",
    "django.contrib.auth.backends.ModelBackend",
]


def is_staff(request):
    return request.user.is_staff


class IsAlice:
    def __call__(self, request):
        return request.user.username == "alice"


@pytest.fixture
def declarations(server):
    """Register a declaration for each kind of permission."""
    for permission in (mcp.PUBLIC, mcp.AUTHENTICATED, CHANGE_INVOICE, "shop.delete_invoice",
                       "shop.add_note", "shop.delete_badge", is_staff, IsAlice()):  # fmt: skip
        name = f"tool_{len(server._records)}"
        server.tool(permission=permission, name=name)(lambda request: None)

    @mcp.register(server=server)
    class OwnRule(mcp.Tool):
        """A rule of its own."""

        def has_permission(self, request):
            return request.auth is not None and "write" in request.auth.scopes

        def handle(self, request):
            return None

    @mcp.register(server=server)
    class PublicRule(OwnRule):
        """Also for anonymous users."""

        permission = mcp.PUBLIC

        def has_permission(self, request):
            return not request.user.is_authenticated

    @mcp.register(Invoice, server=server)
    class Invoices(mcp.ModelResource):
        fields = ["number", "attachment"]
        search_fields = ["number"]

    @mcp.register(Customer, server=server)
    class Customers(mcp.ModelResource):
        fields = ["name"]
        permission = CHANGE_INVOICE
        search_fields = ["name"]

    @mcp.register(Company, server=server)
    class Companies(mcp.ModelResource):
        fields = ["name"]
        permission = mcp.PUBLIC

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    @mcp.register(Note, server=server)
    class Notes(mcp.ModelResource):
        fields = ["text"]

        def has_permission(self, request):
            return super().has_permission(request) or request.user.username == "bob"

    @server.prompt(permission=mcp.PUBLIC)
    def hello(request):
        return "Hello."

    @server.resource("a://b", permission=CHANGE_INVOICE)
    def read(request):
        return "b"

    return list(valid_catalog(server)._declarations())


@pytest.fixture
def people(alice, bob):
    """Return principals of every kind of user."""
    accountants = Group.objects.create(name="Accountants")
    accountants.permissions.set(Permission.objects.filter(content_type__app_label="shop"))
    carol = User.objects.create_user("carol")
    carol.groups.add(accountants)
    staff = User.objects.create_user("staff", is_staff=True)
    boss = User.objects.create_superuser("boss")
    gone = User.objects.create_superuser("gone", is_active=False)
    users = [alice, bob, carol, staff, boss, gone, AnonymousUser()]
    scoped = [Principal(alice, Auth(frozenset(scopes))) for scopes in (["write"], ["read"])]
    return [*map(Principal, users), *scoped]


@pytest.mark.parametrize("backends", [BACKENDS[:0:-1], BACKENDS, BACKENDS[::-1]], ids=len)
def test_reasons_agree_with_decisions(declarations, people, server, settings, backends):
    """All declarations of the shop and of this module are tested, for every kind of user."""
    settings.AUTHENTICATION_BACKENDS = backends
    seen = set()
    for thing in [*declarations, *mcp.server.ready()._declarations()]:
        for principal in people:
            request = mcp.Request(principal, server)
            with surrounded(request):
                decision = decide(thing, request)
                reason = decision.reason
                assert decision.allowed == thing._is_allowed(request), (thing, principal, reason)
            refusals = ("lacks", "returned False", "not authenticated")
            assert any(one in reason for one in refusals) is not decision.allowed
            seen.add((type(thing).__mro__[1], decision.allowed))
    assert len(seen) >= 8


def reason_for(permission, user, server):
    thing = mcp.Tool._from_function(lambda request: None, permission=permission)
    return decide(thing, make_request(user, server)).reason


def test_reason_names_the_source_of_a_permission(people, server, settings):
    alice, bob, carol, _, boss, *_ = (one.user for one in people)
    Group.objects.create(name="Bookkeepers").user_set.add(carol)
    Group.objects.get(name="Bookkeepers").permissions.add(
        Permission.objects.get(codename=CHANGE_INVOICE[5:])
    )
    carol = User.objects.get(pk=carol.pk)
    assert reason_for(CHANGE_INVOICE, alice, server) == f"{CHANGE_INVOICE}: given to the user"
    assert reason_for(CHANGE_INVOICE, carol, server) == (
        f"{CHANGE_INVOICE}: given to the group Accountants, given to the group Bookkeepers"
    )
    assert reason_for(CHANGE_INVOICE, boss, server) == f"{CHANGE_INVOICE}: is a superuser"
    assert reason_for(CHANGE_INVOICE, bob, server) == f"lacks {CHANGE_INVOICE}"
    assert reason_for("shop.chagne_invoice", bob, server) == (
        "lacks shop.chagne_invoice: no such permission exists: shop.chagne_invoice"
    )
    settings.AUTHENTICATION_BACKENDS = BACKENDS
    assert reason_for("shop.add_note", bob, server) == (
        "shop.add_note: given by the backend tests.declarations.test_permission_reasons.Strict"
    )
    assert reason_for("shop.delete_invoice", carol, server) == (
        "lacks shop.delete_invoice: has_perm() returned False, "
        "although given to the group Accountants"
    )


def test_reason_names_a_common_source_of_two_permissions_once(
    bob, declarations, server, monkeypatch
):
    given = Permission.objects.filter(codename__in=["view_invoice", "change_invoice"])
    Group.objects.create(name="Clerks").permissions.set(given)
    bob.groups.add(Group.objects.get(name="Clerks"))
    monkeypatch.setattr(User, "has_perm", lambda *arguments: False)
    (invoices,) = server._catalog.models[Invoice]
    assert decide(invoices, make_request(bob, server)).reason == (
        "lacks shop.view_invoice and shop.change_invoice: has_perm() returned False, "
        "although given to the group Clerks"
    )


def test_reason_for_a_user_model_without_permission_relations(server):
    class Plain:
        pk = 1
        is_authenticated = is_active = True

        def has_perm(self, name):
            return name == CHANGE_INVOICE

    assert sources(Plain(), CHANGE_INVOICE) == []
    assert (
        reason_for(CHANGE_INVOICE, Plain(), server) == f"{CHANGE_INVOICE}: has_perm() returned True"
    )


def test_reason_for_each_kind_of_permission(people, server, declarations):
    alice, staff = people[0].user, people[3].user
    module = "tests.declarations.test_permission_reasons"
    assert reason_for(mcp.PUBLIC, None, server) == "mcp.PUBLIC: everybody may use it"
    assert reason_for(mcp.AUTHENTICATED, alice, server).startswith("mcp.AUTHENTICATED: ")
    assert reason_for(mcp.AUTHENTICATED, None, server).startswith("the caller is not authenticated")
    assert reason_for(is_staff, staff, server) == f"{module}.is_staff() returned True"
    assert reason_for(is_staff, alice, server) == f"{module}.is_staff() returned False"
    assert reason_for(IsAlice(), alice, server) == f"{module}.IsAlice() returned True"
    rules = {thing.name: thing._rule for thing in declarations}
    assert rules == {
        "tool_0": "mcp.PUBLIC", "tool_1": "mcp.AUTHENTICATED", "tool_2": CHANGE_INVOICE,
        "tool_3": "shop.delete_invoice", "tool_4": "shop.add_note", "tool_5": "shop.delete_badge",
        "tool_6": f"{module}.is_staff()", "tool_7": f"{module}.IsAlice()",
        "own_rule": f"has_permission() of {module}.declarations.<locals>.OwnRule",
        "public_rule": f"has_permission() of {module}.declarations.<locals>.PublicRule",
        "invoice": "shop.view_invoice or shop.change_invoice",
        "invoice_file": "shop.view_invoice or shop.change_invoice",
        "search_invoice": "shop.view_invoice or shop.change_invoice",
        "customer": CHANGE_INVOICE, "search_customer": CHANGE_INVOICE, "company": "mcp.PUBLIC",
        "note": f"has_permission() of {module}.declarations.<locals>.Notes",
        "hello": "mcp.PUBLIC", "read": CHANGE_INVOICE,
    }  # fmt: skip


def test_reason_names_the_view_or_change_permission_that_is_sufficient(
    alice, bob, declarations, server
):
    (invoices,) = server._catalog.models[Invoice]
    assert (
        decide(invoices, make_request(alice, server)).reason
        == f"{CHANGE_INVOICE}: given to the user"
    )
    lacks = "lacks shop.view_invoice and shop.change_invoice"
    assert decide(invoices, make_request(bob, server)).reason == lacks


def test_combined_rule_names_each_permission_once():
    assert both("mcp.AUTHENTICATED", "mcp.AUTHENTICATED") == "mcp.AUTHENTICATED"
    assert both("a.view_x", "a.add_x") == "a.view_x, and a.add_x"
    assert both("a.view_x, and a.add_x", "a.add_x") == "a.view_x, and a.add_x"


def test_combined_rule_omits_implied_permissions():
    view = "a.view_x or a.change_x"
    assert both(view, "a.change_x") == "a.change_x"
    assert both(view, "a.add_x", "a.view_x") == "a.add_x, and a.view_x"
    assert both(view, "a.delete_x") == "a.view_x or a.change_x, and a.delete_x"
