"""``mcp_prune`` deletes expired rows and counts them."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
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
        "entries of the audit log older than AUDIT_DAYS": 0,
        "old approvals": 0,
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


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases lock rows")
def test_locked_database_is_an_error_that_does_not_recommend_migrations(
    transactional_db, capsys, monkeypatch
):
    wrapper = connections[settings.DATABASE]
    monkeypatch.setitem(wrapper.settings_dict["OPTIONS"], "timeout", 0.1)  # seconds
    path = wrapper.settings_dict["NAME"]
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(CommandError) as error:
            call_command("mcp_prune")
        assert str(error.value).startswith("database is locked\n")
        assert "Run this command again" in str(error.value)
        assert "migrate" not in str(error.value)
        writer.execute("ROLLBACK")
    assert prune(capsys)["idle sessions"] == 0


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
