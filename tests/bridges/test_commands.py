"""Management commands as tools: schemas, parsing, output, errors, cancelling and checks."""

import argparse
import asyncio
import os
import subprocess
import sys
import threading
from datetime import date
from functools import partial
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.core.management import BaseCommand, CommandError, get_commands

import django_mcp as mcp
from django_mcp.bridges import commands
from django_mcp.bridges.commands import CommandTool, LineStream
from django_mcp.exceptions import Stopped
from django_mcp.testing import Client
from django_mcp.transports.stdio import redirected_streams
from tests.declarations.helpers import problem_ids, single_problem, valid_catalog
from tests.shop.models import Company, Invoice

pytestmark = pytest.mark.django_db


def is_staff(request):
    return request.user.is_staff


@pytest.fixture
def staff(alice):
    alice.is_staff = True
    alice.save()
    return alice


class Recorder(BaseCommand):
    """A command that keeps the options that it ran with, and does what a test says."""

    def __init__(self, add=lambda parser: None, run=lambda command: None):
        super().__init__()
        self.add, self.run, self.options = add, run, {}

    def add_arguments(self, parser):
        self.add(parser)

    def handle(self, *args, **options):
        self.options = options | {"args": args}
        return self.run(self)


@pytest.fixture
def install(monkeypatch, server):
    """Return a function that makes a command, and a tool of it. It returns the command."""

    def made(add=lambda parser: None, run=lambda command: None, **options):
        command = Recorder(add, run)
        monkeypatch.setitem(get_commands(), "record", command)
        mcp.command_tool("record", server=server, **{"permission": is_staff} | options)
        return command

    return made


@pytest.fixture
def call(server, connect, staff):
    """Return a function that calls the tool and returns the result's text, also of an error."""

    def called(**arguments):
        client = connect(staff, server=server)  # after the tool was declared
        return client.call("record", **arguments)["content"][0]["text"]

    return called


def schema(server, name="record"):
    return valid_catalog(server).tools[name]._definition()["inputSchema"]


# Definitions.


def test_definition_of_a_command(server):
    mcp.command_tool("close_month", permission=is_staff, server=server)
    definition = valid_catalog(server).tools["close_month"]._definition()
    assert definition == {
        "name": "close_month",
        "description": "Close the books of a month: all its open invoices are paid.",
        "inputSchema": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "month": {
                    "type": "string",
                    "format": "date",
                    "description": "the first day of the month",
                },
                "company": {"type": "string", "description": "only the invoices of this company"},
                "dry_run": {"type": "boolean", "description": "only show what would be closed"},
            },
            "required": ["month"],
        },
    }


def test_tool_names_the_module_that_declares_it(server):
    mcp.command_tool("close_month", permission=is_staff, server=server)
    assert "tests.bridges.test_commands.close_month" in str(
        valid_catalog(server).tools["close_month"]
    )


def test_class_of_a_command(server, connect, staff, invoice):
    @server.register
    class CloseOwnMonth(CommandTool):
        """Close the books of your company."""

        command = "close_month"
        name = "close_own_month"
        arguments = ["month"]

        def has_permission(self, request):
            return request.user.is_staff

        def get_options(self, request):
            return {"company": request.user.companies.get().name}

    other = Company.objects.create(name="Other")
    Invoice.objects.create(
        company=other, customer=invoice.customer, number="X-1", total=1, issued="2026-01-03",
        status="open",
    )  # fmt: skip
    definition = valid_catalog(server).tools["close_own_month"]._definition()
    assert definition["description"] == "Close the books of your company."
    assert list(definition["inputSchema"]["properties"]) == ["month"]
    client = connect(staff, server=server)
    assert client.text("close_own_month", month="2026-01-01") == "A-1: 12.50"
    assert "unknown argument" in client.failure("close_own_month", month="2026-01-01", company="X")
    assert set(Invoice.objects.values_list("number", "status")) == {
        ("A-1", "paid"),
        ("X-1", "open"),
    }


