"""The stdio transport in a process of its own, with a project that prints to stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from django_mcp.protocol.revisions import LATEST, LATEST_HANDSHAKE

from .process import ROOT, NoisyProcess, RequestWriter, command, environment

pytestmark = pytest.mark.slow

NASTY = "one\ntwo\r\nthree\u2028four\u2029five\x85six\x0bseven\x00 ☃ 𝄞"
DULL = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
SOURCES = [
    "an import", "the first stdout", "a descriptor", "a child", "a thread", "the end",
    "the last moment",
]  # fmt: skip
posix = pytest.mark.skipif(os.name != "posix", reason="signals and sessions are of POSIX")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A database with two users, of whom one may not sign in."""
    path = tmp_path_factory.mktemp("noisy") / "noisy.sqlite3"
    users = (
        "from django.contrib.auth.models import User;"
        "User.objects.create_user('alice'); User.objects.create_user('gone', is_active=False)"
    )
    for arguments in (("migrate", "-v0"), ("shell", "-v0", "-c", users)):
        subprocess.run(command(*arguments), cwd=ROOT, env=environment(path), check=True)
    return path


@pytest.fixture
def start_noisy_project(database):
    """Starts the noisy project."""
    started = []

    def start(*arguments, opened=True, **options):
        started.append(NoisyProcess(database, *arguments, **options))
        if opened:
            started[-1].open()
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_message_is_one_line(start_noisy_project, revision):
    one = start_noisy_project(revision=revision)
    assert one.text("nasty") == NASTY
    assert one.text("nasty", text=NASTY) == NASTY
    assert one.request("tools/list")["tools"]
    assert one.out.raw.endswith(b"\n") and b"\r" not in one.out.raw
    answered = [message["id"] for message in one.messages()]
    assert len(answered) == len(set(answered))


def test_message_on_several_lines_is_rejected(start_noisy_project):
    one = start_noisy_project(revision=LATEST.name)
    whole = json.dumps(one.message("tools/call", {"name": "who"}), indent=1)
    one.write(whole.encode() + b"\n")
    assert one.text("who") == "nobody"
    codes = [message["error"]["code"] for message in one.messages() if "error" in message]
    assert len(codes) >= whole.count("\n") - 1 and set(codes) <= {-32700, -32600}


@pytest.mark.parametrize("settings", [{}, DULL, {"PYTHONUNBUFFERED": "1"}], ids=str)
def test_only_messages_reach_stdout(start_noisy_project, settings):
    one = start_noisy_project(**settings)
    assert one.text("shout") == "shouted"
    assert one.text("listen") == "''b''"  # nor does anybody else read what the client says
    assert one.text("shout") == "shouted"
    one.close()
    assert one.wait_for_exit() == 0
    assert b"NOISE" not in one.out.raw
    assert all(message["jsonrpc"] == "2.0" for message in one.messages())
    noise = one.err.raw.decode()
    assert [source for source in SOURCES if f"NOISE of {source}" not in noise] == []
    assert ("NOISE of the settings" in noise) == ("PYTHONUNBUFFERED" not in settings)


@pytest.mark.parametrize("settings", [{}, DULL], ids=["plain", "dull"])
def test_log_is_written_to_stderr_as_utf_8(start_noisy_project, settings):
    one = start_noisy_project(**settings)
    assert one.text("note", text="ünï ☃ 𝄞") == "noted"
    one.close()
    assert one.wait_for_exit() == 0
    said = one.err.raw.decode("utf-8", "strict")
    assert "logged ünï ☃ 𝄞" in said and "printed ünï ☃ 𝄞" in said
    assert b"logged" not in one.out.raw


def ends(one):
    """Whether the process, whose input is closed, ends well and soon, and leaves nothing behind."""
    before = time.monotonic()
    one.close()
    assert one.wait_for_exit() == 0
    assert time.monotonic() - before < 60
    assert one.out.is_closed  # nobody holds the pipe any more
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):
            os.killpg(one.process.pid, 0)
    return True


