"""The effective permission of every kind of declaration, for every user and every token.

``ROWS`` states for each declaration which of Django's permissions its users need, which scopes a
narrowed token needs, and which of the scopes in ``OFFERED`` a client should request. The expected
result follows from one rule: if the user lacks a permission, the declaration does not exist for
them. If only the token lacks a scope, the response names the scope.
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
from django_mcp.declarations.declaration import decide, grantable
from django_mcp.declarations.permissions import Decision
from django_mcp.declarations.request import Request
from django_mcp.models import Switch
from tests.client import Client, RpcError
from tests.shop.models import Company, Customer, Invoice, Note

from .helpers import valid_catalog

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def refused(*missing_scopes: str) -> Decision:
    return Decision(False, str, missing_scopes)


ALLOWED, UNKNOWN = Decision(True, str), refused()

# Declarations.


class Report(PermissionRequiredMixin, View):
    permission_required = ["shop.view_customer", "shop.view_invoice"]

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("report")


urlpatterns = [path("report/", Report.as_view(), name="report")]


class CompanyForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Company
        fields = ["name"]


class ExceptHidden(mcp.ModelResource):
    """Nobody has the object permission for rows whose name begins with "Hidden"."""

    def has_object_permission(self, request: Request, obj: Any, operation: str) -> bool:
        return not str(obj).startswith("Hidden")


def each(request: Request, x: str) -> str:
    return x


def is_staff(request: Request) -> bool:
    return bool(request.user.is_staff)


def declare_all(server: Any) -> Any:
    """Register a declaration of every kind."""
    _functions(server)
    _models(server)
    server.register(type("Views", (ViewTools,), {"get": ["report"], "permission": "shop.add_note"}))
    assert [str(one) for one in server.check() if one.is_serious()] == []
    return server._catalog


def _functions(server: Any) -> None:
    for name, options in {
        "by_codename": {"permission": "shop.add_note"}, "by_function": {"permission": is_staff},
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
    server.register(Company, type("Companies", (ExceptHidden,), {
        "fields": ["name"], "search_fields": ["name"], "operations": ["create", "update", "delete"],
    }))  # fmt: skip
    server.register(Invoice, type("Invoices", (ExceptHidden,), {
        "fields": ["number", "attachment"], "search_fields": ["number"],
        "permission": "shop.change_invoice",
    }))  # fmt: skip
    server.register(Note, type("Notes", (ExceptHidden,), {
        "fields": ["text"], "permission": staticmethod(is_staff), "search_fields": ["text"],
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
    """The requirements of a declaration. In ``asks``, "staff" stands for the project's function."""

    asks: tuple[str, ...]  # permissions that the user needs, all of them
    needs: tuple[str, ...]  # scopes that a narrowed token needs
    ask: tuple[str, ...] = ()  # scopes of OFFERED that cover them


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
    """Return the rows of one kind of declaration. All kinds have the same permissions."""
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
    # A model resource and its tools.
    ("templates", "model://shop/company/{pk}"): Row((VIEW,), (VIEW,), ("view",)),
    ("tools", "search_company"): Row((VIEW,), (VIEW,), ("view",)),
    ("tools", "create_company"): Row((VIEW, ADD), (ADD, VIEW), ("change", "view")),
    ("tools", "update_company"): Row((VIEW, CHANGE), (CHANGE, VIEW), ("change", "view")),
    ("tools", "delete_company"): Row(
        (VIEW, "shop.delete_company"), ("shop.delete_company", VIEW), ("delete", "view")
    ),
    # A model resource with a permission of its own.
    ("templates", "model://shop/invoice/{pk}"): Row(
        ("shop.change_invoice",), ("shop.change_invoice",), ("change",)
    ),
    ("templates", "model://shop/invoice/{pk}/{file}"): Row(
        ("shop.change_invoice",), ("shop.change_invoice",), ("change",)
    ),
    ("tools", "search_invoice"): Row(
        ("shop.change_invoice",), ("shop.change_invoice",), ("change",)
    ),
    # A model resource whose permission is a function.
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
# The permission that a user lacks, or None.
LACKING = [None, *EVERYTHING]
IMPLIED = {
    VIEW: {VIEW, CHANGE}
}  # as in the admin, the change permission implies the view permission


def missing_permissions(lacks: str | None) -> set[str]:
    return IMPLIED.get(lacks, {lacks}) if lacks else set()


