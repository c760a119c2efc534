"""``mcp_call``: calling a tool from a shell."""

from __future__ import annotations

import base64
import io
import json
import os

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

import django_mcp as mcp
from django_mcp.calls.execution import around
from tests.shop.models import Company, Invoice

from .processes import run


@pytest.fixture
def call(capsys):
    def call(*arguments, **options):
        call_command("mcp_call", *map(str, arguments), **options)
        said = capsys.readouterr()
        return said.out, said.err

    return call


def command_error(*arguments):
    with pytest.raises(CommandError) as command_error:
        call_command("mcp_call", *map(str, arguments))
    return command_error.value


def stored_statuses():
    return set(Invoice.objects.values_list("number", "status"))


# Calling.


def test_stdout_contains_only_the_result(call, db):
    out, err = call("add", "a=2", "b=3")
    assert (
        out == "5\n"
        and err == "Calling as an anonymous client, which can use only PUBLIC tools. See --user.\n"
    )
    assert call("add", "a=2", "--format", "json")[0] == "3\n"
    assert call("slow_add", "--json", '{"a": 1}', "b=2", "--revision", "2024-11-05")[0] == "3\n"


def test_stdout_contains_only_json_for_structured_results(call, invoice):
    """Links to the rows go to stderr, because a pipe reads stdout."""
    out, err = call("open_invoices", "--user", "alice")
    assert [row["number"] for row in json.loads(out)] == ["A-1"]
    assert err == "invoice://A-1\n"


def test_tool_runs_as_the_given_user(call, invoice, bob):
    out, err = call("refund", "invoice=A-1", "reason=broken", "amount=2.50", "--user", "alice")
    assert json.loads(out) == {"number": "A-1", "amount": "2.5", "reason": "broken"}
    assert err == "Changes of refund will be saved. Use --dry-run to roll them back.\n"
    assert stored_statuses() == {("A-1", "draft")}
    told = str(command_error("refund", "invoice=A-1", "reason=x", "amount=1", "--user", "bob"))
    assert told == "There is no tool 'refund' for this user. See mcp_explain."
    told = str(command_error("count_invoices", "customer=1234", "--user", "bob"))
    assert told == "There is no customer 1234."


def test_suggestions_contain_only_tools_the_user_may_use(alice, bob):
    assert "Did you mean refund" in str(command_error("refnd", "--user", "alice"))
    assert "refund" not in str(command_error("refnd", "--user", "bob")).replace("'refnd'", "")
    assert "open_invoices" in str(command_error("open_invoice", "--user", "bob"))
    assert "open_invoices" not in str(command_error("open_invoice"))


def test_scope_option_limits_the_call_like_a_token(call, alice, server):
    @server.tool(scope="write")
    def write(request: mcp.Request) -> str:
        return " ".join(sorted(request.auth.scopes))

    on = ("write", "--server", server.name, "--user", "alice")
    assert call(*on, "--scope", "read", "--scope", "write")[0] == "read write\n"
    assert "no tool 'write'" in str(command_error(*on, "--scope", "read"))


def test_invalid_arguments_show_the_expected_ones(invoice):
    told = str(command_error("refund", "invoice=A-1", "amount=0", "--user", "alice"))
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "reason: this argument is required" in lines[0]
    assert "invoice key or URI of an invoice required" in lines
    assert "amount number above 0 (also as text) or nothing" in lines


def test_tool_errors_and_bugs_are_reported(db, caplog):
    assert str(command_error("fail", "how=tool")) == "This cannot be done on a Sunday."
    assert str(command_error("fail", "how=protocol")) == "Not like this"
    told = str(command_error("fail", "how=bug"))
    assert told == "fail has a bug: RuntimeError: the password is hunter2"
    assert command_error("fail", "how=bug").returncode == 1


def test_progress_and_logs_go_to_stderr(call, db):
    out, err = call("chatty", "steps=2")
    assert out.endswith("done\n") and out.count("done") == 1
    lines = err.splitlines()
    assert [one for one in lines if one.startswith("[")] == ["[1/2]", "[2/2]"]
    assert [one for one in lines if "warning" in one] == ["warning: step 1", "warning: step 2"]
    _, err = call("slow_add", "a=1", "b=2", "steps=1")
    assert "[1/1] step 1\n" in err and 'info: shop: {"step": 1}\n' in err


def test_arguments_from_a_file_and_from_stdin(call, db, tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    file.write_text('{"a": 40}')
    assert call("add", "--json", f"@{file}", "b=2")[0] == "42\n"
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 1, "b": 1}'))
    assert call("add", "--json", "-")[0] == "2\n"


# Results.


def test_every_kind_of_content(call, db, tmp_path):
    out, err = call("pictures")
    assert out == "text\nreturns: policy://returns\nThirty days.\n"
    assert "The result also has image (image/png, 4 bytes). Use --output FILE to save it." in err
    assert "also has audio (audio/" in err
    file = tmp_path / "it.png"
    out, err = call("pictures", "--output", file)
    assert out == "" and file.read_bytes() == b"\x89PNG"
    assert (tmp_path / "it-2.png").read_bytes() == b"RIFF"
    assert f"Saved {file} (4 bytes)." in err
    call("pictures", "--output", tmp_path)
    assert (tmp_path / "1.png").read_bytes() == b"\x89PNG"
    call("add", "a=1", "--output", tmp_path / "sum.txt")
    assert (tmp_path / "sum.txt").read_text() == "2"
    assert "No such file" in str(command_error("add", "a=1", "--output", tmp_path / "no" / "x"))


