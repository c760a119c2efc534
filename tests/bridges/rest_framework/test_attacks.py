"""Attacks: what a caller must not reach, see or change through tools of REST framework views."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required, user_passes_test
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers
from rest_framework import negotiation, renderers, viewsets
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIClient
from rest_framework.views import APIView, exception_handler

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.bridges.views import ViewTools
from tests.client import RpcError
from tests.http import HttpClient
from tests.shop.models import Invoice, Tag

from . import api

pytestmark = [pytest.mark.urls("tests.bridges.rest_framework.test_attacks"), pytest.mark.django_db]


class CachedViewSet(viewsets.ViewSet):
    @method_decorator(cache_page(60))
    @method_decorator(vary_on_headers("Authorization"))
    def list(self, request):
        """Who the caller is."""
        return Response({"user": request.user.get_username()})


@method_decorator(cache_page(60), name="dispatch")
class CachedView(APIView):
    def get(self, request):
        """Who the caller is."""
        return Response({"user": request.user.get_username()})


class CachedExports(viewsets.ViewSet):
    """Returns a response that is rendered at once, which ``cache_page`` stores at once."""

    @method_decorator(cache_page(60))
    @method_decorator(vary_on_headers("Authorization"))
    def list(self, request):
        """Who the caller is."""
        return JsonResponse({"user": request.user.get_username()})


@api_view(["GET"])
@cache_page(60)
@vary_on_headers("Authorization")
def cached_function(request):
    """Who the caller is."""
    return JsonResponse({"user": request.user.get_username()})


CACHED = {
    "/cached/": CachedViewSet, "/cached-view/": CachedView, "/cached-exports/": CachedExports,
    "/cached-function/": cached_function,
}  # fmt: skip


class Csv(renderers.BaseRenderer):
    media_type, format = "text/csv", "csv"

    def render(self, data, accepted_media_type=None, renderer_context=None):
        return b"hunter2"


class Exports(viewsets.ViewSet):
    renderer_classes = [Csv, renderers.BrowsableAPIRenderer, renderers.JSONRenderer]

    def list(self, request):
        """Rows."""
        return Response({"format": request.accepted_renderer.format})


class Named(api.InvoiceViewSet):
    lookup_field = "number"


router = SimpleRouter()
router.register("named", Named, basename="named")
router.register("cached", CachedViewSet, basename="cached")
router.register("cached-exports", CachedExports, basename="cached-export")
router.register("exports", Exports, basename="export")


class Twin(APIView):
    def get(self, request):
        """One of two views with the same name and path."""
        return Response({"view": type(self).__name__})


class OtherTwin(Twin):
    pass


class Guarded(Twin):
    pass


class Staff(Twin):
    pass


urlpatterns = [
    *api.urlpatterns,
    *router.urls,
    path("twin/", Twin.as_view(), name="twin"),
    path("twin/", OtherTwin.as_view(), name="twin"),
    path("guarded/", login_required(Guarded.as_view()), name="guarded"),
    path("staff/", user_passes_test(lambda user: user.is_staff)(Staff.as_view()), name="staff"),
    path("accounts/login/", Twin.as_view(), name="login"),
    path("cached-view/", CachedView.as_view(), name="cached-view"),
    path("cached-function/", cached_function, name="cached-function"),
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


# Rows of other companies.


def test_row_of_another_company_is_not_found(invoices, alice, foreign_invoice):
    client = invoices(alice)
    for tool in ("retrieve_invoice", "destroy_invoice", "partial_update_invoice"):
        assert refused(client.call(tool, pk=foreign_invoice.pk)) == "Not found."
        assert refused(client.call(tool, pk=10**9)) == "Not found."
    foreign_invoice.refresh_from_db()


def test_lists_contain_no_rows_of_another_company(invoices, alice, invoice, foreign_invoice):
    client = invoices(alice)
    for arguments in (
        {}, {"search": "Dora"}, {"search": "B-1"}, {"customer": foreign_invoice.customer_id},
        {"ordering": ["-total"]}, {"total_max": 7}, {"status": "draft"}, {"page_size": 3},
    ):  # fmt: skip
        result = client.call("list_invoice", **arguments)
        assert {row["number"] for row in data(result).get("results", [])} <= {"A-1"}


def test_filters_and_orders_that_the_view_does_not_offer_are_rejected(invoices, alice, invoice):
    client = invoices(alice)
    for arguments in (
        {"customer__notes": "never pays"}, {"company": 1}, {"ordering": ["customer__notes"]},
        {"ordering": "company"}, {"format": "api"}, {"_method": "DELETE"},
    ):  # fmt: skip
        assert "Invalid arguments" in refused(client.call("list_invoice", **arguments))


def test_search_with_many_words_is_rejected(invoices, alice, invoice):
    told = invoices(alice).call("list_invoice", search="A " * 100 + "A")
    assert told["isError"] and "search: " in told["content"][0]["text"]
    assert not invoices(alice).call("list_invoice", search="A " * 100)["isError"]


@pytest.mark.parametrize("pk", ["1/remind", "../notes", "seen", "1.json", "1?x=1", "", " ", "1\n"])
def test_key_leads_to_no_other_url(call, invoice, pk):
    assert "Invalid arguments" in refused(call(api.InvoiceViewSet, "retrieve", pk=pk))


@pytest.mark.parametrize("number", ["seen", "a/b", "../x", "x.json", "%2e%2e"])
def test_text_in_a_url_leads_to_no_other_view(expose, connect, alice, invoice, number):
    """A key may be any text that the regular expression matches, such as the name of an action."""
    server = expose(Named, ["retrieve"])
    client = connect(alice, server=server)
    assert refused(client.call("retrieve_named", number=number))
    assert data(client.call("retrieve_named", number="A-1"))["id"] == invoice.pk


def test_url_of_another_view_is_not_called(call):
    """The first view at the path would answer."""
    assert refused(call(OtherTwin, "get")) == "Not found."


class Switched(viewsets.ViewSet):
    """Two URLs with one name, and other methods for the same actions."""

    def list(self, request):
        """Read."""
        return Response({"did": "list"})

    def wipe(self, request):
        return Response({"did": "wipe"})


@pytest.mark.parametrize("order", [1, -1])
def test_same_name_with_other_methods_runs_no_other_action(call, settings, order):
    module = ModuleType("urls_of_test")
    patterns = [
        path("x/", Switched.as_view({"get": "list"}), name="switched"),
        path("y/", Switched.as_view({"get": "wipe", "post": "list"}), name="switched"),
    ]
    module.urlpatterns = patterns[::order]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    result = call(Switched, "list")
    assert result["isError"] or data(result) == {"did": "list"}


# Actions.


def test_only_listed_actions_are_tools(expose, connect, alice, invoice):
    server = expose(api.InvoiceViewSet, ["list"])
    client = connect(alice, server=server)
    assert [tool["name"] for tool in client.result("tools/list", {})["tools"]] == ["list_invoice"]
    with pytest.raises(RpcError):
        client.call("destroy_invoice", pk=invoice.pk)


def test_permission_classes_of_an_action_apply(call, invoice):
    result = call(api.InvoiceViewSet, "approve", pk=invoice.pk)
    assert "permission" in refused(result)
    invoice.refresh_from_db()
    assert invoice.status == "open"


def test_object_permissions_apply(call, invoice):
    told = refused(call(api.InvoiceViewSet, "destroy", pk=invoice.pk))
    assert told == "Only drafts can be deleted."
    Invoice.objects.update(status="draft")
    assert text(call(api.InvoiceViewSet, "destroy", pk=invoice.pk)) == "Done."
    assert not Invoice.objects.exists()


def test_anonymous_callers_use_only_public_tools(expose, connect):
    server = expose(api.CompanyList, ["get"])
    with pytest.raises(RpcError):
        connect(None, server=server).call("get_company_list")


def test_permission_classes_apply_to_anonymous_callers_of_public_tools(expose, connect, alice):
    expose(api.CompanyList, ["get"], permission=mcp.PUBLIC)
    server = expose(api.InvoiceViewSet, ["list"], permission=mcp.PUBLIC)
    client = connect(None, server=server)
    assert client.call("get_company_list")["structuredContent"][0]["name"] == "Acme"
    assert "ermission" in refused(client.call("list_invoice"))


def test_decorators_in_the_urlconf_apply(expose, connect, alice):
    expose(Guarded, ["get"], permission=mcp.PUBLIC)
    server = expose(Staff, ["get"])
    client = connect(alice, server=server)
    assert data(client.call("get_guarded")) == {"view": "Guarded"}
    assert refused(client.call("get_staff")) == "Permission denied."
    assert refused(connect(None, server=server).call("get_guarded")) == "Permission denied."


def test_codename_of_the_class_is_required(expose, connect, alice, bob, invoice):
    server = expose(api.InvoiceViewSet, ["list"], permission="shop.change_invoice")
    assert data(connect(alice, server=server).call("list_invoice"))["count"] == 1
    with pytest.raises(RpcError):
        connect(bob, server=server).call("list_invoice")


# What the view is given.


class Alice:
    """A token verifier with one valid token."""

    async def verify(self, token, server):
        assert token == "alices"
        user = await User.objects.aget(username="alice")
        return Principal(user, Auth(scopes=frozenset({"tool:seen_invoice"})))


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_view_gets_the_caller_and_no_credentials(expose, server, settings, alice, revision):
    verifiers = {"VERIFIERS": ["tests.bridges.rest_framework.test_attacks.Alice"]}
    settings.DJANGO_MCP = settings.DJANGO_MCP | verifiers
    expose(api.InvoiceViewSet, ["seen"])
    with HttpClient("alices", server=server, revision=revision) as client:
        assert data(client.call("seen_invoice")) == {
            "user": "alice", "auth": "Auth", "scopes": ["tool:seen_invoice"], "method": "GET",
            "query": {}, "cookies": {}, "authorization": None, "renderer": "json",
            "path": "/api/invoices/seen/", "mcp": "Request",
        }  # fmt: skip


class SignOut:
    """Middleware that signs all users out."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        logout(request)
        return self.get_response(request)


