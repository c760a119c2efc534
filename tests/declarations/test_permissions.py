"""Permissions: codenames, functions, ``AUTHENTICATED`` and ``PUBLIC``, and their checks."""

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

from .helpers import make_request, single_problem, valid_catalog


def allows(permission, request):
    return decide_permission(permission, request).allowed


def always_true(request):
    return True


async def asynchronous(request):
    return True


class Rules(BaseBackend):
    def has_perm(self, user, permission, obj=None):
        return permission == "rules.read"


class AsynchronousCallable:
    async def __call__(self, request):
        return False


def test_anonymous_user_has_only_the_public_permission():
    assert allows(mcp.PUBLIC, make_request())
    for permission in (mcp.AUTHENTICATED, "shop.change_invoice", always_true):
        assert not allows(permission, make_request())


def test_permission_function_is_not_called_for_anonymous_users():
    def permission(request):
        raise AssertionError("asked")

    assert not allows(permission, make_request())


def test_codename_is_a_permission_of_django(alice, bob):
    assert allows("shop.change_invoice", make_request(alice))
    assert not allows("shop.change_invoice", make_request(bob))
    assert not allows("shop.no_such_thing", make_request(alice))


def test_permission_function_decides(alice, bob):
    def named_alice(request):
        return request.user.username == "alice"

    assert allows(named_alice, make_request(alice)) and not allows(named_alice, make_request(bob))


def test_truth_of_the_functions_result_decides(alice):
    assert allows(lambda request: [1], make_request(alice)) is True
    assert allows(lambda request: None, make_request(alice)) is False


def test_authenticated_allows_any_user(alice):
    assert allows(mcp.AUTHENTICATED, make_request(alice))


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, "auth.add_user", always_true])
def test_inactive_superuser_is_not_allowed(db, permission):
    boss = User.objects.create_superuser("boss", is_active=False)
    assert not allows(permission, make_request(boss))


def test_superuser_has_every_codename(db):
    assert allows("shop.change_invoice", make_request(User.objects.create_superuser("boss")))


@pytest.mark.parametrize("permission", [asynchronous, AsynchronousCallable()])
def test_coroutine_as_a_result_raises(alice, permission):
    with pytest.raises(TypeError, match="async"):
        allows(permission, make_request(alice))


def test_awaitable_as_a_result_raises():
    class Promise:
        def __await__(self):
            yield

    with pytest.raises(TypeError):
        truth(Promise())


def test_public_and_authenticated_are_free():
    assert is_free(mcp.PUBLIC) and is_free(mcp.AUTHENTICATED)
    assert not is_free("shop.change_invoice") and not is_free(always_true)


@pytest.mark.parametrize("permission", [mcp.PUBLIC, mcp.AUTHENTICATED, "app.code", always_true])
def test_valid_permission_has_no_problem(permission):
    assert problem(permission) is None


@pytest.mark.parametrize(
    "permission", ["", "change_invoice", "shop.", ".change_invoice", None, True, 7, ["a.b"]]
)
def test_invalid_permission_is_a_problem(permission):
    assert repr(permission) in problem(permission)


def test_class_as_a_permission_is_a_problem():
    """Calling it returns an instance, which is true, so everybody would be allowed."""

    class IsAdminUser:
        def __init__(self, request):
            pass

    assert "class" in problem(IsAdminUser)


def test_async_function_as_a_permission_is_a_problem():
    assert "async" in problem(asynchronous)


def test_repr_of_public_and_authenticated():
    assert repr(mcp.PUBLIC) == "mcp.PUBLIC" and repr(mcp.AUTHENTICATED) == "mcp.AUTHENTICATED"


def test_has_perm_is_called_without_an_object(alice, invoice, monkeypatch):
    """Django's ModelBackend returns False for every user if an object is given."""
    seen = []
    monkeypatch.setattr(
        User, "has_perm", lambda self, perm, obj=None: seen.append((perm, obj)) or True
    )
    alice = User.objects.get(pk=alice.pk)
    assert allows("shop.change_invoice", make_request(alice))
    assert seen == [("shop.change_invoice", None)]


def test_permission_granted_after_loading_the_user_applies(bob):
    """The user is loaded again for every call."""
    bob.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    assert allows("shop.change_invoice", make_request(User.objects.get(pk=bob.pk)))


def test_anonymous_user_is_not_active():
    assert AnonymousUser().is_active is False


# Unknown codenames.


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
    message = single_problem(server)
    assert message.id == "django_mcp.W011" and repr(codename) in message.msg
    assert (f"Did you mean {meant!r}?" in message.hint) is bool(meant)


@pytest.mark.parametrize("codename", ["shop.view_invoice", "shop.refund_invoice", "auth.add_user"])
def test_permission_that_a_model_declares_is_valid_without_a_query(server, codename, monkeypatch):
    monkeypatch.setattr(Invoice._meta, "permissions", [("refund_invoice", "Can refund invoice")])
    server.tool(name="read", permission=codename)(lambda request: "x")
    valid_catalog(server)


def test_permission_of_an_operation_that_does_not_exist_is_a_warning(server):
    class Rows(mcp.ModelResource):
        permission = "shop.view_customer"
        fields = ["name"]
        operations = ["update"]
        operation_permissions = {"update": "shop.chnage_customer"}

    server.register(Customer, Rows)
    message = single_problem(server)
    assert message.id == "django_mcp.W011" and "'shop.chnage_customer'" in message.msg
    assert "Did you mean 'shop.change_customer'?" in message.hint


def test_default_permission_that_the_model_does_not_have_is_a_warning(server, monkeypatch):
    monkeypatch.setattr(Customer._meta, "default_permissions", ("add",))

    class Rows(mcp.ModelResource):
        fields = ["name"]

    server.register(Customer, Rows)
    assert (
        single_problem(server).id == "django_mcp.W011"
        and "shop.view_customer" in single_problem(server).msg
    )


def test_permission_of_a_custom_backend_is_valid(server, settings):
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Rules"]
    server.tool(name="read", permission="rules.read")(lambda request: "x")
    valid_catalog(server)
    server._forget()
    server.tool(name="write", permission="shop.view_invoise")(lambda request: "x")
    assert single_problem(server).id == "django_mcp.W011"


def test_codenames_are_not_checked_without_django_auth(monkeypatch):
    monkeypatch.setattr(apps, "is_installed", lambda name: False)
    assert unknown_codename("shop.no_such") is None
