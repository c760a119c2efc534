"""``mcp_explain``: who may use what and which rule decides, as a table and as JSON."""

from __future__ import annotations

import json
import os

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command

import django_mcp as mcp
from tests.calls import around
from tests.shop.models import Invoice

from .processes import run


@pytest.fixture
def explain(capsys):
    def explain(*arguments):
        call_command("mcp_explain", *arguments)
        return capsys.readouterr().out

    return explain


def command_error(*arguments):
    with pytest.raises(CommandError) as command_error:
        call_command("mcp_explain", *arguments)
    return command_error.value


def line(out, name):
    (found,) = (one for one in out.splitlines() if f" {name} " in one)
    return " ".join(found.split())


def test_all_declarations_are_listed_with_the_deciding_rule(explain, alice):
    group = Group.objects.create(name="Accountants")
    group.permissions.add(Permission.objects.get(codename="change_invoice"))
    carol = User.objects.create_user("carol")
    carol.groups.add(group)
    out = explain("carol")
    assert line(out, "refund") == "yes refund shop.change_invoice: given to the group Accountants"
    assert line(out, "add") == "yes add mcp.PUBLIC: everybody may use it"
    assert all(
        word in out for word in ("\nTools\n", "\nResources\n", "\nTemplates\n", "\nPrompts\n")
    )
    out = explain("--anonymous")
    assert (
        line(out, "refund") == "no refund the caller is not authenticated, and it is not mcp.PUBLIC"
    )
    catalog = mcp.server._catalog
    things = [catalog.tools, catalog.resources, catalog.templates, catalog.prompts]
    public = sum(one._is_public for owned in things for one in owned.values())
    total = sum(map(len, things))
    assert out.startswith(
        f"an anonymous client may use {public} of {total} declarations of the server tests."
    )


def test_one_declaration_is_explained(explain, alice, bob):
    out = explain("bob", "refund")
    assert out.startswith("bob may not use the tool refund.\n")
    assert "requires  shop.change_invoice\n" in out
    assert "because   lacks shop.change_invoice\n" in out
    assert "declared  tests.shop.mcp.refund\n" in out
    assert "carol" not in out and "search_invoice" not in out


def test_row_is_explained_condition_by_condition(explain, invoice, bob):
    out = explain("alice", "invoice://A-1")
    assert out.startswith("alice may read invoice://A-1.")
    assert "fields: number, customer, customer__name, status" in out
    out = explain("bob", "invoice://A-1")
    assert out.startswith("bob may not read invoice://A-1.")
    assert "  yes  invoice A-1 is in the database\n" in out
    assert "  no   get_queryset() of tests.shop.mcp.InvoiceResource leaves it out\n" in out
    assert "fields" not in out
    assert "  no   invoice A-2 is not in the database\n" in explain("bob", "invoice://A-2")


def test_json_output(explain, invoice):
    shown = json.loads(explain("alice", "--format", "json"))
    assert (shown["user"], shown["active"], shown["server"]) == ("alice", True, "tests")
    (refund,) = (one for one in shown["declarations"] if one["name"] == "refund")
    assert refund == {
        "kind": "tools", "name": "refund", "allowed": True, "rule": "shop.change_invoice",
        "reason": "shop.change_invoice: given to the user",
        "scopes": "shop.change_invoice resource:invoice", "origin": "tests.shop.mcp.refund",
    }  # fmt: skip
    shown = json.loads(explain("alice", "invoice://A-2", "--format", "json"))
    assert shown["allowed"] is False and shown["resources"][0]["conditions"][-1]["allowed"] is False


def test_inactive_user_is_anonymous(explain, alice):
    User.objects.create_superuser("gone", is_active=False)
    out = explain("gone", "refund")
    assert out.startswith(
        "gone is inactive, so requests are anonymous.\ngone may not use the tool refund"
    )