def test_binary_resource_can_be_saved(call, db, server, tmp_path):
    @server.tool(permission=mcp.PUBLIC)
    def attach(request: mcp.Request) -> mcp.EmbeddedResource:
        return mcp.EmbeddedResource("a://b", b"\x00\x01", "application/x-own")

    on = ("attach", "--server", server.name)
    assert "also has resource (application/x-own, 2 bytes)" in call(*on)[1]
    call(*on, "--output", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"\x00\x01"


def test_json_output_of_unstructured_content(call, db):
    shown = json.loads(call("pictures", "--format", "json")[0])
    assert base64.b64decode(shown["content"][1]["data"]) == b"\x89PNG"


# Questions.


def test_answer_option_answers_questions(call, invoice):
    given = ("refund", "invoice=A-1", "reason=x", "--user", "alice")
    out, err = call(*given, "--answer", "answer=yes")
    assert json.loads(out)["amount"] == "12.50" and "Refund the whole 12.50?" in err
    assert str(command_error(*given, "--answer", "answer=no")) == "Nothing was refunded."
    assert json.loads(call(*given, "--yes")[0])["number"] == "A-1"


def test_repeated_answers_are_used_in_order(call, db, server):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def add_up(request: mcp.Request) -> int:
        return request.elicit("First?", int) + request.elicit("Second?", int)

    on = ("add_up", "--server", server.name)
    assert call(*on, "--answer", "answer=1", "--answer", "answer=2")[0] == "3\n"
    assert call(*on, "--answer", "answer=4")[0] == "8\n"
    told = str(command_error(*on, "--answer", "answer=many"))
    assert told == "answer: 'many' is not of type 'integer' (whole number)"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_question_without_an_answer_is_an_error(invoice, revision):
    told = str(command_error("refund", "invoice=A-1", "reason=x", "--user", "alice",
                       "--revision", revision))  # fmt: skip
    if revision == "2024-11-05":  # it has no elicitation
        assert "does not support elicitation" in told
    else:
        assert "The tool asks: Refund the whole 12.50?" in told
        assert "Answer by --answer answer=VALUE (yes or no)." in told
    assert stored_statuses() == {("A-1", "open")}


def test_sampling_without_a_terminal_is_an_error(db):
    told = str(command_error("introduce", "--answer", "name=Ann", "--answer", "age=7"))
    assert told == "introduce needs a client that supports sampling: run the command in a terminal."


# Dry runs.


def test_dry_run_is_rolled_back(call, invoice):
    given = ("refund", "invoice=A-1", "reason=x", "amount=1", "--user", "alice", "--dry-run")
    out, err = call(*given)
    assert json.loads(out)["number"] == "A-1" and stored_statuses() == {("A-1", "open")}
    assert err == "Rolled back: no database has changed. Other effects, such as emails, remain.\n"
    assert not [one for one in around if one.__module__.endswith("mcp_call")]
    call(*given[:-1])
    assert stored_statuses() == {("A-1", "draft")}


def test_failing_dry_run_is_rolled_back(db, server):
    @server.tool(permission=mcp.PUBLIC)
    def break_it(request: mcp.Request) -> str:
        Company.objects.create(name="Half")
        raise mcp.ToolError("No.")

    assert str(command_error("break_it", "--server", server.name, "--dry-run")) == "No."
    assert not Company.objects.filter(name="Half").exists()


def test_on_commit_hooks_do_not_run_in_a_dry_run(
    call, db, server, django_capture_on_commit_callbacks
):
    from django.db import transaction

    ran = []

    @server.tool(permission=mcp.PUBLIC)
    def mail(request: mcp.Request) -> str:
        transaction.on_commit(lambda: ran.append(1))
        return "mailed"

    assert call("mail", "--server", server.name, "--dry-run")[0] == "mailed\n" and not ran
    assert call("mail", "--server", server.name)[0] == "mailed\n" and ran


def test_dry_run_rejects_tools_without_a_transaction(db, server):
    @server.tool(permission=mcp.PUBLIC, atomic=False)
    def send(request: mcp.Request) -> str:
        raise AssertionError("it ran")

    @server.tool(permission=mcp.PUBLIC)
    async def later(request: mcp.Request) -> str:
        raise AssertionError("it ran")

    for name in ("send", "later"):
        told = str(command_error(name, "--server", server.name, "--dry-run"))
        assert told == f"{name} runs in no transaction, so --dry-run cannot roll it back."


# Errors.


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("add", "a"), "'a' is not an argument: write key=value", 1),
        (("add", "a=1", "--json", '{"a": 1}'), "a: given twice", 2),
        (("add", "--json", "[1]"), "must be a JSON object", 2),
        (("add", "--json", "{"), "--json: ", 2),
        (("add", "--json", "@/no/such/file"), "No such file", 2),
        (("add", "a=1", "--answer", "x"), "write --answer KEY=VALUE", 2),
        (("add", "a=1", "--revision", "2020-01-01"), "There is no revision '2020-01-01'", 1),
        (("add", "a=1", "--user", "nobody"), "There is no user 'nobody'", 1),
        (("add", "a=1", "--scope", "x"), "Add --user", 2),
        (("add", "a=1", "--server", "nonsense"), "there are: tests", 1),
    ],
)
def test_errors_have_a_hint_and_an_exit_code(db, arguments, words, code):
    error = command_error(*arguments)
    assert words in str(error) and error.returncode == code


