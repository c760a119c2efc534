"""The points of a call are told by what is really executed, sent and received."""

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

from .project import points, sabotage

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def watched() -> Iterator[list[str]]:
    """What is reached and seen in a block, in order."""
    told: list[str] = []
    connection = connections[settings.DJANGO_MCP["DATABASE"]]
    points.Watch.claims.clear()
    with connection.execute_wrapper(points.Watch(connection, told.append, told.append)):
        yield told


@pytest.mark.django_db
def test_a_session_that_is_looked_up():
    id, _ = opened()
    with watched() as told:
        sessions.find(id)
    assert told == ["session-found"]


@pytest.mark.django_db
def test_a_call_from_its_stream_to_its_outcome():
    with watched() as told:
        stream = streams.open(session(), calls=[one := call()])
        assert told == ["stream-inserted"]
        event_log.append(stream.pk, ["said"], call=(one.pk, 0))
        assert told[1:] == ["events-inserted"]
        assert event_log.finish(one.pk, 0, "done", stream.pk, again=False)
    assert told[2:] == ["outcome-updated", "outcome-inserted"]


@pytest.mark.django_db
def test_a_question_and_its_answer():
    of = session()
    with watched() as told:
        stream = streams.open(of, calls=[one := call()])
        known = {"known": {}, "high_water": None, "rounds": 1}
        assert calls.park(one.pk, 0, [asked := ask()], ["asks"], **known)
        assert "question-inserted" in told
        del told[:]
        assert calls.answer(of, asked.pk, {"result": 1}, process="mine")
        assert told == ["answer-stored"]
        sessions.of_stream(stream.pk)
        assert told == ["answer-stored", "answer-claimed"]
        sessions.of_stream(stream.pk)
    assert told == ["answer-stored", "answer-claimed"]


@pytest.mark.django_db
def test_what_nobody_answers_in_time_is_claimed_too():
    of = session()
    stream = streams.open(of, calls=[one := call()])
    known = {"known": {}, "high_water": None, "rounds": 1}
    calls.park(one.pk, 0, [ask()], ["asks"], **known)
    with watched() as told:
        assert calls.overdue(timezone.now() + timedelta(days=1), "mine")
        sessions.of_stream(stream.pk)
    assert "answer-claimed" in told


@pytest.mark.django_db
def test_a_cancel():
    of = session()
    streams.open(of, calls=[call()])
    with watched() as told:
        assert calls.cancel(of, "1")
    assert told == ["cancel-stored"]


@pytest.mark.django_db
def test_a_call_that_is_taken_over(django_capture_on_commit_callbacks):
    """It is, once that is committed."""
    leases.begin("mine")
    stream = streams.open(session(), calls=[call(process="dead")])
    with watched() as told:
        alias = settings.DJANGO_MCP["DATABASE"]
        with django_capture_on_commit_callbacks(using=alias, execute=True):
            assert calls.orphans("mine")
            assert told == []
        assert told == ["takeover"]
        sessions.of_stream(stream.pk)
    assert told == ["takeover", "takeover-claimed"]


@pytest.mark.django_db
def test_a_step_that_happens_once():
    with watched() as told:
        steps.begin("c1", "key")
        steps.keep("c1", "key", 1)
    assert told == ["step-entered", "step-kept"]


@pytest.mark.django_db
def test_the_time_between_two_heartbeats_under_whichever_id(monkeypatch):
    found: list[tuple[float, float]] = []
    connection = connections[settings.DJANGO_MCP["DATABASE"]]
    monkeypatch.setattr(points.Watch, "beaten", None)
    paused = lambda began, ended: found.append((began, ended))  # noqa: E731
    with connection.execute_wrapper(points.Watch(connection, print, print, paused)):
        leases.begin("mine")
        assert not found
        leases.beat("mine")
        leases.beat("another")  # has no row
        leases.begin("new")
        leases.leave("mine")
    (first, second), (third, fourth) = found
    assert first < third < second < fourth


@pytest.mark.django_db
def test_a_long_pause_of_heartbeats_is_told(monkeypatch):
    told: list[dict[str, float]] = []
    monkeypatch.setattr(sabotage, "tell", lambda **what: told.append(what))
    longest = sabotage.MAX_SILENCE_SECONDS
    sabotage._paused(1.0, 1.0 + longest)
    sabotage._paused(1.0, 1.5 + longest)
    assert told == [{"paused": 1.0, "ended": 1.5 + longest}]


@pytest.mark.django_db
@pytest.mark.parametrize("leaves", [leases.end, leases.leave])
def test_a_process_that_takes_its_leave(leaves):
    leases.begin("mine")
    with watched() as told:
        leases.beat("mine")
        leaves("other")
        assert told == []
        leaves("mine")
    assert told == ["left"]


@pytest.mark.django_db
def test_a_clock_that_steps_is_seen(monkeypatch):
    stream = streams.open(session(), calls=[call()])
    monkeypatch.setattr(points.Watch, "clock", None)
    now = points.time.time()
    with watched() as told:
        for by in (0, 60, 0):
            monkeypatch.setattr(points.time, "time", lambda by=by: now + by)
            event_log.append(stream.pk, ["said"])
    assert [one for one in told if one != "events-inserted"] == ["step", "step-back"]


def passage(method: str = "POST") -> tuple[points.Passage, list[str]]:
    told: list[str] = []
    return points.Passage(method, told.append), told


def start(status: int = 200, kind: bytes = b"text/event-stream") -> dict[str, object]:
    return {
        "type": "http.response.start", "status": status, "headers": [(b"content-type", kind)],
    }  # fmt: skip


def body(text: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": text}


PROGRESS = b'id: 1-1\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\n'
FINAL = b'id: 1-2\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n'
QUESTION = b'id: 1-2\ndata: {"id":"x","method":"elicitation/create","params":{"result": 1}}\n\n'


def test_a_stream_passes_its_points():
    one, told = passage()
    one.received({"type": "http.request", "more_body": True})
    one.received({"type": "http.request"})
    assert told == ["request-read"]
    for message in (start(), body(PROGRESS), body(QUESTION), body(FINAL)):
        one.before(message)
        one.after(message)
    assert told[1:] == ["stream-opened", "first-written", "outcome-committed", "final-written"]


def test_what_was_said_is_accepted():
    one, told = passage()
    one.before(start(202, b""))
    assert told == ["accepted"]


def test_a_resumed_stream_is_not_opened():
    one, told = passage("GET")
    one.received({"type": "http.request"})
    one.before(start())
    assert told == []


def test_every_rule_and_word_is_a_point():
    source = Path(points.__file__).read_text()
    assert all(source.count(f'"{point}"') >= 2 for point in points.STATEMENTS | points.PASSAGES)
    assert len(points.POINTS) >= 10


STRIKES = """
import json, os, socket, sys, time
from tests.faults.project import sabotage
sabotage.begin()
print("up", flush=True)
until = time.monotonic() + 20
while time.monotonic() < until:
    sabotage.reach("here")
    time.sleep(0.002)
"""


def test_one_of_two_that_reach_a_point_dies(tmp_path):
    """And says so before."""
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


def test_one_stands_still_at_a_point_and_another_passes_it(tmp_path):
    """Whoever is named passes; a suspended process goes on when it is told to."""
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


def arm(folder: Path, names: Iterable[str], **told: object) -> None:
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(json.dumps(told).encode(), str(folder / f"{name}.sock"))


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
        [sys.executable, "-c", STRIKES], cwd=ROOT, env=environ, stdout=subprocess.PIPE
    )
