"""
The effective permission, as a table: every kind of thing, for every user, by every token.

``ROWS`` says of each thing which of Django's permissions its users need, what a narrowed token
needs, and which of the scopes of ``OFFERED`` a client is to ask for. Everything else follows from
the rule: whoever lacks a permission is told nothing, and who lacks but a scope is told which.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from django import forms
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from django.views import View

import django_mcp as mcp
from django_mcp.auth import kill_switches
from django_mcp.auth.principal import Auth, Principal, anonymous
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.views import ViewTools
from django_mcp.declarations.permissions import Decision, decide, grantable
from django_mcp.declarations.request import Request
from django_mcp.models import Switch
from tests.client import Client, RpcError
from tests.shop.models import Company, Customer, Invoice, Note

from .world import right

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def refused(*missing_scopes: str) -> Decision:
    return Decision(False, str, missing_scopes)


ALLOWED, UNKNOWN = Decision(True, str), refused()

# What is exposed.


class Report(PermissionRequiredMixin, View):
    permission_required = ["shop.view_customer", "shop.view_invoice"]

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("report")


urlpatterns = [path("report/", Report.as_view(), name="report")]


class CompanyForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Company
        fields = ["name"]


class Open(mcp.ModelResource):
    """Rows that have a secret are nobody's."""

    def has_object_permission(self, request: Request, obj: Any, operation: str) -> bool:
        return not str(obj).startswith("Hidden")


def each(request: Request, x: str) -> str:
    return x


def of_the_staff(request: Request) -> bool:
    return bool(request.user.is_staff)


def expose(server: Any) -> Any:
    """One thing of every kind."""
    _functions(server)
    _models(server)
    server.register(type("Views", (ViewTools,), {"get": ["report"], "permission": "shop.add_note"}))
    assert [str(one) for one in server.check() if one.is_serious()] == []
    return server._catalog


def _functions(server: Any) -> None:
    for name, options in {
        "by_codename": {"permission": "shop.add_note"}, "by_function": {"permission": of_the_staff},
        "for_users": {}, "for_all": {"permission": mcp.PUBLIC},
        "by_scope": {"permission": "shop.add_note", "scope": "notes:write"},
        "of_users_by_scope": {"scope": "shop.view_note"},
    }.items():  # fmt: skip
        server.tool(name=name, **options)(lambda request: "said")
        server.prompt(name=name, **options)(lambda request: "said")
        server.resource(f"fixed://{name}", name=name, **options)(lambda request: "said")
        server.resource(f"each://{name}/{{x}}", name=name, **options)(each)

    @server.tool
    def bind(request: mcp.Request, company: Company) -> str:
        return company.name

    @server.prompt
    def bound(request: mcp.Request, company: Company) -> str:
        return company.name

    @server.resource("bound://{company}")
    def bound_page(request: mcp.Request, company: Company) -> str:
        return company.name


def _models(server: Any) -> None:
    server.register(Company, type("Companies", (Open,), {
        "fields": ["name"], "search_fields": ["name"], "operations": ["create", "update", "delete"],
    }))  # fmt: skip
    server.register(Invoice, type("Invoices", (Open,), {
        "fields": ["number", "attachment"], "search_fields": ["number"],
        "permission": "shop.change_invoice",
    }))  # fmt: skip
    server.register(Note, type("Notes", (Open,), {
        "fields": ["text"], "permission": staticmethod(of_the_staff), "search_fields": ["text"],
        "operations": ["create"], "operation_permissions": {"create": "shop.add_note"},
    }))  # fmt: skip
    server.register(CompanyForm, type("AddByForm", (FormTool,), {"__doc__": "Add."}))
    server.register(CompanyForm, type("ChangeByForm", (FormTool,), {
        "__doc__": "Change.", "update": True,
    }))  # fmt: skip
    server.register(CompanyForm, type("ScopedForm", (FormTool,), {
        "__doc__": "Add.", "scope": "companies",
    }))  # fmt: skip


@dataclass(frozen=True)
class Row:
    """``asks``: of Django's permissions, and "staff" for the project's own function."""

    asks: tuple[str, ...]  # of the user, all of them
    needs: tuple[str, ...]  # of a narrowed token
    ask: tuple[str, ...] = ()  # what of OFFERED is good for that


