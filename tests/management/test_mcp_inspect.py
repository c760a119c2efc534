"""``mcp_inspect``: tables, definitions and snapshots of all that is declared, or of a user's."""

from __future__ import annotations

import json
import os

import pytest
from django.core.management import CommandError, call_command

import django_mcp as mcp
from django_mcp.testing import Client
from tests.shop.models import Customer, Invoice

from .processes import run


@pytest.fixture
def inspect(capsys):
    def inspect(*arguments):
        call_command("mcp_inspect", *map(str, arguments))
        return capsys.readouterr().out

    return inspect


def refused(*arguments):
    with pytest.raises(CommandError) as refused:
        call_command("mcp_inspect", *map(str, arguments))
    return refused.value


def names(out):
    """What the tables of a whole catalog name."""
    return [line.split()[0] for line in out.splitlines() if line.startswith("  ")]


# Tables.


def test_everything_that_is_declared(inspect, db):
    out, catalog = inspect(), mcp.server.ready()
    kinds = [catalog.tools, catalog.resources, catalog.templates, catalog.prompts]
    assert names(out) == [thing.name for things in kinds for thing in things.values()]
    assert out.startswith(f"The server tests has {len(names(out))} declarations")
    (refund,) = (line for line in out.splitlines() if line.startswith("  refund "))
    assert refund.split(None, 2)[1:] == [
        "shop.change_invoice", "Refund a paid invoice, wholly or in part.",
    ]  # fmt: skip


def test_what_a_user_may_use_is_what_the_protocol_lists(inspect, alice, bob):
    for user in (alice, bob):
        with Client(user) as client:
            listed = [
                client.tools(), client.prompts(), client.templates(),
                [one for one in client.resources() if one["uri"].startswith("shop:")],
            ]  # fmt: skip
        found = names(inspect("--user", user.username))
        assert sorted(found) == sorted(one["name"] for part in listed for one in part)
    assert "refund" in names(inspect("--user", "alice"))
    assert "refund" not in names(inspect("--user", "bob"))


def test_a_scope_narrows(inspect, alice, server):
    @server.tool(scope="write")
    def write(request: mcp.Request) -> str:
        return ""

    on = ("--server", server.name, "--user", "alice")
    assert names(inspect(*on)) == names(inspect(*on, "--scope", "write")) == ["write"]
    assert "alice may use no declarations of" in inspect(*on, "--scope", "read")


def test_one_tool_in_words(inspect, db):
    out = inspect("refund")
    assert out.startswith("refund, a tool\n\nRefund a paid invoice, wholly or in part.\n")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "permission shop.change_invoice" in lines and "destructive True" in lines
    assert "reason text required Why, in a few words." in lines
    assert "invoice key or URI of an invoice required Such as invoice://{number}." in lines
    assert "\nReturns\n" in out and "\nFields\n" not in out


def test_one_model_in_words(inspect, db):
    out = inspect("invoice")
    assert "URI            invoice://{number}" in out and "ordering       -issued" in out
    assert "\nFields\n" in out and "attachment.size" in out
    assert inspect("invoice://{number}") == out
    assert "\nArguments\n" in inspect("reminder")


# Definitions.


def test_definitions_are_those_of_the_lists(inspect, alice):
    with Client(alice) as client:
        assert json.loads(inspect("--user", "alice", "--format", "json")) == client.catalog()
    found = json.loads(inspect("--user", "alice", "--format", "json", "refund"))
    assert [one["name"] for one in found["tools"]] == ["refund"] and found["prompts"] == []


def test_definitions_of_everything_say_what_is_asked_for(inspect, db):
    found = json.loads(inspect("--format", "json"))
    (refund,) = (one for one in found["tools"] if one["name"] == "refund")
    tool = mcp.server._catalog.tools["refund"]
    assert refund == tool._definition() | {"permission": "shop.change_invoice"}
    (invoice,) = (one for one in found["templates"] if one["name"] == "invoice")
    assert set(invoice["rowSchema"]["properties"]) >= {"number", "total", "overdue"}


# Snapshots.


@pytest.fixture
def declared(server):
    """Declares on a server, as it stands now and as it will."""

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


def test_a_snapshot_is_the_same_as_long_as_nothing_changes(inspect, declared, tmp_path, capsys):
    file = tmp_path / "mcp.json"
    on = declared()
    inspect(*on, "--output", file)
    assert inspect(*on, "--format", "snapshot") == file.read_text()
    declared()
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
def test_what_differs_is_told_and_fails(inspect, declared, tmp_path, capsys, change, told):
    file = tmp_path / "mcp.json"
    inspect(*declared(), "--output", file)
    before = file.read_text()
    error = refused(*declared(**change), "--check", file)
    assert told in capsys.readouterr().out and error.returncode == 1
    assert f"--output {file}" in str(error) and file.read_text() == before
    inspect(*declared(**change), "--output", file)
    assert inspect(*declared(**change), "--check", file) == ""


def test_a_snapshot_of_a_user_is_the_kits(inspect, alice, tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)  # where none is written for the first time
    file = tmp_path / "alice.json"
    with Client(alice) as client:
        client.assert_catalog(file)
    assert inspect("--user", "alice", "--check", file) == ""
    assert refused("--check", file).returncode == 1


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
        (("--check", __file__), "is no snapshot", 2),
    ],
)
def test_what_is_wrong_has_a_hint(alice, bob, arguments, words, code):
    error = refused(*arguments)
    assert words in str(error) and error.returncode == code


def test_a_list_is_no_snapshot(db, tmp_path):
    file = tmp_path / "list.json"
    file.write_text("[]")
    assert "is no snapshot" in str(refused("--check", file))


def test_inactive_user_may_use_nothing(bob):
    bob.is_active = False
    bob.save()
    assert "'bob' is inactive" in str(refused("--user", "bob"))


def test_mistakes_are_shown(db, server):
    @mcp.register(Invoice, server=server)
    class Invoices(mcp.ModelResource):
        fields = ["nonsense"]

    told = str(refused("--server", server.name))
    assert "nonsense" in told and "HINT" in told and "django_mcp.E0" in told


def test_an_empty_server_is_told_where_to_begin(db, server):
    assert "'manage.py startmcp APP' generates one" in str(refused("--server", server.name))


# Processes.


def test_of_a_project_that_declares_nothing(quiet):
    done = run(quiet, "mcp_inspect")
    assert done.returncode == 1 and done.stdout == "" and "mcp.py of an app" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_examples(quiet):
    done = run(quiet, "mcp_inspect", "--help")
    assert done.returncode == 0 and "--check mcp.json" in done.stdout


@pytest.mark.slow
def test_of_the_atlas(atlas, tmp_path):
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
def test_a_terminal_is_filled_and_not_overfilled(atlas):
    for arguments in ((), ("plan_trip",)):
        done = atlas("mcp_inspect", *arguments, "--no-color", terminal=True)
        assert done.returncode == 0
        assert 60 < max(map(len, done.stdout.splitlines())) <= 80