def test_scope_option_limits_access_like_a_token(explain, alice, server):
    @server.tool(scope="write")
    def write(request: mcp.Request) -> str:
        return ""

    on = ("--server", server.name)
    assert "alice may use the tool write" in explain("alice", "write", *on)
    assert "alice may not use the tool write" in explain("alice", "write", *on, "--scope", "read")
    scopes = ("--scope", "read", "--scope", "write")
    assert "alice may use the tool write" in explain("alice", "write", *on, *scopes)


def test_failing_permission_function_is_reported(explain, alice, server):
    @server.tool(permission=lambda request: request.user.company)
    def of_the_company(request: mcp.Request) -> str:
        return ""

    out = explain("alice", "--server", server.name)
    assert (
        "no  of_the_company" in out
        and "AttributeError" in out
        and "raised an error, so lists" in out
    )


def test_permissions_run_inside_around(explain, alice, server, settings):
    """Code in AROUND affects the permission checks."""
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"AROUND": ["tests.calls.around.recorded"]}

    @server.tool(permission=lambda request: around.note("permission") or True)
    def write(request: mcp.Request) -> str:
        return ""

    around.seen.clear()
    assert "returned True" in explain("alice", "--server", server.name)
    assert len(around.seen) == 1 and len(around.seen[0].within) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody at all",), "There is no user 'nobody at all'. Give the user's username"),
        (("alice", "refnd"), "tests has no 'refnd'. Did you mean refund or reminder?"),
        (("alice", "zzzz"), "Without a name: everything."),
        (("alice", "nothing://here"), "tests has no resource at nothing://here. There are: shop:"),
        (("alice", "--server", "nonsense"), "there are: tests"),
        (("alice", "--scope", "a b"), "'a b' is not a valid scope"),
    ],
)
def test_errors_have_a_hint(alice, arguments, words):
    assert words in str(command_error(*arguments))


def test_user_argument_is_required(alice):
    for arguments in ((), ("--anonymous", "alice", "refund")):
        assert command_error(*arguments).returncode == 2 and "--anonymous" in str(
            command_error(*arguments)
        )


def test_empty_and_invalid_servers_are_errors(alice, server):
    assert "startmcp APP" in str(command_error("alice", "--server", server.name))
    assert "with --server: tests" in str(command_error("alice", "--server", server.name))

    @mcp.register(Invoice, server=server)
    class Invoices(mcp.ModelResource):
        pass

    assert "django_mcp.E050" in str(command_error("alice", "--server", server.name))


# Processes.


def test_help_shows_examples(quiet):
    done = run(quiet, "mcp_explain", "--help")
    assert done.returncode == 0
    assert "  manage.py mcp_explain" in done.stdout.replace("-c mcp", "manage.py mcp")
    assert "each permission check between alice and the row" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 90


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["zz"], 1, "has no declarations"),
        ([], 2, "Give a user"),
        (["--format", "xml", "zz"], 2, "invalid choice"),
    ],
)
def test_exit_codes(quiet, arguments, code, words):
    done = run(quiet, "mcp_explain", *arguments)
    assert (done.returncode, done.stdout) == (code, "") and words in done.stderr
    assert "Traceback" not in done.stderr and "\x1b" not in done.stderr


@pytest.mark.slow
def test_explanation_in_the_example_project(atlas):
    done = atlas("mcp_explain", "boss", "plan_trip")
    assert done.returncode == 0 and done.stderr == ""
    assert "boss may use the tool plan_trip" in done.stdout and "is a superuser" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
def test_colors_are_used_only_at_a_terminal_that_wants_them(atlas):
    done = atlas("mcp_explain", "boss", terminal=True)
    assert "\x1b[" in done.stdout
    assert max(len(one) for one in plain(done.stdout).splitlines()) <= 80
    for environ, arguments in (({"NO_COLOR": "1"}, ()), ({}, ("--no-color",))):
        done = atlas("mcp_explain", "boss", *arguments, terminal=True, **environ)
        assert "\x1b[" not in done.stdout and "boss may use" in done.stdout


def plain(text):
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