VIEW, CHANGE, ADD = "shop.view_company", "shop.change_company", "shop.add_company"
OFFERED = {
    "basic": mcp.Scope("Next to nothing", covers=["basic:*"]),
    "view": mcp.Scope("Look", covers=["*.view_*"]),
    "change": mcp.Scope("Change", covers=["*.change_*", "*.add_*", "companies", "notes:*"]),
    "delete": mcp.Scope("Delete", covers=["*.delete_*"]),
    "named": mcp.Scope("The rest", covers=["*:*"]),
    "all": mcp.Scope("Everything", covers=["*"]),
}


def _alike(kind: str, place: str, name: str = "{}") -> dict[tuple[str, str], Row]:
    """Tools, prompts, resources and templates say who may use them in the same words."""
    each = {
        "by_codename": Row(("shop.add_note",), ("shop.add_note",), ("change",)),
        "by_function": Row(("staff",), (f"{kind}:by_function",), ("named",)),
        "for_users": Row((), (f"{kind}:for_users",), ("named",)),
        "for_all": Row((), ()),
        "by_scope": Row(("shop.add_note",), ("notes:write",), ("change",)),
        "of_users_by_scope": Row((), ("shop.view_note",), ("view",)),
    }
    return {(place, name.format(key)): row for key, row in each.items()}


LINES = ["tools", "prompts", "resources", "templates"]
ROWS: dict[tuple[str, str], Row] = {
    **_alike("tool", "tools"),
    **_alike("prompt", "prompts"),
    **_alike("resource", "resources", "fixed://{}"),
    **_alike("resource", "templates", "each://{}/{{x}}"),
    ("tools", "bind"): Row((), ("tool:bind", VIEW), ("named", "view")),
    ("prompts", "bound"): Row((), ("prompt:bound", VIEW), ("named", "view")),
    ("templates", "bound://{company}"): Row(
        (), ("resource:bound_page", VIEW), ("named", "view")
    ),
    # What a model resource is, and brings along.
    ("templates", "model://shop/company/{pk}"): Row((VIEW,), (VIEW,), ("view",)),
    ("tools", "search_company"): Row((VIEW,), (VIEW,), ("view",)),
    ("tools", "create_company"): Row((VIEW, ADD), (ADD, VIEW), ("change", "view")),
    ("tools", "update_company"): Row((VIEW, CHANGE), (CHANGE, VIEW), ("change", "view")),
    ("tools", "delete_company"): Row(
        (VIEW, "shop.delete_company"), ("shop.delete_company", VIEW), ("delete", "view")
    ),
    # One that states its permission.
    ("templates", "model://shop/invoice/{pk}"): Row(
        ("shop.change_invoice",), ("shop.change_invoice",), ("change",)
    ),
    ("templates", "model://shop/invoice/{pk}/{file}"): Row(
        ("shop.change_invoice",), ("shop.change_invoice",), ("change",)
    ),
    ("tools", "search_invoice"): Row(
        ("shop.change_invoice",), ("shop.change_invoice",), ("change",)
    ),
    # One whose permission is a function.
    ("templates", "model://shop/note/{pk}"): Row(
        ("staff",), ("resource:note",), ("named",)
    ),
    ("tools", "search_note"): Row(("staff",), ("resource:note",), ("named",)),
    ("tools", "create_note"): Row(
        ("staff", "shop.add_note"), ("shop.add_note", "resource:note"), ("change", "named")
    ),
    # Bridges.
    ("tools", "add_by_form"): Row((VIEW, ADD), (ADD, VIEW), ("change", "view")),
    ("tools", "change_by_form"): Row((VIEW, CHANGE), (CHANGE, VIEW), ("change", "view")),
    ("tools", "scoped_form"): Row((VIEW, ADD), ("companies", VIEW), ("change", "view")),
    ("tools", "report"): Row(
        ("shop.add_note", "shop.view_customer", "shop.view_invoice"),
        ("shop.add_note", "shop.view_customer", "shop.view_invoice"), ("change", "view"),
    ),
}  # fmt: skip
EVERYTHING = sorted({name for row in ROWS.values() for name in row.asks})
# What a user lacks: nothing, or one of the permissions that something asks for.
LACKING = [None, *EVERYTHING]
IMPLIED = {VIEW: {VIEW, CHANGE}}  # as in the admin, who may change rows may view them


def lacked(lacks: str | None) -> set[str]:
    return IMPLIED.get(lacks, {lacks}) if lacks else set()


