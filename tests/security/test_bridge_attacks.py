"""Attacks through bridged views, forms and model operations."""

from __future__ import annotations

import json

import pytest
from django import forms
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import IntegrityError
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import path, resolve
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_cookie, vary_on_headers
from django.views.generic import View

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.model_operations import translate_errors
from django_mcp.bridges.views import ViewTools
from django_mcp.bridges.views import results as view_pages
from tests.bridges import site
from tests.bridges.billing import Free, declare
from tests.client import RpcError
from tests.shop.models import Company, Customer, Invoice, Tag

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]
WORD = "hunter2"


@pytest.fixture(autouse=True)
def project(settings):
    settings.TEMPLATES = site.TEMPLATES
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    cache.clear()


# A site that was written for browsers and its own tokens.


def username_view(request):
    return HttpResponse(f"of {request.user.get_username()}")


def drafts_view(request):
    """Keep a draft for each session, as many sites do."""
    key = f"draft-{request.session.session_key}"
    before = cache.get(key, "")
    cache.set(key, f"{before}{request.user.get_username()} ")
    return HttpResponse(f"before: {before}")


def resolver_view(request):
    """Return what is at a path, by the resolver."""
    return HttpResponse(resolve(request.GET.get("at", "/nowhere/")).view_name)


def about_row(request):
    raise Http404({"row": WORD})


@method_decorator([cache_page(60), vary_on_headers("Authorization")], name="dispatch")
class OfToken(View):
    def get(self, request):
        return username_view(request)


def login_view(request, name):
    """Sign the visitor in as another user."""
    login(request, User.objects.get(username=name), "django.contrib.auth.backends.ModelBackend")
    request.session["name"] = name
    return redirect("cookie")


def commented(request):
    return HttpResponse(f"<p>Hello<!-- {WORD} --></p><p style='display: none'>{WORD}</p>")


urlpatterns = [
    path("cookie/", cache_page(60)(vary_on_cookie(username_view)), name="cookie"),
    path("token/", OfToken.as_view(), name="token"),
    path("everybody/", cache_page(60)(username_view), name="everybody"),
    path("drafts/", login_required(drafts_view), name="drafts"),
    path("where/", resolver_view, name="where"),
    path("about-row/", about_row, name="about-row"),
    path("become/<name>/", login_view, name="become"),
    path("commented/", commented, name="commented"),
    path("accounts/login/", username_view, name="login"),
]


@pytest.fixture
def visit(server, connect):
    """Return a function that calls a view as a tool, as a user."""

    def visited(name, user, **arguments):
        if not server._records:
            server.register(type("SiteViews", (ViewTools,), {"get": [name], "pages": "text"}))
            server.ready()
        result = connect(user, server=server).call(name.replace("-", "_"), **arguments)
        return result["isError"], result["content"][0]["text"]

    return visited


@pytest.mark.parametrize("name", ["cookie", "token", "everybody"])
def test_cached_pages_are_not_shared_between_callers(visit, client, alice, bob, name):
    """Whatever the views vary by, callers here send no headers that differ."""
    told = [visit(name, user) for user in (alice, bob, alice)]
    assert told == [(False, "of alice"), (False, "of bob"), (False, "of alice")]
    there = client.get(f"/{name}/", headers={"host": "shop.example"}, secure=True)
    assert there.content == b"of "


def test_data_stored_by_session_is_not_shared_between_callers(visit, alice, bob):
    """Each caller has its own session key, as signed-in visitors have."""
    assert visit("drafts", alice) == (False, "before:")
    assert visit("drafts", bob) == (False, "before:")


@pytest.mark.parametrize("name", ["where", "about-row"])
def test_404_of_a_view_reveals_no_urls(visit, alice, name):
    assert visit(name, alice) == (True, "Not found.")


@pytest.mark.parametrize("pages", ["markdown", "text"])
def test_invisible_parts_of_a_page_are_omitted(pages):
    told = getattr(view_pages, pages)(commented(None).content.decode())
    assert "Hello" in told and WORD not in told


def test_view_cannot_sign_in_the_caller_as_another_user(server, connect, alice, bob, settings):
    settings.SESSION_SAVE_EVERY_REQUEST = True
    server.register(type("SiteViews", (ViewTools,), {"get": ["become", "cookie"], "pages": "text"}))
    server.ready()
    client = connect(alice, server=server)
    told = client.call("become", name="bob")["content"][0]["text"]
    assert told == "of alice" == client.call("cookie")["content"][0]["text"]
    assert not Session.objects.exists()


# Operations and forms.