def test_end_of_input_ends_the_process(start_noisy_project, revision):
    one = start_noisy_project(revision=revision)
    assert one.text("who") == "nobody"
    assert ends(one)


def test_end_of_input_ends_the_process_while_a_tool_runs(start_noisy_project):
    one = start_noisy_project()
    one.start("tools/call", name="hang")
    one.err.until(lambda: b"hanging" in one.err.raw)
    assert ends(one)


PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'


@pytest.mark.parametrize("said", [b"", PING, PING[:9]])
def test_end_of_input_before_initialize_ends_the_process(start_noisy_project, said):
    one = start_noisy_project(opened=False)
    one.write(said)
    if said == PING:
        assert one.wait(1)["result"] == {}
    assert ends(one)


@posix
def test_sigterm_ends_the_process_while_its_client_reads_nothing(database):
    """The client keeps its pipes open, and unsent output exceeds the pipe buffer."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        command("mcp_stdio"), cwd=ROOT, env=environment(database), **options
    ) as process:
        asking = RequestWriter(LATEST.name)
        for _ in range(4):
            call = {"name": "nasty", "arguments": {"text": "x" * 200_000}}
            process.stdin.write(asking.line("tools/call", call))
        process.stdin.write(asking.line("tools/call", {"name": "hang"}))
        process.stdin.flush()
        while b"hanging" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_requests_before_the_end_of_input_are_answered(start_noisy_project):
    one = start_noisy_project()
    ids = [one.start("tools/call", name="nasty", arguments={"text": str(n)}) for n in range(9)]
    one.close()
    assert one.wait_for_exit() == 0
    assert {message["id"] for message in one.messages()} >= set(ids)


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signal_ends_streams_and_closes_the_output(start_noisy_project, number):
    one = start_noisy_project()
    id = one.start("subscriptions/listen", notifications={"toolsListChanged": True})
    one.out.until(lambda: b"acknowledged" in one.out.raw)
    one.process.send_signal(number)
    assert one.wait_for_exit() == 0  # though the input is open
    assert one.out.is_closed
    assert one.wait(id)["result"]["resultType"] == "complete"


@posix
def test_uninitialized_client_does_not_delay_the_end(start_noisy_project):
    assert ends(start_noisy_project())  # without a word
    one = start_noisy_project()
    one.revision = LATEST_HANDSHAKE
    info = {"name": "tests", "version": "1"}
    one.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    one.process.send_signal(signal.SIGTERM)  # and never says that it is initialized, nor leaves
    assert one.wait_for_exit() == 0


def test_user_is_set_by_the_command_line_only(start_noisy_project):
    token = {"authorization": "Bearer alice", "user": "alice"}
    assert start_noisy_project().text("who") == "nobody"
    assert start_noisy_project("--user", "alice").text("who") == "alice"
    one = start_noisy_project("--user", "alice", revision="2025-11-25")
    result = one.request("tools/call", name="who", _meta=token | {"user": "root"}, **token)
    assert result["content"][0]["text"] == "alice"
    assert all("authoriz" not in json.dumps(message) for message in one.messages())


@pytest.mark.parametrize("name", ["nobody", "gone", ""])
def test_unknown_or_inactive_user_is_rejected(database, name):
    done = subprocess.run(
        command("mcp_stdio", "--user", name), cwd=ROOT, env=environment(database),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and b"There is no active user" in done.stderr
    assert b"jsonrpc" not in done.stdout


def test_missing_tables_are_reported_with_a_hint(tmp_path):
    done = subprocess.run(
        command("mcp_stdio", "--user", "alice"), cwd=ROOT,
        env=environment(tmp_path / "empty.sqlite3"), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and b"Run 'manage.py migrate'." in done.stderr
    assert b"Traceback" not in done.stderr and b"jsonrpc" not in done.stdout
