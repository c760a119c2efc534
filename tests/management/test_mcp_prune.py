"""``mcp_prune`` deletes expired rows and counts them."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from django_mcp.conf import settings
from django_mcp.models import Event, Session, Stream
from django_mcp.storage import sessions, streams
from tests.spec.process import ROOT, command, environment


@pytest.fixture
def session(db):
    _, made = sessions.create(
        server="default", owner="1::", user="1", revision="2025-11-25", client_info={},
        capabilities={},
    )  # fmt: skip
    return made


def prune(capsys):
    """Run the command and return the counts."""
    call_command("mcp_prune")
    lines = capsys.readouterr().out.splitlines()
    return {kind: int(count) for kind, count in (line.split(": ") for line in lines)}


def test_nothing_to_delete(session, capsys):
    assert prune(capsys) == {
        "events of streams that ended": 0,
        "idle sessions": 0,
        "finished calls": 0,
        "results of request.once": 0,
        "old changes of rows": 0,
        "subscribed models": 0,
        "stored lists of what users could see": 0,
    }
    assert Session.objects.count() == 1


def test_events_of_ended_streams_are_deleted(session, capsys):
    stream = streams.open(session, standalone=True, messages=["{}", "{}"])
    assert prune(capsys)["events of streams that ended"] == 0
    streams.close(stream.pk)
    Stream.objects.update(ended=timezone.now() - timedelta(days=1))
    assert prune(capsys)["events of streams that ended"] == 2 and not Event.objects.exists()


def test_idle_session_is_deleted(session, capsys):
    long_ago = timezone.now() - timedelta(seconds=settings.SESSION_LIFETIME + 60)
    Session.objects.update(last_seen=long_ago)
    assert prune(capsys)["idle sessions"] == 1 and not Session.objects.exists()


@pytest.mark.slow
def test_database_without_tables_is_an_error(tmp_path):
    settings = environment(
        tmp_path / "empty.sqlite3", DJANGO_SETTINGS_MODULE="tests.management.quiet"
    )
    done = subprocess.run(
        command("mcp_prune"), cwd=ROOT, capture_output=True, text=True, env=settings
    )
    assert done.returncode == 1 and "manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr
