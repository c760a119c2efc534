"""Injection points are recognized in the statements, requests and responses of real calls."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from django_mcp.storage import calls, event_log, leases, sessions, streams
from django_mcp.storage import calls as steps
from tests.storage.rows import ask, call, opened, session

from .project import injection, points

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def watched() -> Iterator[list[str]]:
    """Record the points that are reached in a block, in order."""
    reached: list[str] = []
    connection = connections[settings.DJANGO_MCP["DATABASE"]]
    points.StatementWatcher.claims.clear()
    with connection.execute_wrapper(
        points.StatementWatcher(connection, reached.append, reached.append)
    ):
        yield reached


@pytest.mark.django_db
def test_lookup_of_a_session_is_a_point():
    id, _ = opened()
    with watched() as reached:
        sessions.find(id)
    assert reached == ["session-found"]


@pytest.mark.django_db
def test_call_reaches_its_points_in_order():
    with watched() as reached:
        stream = streams.open(session(), calls=[one := call()])
        assert reached == ["stream-inserted"]
        event_log.append(stream.pk, ["said"], call=(one.pk, 0))
        assert reached[1:] == ["events-inserted"]
        assert event_log.finish(one.pk, 0, "done", stream.pk, is_retry=False)
    assert reached[2:] == ["outcome-updated", "outcome-inserted"]


@pytest.mark.django_db
def test_question_and_answer_reach_their_points():
    of = session()
    with watched() as reached:
        stream = streams.open(of, calls=[one := call()])
        known = {"known": {}, "high_water": None, "rounds": 1}
        assert calls.park(one.pk, 0, [asked := ask()], ["asks"], **known)
        assert "question-inserted" in reached
        del reached[:]
        assert calls.answer(of, asked.pk, {"result": 1}, process="mine")
        assert reached == ["answer-stored"]
        sessions.of_stream(stream.pk)
        assert reached == ["answer-stored", "answer-claimed"]
        sessions.of_stream(stream.pk)
    assert reached == ["answer-stored", "answer-claimed"]


@pytest.mark.django_db
def test_timed_out_question_reaches_the_claim():
    of = session()
    stream = streams.open(of, calls=[one := call()])
    known = {"known": {}, "high_water": None, "rounds": 1}
    calls.park(one.pk, 0, [ask()], ["asks"], **known)
    with watched() as reached:
        assert calls.time_out_questions(timezone.now() + timedelta(days=1), "mine")
        sessions.of_stream(stream.pk)
    assert "answer-claimed" in reached


@pytest.mark.django_db
def test_cancel_reaches_its_point():
    of = session()
    streams.open(of, calls=[call()])
    with watched() as reached:
        assert calls.cancel(of, "1")
    assert reached == ["cancel-stored"]


@pytest.mark.django_db
def test_takeover_reaches_its_points(django_capture_on_commit_callbacks):
    """The takeover is reported after the commit."""
    leases.begin("mine")
    stream = streams.open(session(), calls=[call(process="dead")])
    with watched() as reached:
        alias = settings.DJANGO_MCP["DATABASE"]
        with django_capture_on_commit_callbacks(using=alias, execute=True):
            assert calls.take_over_orphans("mine")
            assert reached == []
        assert reached == ["takeover"]
        sessions.of_stream(stream.pk)
    assert reached == ["takeover", "takeover-claimed"]


@pytest.mark.django_db
def test_step_reaches_its_points():
    with watched() as reached:
        steps.begin_step("c1", "key")
        steps.store_step_value("c1", "key", 1)
    assert reached == ["step-entered", "step-kept"]


@pytest.mark.django_db
def test_time_between_heartbeats_is_measured_across_ids(monkeypatch):
    found: list[tuple[float, float]] = []
    connection = connections[settings.DJANGO_MCP["DATABASE"]]
    monkeypatch.setattr(points.StatementWatcher, "beaten", None)
    paused = lambda began, ended: found.append((began, ended))  # noqa: E731
    with connection.execute_wrapper(points.StatementWatcher(connection, print, print, paused)):
        leases.begin("mine")
        assert not found
        leases.beat("mine")
        leases.beat("another")  # has no row
        leases.begin("new")
        leases.leave("mine")
    (first, second), (third, fourth) = found
    assert first < third < second < fourth


@pytest.mark.django_db
def test_long_heartbeat_pause_is_reported(monkeypatch):
    reached: list[dict[str, float]] = []
    monkeypatch.setattr(injection, "tell", lambda **what: reached.append(what))
    longest = injection.MAX_SILENCE_SECONDS
    injection._paused(1.0, 1.0 + longest)
    injection._paused(1.0, 1.5 + longest)
    assert reached == [{"paused": 1.0, "ended": 1.5 + longest}]


@pytest.mark.django_db
@pytest.mark.parametrize("leaves", [leases.end, leases.leave])
def test_leaving_process_is_reported(leaves):
    leases.begin("mine")
    with watched() as reached:
        leases.beat("mine")
        leaves("other")
        assert reached == []
        leaves("mine")
    assert reached == ["left"]


@pytest.mark.django_db
def test_clock_step_is_reported(monkeypatch):
    stream = streams.open(session(), calls=[call()])
    monkeypatch.setattr(points.StatementWatcher, "clock", None)
    now = points.time.time()
    with watched() as reached:
        for by in (0, 60, 0):
            monkeypatch.setattr(points.time, "time", lambda by=by: now + by)
            event_log.append(stream.pk, ["said"])
    assert [one for one in reached if one != "events-inserted"] == ["step", "step-back"]


def passage(method: str = "POST") -> tuple[points.RequestWatcher, list[str]]:
    reached: list[str] = []
    return points.RequestWatcher(method, reached.append), reached


def start(status: int = 200, kind: bytes = b"text/event-stream") -> dict[str, object]:
    return {
        "type": "http.response.start", "status": status, "headers": [(b"content-type", kind)],
    }  # fmt: skip


def body(text: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": text}


PROGRESS = b'id: 1-1\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\n'
FINAL = b'id: 1-2\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n'
QUESTION = b'id: 1-2\ndata: {"id":"x","method":"elicitation/create","params":{"result": 1}}\n\n'


def test_stream_reaches_its_points():
    one, reached = passage()
    one.received({"type": "http.request", "more_body": True})
    one.received({"type": "http.request"})
    assert reached == ["request-read"]
    for message in (start(), body(PROGRESS), body(QUESTION), body(FINAL)):
        one.before(message)
        one.after(message)
    assert reached[1:] == ["stream-opened", "first-written", "outcome-committed", "final-written"]


def test_accepted_message_reaches_its_point():
    one, reached = passage()
    one.before(start(202, b""))
    assert reached == ["accepted"]


def test_resumed_stream_does_not_reach_the_open_point():
    one, reached = passage("GET")
    one.received({"type": "http.request"})
    one.before(start())
    assert reached == []


def test_every_point_is_used():
    source = Path(points.__file__).read_text()
    assert all(source.count(f'"{point}"') >= 2 for point in points.STATEMENTS | points.REQUESTS)
    assert len(points.POINTS) >= 10


EXCUSING = """
import json, os, socket, sys, time
from tests.faults.project import injection
injection.begin()
print("up", flush=True)
until = time.monotonic() + 20
while time.monotonic() < until:
    injection.reach("here")
    time.sleep(0.002)