def test_anonymous_clients_cannot_write_whatever_a_method_returns(server, connect, db):
    """A project's method may assume that there is a user."""

    class Open(Free):
        permission = mcp.PUBLIC
        fields = ["label"]
        operations = ["create", "update", "delete"]
        operation_permissions = {}

        def has_operation_permission(self, request, operation):
            return True

    server.register(Tag, Open)
    server.ready()
    row = Tag.objects.create(label="a")
    names = {one["name"] for one in connect(server=server).request("tools/list")["tools"]}
    assert not names & {"create_tag", "update_tag", "delete_tag"}
    for name, given in [
        ("create_tag", {"label": "b"}),
        ("update_tag", {"tag": row.pk, "label": "b"}),
        ("delete_tag", {"tag": row.pk}),
    ]:
        with pytest.raises(RpcError):
            connect(server=server).call(name, **given)
    assert [*Tag.objects.values_list("label", flat=True)] == ["a"]


def test_coroutine_as_permission_result_denies(server, connect, alice):
    class Async(Free):
        fields = ["label"]

        def has_operation_permission(self, request, operation):
            async def answer():
                return False

            return answer()

    server.register(Tag, Async)
    server.ready()
    assert connect(alice, server=server).call("create_tag", label="b")["isError"]
    assert not Tag.objects.exists()


def test_failing_permission_denies(server, connect, alice, caplog):
    class Failing(Free):
        fields = ["label"]

        def has_object_permission(self, request, obj, operation):
            if operation != "view":
                raise RuntimeError(WORD)
            return True

    server.register(Tag, Failing)
    server.ready()
    client = connect(alice, server=server)
    row = Tag.objects.create(label="a")
    for name, given in [
        ("create_tag", {"label": "b"}),
        ("update_tag", {"tag": row.pk, "label": "b"}),
        ("delete_tag", {"tag": row.pk}),
    ]:
        result = client.call(name, **given)
        assert result["isError"] and WORD not in json.dumps(result), name
    assert [*Tag.objects.values_list("label", flat=True)] == ["a"]


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "pk",
        "_state",
        "company_id",
        "company__name",
        "overdue",
        "__class__",
        "objects",
        "tags.add",
        "_uri",
        "save",
    ],
)
def test_only_declared_fields_can_be_written(server, connect, alice, invoice, name):
    declare(server)
    server.ready()
    before = Invoice.objects.values().get(pk=invoice.pk)
    result = connect(alice, server=server).call("update_invoice", invoice=invoice.pk, **{name: 1})
    assert result["isError"] and Invoice.objects.values().get(pk=invoice.pk) == before


class Shift(forms.ModelForm):
    class Meta:
        model = Invoice
        fields = "__all__"  # noqa: DJ007
        widgets = {"status": forms.HiddenInput}


def test_form_rejects_hidden_fields_and_hidden_related_rows(server, connect, alice, invoice, bob):
    declare(server)
    theirs = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=theirs, name=WORD)

    @server.register(Shift)
    class ShiftInvoice(FormTool):
        permission = mcp.AUTHENTICATED
        update = True
        exclude = ["attachment", "metadata", "tags"]

    assert not [one for one in server.check() if one.level >= 40], server.check()
    client = connect(alice, server=server)
    before = Invoice.objects.values().get(pk=invoice.pk)
    for given in (
        {"company": theirs.pk},
        {"customer": customer.pk},
        {"status": "paid"},
        {"company": "1 OR 1=1"},
    ):
        result = client.call("shift_invoice", invoice=invoice.pk, **given)
        assert result["isError"] and WORD not in json.dumps(result), given
    missing = client.call("shift_invoice", invoice=invoice.pk, company=999_999)
    hidden = client.call("shift_invoice", invoice=invoice.pk, company=theirs.pk)
    assert str(missing).replace("999999", "N") == str(hidden).replace(f"{theirs.pk}", "N")
    assert Invoice.objects.values().get(pk=invoice.pk) == before


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "..", "a\\b", "a\0b", "/etc/passwd", "C:\\x", "a\nb", "", "x" * 300]
)
def test_file_name_with_a_path_is_rejected(server, connect, alice, invoice, name):
    declare(server)
    server.ready()
    file = {"name": name, "data": "aGVsbG8="}
    result = connect(alice, server=server).call(
        "update_invoice", invoice=invoice.pk, attachment=file
    )
    assert result["isError"]
    invoice.refresh_from_db()
    assert not invoice.attachment


@pytest.mark.parametrize(
    "said",
    [
        (1062, f"Duplicate entry 'a-{WORD}' for key 'shop_invoice.number'"),
        (f'duplicate key value violates unique constraint "number"\nDETAIL:  Key (a)=({WORD})',),
    ],
    ids=["MySQL", "PostgreSQL"],
)
def test_values_in_database_errors_are_not_logged(server, caplog, said):
    declare(server)
    resource = server.ready().models[Invoice][0]
    with pytest.raises(mcp.ToolError), translate_errors(resource):
        raise IntegrityError(*said)
    assert "number" in caplog.text and WORD not in caplog.text
