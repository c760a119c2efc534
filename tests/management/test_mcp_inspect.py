"""``mcp_inspect``: tables, definitions and snapshots of all declarations or of those of a user."""

from __future__ import annotations

import json
import os

import pytest
from django.core.management import CommandError, call_command

import django_mcp as mcp
from django_mcp.testing import Client
from tests.shop.models import Customer, Invoice
from tests.spec.process import ROOT

from .processes import run


@pytest.fixture
def inspect(capsys):
    def inspect(*arguments):
        call_command("mcp_inspect", *map(str, arguments))
        return capsys.readouterr().out

    return inspect


def command_error(*arguments):
    with pytest.raises(CommandError) as command_error:
        call_command("mcp_inspect", *map(str, arguments))
    return command_error.value


def listed_names(out):
    """What the tables of a whole catalog name."""
    return [line.split()[0] for line in out.splitlines() if line.startswith("  ")]


# Tables.


def test_all_declarations_are_listed(inspect, db):
    out, catalog = inspect(), mcp.server.ready()
    kinds = [catalog.tools, catalog.resources, catalog.templates, catalog.prompts]
    assert listed_names(out) == [thing.name for things in kinds for thing in things.values()]
    assert out.startswith(f"The server tests has {len(listed_names(out))} declarations")
    (refund,) = (line for line in out.splitlines() if line.startswith("  refund "))
    assert refund.split(None, 2)[1:] == [
        "shop.change_invoice", "Refund a paid invoice, wholly or in part.",
    ]  # fmt: skip


def test_list_of_a_user_equals_the_lists_of_the_protocol(inspect, alice, bob):
    for user in (alice, bob):
        with Client(user) as client:
            listed = [
                client.tools(), client.prompts(), client.templates(),
                [one for one in client.resources() if one["uri"].startswith("shop:")],
            ]  # fmt: skip
        found = listed_names(inspect("--user", user.username))
        assert sorted(found) == sorted(one["name"] for part in listed for one in part)
    assert "refund" in listed_names(inspect("--user", "alice"))
    assert "refund" not in listed_names(inspect("--user", "bob"))


def test_scope_option_limits_the_list(inspect, alice, server):
    @server.tool(scope="write")
    def write(request: mcp.Request) -> str:
        return ""

    on = ("--server", server.name, "--user", "alice")
    assert listed_names(inspect(*on)) == listed_names(inspect(*on, "--scope", "write")) == ["write"]
    assert "alice may use no declarations of" in inspect(*on, "--scope", "read")


def lines_of(out):
    """The facts of one declaration by name."""
    pairs = (line.split(None, 1) for line in out.splitlines() if line.startswith("  "))
    return dict(pair for pair in pairs if len(pair) == 2)


def test_file_and_line_of_a_declaration_are_shown(inspect, db):
    file, line = lines_of(inspect("refund"))["file"].split(":")
    assert file == "tests/shop/mcp.py"
    found = (ROOT / file).read_text().splitlines()[int(line) - 1 :][:3]
    assert any("mcp.tool" in one or "def refund" in one for one in found)


def test_file_of_a_class_without_source_is_not_shown(inspect, server):
    server.register(Customer, type("Made", (mcp.ModelResource,), {"fields": ["name"]}))
    shown = lines_of(inspect("customer", "--server", server.name))
    assert "declared" in shown and "file" not in shown


@pytest.mark.urls("tests.bridges.rest_framework.api")
def test_tool_shows_the_view_action_or_form_that_it_runs(inspect, server, settings):
    from django import forms

    from django_mcp.bridges.forms import FormTool
    from django_mcp.bridges.rest_framework import APIViewTools, ViewSetTools
    from django_mcp.bridges.views import ViewTools
    from tests.bridges.rest_framework import api

    settings.ALLOWED_HOSTS = ["shop.example"]

    @server.register(api.InvoiceViewSet)
    class Invoices(ViewSetTools):
        actions = ["remind"]

    @server.register(api.ReportView)
    class Reports(APIViewTools):
        methods = ["delete"]

    @server.register
    class Pages(ViewTools):
        get = ["status"]

    class Question(forms.Form):
        text = forms.CharField()

    @server.register(Question)
    class Ask(FormTool):
        """Ask."""

        permission = mcp.AUTHENTICATED

        def form_valid(self, request, form):
            return "Yes."

    base = "tests.bridges.rest_framework.api"
    for name, runs in {
        "remind_invoice": f"{base}.InvoiceViewSet.remind, POST /api/invoices/<pk>/remind/",
        "delete_report": f"{base}.ReportView, DELETE /api/report/",
        "status": f"{base}.status_view, GET /api/status/",
        "ask": f"{__name__}.{Question.__qualname__}",
    }.items():
        shown = lines_of(inspect(name, "--server", server.name))
        assert shown["runs"] == runs and shown["file"].startswith(__file__.removeprefix(f"{ROOT}/"))


