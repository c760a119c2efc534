"""Functions and methods with other parameters than are passed are errors of ``check``."""

import functools

import pytest

import django_mcp as mcp
from tests.shop.models import Invoice

from .world import ids, only


def of_the_user(user):
    return user.is_staff


def of_nothing():
    return True


def of_two(request, obj):
    return True


def of_the_request(request):
    return request.user.is_staff


def tool(server, permission):
    class Do(mcp.Tool):
        """Do it."""

        def handle(self, request) -> str:
            return "done"

    Do.permission = permission
    server.register(Do)
    return server


@pytest.mark.parametrize("permission", [of_the_user, of_nothing, of_two, functools.partial(of_two)])
def test_permission_function_with_other_parameters_is_an_error(server, permission):
    message = only(tool(server, staticmethod(permission)))
    assert message.id == "django_mcp.E011" and "of the request" in message.hint


def test_permission_function_in_a_class_body_is_told_staticmethod(server):
    message = only(tool(server, of_the_request))
    assert message.id == "django_mcp.E011"
    assert "Write staticmethod(of_the_request)." in message.msg


@pytest.mark.parametrize(
    "permission",
    [of_the_request, lambda anything: True, lambda *given: True, functools.partial(of_two, obj=1)],
)
def test_permission_function_of_the_request_is_right(server, permission):
    assert ids(tool(server, staticmethod(permission))) == []


@pytest.mark.parametrize("permission", [of_the_user, of_nothing])
def test_permission_of_a_decorated_function_is_checked(server, permission):
    @server.tool(permission=permission)
    def do(request) -> str:
        """Do it."""
        return "done"

    assert ids(server) == ["E011"]


class Rows(mcp.ModelResource):
    permission = "shop.view_invoice"
    fields = ["number", "total"]


@pytest.mark.parametrize("permission", [of_the_user, of_nothing])
def test_operation_permission_with_other_parameters_is_an_error(server, permission):
    attributes = {"operations": ["update"], "operation_permissions": {"update": permission}}
    server.register(Invoice, type("Own", (Rows,), attributes))
    assert "E137" in ids(server)


def test_page_permission_with_other_parameters_is_an_error(server):
    server.page = of_nothing
    server.tool(do)
    assert ids(server) == ["E008"]


def do(request) -> str:
    """Do it."""
    return "done"


WRONG = {
    "get_queryset": lambda self: Invoice.objects.all(),
    "has_object_permission": lambda self, obj: True,
    "save_model": lambda self, obj: None,
    "delete_model": lambda self, request: None,
    "get_initial": lambda self: {},
    "has_permission": lambda self, request, obj: True,
    "has_operation_permission": lambda self, request: True,
    "get_title": lambda self, row: "",
}


@pytest.mark.parametrize("name", WRONG)
def test_method_with_other_parameters_is_an_error(server, name):
    server.register(Invoice, type("Own", (Rows,), {name: WRONG[name], "listed": True}))
    message = only(server)
    assert message.id == "django_mcp.E063" and message.hint.startswith(f"Write def {name}(self, ")


RIGHT = {
    "get_queryset": lambda self, caller: Invoice.objects.all(),
    "has_object_permission": lambda self, *given: True,
    "save_model": lambda self, request, obj, created, **more: None,
    "get_initial": lambda *given: {},
}


@pytest.mark.parametrize("name", RIGHT)
def test_method_that_takes_what_is_passed_is_right(server, name):
    server.register(Invoice, type("Own", (Rows,), {name: RIGHT[name], "listed": True}))
    assert ids(server) == []


@pytest.mark.parametrize("base", [Rows, mcp.Tool])
def test_class_meta_is_an_error(server, base):
    class Own(base):
        """Do it."""

        class Meta:
            fields = ["number"]

        def handle(self, request) -> str:
            return "done"

    server.register(*([Invoice] if base is Rows else []), Own)
    found = [message for message in server.check() if message.id == "django_mcp.E009"]
    assert "attributes of the class itself" in found[0].hint