def test_inactive_user_cannot_call_a_tool(db):
    User.objects.create_user("gone", is_active=False)
    assert "'gone' is inactive" in str(command_error("add", "a=1", "--user", "gone"))


def test_server_without_tools_is_an_error(db, server):
    @server.prompt(permission=mcp.PUBLIC)
    def hello(request: mcp.Request) -> str:
        return ""

    assert "no tools" in str(command_error("add", "--server", server.name))


# Processes.


@pytest.mark.slow
def test_exit_codes_and_streams(atlas):
    done = atlas("mcp_call", "nearest_cities", "city=1", "count=1", "--user=alice")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["name"] == "Lyon"
    done = atlas("mcp_call", "nearest_cities", "city=77", "--user=alice")
    assert (done.returncode, done.stdout) == (1, "") and "There is no city 77." in done.stderr
    assert "Traceback" not in done.stderr
    assert atlas("mcp_call").returncode == 2
    assert atlas("mcp_call", "nearest_cities", "--format", "xml").returncode == 2


@pytest.mark.slow
def test_options_and_arguments_can_be_mixed(atlas):
    done = atlas(
        "mcp_call", "plan_trip", "--user", "alice", "title=A", "--dry-run", "cities=1",
        "--answer", "starts=2026-03-01", "cities=2", "--answer", "ends=2026-03-04",
    )  # fmt: skip
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[0])["cities"] == [1, 2]
    assert "Rolled back" in done.stderr
    assert (
        "A"
        not in json.loads(
            atlas("mcp_call", "search_trip", "--user", "alice", "--format", "json").stdout
        )["results"][0]["title"]
    )


@pytest.mark.slow
def test_json_arguments_from_piped_stdin(atlas):
    asked = '{"city": 1, "count": 1}'
    done = atlas("mcp_call", "nearest_cities", "--user=alice", "--json", "-", input=asked)
    assert done.returncode == 0 and "Lyon" in done.stdout


@pytest.mark.slow
def test_help_shows_examples(quiet):
    done = run(quiet, "mcp_call", "--help")
    assert done.returncode == 0 and "unless --dry-run rolls them back" in done.stdout
    assert "--dry-run" in done.stdout and "refund invoice=A-1" in done.stdout


posix = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
PLAN = ("mcp_call", "plan_trip", "title=T", "cities=1", "--user", "alice", "--dry-run")


@pytest.mark.slow
@posix
def test_form_is_asked_field_by_field(atlas):
    typed = [("First day (date):", "soon\n"), ("First day (date):", "2026-04-01\n"),
             ("Last day (date):", "2026-04-02\n")]  # fmt: skip
    done = atlas(*PLAN, terminal=True, typed=typed)
    assert done.returncode == 0, done.stdout
    assert "When does “T” take place?" in done.stdout and "'soon' is not a 'date'" in done.stdout
    assert '"starts": "2026-04-01"' in done.stdout


@pytest.mark.slow
@posix
@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["Ctrl-D", "Ctrl-C"])
def test_ctrl_d_or_ctrl_c_declines_a_question(atlas, key):
    done = atlas(*PLAN, terminal=True, typed=[("First day (date):", key)])
    assert done.returncode == 1 and "declined" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
@posix
def test_no_input_asks_no_questions_at_a_terminal(atlas):
    done = atlas(*PLAN, "--no-input", terminal=True)
    assert done.returncode == 1 and "--answer starts=VALUE" in done.stdout


@pytest.mark.slow
@posix
def test_sampling_is_answered_at_the_terminal(atlas):
    typed = [("> ", "Go to Nice.\n")]
    done = atlas(
        "mcp_call", "suggest_itinerary", "country=FR", "--user=alice", terminal=True, typed=typed
    )
    assert done.returncode == 0, done.stdout
    assert "user: Suggest an itinerary" in done.stdout.replace("\n", " ")
    assert done.stdout.endswith("Go to Nice.\n")


@pytest.mark.slow
@posix
def test_ctrl_c_cancels_the_call(atlas):
    slow = ("mcp_call", "ride_slow_train", "country=FR", "seconds=10", "--user", "alice")
    done = atlas(*slow, terminal=True, typed=[("[1/3] Nice", "\x03")])
    assert done.returncode == 130 and "Cancelled." in done.stdout
    assert "Traceback" not in done.stdout