@pytest.mark.urls("tests.bridges.ninja.api")
def test_tool_shows_the_operation_or_command_that_it_runs(inspect, server, settings):
    from django_mcp.bridges.ninja import NinjaTools
    from tests.bridges.ninja import api

    settings.ALLOWED_HOSTS = ["shop.example"]

    @server.register(api.api)
    class Invoices(NinjaTools):
        operations = ["get_invoice"]

    mcp.command_tool("close_month", permission=mcp.AUTHENTICATED, server=server)
    for name, runs in {
        "get_invoice": "tests.bridges.ninja.api.get_invoice, GET /api/invoices/<int:pk>",
        "close_month": "tests.shop.management.commands.close_month.Command",
    }.items():
        assert lines_of(inspect(name, "--server", server.name))["runs"] == runs


@pytest.mark.urls("tests.bridges.admin_site.office")
def test_tool_of_the_admin_shows_its_admin_class(inspect, server):
    from tests.bridges.admin_site.office import office

    mcp.register_admin(office, [Invoice], server=server)
    shown = lines_of(inspect("read_invoice", "--server", server.name))
    assert shown["declared"] == "tests.bridges.admin_site.office.InvoiceAdmin"
    assert shown["file"].startswith("tests/bridges/admin_site/office.py:")


def test_one_tool_is_described(inspect, db):
    out = inspect("refund")
    assert out.startswith("refund, a tool\n\nRefund a paid invoice, wholly or in part.\n")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "permission shop.change_invoice" in lines and "destructive True" in lines
    assert "reason text required Why, in a few words." in lines
    assert "invoice key or URI of an invoice required Such as invoice://{number}." in lines
    assert "\nReturns\n" in out and "\nFields\n" not in out


def test_one_model_resource_is_described(inspect, db):
    out = inspect("invoice")
    assert "URI            invoice://{number}" in out and "ordering       -issued" in out
    assert "\nFields\n" in out and "attachment.size" in out
    assert inspect("invoice://{number}") == out
    assert "\nArguments\n" in inspect("reminder")


# Definitions.


def test_json_output_equals_the_lists_of_the_protocol(inspect, alice):
    with Client(alice) as client:
        assert json.loads(inspect("--user", "alice", "--format", "json")) == client.catalog()
    found = json.loads(inspect("--user", "alice", "--format", "json", "refund"))
    assert [one["name"] for one in found["tools"]] == ["refund"] and found["prompts"] == []


def test_json_output_of_all_declarations_contains_permissions(inspect, db):
    found = json.loads(inspect("--format", "json"))
    (refund,) = (one for one in found["tools"] if one["name"] == "refund")
    tool = mcp.server._catalog.tools["refund"]
    assert refund == tool._definition() | {"permission": "shop.change_invoice"}
    (invoice,) = (one for one in found["templates"] if one["name"] == "invoice")
    assert set(invoice["rowSchema"]["properties"]) >= {"number", "total", "overdue"}


# Snapshots.


@pytest.fixture
def declare(server):
    """Return a function that declares on a server, replacing earlier declarations."""

    def declare(permission="shop.view_customer", fields=("name",), **options):
        server._records.clear()
        server._forget()

        @mcp.register(Customer, server=server)
        class Customers(mcp.ModelResource):
            pass

        Customers.fields, Customers.permission = list(fields), permission

        @server.tool(name="refund", **options)
        def refund(request: mcp.Request, customer: Customer) -> str:
            return ""

        return ("--server", server.name)

    return declare