class Seen(APIView):
    def get(self, request):
        """Who the caller is."""
        return Response({"user": request.user.get_username(), "auth": request.auth is not None})


@pytest.fixture
def add_url(settings):
    """Return a function that makes a URLconf of one view."""

    def added(view):
        module = ModuleType("urls_of_test")
        module.urlpatterns = [path("x/", view.as_view(), name="x")]  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = module

    return added


@pytest.mark.parametrize("signs_out", [False, True])
def test_signed_out_caller_has_no_scopes(add_url, expose, server, settings, alice, signs_out):
    add_url(Seen)
    here = "tests.bridges.rest_framework.test_attacks"
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": [f"{here}.Alice"]}
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *([f"{here}.SignOut"] if signs_out else [])]
    expose(Seen, ["get"], names={"get": "seen_invoice"})
    with HttpClient("alices", server=server, revision="2026-07-28") as client:
        seen = data(client.call("seen_invoice"))
    assert seen == {"user": "" if signs_out else "alice", "auth": not signs_out}


class AsBob(BaseAuthentication):
    def authenticate(self, request):
        return User.objects.get(username="bob"), None


class Initializing(Seen):
    """A view that adds its authenticators to the request of REST framework."""

    authentication_classes = [AsBob]

    def initialize_request(self, request, *args, **kwargs):
        made = super().initialize_request(request, *args, **kwargs)
        made.authenticators = self.get_authenticators()
        return made