"""


def test_one_of_two_processes_at_a_point_is_killed(tmp_path):
    """It logs that before."""
    both = [begun(tmp_path, name) for name in ("w0", "w1")]
    for process in both:
        assert process.stdout.readline() == b"up\n"
    for name in ("w0", "w1"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b'{"id": "f1", "point": "here"}', str(tmp_path / f"{name}.sock"))
    try:
        while all(process.poll() is None for process in both):
            pass
        died = [process for process in both if process.poll() is not None]
        assert [process.wait() for process in died] == [-9]
        (line,) = (tmp_path / "struck.log").read_text().splitlines()
        assert '"struck": "here"' in line and str(died[0].pid) in line
    finally:
        for process in both:
            process.kill()
            process.wait()
            process.stdout.close()


def test_one_process_is_suspended_and_another_passes(tmp_path):
    """The process ``but`` passes; a suspended process resumes on SIGCONT."""
    both = {name: begun(tmp_path, name) for name in ("w0", "w1")}
    for process in both.values():
        assert process.stdout.readline() == b"up\n"
    try:
        but = both["w0"].pid
        arm(tmp_path, both, id="f1", point="here", act="suspend", but=but)
        assert (first := heard(tmp_path, 1)[0])["pid"] == both["w1"].pid != but
        wait_for_state(both["w1"].pid, "T")
        arm(tmp_path, both, id="f2", point="here", act="note")
        assert heard(tmp_path, 2)[1]["pid"] == but
        arm(tmp_path, ["w1"], id="f3", point="here")
        both["w1"].send_signal(signal.SIGCONT)
        assert both["w1"].wait(20) == -signal.SIGKILL and first["struck"] == "here"
    finally:
        for process in both.values():
            process.kill()
            process.wait()
            process.stdout.close()


def arm(folder: Path, names: Iterable[str], **reached: object) -> None:
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(json.dumps(reached).encode(), str(folder / f"{name}.sock"))


def heard(folder: Path, count: int) -> list[dict[str, Any]]:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        log = folder / "struck.log"
        lines = log.read_text().splitlines() if log.exists() else []
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        time.sleep(0.01)
    raise AssertionError("Nothing was told.")


def wait_for_state(pid: int, state: str) -> None:
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        assert time.monotonic() < until
        time.sleep(0.01)


def begun(folder: Path, name: str) -> subprocess.Popen[bytes]:
    environ = os.environ | {"FAULTS_FOLDER": str(folder), "FAULTS_WORKER": name}
    return subprocess.Popen(
        [sys.executable, "-c", EXCUSING], cwd=ROOT, env=environ, stdout=subprocess.PIPE
    )