SHAPES = [
    ({}, "a", {"type": "string"}, "x"),
    ({"type": int}, 3, {"type": "integer"}, 3),
    ({"type": float}, 2.5, {"type": "number"}, 2.5),
    ({"type": bool}, False, {"type": "boolean"}, False),
    ({"type": bool}, True, {"type": "boolean"}, True),
    ({"type": date.fromisoformat}, "2026-01-02", {"type": "string", "format": "date"}, None),
    ({"type": UUID}, str(UUID(int=1)), {"type": "string", "format": "uuid"}, UUID(int=1)),
    ({"choices": ["a", "b"]}, "b", {"type": "string", "enum": ["a", "b"]}, "b"),
    ({"type": int, "choices": [1, 2]}, 2, {"type": "integer", "enum": [1, 2]}, 2),
    ({"default": 7, "type": int}, 8, {"type": "integer", "default": 7}, 8),
    ({"nargs": "?"}, "a", {"type": "string"}, "a"),
    ({"nargs": "*", "type": int}, [1, 2], {"type": "array", "items": {"type": "integer"}}, [1, 2]),
    (
        {"nargs": "+"},
        ["a"],
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ["a"],
    ),
    (
        {"nargs": 2},
        ["a", "b"],
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
        ["a", "b"],
    ),
]


@pytest.mark.parametrize("name", ["--value", "value"])
@pytest.mark.parametrize(("how", "given", "shown", "got"), SHAPES)
def test_schema_and_value_of_an_argument(install, server, call, name, how, given, shown, got):
    command = install(lambda parser: parser.add_argument(name, **how))
    assert schema(server)["properties"]["value"] == shown
    assert call(value=given) == "record has finished and wrote nothing."
    parsed = {"a": "a", "2026-01-02": date(2026, 1, 2)}.get(str(given), got)
    assert command.options["value"] == parsed


FLAGS = [
    ({"action": "store_true"}, False, True),
    ({"action": "store_false"}, True, False),
    ({"action": "store_const", "const": 5}, None, 5),
    ({"action": argparse.BooleanOptionalAction}, None, True),
    ({"action": "append_const", "const": 5}, None, [5]),
]


@pytest.mark.parametrize(("how", "absent", "present"), FLAGS)
def test_flags_are_booleans(install, server, call, how, absent, present):
    command = install(lambda parser: parser.add_argument("--value", **how))
    assert schema(server)["properties"]["value"]["type"] == "boolean"
    call()
    assert command.options["value"] == absent
    call(value=True)
    assert command.options["value"] == present
    call(value=False)
    off = False if how["action"] is argparse.BooleanOptionalAction else absent
    assert command.options["value"] == off


def test_repeated_options_are_lists(install, server, call):
    command = install(
        lambda parser: [
            parser.add_argument("--tag", action="append"),
            parser.add_argument("--more", action="extend", nargs="+"),
        ]
    )
    call(tag=["a", "b"], more=["c"])
    assert command.options["tag"] == ["a", "b"] and command.options["more"] == ["c"]


def test_defaults_are_those_of_the_parser(install, call):
    def add(parser):
        parser.add_argument("since", nargs="?", type=date.fromisoformat, default="2026-01-01")
        parser.add_argument("names", nargs="*")
        parser.add_argument("--tag", action="append", default=["x"])

    command = install(add)
    call()
    options = command.options
    assert (options["since"], options["names"], options["tag"]) == (date(2026, 1, 1), [], ["x"])
    assert options["verbosity"] == 1


def test_options_with_one_destination_keep_their_own_names(install, server, call):
    def add(parser):
        parser.add_argument("-a", "--all", dest="which", action="store_const", const="all")
        parser.add_argument("--dry-run", "-n", dest="pretend", action="store_true")
        parser.add_argument("-o", dest="order")

    command = install(add)
    assert list(schema(server)["properties"]) == ["all", "dry_run", "o"]
    call(all=True, dry_run=True, o="x")
    assert command.options["which"] == "all" and command.options["pretend"]


