"""What an attacker tries by way of views, forms and operations, each attack as a test."""

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
from django_mcp.bridges.rows import translate_errors
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


# A site that was written for browsers and for tokens of its own.


def mine(request):
    return HttpResponse(f"of {request.user.get_username()}")


def drafts(request):
    """Keeps a draft for each session, as many sites do."""
    key = f"draft-{request.session.session_key}"
    before = cache.get(key, "")
    cache.set(key, f"{before}{request.user.get_username()} ")
    return HttpResponse(f"before: {before}")


def where(request):
    """What is at a path, which it lets the resolver say."""
    return HttpResponse(resolve(request.GET.get("at", "/nowhere/")).view_name)


def about_row(request):
    raise Http404({"row": WORD})


@method_decorator([cache_page(60), vary_on_headers("Authorization")], name="dispatch")
class OfToken(View):
    def get(self, request):
        return mine(request)


def become(request, name):
    """Signs whoever comes in as somebody else."""
    login(request, User.objects.get(username=name), "django.contrib.auth.backends.ModelBackend")
    request.session["name"] = name
    return redirect("cookie")


def commented(request):
    return HttpResponse(f"<p>Hello<!-- {WORD} --></p><p style='display: none'>{WORD}</p>")


urlpatterns = [
    path("cookie/", cache_page(60)(vary_on_cookie(mine)), name="cookie"),
    path("token/", OfToken.as_view(), name="token"),
    path("everybody/", cache_page(60)(mine), name="everybody"),
    path("drafts/", login_required(drafts), name="drafts"),
    path("where/", where, name="where"),
    path("about-row/", about_row, name="about-row"),
    path("become/<name>/", become, name="become"),
    path("commented/", commented, name="commented"),
    path("accounts/login/", mine, name="login"),
]


@pytest.fixture
def visit(server, connect):
    """Calls a view by its name as somebody, as a tool of a class of its own."""

    def visited(name, user, **arguments):
        if not server._records:
            server.register(type("SiteViews", (ViewTools,), {"get": [name], "pages": "text"}))
            server.ready()
        result = connect(user, server=server).call(name.replace("-", "_"), **arguments)
        return result["isError"], result["content"][0]["text"]

    return visited


@pytest.mark.parametrize("name", ["cookie", "token", "everybody"])
def test_no_cache_of_pages_shows_one_callers_to_another(visit, client, alice, bob, name):
    """Whatever a site's pages vary by, no browser's header tells two callers apart here."""
    told = [visit(name, user) for user in (alice, bob, alice)]
    assert told == [(False, "of alice"), (False, "of bob"), (False, "of alice")]
    there = client.get(f"/{name}/", headers={"host": "shop.example"}, secure=True)
    assert there.content == b"of "


def test_what_is_kept_by_session_is_nobody_elses(visit, alice, bob):
    """A caller's session has a name, as everybody's who is signed in."""
    assert visit("drafts", alice) == (False, "before:")
    assert visit("drafts", bob) == (False, "before:")


@pytest.mark.parametrize("name", ["where", "about-row"])
def test_a_page_that_is_not_there_tells_no_addresses(visit, alice, name):
    assert visit(name, alice) == (True, "Not found.")


@pytest.mark.parametrize("pages", ["markdown", "text"])
def test_what_nobody_sees_on_a_page_is_not_told(pages):
    told = getattr(view_pages, pages)(commented(None).content.decode())
    assert "Hello" in told and WORD not in told


def test_no_page_makes_somebody_else_of_a_caller(server, connect, alice, bob, settings):
    settings.SESSION_SAVE_EVERY_REQUEST = True
    server.register(type("SiteViews", (ViewTools,), {"get": ["become", "cookie"], "pages": "text"}))
    server.ready()
    client = connect(alice, server=server)
    told = client.call("become", name="bob")["content"][0]["text"]
    assert told == "of alice" == client.call("cookie")["content"][0]["text"]
    assert not Session.objects.exists()


# Operations and forms.


def test_nobody_writes_whatever_a_method_says(server, connect, db):
    """A project's own method answers for users; nobody is none."""

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


def test_an_answer_that_is_awaited_lets_nobody_in(server, connect, alice):
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


def test_a_failing_permission_lets_nobody_in(server, connect, alice, caplog):
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
def test_nothing_but_fields_is_written(server, connect, alice, invoice, name):
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


def test_no_form_takes_what_its_page_hides_or_links_what_is_hidden(
    server, connect, alice, invoice, bob
):
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
def test_no_file_is_written_elsewhere(server, connect, alice, invoice, name):
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
def test_what_a_database_repeats_is_not_logged(server, caplog, said):
    declare(server)
    resource = server.ready().models[Invoice][0]
    with pytest.raises(mcp.ToolError), translate_errors(resource):
        raise IntegrityError(*said)
    assert "number" in caplog.text and WORD not in caplog.text