class Authenticating(Seen):
    """A view that authenticates users by itself."""

    def perform_authentication(self, request):
        request.user, request.auth = AsBob().authenticate(request)


class Dispatching(Seen):
    """A view that changes Django's request."""

    def dispatch(self, request, *args, **kwargs):
        request.user = User.objects.get(username="bob")
        return super().dispatch(request, *args, **kwargs)


class Delegating(APIView):
    """A view that runs another view."""

    def get(self, request):
        return Authenticating.as_view()(request._request)


@pytest.mark.parametrize("view", [Initializing, Authenticating, Dispatching, Delegating])
def test_view_runs_as_no_other_user_than_the_caller(add_url, call, alice, bob, view):
    add_url(view)
    assert "bob" not in refused(call(view, "get"))
    assert data(call(view, "get", bob))["user"] == "bob"


def test_renderer_is_always_the_one_for_json(call):
    assert data(call(Exports, "list")) == {"format": "json"}
    assert "Invalid arguments" in refused(call(Exports, "list", format="csv"))


def over_http(url, user=None):
    client = APIClient()
    if user is not None:
        client.force_login(user)
    headers = {"host": "shop.example", "accept": "application/json"}
    return client.get(url, headers=headers, secure=True).json()


@pytest.mark.parametrize("url", CACHED)
def test_cached_responses_are_not_shared_between_callers(call, alice, bob, url):
    view = CACHED[url]
    entry = "list" if hasattr(view, "get_extra_actions") else "get"
    found = [data(call(view, entry, user)) for user in (alice, bob, alice)]
    assert [one["user"] for one in found] == ["alice", "bob", "alice"]
    assert over_http(url) == {"user": ""}


def test_cached_responses_of_plain_view_tools_are_not_shared(server, connect, alice, bob):
    server.register(type("Pages", (ViewTools,), {"get": ["cached-export-list"]}))
    for user in (alice, bob):
        found = connect(user, server=server).call("cached_export_list")
        assert data(found) == {"user": user.username}
    assert over_http("/cached-exports/") == {"user": ""}