APPLICATION = SimpleNamespace(pk=7)
# Scopes of the token, whether it belongs to an OAuth application, and the offered scopes.
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
SUFFICIENT = {
    "none", "without scopes", "covering", "covering in parts", "covering, of no application",
}  # fmt: skip
EXTENDABLE = {"not covering, offered", "of other scopes alone"}


def auth_of(token: str) -> Auth | None:
    scopes, is_given, _ = TOKENS[token]
    if scopes is None:
        return None
    return Auth(frozenset(scopes), APPLICATION if is_given else None, key="" if is_given else "t")


def offering(token: str) -> Any:
    """Override the settings with the scopes that are offered in the case ``token``."""
    offered = {name: OFFERED[name] for name in TOKENS[token][2]}
    return override_settings(DJANGO_MCP={"SCOPES": offered})


def user(lacks: str | None) -> Any:
    made = User.objects.create_user("carol", is_staff=lacks != "staff")
    for codename in EVERYTHING:
        if codename not in {"staff", *missing_permissions(lacks)}:
            name = codename.removeprefix("shop.")
            made.user_permissions.add(Permission.objects.get(codename=name))
    return User.objects.get(pk=made.pk)


def expected(row: Row, lacks: str | None, token: str) -> Decision:
    """Return the decision that the rule gives."""
    if missing_permissions(lacks) & set(row.asks):
        return UNKNOWN
    if token in SUFFICIENT or not row.needs:
        return ALLOWED
    return refused(*row.ask) if token in EXTENDABLE else UNKNOWN


def declarations_of(catalog: Any) -> dict[tuple[str, str], Any]:
    return {(line, key): one for line in LINES for key, one in getattr(catalog, line).items()}


def test_matrix_contains_all_declarations(server):
    assert set(declarations_of(declare_all(server))) == set(ROWS)
    assert {token for token in TOKENS if token in SUFFICIENT | EXTENDABLE} != set(TOKENS)


def test_scopes_that_a_narrowed_token_needs(server):
    found = {key: thing._scopes for key, thing in declarations_of(declare_all(server)).items()}
    assert found == {key: row.needs for key, row in ROWS.items()}


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("lacks", LACKING)
def test_decision_for_each_user_and_token(server, lacks, token):
    catalog, principal = declare_all(server), Principal(user(lacks), auth_of(token))
    with offering(token):
        request = Request(principal, server)
        found = {key: decide(thing, request) for key, thing in declarations_of(catalog).items()}
        allowed = {
            key for key, thing in declarations_of(catalog).items() if thing._is_allowed(request)
        }
    assert found == {key: expected(row, lacks, token) for key, row in ROWS.items()}
    assert allowed == {key for key, one in found.items() if one.allowed}


@pytest.mark.parametrize("token", TOKENS)
def test_anonymous_user_may_use_only_public_declarations_with_any_token(server, token):
    catalog, principal = declare_all(server), Principal(anonymous().user, auth_of(token))
    with offering(token):
        request = Request(principal, server)
        found = {key: decide(thing, request) for key, thing in declarations_of(catalog).items()}
    assert found == {key: UNKNOWN if row.needs else ALLOWED for key, row in ROWS.items()}


def test_inactive_superuser_may_use_only_public_declarations(server):
    boss = User.objects.create_superuser("boss", is_active=False)
    with offering("covering"):
        request = Request(Principal(boss, auth_of("covering")), server)
        for key, thing in declarations_of(declare_all(server)).items():
            assert decide(thing, request) == (UNKNOWN if ROWS[key].needs else ALLOWED)


@pytest.mark.parametrize("token", TOKENS)
def test_disabled_declaration_and_its_dependents_do_not_exist(server, token):
    """Declarations that only bind rows of a disabled resource still exist, but find no rows."""
    catalog, principal = declare_all(server), Principal(user(None), auth_of(token))
    every = declarations_of(catalog)
    with offering(token):
        for key, off in every.items():
            switch = Switch.objects.create(server=server.name, thing=off._qualified_name)
            kill_switches.refresh()
            request = Request(principal, server)
            found = {one for one, thing in every.items() if decide(thing, request).is_listed}
            disabled = {
                one for one, thing in every.items() if thing._qualified_name == off._qualified_name
            }
            dependents = {one for one in every if off in _dependencies(every[one])}
            assert found & (disabled | dependents) == set() and key in disabled
            for one in every.keys() - disabled - dependents:
                assert decide(every[one], request) == expected(ROWS[one], None, token), one
            switch.delete()