APPLICATION = SimpleNamespace(pk=7)
# By name: the scopes of a token, whether it is an application's, and what of OFFERED is offered.
TOKENS: dict[str, tuple[set[str] | None, bool, list[str]]] = {
    "none": (None, False, [*OFFERED]),
    "without scopes": (set(), True, [*OFFERED]),
    "covering": ({"all"}, True, [*OFFERED]),
    "covering in parts": ({"view", "change", "delete", "named"}, True, [*OFFERED]),
    "not covering, offered": ({"basic"}, True, [*OFFERED]),
    "not covering, not offered": ({"basic"}, True, ["basic"]),
    "not covering, of no application": ({"basic"}, False, [*OFFERED]),
    "covering, of no application": ({"all"}, False, [*OFFERED]),
    "of other scopes alone": ({"profile"}, True, [*OFFERED]),
}
GOOD = {
    "none", "without scopes", "covering", "covering in parts", "covering, of no application",
}  # fmt: skip
ASKING = {"not covering, offered", "of other scopes alone"}


def auth_of(token: str) -> Auth | None:
    scopes, is_given, _ = TOKENS[token]
    if scopes is None:
        return None
    return Auth(frozenset(scopes), APPLICATION if is_given else None, key="" if is_given else "t")


def offering(token: str) -> Any:
    """The settings under which a token is what it is called."""
    offered = {name: OFFERED[name] for name in TOKENS[token][2]}
    return override_settings(DJANGO_MCP={"SCOPES": offered})


def user(lacks: str | None) -> Any:
    made = User.objects.create_user("carol", is_staff=lacks != "staff")
    for codename in EVERYTHING:
        if codename not in {"staff", *lacked(lacks)}:
            name = codename.removeprefix("shop.")
            made.user_permissions.add(Permission.objects.get(codename=name))
    return User.objects.get(pk=made.pk)


def expected(row: Row, lacks: str | None, token: str) -> Decision:
    """The rule."""
    if lacked(lacks) & set(row.asks):
        return UNKNOWN
    if token in GOOD or not row.needs:
        return ALLOWED
    return refused(*row.ask) if token in ASKING else UNKNOWN


def things(catalog: Any) -> dict[tuple[str, str], Any]:
    return {(line, key): one for line in LINES for key, one in getattr(catalog, line).items()}


def test_the_table_has_everything(server):
    assert set(things(expose(server))) == set(ROWS)
    assert {token for token in TOKENS if token in GOOD | ASKING} != set(TOKENS)


def test_what_a_narrowed_token_needs(server):
    found = {key: thing._scopes for key, thing in things(expose(server)).items()}
    assert found == {key: row.needs for key, row in ROWS.items()}


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("lacks", LACKING)
def test_the_effective_permission(server, lacks, token):
    catalog, principal = expose(server), Principal(user(lacks), auth_of(token))
    with offering(token):
        request = Request(principal, server)
        found = {key: decide(thing, request) for key, thing in things(catalog).items()}
        admitted = {key for key, thing in things(catalog).items() if thing._is_allowed(request)}
    assert found == {key: expected(row, lacks, token) for key, row in ROWS.items()}
    assert admitted == {key for key, one in found.items() if one.allowed}


@pytest.mark.parametrize("token", TOKENS)
def test_nobody_allowed_but_what_is_for_all_whatever_their_token_says(server, token):
    catalog, principal = expose(server), Principal(anonymous().user, auth_of(token))
    with offering(token):
        request = Request(principal, server)
        found = {key: decide(thing, request) for key, thing in things(catalog).items()}
    assert found == {key: UNKNOWN if row.needs else ALLOWED for key, row in ROWS.items()}


def test_who_is_not_active_is_nobody(server):
    boss = User.objects.create_superuser("boss", is_active=False)
    with offering("covering"):
        request = Request(Principal(boss, auth_of("covering")), server)
        for key, thing in things(expose(server)).items():
            assert decide(thing, request) == (UNKNOWN if ROWS[key].needs else ALLOWED)


@pytest.mark.parametrize("token", TOKENS)
def test_what_an_administrator_switched_off_is_there_for_nobody(server, token):
    """Nor what rests on it, but for what only takes its rows: that finds none."""
    catalog, principal = expose(server), Principal(user(None), auth_of(token))
    every = things(catalog)
    with offering(token):
        for key, off in every.items():
            switch = Switch.objects.create(server=server.name, thing=off._mark)
            kill_switches.look()
            request = Request(principal, server)
            found = {one for one, thing in every.items() if decide(thing, request).is_listed}
            gone = {one for one, thing in every.items() if thing._mark == off._mark}
            resting = {one for one in every if off in _seen_through(every[one])}
            assert found & (gone | resting) == set() and key in gone
            for one in every.keys() - gone - resting:
                assert decide(every[one], request) == expected(ROWS[one], None, token), one
            switch.delete()


