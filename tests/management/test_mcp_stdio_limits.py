"""Approvals, time limits and throttles over stdio. Real ``mcp_stdio`` processes."""

from __future__ import annotations

import subprocess

import pytest

from django_mcp.protocol.revisions import LATEST, LATEST_HANDSHAKE
from tests.spec.process import ROOT, NoisyProcess, command, environment

pytestmark = pytest.mark.slow

SETTINGS = "tests.management.limited.settings"
USERS = """
from django.contrib.auth.models import Permission, User
User.objects.create_user("alice")
User.objects.create_user("carol").user_permissions.add(Permission.objects.get(codename="delete_group"))
"""
DECIDE = """
from django.contrib.auth.models import User
from django_mcp.models import Approval
carol = User.objects.get(username="carol")
assert Approval.objects.get(status=0).{}
"""
WAITING = "This call must be approved by somebody with the permission auth.delete_group"


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "limited.sqlite3"
    manage(path, "migrate", "-v0")
    shell(path, USERS)
    return path


@pytest.fixture
def start_project(database, revision):
    """Return a function that starts the project as a user."""
    started = []

    def start(user: str | None = "alice") -> NoisyProcess:
        as_user = ["--user", user] if user else []
        one = NoisyProcess(
            database, *as_user, revision=revision, DJANGO_SETTINGS_MODULE=SETTINGS
        )  # fmt: skip
        started.append(one)
        one.open()
        return one

    yield start
    for one in started:
        one.kill()


@pytest.fixture(params=[LATEST_HANDSHAKE.name, LATEST.name])
def revision(request):
    return request.param


def manage(database, *arguments: str) -> None:
    environ = environment(database, DJANGO_SETTINGS_MODULE=SETTINGS)
    subprocess.run(command(*arguments), cwd=ROOT, env=environ, check=True)


def shell(database, code: str) -> None:
    manage(database, "shell", "-v0", "-c", code)


def start_call(one: NoisyProcess, name: str) -> int:
    """Start a call that waits for an approval, and wait until the client is told so."""
    meta = {"progressToken": name}
    id = one.start("tools/call", name="close", arguments={"name": name}, _meta=meta)
    one.out.until(lambda: progress(one, name))
    assert progress(one, name)[0].startswith(WAITING)
    return id


def progress(one: NoisyProcess, token: str) -> list[str]:
    notes = (
        note["params"] for note in one.messages() if note.get("method", "").endswith("progress")
    )
    return [note["message"] for note in notes if note["progressToken"] == token]


def test_waiting_call_runs_when_another_process_approves_it(start_project, database):
    one = start_project()
    id = start_call(one, "Acme")
    assert one.text("groups") == ""
    shell(database, DECIDE.format("approve(carol)"))
    assert one.wait(id)["result"]["content"][0]["text"] == "closed by alice"
    assert one.text("groups") == "Acme"


def test_refused_call_does_not_run(start_project, database):
    one = start_project()
    id = start_call(one, "Acme")
    shell(database, DECIDE.format("refuse(carol, 'They owe us.')"))
    result = one.wait(id)["result"]
    assert result["isError"] and result["content"][0]["text"].endswith(": They owe us.")
    assert one.text("groups") == ""


def test_approval_is_found_after_the_process_was_killed(start_project, database):
    first = start_project()
    start_call(first, "Acme")
    first.process.kill()
    shell(database, DECIDE.format("approve(carol)"))
    second = start_project()
    assert second.text("groups") == ""
    assert second.text("close", name="Acme") == "closed by alice"
    start_call(second, "Acme")  # it was for one call
    assert second.text("groups") == "Acme"


def test_end_of_input_ends_a_process_whose_call_waits(start_project, database):
    one = start_project()
    start_call(one, "Acme")
    one.close()
    assert one.wait_for_exit() == 0
    shell(database, "from django_mcp.models import Approval; assert Approval.objects.get().open")


def test_call_is_stopped_at_its_time_limit_and_rolled_back(start_project):
    one = start_project()
    text = one.text("slow")
    assert text.startswith("slow took longer than 0.2 s and was stopped. Its database writes were")
    assert b"SLOW" in one.err.raw and one.text("groups") == ""
    one.close()
    assert one.wait_for_exit() == 0


@pytest.mark.parametrize("user", ["alice", None])
def test_throttle_counts_the_calls_of_a_process(start_project, user):
    one = start_project(user)
    assert [one.text("rare"), one.text("rare")] == ["counted"] * 2
    result = one.request("tools/call", name="rare", arguments={})
    assert result["isError"]
    assert result["content"][0]["text"].startswith("Too many calls of rare: 2 per 30 days.")