def _dependencies(thing: Any) -> set[Any]:
    """Return the declarations whose rows it exposes."""
    return set() if thing.name in BINDING | {"bound_page"} else set(thing._depends_on)


# Results for a client.


class PrincipalClient(Client):
    """A client with a user and a token."""

    def __init__(self, principal: Principal, **options: Any) -> None:
        self.principal = principal
        super().__init__(principal.user, **options)

    async def _principal(self) -> Principal:
        return self.principal


@pytest.fixture
def connect_with(server):
    held = []

    def made(lacks: str | None, token: str, **options: Any) -> PrincipalClient:
        principal = Principal(user(lacks), auth_of(token))
        held.append(PrincipalClient(principal, server=server, **options))
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


def listed(client: PrincipalClient) -> set[tuple[str, str]]:
    return {
        (line, one[key])
        for line, (method, member, key) in LISTS.items()
        for one in client.all(method, member)
    }


def arguments_of(name: str, company: Any) -> dict[str, Any]:
    """Return valid arguments."""
    given: dict[str, dict[str, Any]] = {
        "bind": {"company": company.pk}, "create_company": {"name": "New"},
        "update_company": {"company": company.pk, "name": "Newer"},
        "delete_company": {"company": company.pk}, "create_note": {"text": "Note"},
        "add_by_form": {"name": "By form"}, "scoped_form": {"name": "By scope"},
        "change_by_form": {"company": company.pk, "name": "Changed by form"},
    }  # fmt: skip
    return given.get(name, {})


def use(client: PrincipalClient, line: str, name: str, data: Any) -> str:
    """Use a declaration. Return "done" or the error message, in which "..." replaces the name."""
    try:
        if line == "tools":
            result = client.call(name, **arguments_of(name, data.company))
            return result["content"][0]["text"] if result.get("isError") else "done"
        if line == "prompts":
            given = {"company": str(data.company.pk)} if name == "bound" else {}
            client.request("prompts/get", name=name, arguments=given)
        else:
            client.request("resources/read", uri=uri_of(name, data))
    except RpcError as error:
        return error.message.replace(name, "...")
    return "done"


def uri_of(name: str, data: Any) -> str:
    pk = {"invoice": data.invoice.pk, "note": data.note.pk}
    key = next((pk[kind] for kind in pk if f"/{kind}/" in name), data.company.pk)
    parts = {"{pk}": key, "{company}": key, "{x}": "x", "{file}": "attachment"}
    for part, value in parts.items():
        name = name.replace(part, str(value))
    return name


@pytest.fixture
def data(tmp_path, settings):
    settings.MEDIA_ROOT = tmp_path
    company = Company.objects.create(name="Acme")
    customer = Customer.objects.create(company=company, name="Carla")
    made = {"number": "A-1", "total": 1, "issued": date(2026, 1, 2), "company": company}
    invoice = Invoice.objects.create(customer=customer, **made)
    invoice.attachment.save("bill.txt", ContentFile(b"bill"))
    spare = Company.objects.create(name="Spare")
    return SimpleNamespace(company=spare, invoice=invoice, note=Note.objects.create(text="n"))


BINDING = {"bind", "bound", "bound://{company}"}  # these also need access to a company
UNKNOWN_MESSAGES = {
    "tools": "Unknown tool: ...", "prompts": "Unknown prompt: ...",
    "resources": "Resource not found", "templates": "Resource not found",
}  # fmt: skip


def scopes_in_message(words: str) -> tuple[str, ...] | None:
    """Return the scopes that an error message names."""
    found = re.search("it needs the scope (.*?)[.;] ", words)
    return tuple(found[1].split()) if found else None


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("lacks", [None, VIEW, "staff", "shop.add_note"])
def test_listed_and_usable_declarations_for_each_user_and_token(
    server, connect_with, data, lacks, token
):
    """Without HTTP there is no status 403, so the message names the missing scopes."""
    declare_all(server)
    with offering(token):
        client = connect_with(lacks, token)
        shown = listed(client)
        for (line, name), row in ROWS.items():
            wanted = expected(row, lacks, token)
            assert ((line, name) in shown) == wanted.is_listed, name
            data.company = Company.objects.create(name=f"Spare {line} {name}")
            words = use(client, line, name, data)
            if wanted.missing_scopes:
                assert scopes_in_message(words) == wanted.missing_scopes, (name, words)
            elif not wanted.allowed:
                assert words == UNKNOWN_MESSAGES[line], (name, words)
            elif lacks == VIEW and name in BINDING:  # the company they use is hidden
                assert words != "done", name
            else:
                assert words == "done", (name, words)