def _seen_through(thing: Any) -> set[Any]:
    """The resource whose rows it is about, where it is about any."""
    return set() if thing.name in BINDING | {"bound_page"} else set(thing._depends_on)


# What comes of it, for a client.


class Holder(Client):
    """A client of a user and a token."""

    def __init__(self, principal: Principal, **options: Any) -> None:
        self.principal = principal
        super().__init__(principal.user, **options)

    async def _principal(self) -> Principal:
        return self.principal


@pytest.fixture
def hold(server):
    held = []

    def made(lacks: str | None, token: str, **options: Any) -> Holder:
        principal = Principal(user(lacks), auth_of(token))
        held.append(Holder(principal, server=server, **options))
        return held[-1].__enter__()  # type: ignore[return-value]

    yield made
    for client in held:
        client.__exit__(None, None, None)


LISTS = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}


def listed(client: Holder) -> set[tuple[str, str]]:
    return {
        (line, one[key])
        for line, (method, member, key) in LISTS.items()
        for one in client.all(method, member)
    }


def arguments_of(name: str, company: Any) -> dict[str, Any]:
    """Such as would be right."""
    given: dict[str, dict[str, Any]] = {
        "bind": {"company": company.pk}, "create_company": {"name": "New"},
        "update_company": {"company": company.pk, "name": "Newer"},
        "delete_company": {"company": company.pk}, "create_note": {"text": "Note"},
        "add_by_form": {"name": "By form"}, "scoped_form": {"name": "By scope"},
        "change_by_form": {"company": company.pk, "name": "Changed by form"},
    }  # fmt: skip
    return given.get(name, {})


def tried(client: Holder, line: str, name: str, world: Any) -> str:
    """What comes of using a thing: "done", or what is said instead, the name left out."""
    try:
        if line == "tools":
            result = client.call(name, **arguments_of(name, world.company))
            return result["content"][0]["text"] if result.get("isError") else "done"
        if line == "prompts":
            given = {"company": str(world.company.pk)} if name == "bound" else {}
            client.request("prompts/get", name=name, arguments=given)
        else:
            client.request("resources/read", uri=uri_of(name, world))
    except RpcError as error:
        return error.message.replace(name, "...")
    return "done"


def uri_of(name: str, world: Any) -> str:
    pk = {"invoice": world.invoice.pk, "note": world.note.pk}
    key = next((pk[kind] for kind in pk if f"/{kind}/" in name), world.company.pk)
    parts = {"{pk}": key, "{company}": key, "{x}": "x", "{file}": "attachment"}
    for part, value in parts.items():
        name = name.replace(part, str(value))
    return name


@pytest.fixture
def world(tmp_path, settings):
    settings.MEDIA_ROOT = tmp_path
    company = Company.objects.create(name="Acme")
    customer = Customer.objects.create(company=company, name="Carla")
    made = {"number": "A-1", "total": 1, "issued": date(2026, 1, 2), "company": company}
    invoice = Invoice.objects.create(customer=customer, **made)
    invoice.attachment.save("bill.txt", ContentFile(b"bill"))
    spare = Company.objects.create(name="Spare")
    return SimpleNamespace(company=spare, invoice=invoice, note=Note.objects.create(text="n"))


BINDING = {"bind", "bound", "bound://{company}"}  # a company, in whatever permission they have
UNHEARD = {
    "tools": "Unknown tool: ...", "prompts": "Unknown prompt: ...",
    "resources": "Resource not found", "templates": "Resource not found",
}  # fmt: skip


def needs_said(words: str) -> tuple[str, ...] | None:
    """The scopes that a refusal names."""
    found = re.search("it needs the scope (.*?)[.;] ", words)
    return tuple(found[1].split()) if found else None


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("lacks", [None, VIEW, "staff", "shop.add_note"])
def test_what_is_listed_and_what_can_be_done(server, hold, world, lacks, token):
    """Over a connection that knows no 403: the words say it."""
    expose(server)
    with offering(token):
        client = hold(lacks, token)
        shown = listed(client)
        for (line, name), row in ROWS.items():
            wanted = expected(row, lacks, token)
            assert ((line, name) in shown) == wanted.is_listed, name
            world.company = Company.objects.create(name=f"Spare {line} {name}")
            words = tried(client, line, name, world)
            if wanted.missing_scopes:
                assert needs_said(words) == wanted.missing_scopes, (name, words)
            elif not wanted.allowed:
                assert words == UNHEARD[line], (name, words)
            elif lacks == VIEW and name in BINDING:  # what they are used with is another matter
                assert words != "done", name
            else:
                assert words == "done", (name, words)


