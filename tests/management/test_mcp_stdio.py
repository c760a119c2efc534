"""``mcp_stdio``: how the process ends, whatever the project's code is doing. Real processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time

import pytest

from tests.spec.process import ROOT, Asking, Noisy, command, environment

pytestmark = pytest.mark.slow

SETTINGS = "tests.management.stuck.settings"
SOON = 3.5  # two seconds are promised, on a machine that has nothing else to do
WAYS = [
    ["sleep"] * 6, ["to_thread"] * 10, ["to_sync"] * 3, ["swallow"], ["block"], ["spin"],
    ["leave_a_task"], ["leave_a_thread"], ["leave_a_hook"],
]  # fmt: skip
EVERY_WAY = ["leave_a_thread", "leave_a_task", "sleep", "to_thread", "to_sync", "swallow", "block"]
posix = pytest.mark.skipif(os.name != "posix", reason="signals and forks are of POSIX")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("stuck") / "stuck.sqlite3"
    subprocess.run(command("migrate", "-v0"), cwd=ROOT, env=environment(path), check=True)
    return path


@pytest.fixture
def stuck(database):
    """Starts the stuck project."""
    started = []

    def start(**more):
        started.append(Noisy(database, DJANGO_SETTINGS_MODULE=SETTINGS, **more))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def stick(one, ways):
    """Call the tools, of which each then stays where it is."""
    for count, way in enumerate(ways, 1):
        one.start("tools/call", name=way)
        one.err.until(lambda count=count: one.err.raw.count(b"STUCK") >= count)


def ends(one, number=None):
    """End it, by a signal or by the end of its input. It ends well, soon and wholly."""
    before = time.monotonic()
    if number is None:
        one.close()
    else:
        one.process.send_signal(number)
    assert one.ended() == 0
    assert time.monotonic() - before < SOON
    assert one.messages() or not one.out.raw  # whole lines
    return True


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: ways[0])
def test_the_end_of_the_input_ends_it_whatever_is_stuck(stuck, ways):
    one = stuck()
    assert one.text("echo") == "xx"
    stick(one, ways)
    assert ends(one)
    assert b"did not stop: MainThread" in one.err.raw


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_so_does_a_signal_whatever_is_stuck(stuck, number):
    one = stuck()
    assert one.text("echo") == "xx"
    stick(one, EVERY_WAY)
    assert ends(one, number)


@posix
def test_a_second_signal_makes_it_no_worse(stuck):
    one = stuck()
    stick(one, ["leave_a_thread", "sleep"])
    one.close()
    for _ in range(10):
        time.sleep(0.1)
        one.process.send_signal(signal.SIGTERM)
    assert one.ended() == 0


def test_it_says_what_it_left(stuck):
    one = stuck()
    stick(one, ["leave_a_thread"])
    assert ends(one)
    assert b"of-the-project" in one.err.raw


def test_what_is_answered_before_is_written(stuck):
    one = stuck()
    stick(one, ["sleep", "leave_a_thread"])
    short = one.start("tools/call", name="short")
    ids = [one.start("tools/call", name="echo", arguments={"size": 50_000}) for _ in range(40)]
    assert ends(one)
    assert {message["id"] for message in one.messages()} >= {short, *ids}


def test_what_is_not_committed_is_not_there(stuck, database):
    one = stuck()
    stick(one, ["write"])
    assert ends(one)
    with sqlite3.connect(database, timeout=0) as connection:
        assert connection.execute("SELECT * FROM auth_user").fetchall() == []
        connection.execute("DELETE FROM auth_user")  # nor does anybody hold a lock
    connection.close()


def test_if_nothing_is_stuck_it_exits_as_any_process(stuck):
    one = stuck()
    assert one.text("echo") == "xx"
    assert one.text("use_idle") == "used"  # a thread that waits for work is not stuck
    assert ends(one)
    assert b"HOOK" in one.err.raw and b"did not stop" not in one.err.raw


def test_a_failure_is_a_failure(stuck, tmp_path):
    """Also where something is stuck: the exit code says so."""
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
    assert time.monotonic() - before < SOON + 5  # with its start
    assert done.returncode == 1 and b"OSError: broken" in done.stderr


# Clients that do not read.


@pytest.fixture
def unread(database):
    """A process whose output nobody reads, and what writes to it."""
    environ = environment(database, DJANGO_SETTINGS_MODULE=SETTINGS)
    with subprocess.Popen(
        command("mcp_stdio"), cwd=ROOT, env=environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process, Asking("2026-07-28")
        process.kill()


def call(asking, name, **arguments):
    return asking.line("tools/call", {"name": name, "arguments": arguments})


def exits(process):
    before = time.monotonic()
    process.stdin.close()
    assert process.wait(10) == 0
    assert time.monotonic() - before < SOON


@pytest.mark.parametrize("more", [0, 500_000], ids=["then nothing", "then more"])
def test_a_client_that_leaves_without_reading_is_noticed(unread, more):
    """Also behind what it wrote, which is more than is taken while so much waits for it."""
    process, asking = unread
    for _ in range(9):
        process.stdin.write(call(asking, "echo", size=3_000_000))
    process.stdin.flush()
    assert process.stdout.read(1)
    time.sleep(1)  # more waits than is let wait
    process.stdin.write(b"".join(call(asking, "echo") for _ in range(more // 250)))
    exits(process)


def test_nor_is_it_held_by_an_error_stream_that_nobody_reads(unread):
    process, asking = unread
    process.stdin.write(call(asking, "flood", size=500_000))
    process.stdin.flush()
    assert process.stderr.read(5)
    time.sleep(0.2)
    exits(process)


# Children.


@posix
def test_a_signal_to_a_child_is_the_childs_alone(stuck):
    one = stuck(PYTHONWARNINGS="ignore")
    ended = one.request("tools/call", name="children", arguments={"count": 20})
    assert ended["structuredContent"] == [-signal.SIGTERM] * 20
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(2)
    assert one.text("echo") == "xx"
    assert ends(one)
