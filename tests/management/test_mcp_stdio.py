"""``mcp_stdio``: how the process ends while code of the project is stuck. Real processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time

import pytest

from tests.spec.process import ROOT, NoisyProcess, RequestWriter, command, environment

pytestmark = pytest.mark.slow

SETTINGS = "tests.management.stuck.settings"
EXIT_SECONDS = 20  # two on an idle machine; a process that waits for a stuck tool never exits
STUCK_TOOLS = [
    ["sleep"] * 6, ["to_thread"] * 10, ["to_sync"] * 3, ["swallow"], ["block"], ["spin"],
    ["leave_a_task"], ["leave_a_thread"], ["leave_a_hook"],
]  # fmt: skip
ALL_STUCK_TOOLS = [
    "leave_a_thread",
    "leave_a_task",
    "sleep",
    "to_thread",
    "to_sync",
    "swallow",
    "block",
]
posix = pytest.mark.skipif(os.name != "posix", reason="signals and forks are of POSIX")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("stuck") / "stuck.sqlite3"
    subprocess.run(command("migrate", "-v0"), cwd=ROOT, env=environment(path), check=True)
    return path


@pytest.fixture
def start_project(database):
    """Return a function that starts the project with tools that do not return."""
    started = []

    def start(**more):
        started.append(NoisyProcess(database, DJANGO_SETTINGS_MODULE=SETTINGS, **more))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def call_stuck_tools(one, ways):
    """Call these tools, which do not return."""
    for count, way in enumerate(ways, 1):
        one.start("tools/call", name=way)
        one.err.until(lambda count=count: one.err.raw.count(b"STUCK") >= count)


def ends_in_time(one, number=None):
    """End the process by a signal or the end of its input; it must exit with 0 in time."""
    before = time.monotonic()
    if number is None:
        one.close()
    else:
        one.process.send_signal(number)
    assert one.wait_for_exit() == 0
    assert time.monotonic() - before < EXIT_SECONDS
    assert one.messages() or not one.out.raw  # whole lines
    return True


@pytest.mark.parametrize("ways", STUCK_TOOLS, ids=lambda ways: ways[0])
def test_end_of_input_ends_the_process_with_stuck_tools(start_project, ways):
    one = start_project()
    assert one.text("echo") == "xx"
    call_stuck_tools(one, ways)
    assert ends_in_time(one)
    assert b"did not stop: MainThread" in one.err.raw


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signal_ends_the_process_with_stuck_tools(start_project, number):
    one = start_project()
    assert one.text("echo") == "xx"
    call_stuck_tools(one, ALL_STUCK_TOOLS)
    assert ends_in_time(one, number)


@posix
def test_repeated_signals_do_not_change_the_exit(start_project):
    one = start_project()
    call_stuck_tools(one, ["leave_a_thread", "sleep"])
    one.close()
    for _ in range(10):
        time.sleep(0.1)
        one.process.send_signal(signal.SIGTERM)
    assert one.wait_for_exit() == 0


def test_stuck_threads_are_reported(start_project):
    one = start_project()
    call_stuck_tools(one, ["leave_a_thread"])
    assert ends_in_time(one)
    assert b"of-the-project" in one.err.raw


def test_finished_responses_are_written_before_the_exit(start_project):
    one = start_project()
    call_stuck_tools(one, ["sleep", "leave_a_thread"])
    short = one.start("tools/call", name="short")
    ids = [one.start("tools/call", name="echo", arguments={"size": 50_000}) for _ in range(40)]
    assert ends_in_time(one)
    assert {message["id"] for message in one.messages()} >= {short, *ids}


def test_open_transaction_is_rolled_back(start_project, database):
    one = start_project()
    call_stuck_tools(one, ["write"])
    assert ends_in_time(one)
    with sqlite3.connect(database, timeout=0) as connection:
        assert connection.execute("SELECT * FROM auth_user").fetchall() == []
        connection.execute("DELETE FROM auth_user")  # and no lock is left
    connection.close()


def test_process_without_stuck_tools_exits_normally(start_project):
    one = start_project()
    assert one.text("echo") == "xx"
    assert one.text("use_idle") == "used"  # a thread that waits for work is not stuck
    assert ends_in_time(one)
    assert b"HOOK" in one.err.raw and b"did not stop" not in one.err.raw


def test_failure_during_shutdown_is_an_exit_code(start_project, tmp_path):
    """Also if something is stuck."""
    (tmp_path / "broken.py").write_text(
        "import threading, time\n"
        "from django.apps import AppConfig\n"
        "from tests.management.stuck.settings import *\n"
        "async def finish(self, seconds):\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    raise OSError('broken')\n"
        "class Broken(AppConfig):\n"
        "    name, path = 'broken', '.'\n"
        "    def ready(self):\n"
        "        from django_mcp.transports.pipe import Conversation\n"
        "        Conversation.finish = finish\n"
        "INSTALLED_APPS = [*INSTALLED_APPS, 'broken.Broken']\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environ = environment(tmp_path / "db", DJANGO_SETTINGS_MODULE="broken") | {"PYTHONPATH": path}
    before = time.monotonic()
    done = subprocess.run(
        command("mcp_stdio"), cwd=ROOT, env=environ, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=30,
    )  # fmt: skip
    assert time.monotonic() - before < EXIT_SECONDS + 5  # with its start
    assert done.returncode == 1 and b"OSError: broken" in done.stderr


# Clients that do not read.


@pytest.fixture
def unread_process(database):
    """A process whose output is not read, and a writer of its input."""
    environ = environment(database, DJANGO_SETTINGS_MODULE=SETTINGS)
    with subprocess.Popen(
        command("mcp_stdio"), cwd=ROOT, env=environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process, RequestWriter("2026-07-28")
        process.kill()


def call(asking, name, **arguments):
    return asking.line("tools/call", {"name": name, "arguments": arguments})


def assert_exits_in_time(process):
    process.stdin.close()
    assert process.wait(EXIT_SECONDS) == 0


@pytest.mark.parametrize("more", [0, 500_000], ids=["then nothing", "then more"])
def test_client_that_leaves_without_reading_is_noticed(unread_process, more):
    """Also after it wrote more than is read while so many responses are queued."""
    process, asking = unread_process
    for _ in range(9):
        process.stdin.write(call(asking, "echo", size=3_000_000))
    process.stdin.flush()
    assert process.stdout.read(1)
    time.sleep(1)  # more is queued than the limit
    process.stdin.write(b"".join(call(asking, "echo") for _ in range(more // 250)))
    assert_exits_in_time(process)


def test_unread_stderr_does_not_block_the_exit(unread_process):
    process, asking = unread_process
    process.stdin.write(call(asking, "flood", size=500_000))
    process.stdin.flush()
    assert process.stderr.read(5)
    time.sleep(0.2)
    assert_exits_in_time(process)


# Children.


@posix
def test_signal_to_a_child_process_does_not_end_the_server(start_project):
    one = start_project(PYTHONWARNINGS="ignore")
    ended = one.request("tools/call", name="children", arguments={"count": 20})
    assert ended["structuredContent"] == [-signal.SIGTERM] * 20
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(2)
    assert one.text("echo") == "xx"
    assert ends_in_time(one)
