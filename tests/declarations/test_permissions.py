"""Who may use a thing: the same answer for a codename, a function, AUTHENTICATED and PUBLIC."""

import pytest
from django.apps import apps
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import AnonymousUser, Permission, User

import django_mcp as mcp
from django_mcp.declarations.permissions import (
    decide_permission,
    is_free,
    problem,
    truth,
    unknown_codename,
)
from tests.shop.models import Customer, Invoice

from .world import asked, only, right


def allows(permission, request):
    return decide_permission(permission, request).allowed


def yes(request):
    return True


async def later(request):
    return True


class Rules(BaseBackend):
    def has_perm(self, user, permission, obj=None):
        return permission == "rules.read"


class Later:
    async def __call__(self, request):
        return False


def test_nobody_may_use_only_what_is_public():
    assert allows(mcp.PUBLIC, asked())
    for permission in (mcp.AUTHENTICATED, "shop.change_invoice", yes):
        assert not allows(permission, asked())


def test_a_function_is_not_asked_about_nobody():
    def permission(request):
        raise AssertionError("asked")

    assert not allows(permission, asked())


def test_codenames_are_djangos(alice, bob):
    assert allows("shop.change_invoice", asked(alice))
    assert not allows("shop.change_invoice", asked(bob))
    assert not allows("shop.no_such_thing", asked(alice))


def test_a_function_decides(alice, bob):
    def named_alice(request):
        return request.user.username == "alice"

    assert allows(named_alice, asked(alice)) and not allows(named_alice, asked(bob))


def test_what_is_true_is_enough(alice):
    assert allows(lambda request: [1], asked(alice)) is True
    assert allows(lambda request: None, asked(alice)) is False


def test_authenticated(alice):
    assert allows(mcp.AUTHENTICATED, asked(alice))


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, "auth.add_user", yes])
def test_a_user_who_is_not_active_is_nobody(db, permission):
    boss = User.objects.create_superuser("boss", is_active=False)
    assert not allows(permission, asked(boss))


def test_a_superuser_has_every_codename(db):
    assert allows("shop.change_invoice", asked(User.objects.create_superuser("boss")))


@pytest.mark.parametrize("permission", [later, Later()])
def test_a_coroutine_never_allows(alice, permission):
    with pytest.raises(TypeError, match="async"):
        allows(permission, asked(alice))


def test_truth_of_an_awaitable_that_is_no_coroutine():
    class Promise:
        def __await__(self):
            yield

    with pytest.raises(TypeError):
        truth(Promise())


def test_what_is_free():
    assert is_free(mcp.PUBLIC) and is_free(mcp.AUTHENTICATED)
    assert not is_free("shop.change_invoice") and not is_free(yes)


@pytest.mark.parametrize("permission", [mcp.PUBLIC, mcp.AUTHENTICATED, "app.code", yes])
def test_permissions_there_are(permission):
    assert problem(permission) is None


@pytest.mark.parametrize(
    "permission", ["", "change_invoice", "shop.", ".change_invoice", None, True, 7, ["a.b"]]
)
def test_permissions_there_are_not(permission):
    assert repr(permission) in problem(permission)


def test_a_class_is_no_permission():
    """It is callable, and an instance of it is true: everybody would be let in."""

    class IsAdminUser:
        def __init__(self, request):
            pass

    assert "class" in problem(IsAdminUser)


def test_an_async_function_is_no_permission():
    assert "async" in problem(later)


def test_they_read_as_they_are_written():
    assert repr(mcp.PUBLIC) == "mcp.PUBLIC" and repr(mcp.AUTHENTICATED) == "mcp.AUTHENTICATED"


def test_model_permissions_are_never_asked_about_an_object(alice, invoice, monkeypatch):
    """Django's ModelBackend answers False for everybody when given an object."""
    seen = []
    monkeypatch.setattr(
        User, "has_perm", lambda self, perm, obj=None: seen.append((perm, obj)) or True
    )
    alice = User.objects.get(pk=alice.pk)
    assert allows("shop.change_invoice", asked(alice))
    assert seen == [("shop.change_invoice", None)]


def test_permissions_of_this_moment(bob):
    """A principal is loaded for every call; what it held before counts for nothing."""
    bob.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    assert allows("shop.change_invoice", asked(User.objects.get(pk=bob.pk)))


def test_the_anonymous_user_is_not_active():
    assert AnonymousUser().is_active is False


# Codenames that no model declares.


@pytest.mark.parametrize(
    ("codename", "meant"),
    [
        ("shop.view_invoise", "shop.view_invoice"),
        ("billing.view_invoice", "shop.view_invoice"),
        ("shop.no_such", None),
    ],
)
def test_permission_that_does_not_exist_is_a_warning(server, codename, meant):
    server.tool(name="read", permission=codename)(lambda request: "x")
    message = only(server)
    assert message.id == "django_mcp.W011" and repr(codename) in message.msg
    assert (f"Did you mean {meant!r}?" in message.hint) is bool(meant)


@pytest.mark.parametrize("codename", ["shop.view_invoice", "shop.refund_invoice", "auth.add_user"])
def test_permission_that_a_model_declares_exists_and_no_query_is_made(
    server, codename, monkeypatch
):
    monkeypatch.setattr(Invoice._meta, "permissions", [("refund_invoice", "Can refund invoice")])
    server.tool(name="read", permission=codename)(lambda request: "x")
    right(server)


def test_permission_of_an_operation_that_does_not_exist_is_a_warning(server):
    class Rows(mcp.ModelResource):
        permission = "shop.view_customer"
        fields = ["name"]
        operations = ["update"]
        operation_permissions = {"update": "shop.chnage_customer"}

    server.register(Customer, Rows)
    message = only(server)
    assert message.id == "django_mcp.W011" and "'shop.chnage_customer'" in message.msg
    assert "Did you mean 'shop.change_customer'?" in message.hint


def test_default_permission_that_the_model_does_not_have_is_a_warning(server, monkeypatch):
    monkeypatch.setattr(Customer._meta, "default_permissions", ("add",))

    class Rows(mcp.ModelResource):
        fields = ["name"]

    server.register(Customer, Rows)
    assert only(server).id == "django_mcp.W011" and "shop.view_customer" in only(server).msg


def test_a_backend_of_the_project_may_know_other_permissions(server, settings):
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Rules"]
    server.tool(name="read", permission="rules.read")(lambda request: "x")
    right(server)
    server._forget()
    server.tool(name="write", permission="shop.view_invoise")(lambda request: "x")
    assert only(server).id == "django_mcp.W011"


def test_without_django_auth_no_permission_is_looked_for(monkeypatch):
    monkeypatch.setattr(apps, "is_installed", lambda name: False)
    assert unknown_codename("shop.no_such") is None
