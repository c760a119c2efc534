"""Attacks: what a caller must not reach, see or change through tools of ninja operations."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_protect
from ninja import NinjaAPI, Router

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from tests.client import RpcError
from tests.http import HttpClient
from tests.shop.models import Invoice, Tag

from . import api

pytestmark = [pytest.mark.urls("tests.bridges.ninja.test_attacks"), pytest.mark.django_db]

twins = NinjaAPI(urls_namespace="twins")
shadowed = NinjaAPI(urls_namespace="shadowed")
hidden, covered = Router(), Router()


@twins.get("/one/{name}", response=str, url_name="same")
def one(request, name: str):
    return "one"


@twins.get("/two/{name}", response=str, url_name="same")
def two(request, name: str):
    return "two"


@shadowed.get("/{name}", response=str)
def first(request, name: str):
    return "first"


@shadowed.get("/second", response=str)
def second(request):
    return "second"


@hidden.get("/hidden", response=str, url_name="hidden")
def hiding(request):
    return "hiding"


@covered.get("/hidden", response=str, url_name="hidden")
def behind(request):
    return "behind"


twins.add_router("", hidden)
twins.add_router("", covered)


def sign_in_bob(request):
    request.user = User.objects.get(username="bob")
    return request.user


@shadowed.get("/as/bob", response=str, auth=sign_in_bob)
def as_bob(request):
    return request.user.username


protected = NinjaAPI(urls_namespace="protected", auth=api.OwnToken())


@protected.post("/cookie", response=str)
def protected_by_cookie(request):
    return request.user.username


urlpatterns = [
    *api.urlpatterns,
    path("twins/", twins.urls),
    path("shadowed/", shadowed.urls),
    path("protected/", protected.urls),
    path("accounts/login/", csrf_protect(lambda request: None), name="login"),
]


def text(result):
    assert "hunter2" not in json.dumps(result), result
    return result["content"][0]["text"]


def refused(result):
    assert result["isError"], result
    return text(result)


def data(result):
    assert not result["isError"], result
    assert "hunter2" not in json.dumps(result)
    return result["structuredContent"]


def over_http(url, user=None, **headers):
    client = Client()
    if user is not None:
        client.force_login(user)
    return client.get(url, headers={"host": "shop.example"} | headers, secure=True)


# Operations.


def test_only_listed_operations_are_tools(expose, connect, alice, invoice):
    client = connect(alice, server=expose("list_invoices"))
    assert [tool["name"] for tool in client.result("tools/list", {})["tools"]] == ["list_invoices"]
    with pytest.raises(RpcError):
        client.call("delete_invoice", pk=invoice.pk)
    assert Invoice.objects.exists()


def test_operations_with_the_same_url_name_are_not_confused(call):
    assert data(call("one", subject=twins, name="x")) == "one"


def test_second_operation_with_the_same_url_name_can_be_called(call):
    assert data(call("two", subject=twins, name="x")) == "two"


def test_url_that_leads_to_another_operation_is_not_called(call):
    assert "There is no" in refused(call("second", subject=shadowed))


def test_operation_with_the_same_name_and_path_is_not_called(call):
    """The operation of the first router would answer."""
    assert refused(call("behind", subject=covered)) == "Not found."


@pytest.mark.parametrize("name", ["a/b", "../one/x", "", "x\n", "x?y=1"])
def test_text_in_a_url_leads_to_no_other_operation(call, name):
    result = call("two", subject=twins, name=name)
    if name == "x?y=1":  # a question mark is quoted
        assert data(result) == "two"
    else:
        told = refused(result)
        assert "Invalid arguments" in told or "cannot be part of" in told


# Arguments.


@pytest.mark.parametrize(
    "arguments",
    [
        {"company": 1}, {"customer__notes": "never pays"}, {"_method": "DELETE"}, {"filters": {}},
        {"request": 1}, {"key": "hunter2"},
    ],
)  # fmt: skip
def test_undeclared_parameters_are_rejected(call, invoice, arguments):
    result = call("list_invoices", **arguments)
    assert result["isError"] and "Invalid arguments" in result["content"][0]["text"]


def new_invoice(invoice, **changes):
    return {"number": "A-9", "customer_id": invoice.customer_id, "total": "5.00"} | changes


@pytest.mark.parametrize(
    "changes", [{"company_id": 1}, {"id": 1}, {"lines": [{"price": 1, "hidden": 1}]}]
)
def test_undeclared_fields_of_a_body_are_rejected(call, invoice, changes):
    assert "Invalid arguments" in refused(call("create_invoice", **new_invoice(invoice, **changes)))
    assert Invoice.objects.count() == 1


def test_parameters_of_headers_are_no_arguments(expose, connect, alice):
    client = connect(alice, server=expose("seen"))
    (shown,) = client.result("tools/list", {})["tools"]
    assert shown["inputSchema"]["properties"] == {}


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a\r\nX: y", ""])
def test_name_of_a_file_is_no_path(call, name):
    told = refused(call("send_files", uploads=[{"name": name, "data": "aGk="}]))
    assert told == "uploads: The name of a file must not be a path."


def test_content_of_a_file_is_base64(call):
    told = refused(call("send_files", uploads=[{"name": "a", "data": "!"}]))
    assert told == "uploads: The data are not valid base64."


# Rows of other companies.


def test_row_of_another_company_is_not_found(call, foreign_invoice):
    assert refused(call("get_invoice", pk=foreign_invoice.pk)) == "Not found."
    assert refused(call("get_invoice", pk=10**9)) == "Not found."


def test_lists_contain_no_rows_of_another_company(call, invoice, foreign_invoice):
    for arguments in ({}, {"number": ["B-1", "A-1"]}, {"status": "draft"}, {"page_size": 100}):
        found = data(call("list_invoices", **arguments))["items"]
        assert {one["number"] for one in found} <= {"A-1"}


def test_error_of_debug_shows_no_model(call, settings, foreign_invoice):
    settings.DEBUG = True
    assert refused(call("get_invoice", pk=foreign_invoice.pk)) == "Not found."


# Permissions.


def test_anonymous_callers_use_only_public_tools(expose, connect):
    server = expose("decorated")
    with pytest.raises(RpcError):
        connect(None, server=server).call("decorated")


def test_permission_is_checked_at_each_call(expose, connect, alice):
    server = expose("decorated", permission="shop.change_invoice")
    client = connect(alice, server=server)
    assert data(client.call("decorated")) == "done"
    alice.user_permissions.clear()
    with pytest.raises(RpcError):
        connect(User.objects.get(pk=alice.pk), server=server).call("decorated")


def test_decorators_apply(call, bob):
    assert data(call("decorated")) == "done"
    assert refused(call("decorated", bob)) == "Permission denied."


def test_denial_of_an_operation_is_told(call, invoice):
    assert refused(call("delete_invoice", pk=invoice.pk)) == "Only on Mondays."
    assert Invoice.objects.exists()


# auth.


def test_auth_is_not_replaced_unless_asked(call, alice):
    assert refused(call("for_staff")) == "Permission denied."
    alice.is_staff = True
    alice.save()
    assert data(call("for_staff", User.objects.get(pk=alice.pk)))["auth"] == "staff"


@pytest.mark.parametrize("operation", ["bearer", "abearer", "for_staff"])
def test_replaced_auth_is_the_caller(call, operation):
    seen = data(call(operation, attributes={"replace_auth": True}))
    assert (seen["user"], seen["auth"]) == ("alice", "alice")


@pytest.mark.parametrize("operation", ["bearer", "abearer", "for_staff"])
def test_replaced_auth_denies_anonymous_callers(call, operation):
    attributes = {"replace_auth": True, "permission": mcp.PUBLIC}
    assert refused(call(operation, None, attributes=attributes)) == "Permission denied."


def test_replaced_auth_replaces_nothing_over_http(call, alice):
    before = over_http("/api/bearer").status_code, over_http("/api/function", alice).status_code
    call("bearer", attributes={"replace_auth": True})
    assert before == (401, 401)
    assert (
        over_http("/api/bearer").status_code,
        over_http("/api/bearer", alice).status_code,
    ) == before
    assert over_http("/api/openapi.json").json()["paths"]["/api/bearer"]["get"]["security"] == [
        {"OwnToken": []}
    ]


def test_replaced_auth_replaces_nothing_in_other_classes(expose, connect, alice):
    expose("for_staff", replace_auth=True, names={"for_staff": "open"})
    client = connect(alice, server=expose("for_staff"))
    assert data(client.call("open"))["auth"] == "alice"
    assert refused(client.call("for_staff")) == "Permission denied."


def test_missing_replacement_is_an_error_also_if_another_class_replaces(server, expose):
    expose("bearer", replace_auth=True, names={"bearer": "open"})
    assert [one.id for one in expose("bearer").check()] == ["django_mcp.E205"]


@pytest.mark.parametrize("replaced", [False, True])
def test_session_authentication_decides_by_the_caller(call, alice, replaced):
    attributes = {"replace_auth": replaced}
    assert refused(call("for_superusers", attributes=attributes)) == "Permission denied."
    alice.is_superuser = True
    alice.save()
    assert data(call("for_superusers", User.objects.get(pk=alice.pk)))["user"] == "alice"


def test_session_authentication_accepts_callers_without_a_csrf_token(call):
    assert data(call("with_session"))["auth"] == "alice"


def test_auth_that_signs_in_another_user_is_denied(call, alice, bob):
    assert "bob" not in refused(call("as_bob", subject=shadowed))
    assert data(call("as_bob", bob, subject=shadowed)) == "bob"


def test_auth_of_the_api_and_csrf_protection_stay_over_http(call, alice):
    replaced = {"replace_auth": True}
    assert data(call("protected_by_cookie", subject=protected, attributes=replaced)) == "alice"
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    options = {"headers": {"host": "shop.example"}, "secure": True}
    assert client.post("/protected/cookie", **options).status_code == 401


# What the operation is given.


class Alice:
    """A token verifier with one valid token."""

    async def verify(self, token, server):
        assert token == "hunter2"
        user = await User.objects.aget(username="alice")
        return Principal(user, Auth(scopes=frozenset({"tool:seen", "tool:bearer"})))


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("operation", ["seen", "bearer"])
def test_operation_gets_the_caller_and_no_credentials(
    expose, server, settings, alice, revision, operation
):
    here = "tests.bridges.ninja.test_attacks.Alice"
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": [here]}
    expose(operation, replace_auth=True)
    more = {"X-API-Key": "hunter2", "Cookie": "theme=hunter2"}
    with HttpClient("hunter2", server=server, revision=revision, more=more) as client:
        assert data(client.call(operation)) == {
            "user": "alice", "auth": "alice" if operation == "bearer" else None, "method": "GET",
            "query": {}, "cookies": {}, "authorization": None, "key": None,
            "path": f"/api/{operation}",
        }  # fmt: skip


# Results.


@pytest.mark.parametrize("operation", ["row", "raw", "direct"])
def test_only_fields_of_the_schema_are_shown(call, operation):
    assert set(data(call(operation))) <= {"id", "number", "total", "customer_name", "message"}


def test_page_is_not_returned(call):
    assert refused(call("page")) == "The view returned text/html in place of JSON."


@pytest.mark.parametrize("operation", ["fail", "afail"])
@pytest.mark.parametrize("kind", list(api.FAILURES))
@pytest.mark.parametrize("debug", [False, True])
def test_failure_shows_no_details(call, settings, operation, kind, debug):
    settings.DEBUG = debug
    result = call(operation, kind=kind)
    assert result["isError"]
    if not (debug and kind == "bug"):  # the text of a bug is for developers
        text(result)


@pytest.mark.parametrize("operation", ["fail", "afail"])
@pytest.mark.parametrize("kind", list(api.FAILURES))
def test_response_of_300_or_more_rolls_back(call, operation, kind):
    assert refused(call(operation, kind=kind))
    assert not Tag.objects.exists()


def test_declared_error_rolls_back(call, invoice):
    told = refused(call("create_invoice", **new_invoice(invoice, number=invoice.number)))
    assert told == "409 Conflict. message: The number is taken."
    assert not Tag.objects.exists()


def test_throttle_is_shared_with_http(call, alice):
    assert over_http("/api/throttled", alice).status_code == 200
    told = refused(call("throttled"))
    assert told.startswith("Too many requests. Try again ")  # ninja 1.6 does not say when
    cache.clear()
    assert data(call("throttled")) == "done"
    assert over_http("/api/throttled", alice).status_code == 429