@pytest.mark.parametrize("url", CACHED)
def test_responses_cached_over_http_are_not_returned_to_callers(call, alice, bob, url):
    view = CACHED[url]
    over_http(url, alice)
    over_http(url)
    entry = "list" if hasattr(view, "get_extra_actions") else "get"
    assert data(call(view, entry, bob)) == {"user": "bob"}


class IgnoresAccept(negotiation.BaseContentNegotiation):
    def select_parser(self, request, parsers):
        return parsers[0]

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type


class Page(renderers.StaticHTMLRenderer):
    def render(self, data, accepted_media_type=None, renderer_context=None):
        return b"<form>hunter2</form>"


class Html(APIView):
    content_negotiation_class = IgnoresAccept
    renderer_classes = [Page, renderers.JSONRenderer]

    def get(self, request):
        """A page with forms."""
        return Response({})


def test_page_of_the_browsable_api_is_not_returned(add_url, call):
    add_url(Html)
    assert refused(call(Html, "get")) == "The view returned text/html in place of JSON."


def handle_with_200(exception, context):
    response = exception_handler(exception, context)
    response.data = {"code": response.status_code, "message": "It is closed."}
    response.status_code = 200
    return response


def handle_with_details(exception, context):
    return Response({"detail": repr(exception)}, status=500)


class Handled(APIView):
    error: Exception
    handler: Any

    def get_exception_handler(self):
        return type(self).handler

    def post(self, request):
        """Write a row, and fail."""
        Tag.objects.create(label="written")
        raise self.error


class HandledWith200(Handled):
    error, handler = ValidationError("no"), staticmethod(handle_with_200)


class HandledWithDetails(Handled):
    error, handler = RuntimeError("hunter2"), staticmethod(handle_with_details)


def test_error_that_a_handler_answers_with_200_rolls_back(add_url, call):
    add_url(HandledWith200)
    attributes = {"serializers": {"post": None}}
    told = refused(call(HandledWith200, "post", attributes=attributes))
    assert told == "code: 400\nmessage: It is closed." and not Tag.objects.exists()


def test_handler_shows_no_details_of_server_errors(add_url, call):
    add_url(HandledWithDetails)
    assert refused(call(HandledWithDetails, "post")) == "500 Internal Server Error."
    assert not Tag.objects.exists()


# Writes.


def new_invoice(invoice, **changes):
    given = {"number": "A-9", "customer": invoice.customer_id, "total": "5.00"}
    return given | {"issued": "2026-02-01"} | changes


def test_write_only_fields_are_not_shown(invoices, alice, invoice):
    client = invoices(alice)
    row = data(client.call("create_invoice", **new_invoice(invoice, memo="for us")))
    assert "memo" not in row and "for us" not in json.dumps(row)
    tools = client.result("tools/list", {})["tools"]
    (tool,) = [tool for tool in tools if tool["name"] == "create_invoice"]
    assert "memo" in tool["inputSchema"]["properties"]
    assert "memo" not in tool["outputSchema"]["properties"]


@pytest.mark.parametrize("name", ["id", "paid_at", "owner", "company", "customer_name", "overdue"])
def test_read_only_and_hidden_fields_cannot_be_assigned(invoices, alice, invoice, name):
    client = invoices(alice)
    given = new_invoice(invoice, **{name: 1})
    assert "Invalid arguments" in refused(client.call("create_invoice", **given))
    changed = client.call("partial_update_invoice", pk=invoice.pk, **{name: 1})
    assert "Invalid arguments" in refused(changed)
    assert Invoice.objects.count() == 1


@pytest.mark.parametrize("number", list(api.FAILURES))
def test_response_of_400_or_more_rolls_back(call, invoice, number):
    Invoice.objects.update(number=number)
    assert refused(call(api.InvoiceViewSet, "fail", pk=invoice.pk))
    assert not Tag.objects.exists()


def test_throttle_is_shared_with_http(call, alice):
    view, query = api.ReportView, {"query": {"get": api.ReportQuery}}
    client = APIClient()
    client.force_authenticate(alice)
    assert client.get("/api/report/").status_code == 200
    told = refused(call(view, "get", year=2026, attributes=query))
    assert told.startswith("Too many requests. Try again in ") and told.endswith(" seconds.")
    cache.clear()
    assert data(call(view, "get", year=2026)) == {"query": {"year": "2026"}}
    assert client.get("/api/report/").status_code == 429