def test_labels_of_django_commands(install, server, call):
    command = install(
        lambda parser: parser.add_argument("args", metavar="app_label", nargs="*", help="apps")
    )
    assert list(schema(server)["properties"]) == ["app_label"]
    call(app_label=["a", "b"])
    assert command.options["args"] == ("a", "b")


def test_options_of_django_are_not_offered(install, server, connect, staff):
    install()
    assert schema(server) == {"type": "object", "additionalProperties": False}
    client = connect(staff, server=server)
    for name, value in (("settings", "evil"), ("pythonpath", "/tmp"), ("traceback", True)):
        assert "unknown argument" in client.failure("record", **{name: value})


def test_hidden_arguments_are_offered_only_by_name(install, server, call):
    def add(parser):
        parser.add_argument("--internal", help=argparse.SUPPRESS)

    install(add)
    assert "properties" not in schema(server)
    server._forget()
    install(add, arguments=["internal"], name="other")
    assert list(schema(server, "other")["properties"]) == ["internal"]


def test_help_text_shows_its_values(install, server):
    install(lambda p: p.add_argument("--n", type=int, default=3, help="how many (%(default)s)"))
    assert schema(server)["properties"]["n"]["description"] == "how many (3)"


def test_exclusive_arguments(install, server, call):
    def add(parser):
        group = parser.add_mutually_exclusive_group(required=True)
        group.add_argument("--one", help="first")
        group.add_argument("--two", action="store_true")

    command = install(add)
    described = schema(server)["properties"]
    assert described["one"]["description"] == "first Give exactly one of one, two."
    rule = "Invalid arguments. Give exactly one of one, two."
    assert call() == call(one="x", two=True) == call(two=False) == rule
    call(one="x", two=False)
    assert command.options["one"] == "x"


def test_fixed_options_replace_arguments(install, server, call):
    def add(parser):
        parser.add_argument("target")
        parser.add_argument("--limit", type=int)

    command = install(add, options={"target": "here", "verbosity": 2})
    assert list(schema(server)["properties"]) == ["limit"]
    assert "unknown argument" in call(target="there")
    call(limit=2)
    assert (command.options["target"], command.options["verbosity"]) == ("here", 2)


# Attacks.


@pytest.mark.parametrize("value", ["--all", "-x", "--", "@/etc/passwd", "--settings=evil", ""])
@pytest.mark.parametrize("name", ["word", "label", "words", "labels"])
def test_no_value_becomes_an_option_or_a_file(install, call, monkeypatch, name, value):
    def add(parser):
        parser.fromfile_prefix_chars = "@"
        parser.add_argument("word", nargs="?")
        parser.add_argument("words", nargs="*")
        parser.add_argument("--label")
        parser.add_argument("--labels", nargs="+")
        parser.add_argument("--all", action="store_true")

    command = install(add)
    call(**{name: [value] if name.endswith("s") else value})
    assert command.options[name] == ([value] if name.endswith("s") else value)
    assert command.options["all"] is False and command.options["settings"] is None


def test_values_are_checked_by_the_parser(install, call):
    def even(text):
        if int(text) % 2:
            raise argparse.ArgumentTypeError(f"{text} is odd")
        return int(text)

    install(lambda parser: parser.add_argument("--value", type=even))
    assert "3 is odd" in call(value="3")
    assert len(call(value="9" * 4001)) < 2100


def test_type_that_queries_uses_the_database_of_the_call(install, call, invoice):
    def by_number(text):
        return Invoice.objects.get(number=text)

    command = install(lambda parser: parser.add_argument("invoice", type=by_number))
    call(invoice="A-1")
    assert command.options["invoice"] == invoice


def test_user_without_the_permission_cannot_run_a_command(install, server, connect, bob):
    command = install()
    client = connect(bob, server=server)
    assert client.request("tools/list")["tools"] == []
    with pytest.raises(Exception, match="Unknown tool"):
        client.call("record")
    assert command.options == {}