@pytest.mark.parametrize("line", LINES)
def test_unknown_declaration_has_the_message_of_a_forbidden_one(server, connect_with, data, line):
    declare_all(server)
    with offering("none"):
        words = use(connect_with(None, "none"), line, "fixed://nothing", data)
    assert words == UNKNOWN_MESSAGES[line]


# Rows without object permission.

USING_A_COMPANY = [("tools", "bind"), ("tools", "update_company"), ("tools", "delete_company"),
          ("tools", "change_by_form"), ("prompts", "bound"), ("templates", "bound://{company}"),
          ("templates", "model://shop/company/{pk}")]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(("line", "name"), USING_A_COMPANY)
def test_hidden_row_has_the_same_message_as_a_missing_row_with_any_token(
    server, connect_with, data, line, name, token
):
    declare_all(server)
    hidden = Company.objects.create(name="Hidden")
    wanted = expected(ROWS[line, name], None, token)
    answers = []
    with offering(token):
        client = connect_with(None, token)
        for pk in (hidden.pk, hidden.pk + 1000):
            data.company = SimpleNamespace(pk=pk)
            answers.append(use(client, line, name, data).replace(str(pk), "KEY"))
    assert answers[0] == answers[1] != "done"
    assert scopes_in_message(answers[0]) == (wanted.missing_scopes or None)
    assert Company.objects.get(pk=hidden.pk).name == "Hidden"


@pytest.mark.parametrize("token", TOKENS)
def test_searches_and_completions_do_not_contain_hidden_rows(server, connect_with, data, token):
    declare_all(server)
    hidden = Company.objects.create(name="Hidden")
    with offering(token):
        client = connect_with(None, token)
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
    assert ("Spare" in sent) == (str(data.company.pk) in values) == (token in SUFFICIENT)


@pytest.mark.parametrize(("line", "name"), [("tools", "bind"), ("prompts", "bound"),
                                            ("templates", "bound://{company}")])  # fmt: skip
def test_binding_a_row_requires_the_scope_for_viewing_it(server, connect_with, data, line, name):
    declare_all(server)
    with offering("covering"):
        client = connect_with(None, "covering")
        client.principal = Principal(client.user, Auth(frozenset({"named"}), APPLICATION))
        assert scopes_in_message(use(client, line, name, data)) == ("named", "view")
        client.principal = Principal(client.user, Auth(frozenset({"named"}), None, key="t"))
        assert use(client, line, name, data) == UNKNOWN_MESSAGES[line]


# Details.


def test_missing_scopes_include_the_needed_scopes_that_the_token_has(server):
    catalog = declare_all(server)
    with offering("covering"):
        auth = Auth(frozenset({"view"}), APPLICATION)
        request = Request(Principal(user(None), auth), server)
        assert decide(catalog.tools["update_company"], request).missing_scopes == ("change", "view")


def test_permission_function_does_not_run_if_no_scope_can_be_granted(server):
    """The response does not depend on it."""
    calls = []

    @server.tool(permission=lambda request: calls.append(request) or True)
    def guarded(request: mcp.Request) -> str:
        return "x"

    thing = valid_catalog(server).tools["guarded"]
    for token in ("not covering, not offered", "not covering, of no application"):
        with offering(token):
            request = Request(Principal(user(None), auth_of(token)), server)
            assert decide(thing, request) == UNKNOWN
        User.objects.all().delete()
    assert calls == []


@pytest.mark.parametrize("scope", ["", "a b", 'a"b', "é", "a\\b", "a\n"])
def test_invalid_scope_is_an_error(server, scope):
    server.tool(scope=scope, name="x")(lambda request: None)
    (message,) = server.check()
    assert message.id == "django_mcp.E019" and repr(scope) in message.msg and message.hint


def test_scopes_are_grantable_only_to_tokens_of_an_application(server):
    thing = declare_all(server).tools["for_users"]
    with offering("covering"):
        assert grantable(thing, None) == grantable(thing, Auth(frozenset({"basic"}))) == ()
        assert grantable(thing, Auth(frozenset({"basic"}), APPLICATION)) == ("named",)
