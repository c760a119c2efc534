"""``approval`` on what makes tools of models, forms, views, APIs, commands and the admin."""

from __future__ import annotations

import pytest
from django import forms
from django.contrib.auth.models import Permission, User
from django.core.management import BaseCommand, get_commands

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.ninja import NinjaTools
from django_mcp.bridges.rest_framework import ViewSetTools
from django_mcp.bridges.views import ViewTools
from django_mcp.calls.dry_run import tool_of
from django_mcp.models import Approval
from tests.declarations.helpers import problem_ids
from tests.shop.models import Company, Invoice

from .admin_site.office import office
from .ninja import api as ninja
from .rest_framework import api as rest
from .site import CloseForm

pytestmark = pytest.mark.django_db
APPROVAL = "shop.delete_invoice"


class Companies(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["name"]
    search_fields = ["name"]
    operations = ["create"]

    def get_queryset(self, request):
        return self.model._default_manager.all()


class CompanyForm(forms.Form):
    name = forms.CharField()


class CreateCompany(FormTool):
    permission = mcp.AUTHENTICATED

    def form_valid(self, request, form):
        Company.objects.create(name=form.cleaned_data["name"])


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--name")

    def handle(self, *args, **options):
        Company.objects.create(name=options["name"])


def model(server, options):
    server.register(Company)(type("Companies", (Companies,), options))
    return "create_company", {"name": "Bolts"}


def generic(server, options):
    model(server, options)
    mcp.register_models(Company, generic=True, server=server)
    return "write_row", {
        "model": "company", "operation": "create", "arguments": {"name": "Bolts"}
    }  # fmt: skip


def form(server, options):
    server.register(CompanyForm)(type("CreateCompany", (CreateCompany,), options))
    return "create_company", {"name": "Bolts"}


def command(server, options):
    permission = {"permission": "shop.add_company"}
    mcp.command_tool("create_company", server=server, **permission | options)
    return "create_company", {"name": "Bolts"}


def admin(server, options):
    mcp.register_admin(office, [Company], operations=["create"], server=server, **options)
    return "create_company", {"name": "Bolts"}


def view(server, options):
    listed = {"get": ["billing:list"], "post": ["billing:close"], "forms": {}}
    if options.get("post", True):
        listed["forms"] = {"billing:close": CloseForm}
    server.register(type("Views", (ViewTools,), listed | options))
    return "billing_close", {"pk": Invoice.objects.get().pk, "reason": "Paid in cash"}


def rest_framework(server, options):
    listed = {"actions": ["list", "destroy"]}
    server.register(rest.InvoiceViewSet)(type("Views", (ViewSetTools,), listed | options))
    return "destroy_invoice", {"pk": Invoice.objects.get().pk}


def ninja_api(server, options):
    listed = {"operations": ["list_invoices", "delete_invoice"]}
    server.register(ninja.api)(type("Api", (NinjaTools,), listed | options))
    return "delete_invoice", {"pk": Invoice.objects.get().pk}


URLS = {
    admin: "tests.bridges.admin_site.office",
    view: "tests.bridges.site",
    rest_framework: "tests.bridges.rest_framework.api",
    ninja_api: "tests.bridges.ninja.api",
}
KINDS = [model, generic, form, command, admin, view, rest_framework, ninja_api]


@pytest.fixture
def declare(server, invoice, settings, monkeypatch):
    """Return a function that declares tools, and returns a call of one that writes."""

    def declare(kind, **options):
        Invoice.objects.update(status="draft")  # only drafts can be deleted
        settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
        settings.ROOT_URLCONF = URLS.get(kind, settings.ROOT_URLCONF)
        monkeypatch.setitem(get_commands(), "create_company", Command())
        return kind(server, options)

    return declare


def written():
    """Return what the calls change."""
    return Company.objects.count(), *Invoice.objects.values_list("status")


@pytest.mark.parametrize("kind", KINDS)
def test_generated_tool_waits_for_approval(connect, server, declare, alice, kind):
    name, arguments = declare(kind, approval=APPROVAL)
    assert not [one for one in problem_ids(server) if one.startswith("E")]
    carol = User.objects.create_user("carol")
    carol.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
    User.objects.filter(pk=alice.pk).update(is_superuser=True, is_staff=True)
    client, before = connect(User.objects.get(pk=alice.pk), server=server), written()
    assert "must be approved by" in client.failure(name, **arguments) and written() == before
    approval = Approval.objects.get()
    # Of a generic tool, approvers see the model's own tool and its arguments.
    assert approval.arguments == arguments.get("arguments", arguments)
    assert tool_of(approval) is not None
    assert approval.approve(carol)
    result = client.call(name, **arguments)
    assert not result["isError"], result
    assert written() != before


@pytest.mark.parametrize("kind", KINDS)
def test_tool_that_only_reads_needs_no_approval(server, declare, kind):
    declare(kind, approval=APPROVAL)
    catalog = server.ready()
    tools = [*catalog.tools.values(), *catalog.model_tools.values()]
    assert {tool._approval for tool in tools if tool.read_only} <= {""}
    assert any(tool._approval for tool in tools)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (model, {"operations": []}),
        (view, {"post": []}),
        (rest_framework, {"actions": ["list"]}),
        (ninja_api, {"operations": ["list_invoices"]}),
    ],
)
def test_approval_without_a_tool_that_writes_is_an_error(server, declare, kind, options):
    declare(kind, approval=APPROVAL, **options)
    assert "E031" in problem_ids(server)


@pytest.mark.parametrize(("approval", "problem"), [("refund", "E031"), ("shop.refunds", "W011")])
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_permission_of_approvers_is_reported(server, declare, kind, approval, problem):
    declare(kind, approval=approval)
    assert problem in problem_ids(server)


def test_public_view_cannot_have_an_approval(server, declare):
    declare(view, approval=APPROVAL, permission=mcp.PUBLIC)
    assert "E031" in problem_ids(server)


@pytest.mark.parametrize("base", [mcp.Resource, mcp.Prompt])
def test_approval_of_a_resource_or_prompt_is_an_error(server, base):
    body = {"read": lambda self, request: "", "handle": lambda self, request: ""}
    body = {name: body[name] for name in (base._entry_method,)}
    uri = {"uri": "note://one"} if base is mcp.Resource else {}
    server.register(type("Note", (base,), {"approval": APPROVAL, **uri, **body}))
    assert "E009" in problem_ids(server)