# Running.


def test_output_is_sent_while_the_command_runs(install, server, staff):
    def run(command):
        command.stdout.write("one")
        command.stderr.write("careful")
        command.stdout.write("two", ending="")
        command.stdout.write(command.style.ERROR("three") + "\n\n  \n")

    install(run=run)
    with Client(staff, server=server) as client:
        assert client.call("record").text == "one\ntwothree"
        assert [(one.done, one.message) for one in client.progress] == [(1, "one"), (2, "twothree")]
        (log,) = client.logs
        assert (log.level, log.data, log.logger) == ("warning", "careful", "record")


def test_returned_text_is_output(install, call):
    install(run=lambda command: "returned")
    assert call() == "returned"


def test_progress_bar_is_sent_line_by_line(install, server, staff):
    install(run=lambda command: command.stdout.write("\r10 %\r20 %", ending=""))
    with Client(staff, server=server) as client:
        client.call("record")
        assert [one.message for one in client.progress] == ["10 %", "20 %"]


def test_long_output_keeps_its_end(install, call, monkeypatch):
    monkeypatch.setattr(commands, "MAX_OUTPUT_LENGTH", 100)

    def run(command):
        for number in range(1000):
            command.stdout.write(f"{number:09}")

    install(run=run)
    text = call()
    assert text.startswith("(The first 9,900 characters are left out.)\n")
    assert text.endswith("000000998\n000000999") and len(text) < 150


def request_of(**values):
    return SimpleNamespace(cancelled=False, **values)


def test_endless_output_does_not_fill_the_memory():
    lines = []
    stream = LineStream(request_of(), 1000, lines.append)
    for _ in range(1000):
        stream.write("x" * 300)
    assert sum(map(len, stream._chunks)) < 1300 and len(stream._line) <= 2300
    assert len(stream.finish()) < 1100 and max(map(len, lines)) == 2000


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CommandError("It is closed."), "exit code 1. It is closed.\n"),
        (CommandError("No.", returncode=3), "exit code 3. No.\n"),
        (SystemExit(2), "exit code 2. "),
        (SystemExit("Stop."), "exit code 1. Stop.\n"),
    ],
)
def test_failure_of_a_command_is_a_tool_error(install, server, connect, staff, error, text):
    def run(command):
        command.stdout.write("Begun")
        command.stderr.write("Careful")
        raise error

    install(run=run)
    failure = connect(staff, server=server).failure("record")
    assert failure == f"record failed with {text}Careful\nBegun"


@pytest.mark.parametrize("code", [0, None])
def test_exit_without_an_error_is_success(install, call, code):
    def run(command):
        command.stdout.write("Done")
        sys.exit(code)

    install(run=run)
    assert call() == "Done"


def test_bug_in_a_command_is_masked(install, call, caplog):
    def run(command):
        raise RuntimeError("the password is hunter2")

    install(run=run)
    assert "hunter2" not in call() and "hunter2" in caplog.text


def test_command_is_told_not_to_ask(install, server, call):
    def add(parser):
        parser.add_argument("--noinput", "--no-input", action="store_false", dest="interactive")

    command = install(add)
    assert "properties" not in schema(server)
    call()
    assert command.options["interactive"] is False


def test_command_runs_in_no_transaction_unless_declared(server, monkeypatch):
    mcp.command_tool("close_month", permission=is_staff, server=server)
    mcp.command_tool("close_month", permission=is_staff, server=server, name="b", atomic=True)
    tools = valid_catalog(server).tools
    assert tools["close_month"]._transaction is False and tools["b"]._transaction is True


