"""All tool threads are stuck: authentication, streams, heartbeats and cancellation still work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Client, Process, migrate, text
from .token_clients import client_of, fetch_row

pytestmark = pytest.mark.slow
SOON = 3  # seconds, on a busy machine


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    migrate(tmp_path)
    return tmp_path


@pytest.fixture
def process(tables: Path) -> Iterator[Process]:
    """One process with two threads for tools, and a short lease."""
    made = Process(tables, lease=3, THREADS="2")
    yield made
    made.kill()


@pytest.fixture
def clients(tables: Path, process: Process) -> Iterator[list[Client]]:
    """Clients of two users."""
    made = [client_of(tables, name, process.port) for name in ("alice", "bob")]
    yield made
    for client in made:
        client.close()


def test_other_work_continues_while_all_tool_threads_are_stuck(tables, process, clients):
    alice, bob = clients
    watched = alice.call("look", seconds=8, steps=80)
    messages = iter(watched)
    next(messages)
    stuck = [client.call("act", seconds=60) for client in clients]
    for answer in stuck:
        answer.primed()
    beats = fetch_row(tables, "SELECT beats FROM django_mcp_process")
    began = time.monotonic()
    newcomer = client_of(tables, "carol", process.port)  # a new token and session
    clients.append(newcomer)
    assert newcomer.call("look", seconds=0).tool_text()
    # The event log: messages are stored, and read here and on another connection.
    next(messages)
    watched.cut()
    resumed = alice.get(watched.last)
    assert next(iter(resumed))["params"]["progress"] > 1
    # A cancel ends the stream, whatever the thread does.
    bob.notify("notifications/cancelled", requestId=bob.count)
    assert list(stuck[1]) == []
    waiting = newcomer.call("act", seconds=0)
    waiting.primed()  # it has its stream, and waits for a thread
    newcomer.notify("notifications/cancelled", requestId=newcomer.count)
    assert list(waiting) == []
    taken = time.monotonic() - began
    assert text(list(resumed)[-1]) == "looked"
    assert fetch_row(tables, "SELECT beats FROM django_mcp_process") > beats
    assert taken < SOON + 2  # a process that makes a token is started in between


def test_one_user_leaves_a_thread_for_others(process, clients):
    alice, bob = clients
    slow = [alice.call("act", seconds=30) for _ in range(4)]
    for answer in slow:
        answer.primed()
    began = time.monotonic()
    assert bob.call("act", seconds=0).tool_text() == "acted"
    assert time.monotonic() - began < SOON
