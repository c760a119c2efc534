import socket
import subprocess
import sys

import pytest

from tools import serving


@pytest.fixture
def program(monkeypatch):
    """Puts another program in the place of the server."""

    def put(code):
        monkeypatch.setattr(serving, "command", lambda port: [sys.executable, "-c", code])

    return put


LISTENS = """
import signal, socket, sys
port = {port}
with socket.socket() as server:
    server.bind(("127.0.0.1", port))
    try:
        server.listen()
        signal.pause()
    except KeyboardInterrupt:
        sys.exit({code})
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


def test_a_port_is_taken_while_somebody_listens():
    with socket.socket() as other:
        other.bind((serving.HOST, 0))
        other.listen()
        assert serving.is_taken(other.getsockname()[1])
    assert not serving.is_taken(serving.free_port())


@posix
def test_a_server_runs_for_a_while(program):
    port = serving.free_port()
    program(LISTENS.format(port=port, code=0))
    with serving.running(port):
        assert serving.is_taken(port)
    assert not serving.is_taken(port)


@posix
def test_what_ends_badly_is_a_failure(program):
    port = serving.free_port()
    program(LISTENS.format(port=port, code=3))
    with pytest.raises(serving.Failed, match="exit code 3"), serving.running(port):
        pass


def test_what_does_not_start_tells_why(program):
    program("raise SystemExit('no such database')")
    port = serving.free_port()
    with pytest.raises(serving.Failed, match="no such database"), serving.running(port):
        pass


def test_what_does_not_answer_is_given_up(program, monkeypatch):
    monkeypatch.setattr(serving, "PATIENCE", 0.2)
    program("import time; time.sleep(60)")
    port = serving.free_port()
    with pytest.raises(serving.Failed, match="does not answer"), serving.running(port):
        pass


def test_a_server_does_not_outlive_a_failure(program):
    port, ended = serving.free_port(), []
    program(LISTENS.format(port=port, code=0))
    with pytest.raises(ZeroDivisionError), serving.running(port):
        ended.append(1 / 0)
    assert not serving.is_taken(port)


def test_it_is_reached_from_this_machine_alone():
    assert serving.command(8001)[-1] == "127.0.0.1:8001"
    assert serving.environment(8001)["ATLAS_URL"] == "http://127.0.0.1:8001"
    assert subprocess.list2cmdline(serving.command(8001)).count("--noreload") == 1