def test_cancelled_call_ends_the_command(install, server, staff):
    cancelled, ended, errors = threading.Event(), threading.Event(), []

    def run(command):
        try:
            while True:
                command.stdout.write("working")
                cancelled.wait()
        except BaseException as error:
            errors.append(error)
            ended.set()
            raise

    install(run=run)
    with Client(staff, server=server) as client:
        running = client.start("record")
        client.until(lambda: client.progress)
        running.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            running.result()
        assert ended.wait(30)
    assert isinstance(errors[0], Stopped)


def test_printed_text_does_not_reach_the_client_of_stdio(install, call, capfd):
    def run(command):
        print("printed")
        os.write(1, b"written\n")
        subprocess.run(["echo", "echoed"], check=True)
        command.stdout.write("said")

    install(run=run)
    with redirected_streams() as (_, writing):
        assert call() == "said"
        os.write(writing, b"message\n")
    out, err = capfd.readouterr()
    assert out == "message\n" and sorted(err.split()) == ["echoed", "printed", "written"]


def test_command_that_asks_over_stdio_gets_the_end_of_input(install, call):
    def run(command):
        try:
            input("Sure? ")
        except EOFError as error:
            raise CommandError("Nobody can answer.") from error

    install(run=run)
    with redirected_streams(), open(os.dup(0)) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)  # pytest replaces it
        assert "Nobody can answer." in call()


# Checks.


def test_unknown_command_is_reported(server):
    mcp.command_tool("close_mnth", permission=is_staff, server=server)
    problem = single_problem(server)
    assert problem.id == "django_mcp.E260" and problem.hint == "Did you mean 'close_month'?"


def test_command_that_cannot_be_loaded_is_reported(install, server):
    def add(parser):
        raise RuntimeError("no database")

    install(add)
    problem = single_problem(server)
    assert problem.id == "django_mcp.E268" and "RuntimeError: no database" in problem.msg


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["E261"]),
        ({"permission": mcp.PUBLIC}, ["E261"]),
        ({"permission": mcp.AUTHENTICATED}, ["W260"]),
        ({"permission": "shop.change_invoice"}, []),
        ({"permission": "shop.nothing"}, ["W011"]),
    ],
)
def test_command_needs_a_permission(server, options, found):
    mcp.command_tool("close_month", server=server, **options)
    assert problem_ids(server) == found


@pytest.mark.parametrize("command", ["shell", "flush", "dbshell", "runserver", "migrate"])
def test_dangerous_commands_are_reported(server, command):
    mcp.command_tool(command, permission=is_staff, server=server, arguments=[])
    assert "W261" in problem_ids(server)


@pytest.mark.parametrize(
    ("how", "options", "found"),
    [
        (("--x",), {"arguments": ["y"]}, "E262"),
        (("--x",), {"arguments": ["x"], "options": {"x": 1}}, "E262"),
        (("--x",), {"options": {"y": 1}}, "E264"),
        (("x",), {"arguments": []}, "E265"),
        (("--x",), {"permision": is_staff}, "E009"),
        (("--x",), {"arguments": "x"}, "E060"),
        (("--x",), {"input_schema": {}}, "E009"),
    ],
)
def test_wrong_options_are_reported(install, server, how, options, found):
    install(lambda parser: parser.add_argument(*how), **options)
    assert single_problem(server).id == f"django_mcp.{found}"


@pytest.mark.parametrize(
    "how",
    [
        {"type": argparse.FileType()},
        {"type": open},
        {"type": partial(open, encoding="utf-8")},
        {"nargs": argparse.REMAINDER},
        {"action": "append", "nargs": 2},
    ],
)
def test_arguments_that_cannot_be_offered_are_reported(install, server, how):
    install(lambda parser: parser.add_argument("--x", **how))
    assert single_problem(server).id == "django_mcp.E263"


def test_arguments_that_cannot_be_offered_may_be_left_out(install, server):
    install(lambda p: p.add_argument("--x", type=argparse.FileType()), arguments=[])
    assert problem_ids(server) == []


def test_subcommands_are_reported(server):
    mcp.command_tool("mcp_token", permission=is_staff, server=server)
    assert "E263" in problem_ids(server)
