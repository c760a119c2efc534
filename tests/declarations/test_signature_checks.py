"""Checks of the parameters of permission functions and hook methods."""

import functools

import pytest

import django_mcp as mcp
from tests.shop.models import Invoice

from .helpers import problem_ids, single_problem


def takes_user(user):
    return user.is_staff


def takes_nothing():
    return True


def takes_request_and_object(request, obj):
    return True


def takes_request(request):
    return request.user.is_staff


def register_tool(server, permission):
    class Do(mcp.Tool):
        """Do it."""

        def handle(self, request) -> str:
            return "done"

    Do.permission = permission
    server.register(Do)
    return server


@pytest.mark.parametrize(
    "permission",
    [
        takes_user,
        takes_nothing,
        takes_request_and_object,
        functools.partial(takes_request_and_object),
    ],
)
def test_permission_function_with_other_parameters_is_an_error(server, permission):
    message = single_problem(register_tool(server, staticmethod(permission)))
    assert message.id == "django_mcp.E011" and "of the request" in message.hint


def test_hint_for_a_permission_function_in_a_class_body_is_staticmethod(server):
    message = single_problem(register_tool(server, takes_request))
    assert message.id == "django_mcp.E011"
    assert "Write staticmethod(takes_request)." in message.msg


@pytest.mark.parametrize(
    "permission",
    [
        takes_request,
        lambda anything: True,
        lambda *given: True,
        functools.partial(takes_request_and_object, obj=1),
    ],
)
def test_permission_function_that_accepts_the_request_is_valid(server, permission):
    assert problem_ids(register_tool(server, staticmethod(permission))) == []


@pytest.mark.parametrize("permission", [takes_user, takes_nothing])
def test_permission_of_a_decorated_function_is_checked(server, permission):
    @server.tool(permission=permission)
    def do(request) -> str:
        """Do it."""
        return "done"

    assert problem_ids(server) == ["E011"]


class Rows(mcp.ModelResource):
    permission = "shop.view_invoice"
    fields = ["number", "total"]


@pytest.mark.parametrize("permission", [takes_user, takes_nothing])
def test_operation_permission_with_other_parameters_is_an_error(server, permission):
    attributes = {"operations": ["update"], "operation_permissions": {"update": permission}}
    server.register(Invoice, type("Own", (Rows,), attributes))
    assert "E137" in problem_ids(server)


def test_page_permission_with_other_parameters_is_an_error(server):
    server.page = takes_nothing
    server.tool(do)
    assert problem_ids(server) == ["E008"]


def do(request) -> str:
    """Do it."""
    return "done"


INVALID_METHODS = {
    "get_queryset": lambda self: Invoice.objects.all(),
    "has_object_permission": lambda self, obj: True,
    "save_model": lambda self, obj: None,
    "delete_model": lambda self, request: None,
    "get_initial": lambda self: {},
    "has_permission": lambda self, request, obj: True,
    "has_operation_permission": lambda self, request: True,
    "get_title": lambda self, row: "",
}


@pytest.mark.parametrize("name", INVALID_METHODS)
def test_method_with_other_parameters_is_an_error(server, name):
    server.register(Invoice, type("Own", (Rows,), {name: INVALID_METHODS[name], "listed": True}))
    message = single_problem(server)
    assert message.id == "django_mcp.E063" and message.hint.startswith(f"Write def {name}(self, ")


VALID_METHODS = {
    "get_queryset": lambda self, caller: Invoice.objects.all(),
    "has_object_permission": lambda self, *given: True,
    "save_model": lambda self, request, obj, created, **more: None,
    "get_initial": lambda *given: {},
}


@pytest.mark.parametrize("name", VALID_METHODS)
def test_method_that_accepts_all_arguments_is_valid(server, name):
    server.register(Invoice, type("Own", (Rows,), {name: VALID_METHODS[name], "listed": True}))
    assert problem_ids(server) == []


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