@pytest.mark.parametrize("line", LINES)
def test_what_is_not_there_is_answered_alike(server, hold, world, line):
    expose(server)
    with offering("none"):
        words = tried(hold(None, "none"), line, "fixed://nothing", world)
    assert words == UNHEARD[line]


# Rows, which object permission hides.

NAMING = [("tools", "bind"), ("tools", "update_company"), ("tools", "delete_company"),
          ("tools", "change_by_form"), ("prompts", "bound"), ("templates", "bound://{company}"),
          ("templates", "model://shop/company/{pk}")]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(("line", "name"), NAMING)
def test_a_hidden_row_is_a_missing_one_whatever_the_token(server, hold, world, line, name, token):
    expose(server)
    hidden = Company.objects.create(name="Hidden")
    wanted = expected(ROWS[line, name], None, token)
    answers = []
    with offering(token):
        client = hold(None, token)
        for pk in (hidden.pk, hidden.pk + 1000):
            world.company = SimpleNamespace(pk=pk)
            answers.append(tried(client, line, name, world).replace(str(pk), "KEY"))
    assert answers[0] == answers[1] != "done"
    assert needs_said(answers[0]) == (wanted.missing_scopes or None)
    assert Company.objects.get(pk=hidden.pk).name == "Hidden"


@pytest.mark.parametrize("token", TOKENS)
def test_searches_and_completions_show_no_hidden_row(server, hold, world, token):
    expose(server)
    hidden = Company.objects.create(name="Hidden")
    with offering(token):
        client = hold(None, token)
        try:
            sent = str(client.call("search_company"))
        except RpcError as error:
            sent = str(error)
        ref = {"type": "ref/resource", "uri": "model://shop/company/{pk}"}
        typed = {"name": "pk", "value": ""}
        try:
            completed = client.request("completion/complete", ref=ref, argument=typed)
        except RpcError as error:
            completed = {"completion": {"values": [], "error": str(error)}}
    values = completed["completion"]["values"]
    assert "Hidden" not in sent and str(hidden.pk) not in values
    assert ("Spare" in sent) == (str(world.company.pk) in values) == (token in GOOD)


@pytest.mark.parametrize(("line", "name"), [("tools", "bind"), ("prompts", "bound"),
                                            ("templates", "bound://{company}")])  # fmt: skip
def test_what_binds_rows_needs_what_viewing_them_needs(server, hold, world, line, name):
    expose(server)
    with offering("covering"):
        client = hold(None, "covering")
        client.principal = Principal(client.user, Auth(frozenset({"named"}), APPLICATION))
        assert needs_said(tried(client, line, name, world)) == ("named", "view")
        client.principal = Principal(client.user, Auth(frozenset({"named"}), None, key="t"))
        assert tried(client, line, name, world) == UNHEARD[line]


# Details.


def test_what_the_token_has_is_named_with_what_it_lacks(server):
    catalog = expose(server)
    with offering("covering"):
        auth = Auth(frozenset({"view"}), APPLICATION)
        request = Request(Principal(user(None), auth), server)
        assert decide(catalog.tools["update_company"], request).missing_scopes == ("change", "view")


def test_permission_is_not_asked_where_no_scope_can_be_had(server):
    """Nothing of the project runs for whoever is told nothing anyway."""
    asked = []

    @server.tool(permission=lambda request: asked.append(request) or True)
    def guarded(request: mcp.Request) -> str:
        return "x"

    thing = right(server).tools["guarded"]
    for token in ("not covering, not offered", "not covering, of no application"):
        with offering(token):
            request = Request(Principal(user(None), auth_of(token)), server)
            assert decide(thing, request) == UNKNOWN
        User.objects.all().delete()
    assert asked == []


@pytest.mark.parametrize("scope", ["", "a b", 'a"b', "é", "a\\b", "a\n"])
def test_what_is_no_scope_is_told(server, scope):
    server.tool(scope=scope, name="x")(lambda request: None)
    (message,) = server.check()
    assert message.id == "django_mcp.E019" and repr(scope) in message.msg and message.hint


def test_nothing_is_grantable_without_an_application(server):
    thing = expose(server).tools["for_users"]
    with offering("covering"):
        assert grantable(thing, None) == grantable(thing, Auth(frozenset({"basic"}))) == ()
        assert grantable(thing, Auth(frozenset({"basic"}), APPLICATION)) == ("named",)