def test_snapshot_is_stable(inspect, declare, tmp_path, capsys):
    file = tmp_path / "mcp.json"
    on = declare()
    inspect(*on, "--output", file)
    assert inspect(*on, "--format", "snapshot") == file.read_text()
    declare()
    assert inspect(*on, "--check", file) == ""
    call_command("mcp_inspect", *on, "--check", str(file))
    assert capsys.readouterr().err == f"No differences from {file}.\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fields": ["name", "email"]}, "the template customer now shows email (text), which is"),
        ({"permission": "shop.change_customer"}, "asks for shop.change_customer, and asked for"),
        ({"destructive": True}, "the tool refund now has destructiveHint: true"),
        ({"read_only": True}, "the tool refund now has readOnlyHint: true"),
    ],
)
def test_differences_from_a_snapshot_are_reported(inspect, declare, tmp_path, capsys, change, told):
    file = tmp_path / "mcp.json"
    inspect(*declare(), "--output", file)
    before = file.read_text()
    error = command_error(*declare(**change), "--check", file)
    assert told in capsys.readouterr().out and error.returncode == 1
    assert f"--output {file}" in str(error) and file.read_text() == before
    inspect(*declare(**change), "--output", file)
    assert inspect(*declare(**change), "--check", file) == ""


def test_snapshot_of_a_user_equals_that_of_the_test_client(inspect, alice, tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)  # in CI a missing snapshot is not written
    file = tmp_path / "alice.json"
    with Client(alice) as client:
        client.assert_catalog(file)
    assert inspect("--user", "alice", "--check", file) == ""
    assert command_error("--check", file).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("nonsense",), "has no 'nonsense' here.", 1),
        (("refnd",), "Did you mean refund or reminder?", 1),
        (("--user", "bob", "refund"), "'manage.py mcp_explain bob' lists", 1),
        (("--user", "nobody"), "There is no user 'nobody'", 1),
        (("--server", "nonsense"), "there are: tests", 1),
        (("--format", "json", "nonsense"), "There is no 'nonsense'", 1),
        (("--scope", "read"), "--scope needs --user", 2),
        (("refund", "--check", "x"), "NAME cannot be combined", 2),
        (("--check", "/no/such/file"), "'--output /no/such/file' writes it", 2),
        (("--output", "/no/such/file"), "/no/such/file: No such file", 1),
        (("--check", __file__), "is not a snapshot", 2),
    ],
)
def test_errors_have_a_hint(alice, bob, arguments, words, code):
    error = command_error(*arguments)
    assert words in str(error) and error.returncode == code


def test_json_list_is_not_a_snapshot(db, tmp_path):
    file = tmp_path / "list.json"
    file.write_text("[]")
    assert "is not a snapshot" in str(command_error("--check", file))


def test_inactive_user_may_use_nothing(bob):
    bob.is_active = False
    bob.save()
    assert "'bob' is inactive" in str(command_error("--user", "bob"))


def test_invalid_declarations_are_reported(db, server):
    @mcp.register(Invoice, server=server)
    class Invoices(mcp.ModelResource):
        fields = ["nonsense"]

    told = str(command_error("--server", server.name))
    assert "nonsense" in told and "HINT" in told and "django_mcp.E0" in told


def test_empty_server_is_an_error_with_a_hint(db, server):
    assert "'manage.py startmcp APP' generates one" in str(command_error("--server", server.name))


# Processes.


def test_project_without_declarations_is_an_error(quiet):
    done = run(quiet, "mcp_inspect")
    assert done.returncode == 1 and done.stdout == "" and "mcp.py of an app" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_examples(quiet):
    done = run(quiet, "mcp_inspect", "--help")
    assert done.returncode == 0 and "--check mcp.json" in done.stdout


@pytest.mark.slow
def test_tables_and_snapshots_of_the_example_project(atlas, tmp_path):
    file = tmp_path / "mcp.json"
    done = atlas("mcp_inspect")
    assert done.returncode == 0 and "  plan_trip " in done.stdout and "\x1b" not in done.stdout
    assert atlas("mcp_inspect", "--output", str(file)).returncode == 0
    done = atlas("mcp_inspect", "--check", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    shown = json.loads(file.read_text())
    shown["tools"] = [one for one in shown["tools"] if one["name"] != "plan_trip"]
    file.write_text(json.dumps(shown))
    done = atlas("mcp_inspect", "--check", str(file))
    assert done.returncode == 1
    assert done.stdout == "the tool plan_trip is new, for atlas.add_trip\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
def test_tables_fit_the_width_of_the_terminal(atlas):
    for arguments in ((), ("plan_trip",)):
        done = atlas("mcp_inspect", *arguments, "--no-color", terminal=True)
        assert done.returncode == 0
        assert 60 < max(map(len, done.stdout.splitlines())) <= 80
