"""The clock of the session database, which processes use instead of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings as project
from django.db import connection, connections
from django.utils import timezone

from django_mcp.models import Session
from django_mcp.storage import calls, databases, sessions, streams

from .rows import ask, call, opened, queries

ROOT = Path(__file__).parent.parent.parent
HOUR = timedelta(hours=1)
LOG = project.DJANGO_MCP["DATABASE"]
needs_database_clock = pytest.mark.skipif(
    connections[LOG].vendor not in databases.CLOCK_STATEMENTS, reason="this database has no clock"
)


@pytest.fixture(autouse=True)
def _clock_is_read_anew(monkeypatch):
    monkeypatch.setattr(databases.clock, "_read_again_at", 0.0)


@pytest.fixture
def an_hour_ahead(monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda now=timezone.now: now() + HOUR)


@needs_database_clock
@pytest.mark.django_db(transaction=True)
def test_time_is_that_of_the_database(monkeypatch):
    true = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: true + HOUR)
    monkeypatch.setattr(time, "time", lambda: true.timestamp() + 3600)
    assert abs(databases.now() - true) < timedelta(minutes=1)


@needs_database_clock
@pytest.mark.django_db(transaction=True)
def test_database_clock_is_read_once_a_minute(monkeypatch):
    databases.now()
    with queries() as done:
        first = databases.now()
        time.sleep(0.02)
        assert timedelta(seconds=0.02) <= databases.now() - first < timedelta(seconds=5)
    assert not done()
    monkeypatch.setattr(databases.clock, "_read_again_at", time.monotonic())
    with queries() as done:
        assert databases.now() > first
    assert len(done()) == 1


@needs_database_clock
@pytest.mark.django_db(transaction=True)
def test_time_is_naive_without_use_tz(settings):
    settings.USE_TZ = False
    assert databases.now().tzinfo is None
    assert abs(databases.now() - datetime.now()) < timedelta(minutes=1)


@pytest.mark.django_db
def test_time_in_a_transaction_of_a_test_is_that_of_the_process(an_hour_ahead):
    with queries() as done:
        assert abs(databases.now() - timezone.now()) < timedelta(minutes=1)
    assert not done()


# A process whose clock is wrong.


@needs_database_clock
@pytest.mark.django_db(transaction=True)
def test_session_age_is_measured_by_the_database_clock(settings, an_hour_ahead):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SESSION_LIFETIME": 600}
    id, made = opened()
    assert abs(made.last_seen + HOUR - timezone.now()) < timedelta(minutes=1)
    assert sessions.find(id) == made
    Session.objects.update(last_seen=made.last_seen - timedelta(seconds=700))
    assert sessions.find(id) is None


AHEAD = """
import django
django.setup()
from django.utils import timezone
from django_mcp.storage import calls, databases, retention
print((timezone.now() - databases.now()).total_seconds() // 60)
print(len(calls.time_out_questions(databases.now(), "another")), retention.prune())
"""


@needs_database_clock
@pytest.mark.skipif(shutil.which("faketime") is None, reason="There is no faketime.")
@pytest.mark.django_db(transaction=True)
def test_process_with_a_fast_clock_expires_nothing_early(settings):
    """A process one hour ahead finds a new question, a closed stream and a session."""
    _, made = opened()
    stream = streams.open(made, calls=[one := call()])
    calls.park(one.pk, 0, [ask()], ["?"], known={}, high_water=None, rounds=1)
    streams.close(streams.open(made, messages=["a"], pending_responses=1).pk)
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PGDATABASE": connection.settings_dict["NAME"],
        "MARIADB_DATABASE": connection.settings_dict["NAME"],
    }  # fmt: skip
    command = ["faketime", "-f", "+61m", sys.executable, "-c", AHEAD]
    said = subprocess.run(
        command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60
    )
    ahead, done = said.stdout.decode().splitlines()
    assert float(ahead) in (60.0, 61.0)
    assert done.startswith("0 ") and set(done[2:]) & set("123456789") == set(), done
    assert stream.session == made
