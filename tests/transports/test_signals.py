"""The signals that end a process: caught in two ways, and given back."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from django_mcp.transports.stdio import SIGNALS, SignalSocket

SECONDS = 30


@pytest.fixture
def ear():
    """What hears the bell, and the bell."""
    pair = socket.socketpair()
    pair[0].settimeout(SECONDS)
    pair[1].setblocking(False)
    yield pair
    for one in pair:
        one.close()


@pytest.fixture
def caught(ear):
    rung = []
    made = SignalSocket(ear[1].fileno(), lambda number, frame: rung.append(number))
    made.rung = rung
    yield made
    made.restore()


@pytest.mark.parametrize("number", sorted(SIGNALS), ids=str)
def test_they_are_heard_in_c_and_in_python(caught, ear, number):
    signal.raise_signal(number)
    assert ear[0].recv(1) == bytes([number])
    assert caught.rung == [number]


def test_the_second_way_is_left_when_somebody_takes_the_first(caught, ear):
    mine = signal.set_wakeup_fd(-1)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.set_wakeup_fd(mine)
    assert caught.rung == [signal.SIGTERM]


def test_they_are_given_back(ear):
    before = {number: signal.getsignal(number) for number in SIGNALS}
    caught = SignalSocket(ear[1].fileno(), lambda *_: None)
    assert not set(map(signal.getsignal, SIGNALS)) & set(before.values())
    caught.restore()
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
    mine = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(mine)
    assert mine != ear[1].fileno()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        caught.restore()  # again: what has been changed since is not its own
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])


def test_outside_the_main_thread_nothing_is_caught(ear):
    before, made = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: made.append(SignalSocket(ear[1].fileno(), print)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    made[0].restore()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are of POSIX")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_its_own(caught, ear):
    """One that reaches it as soon as it is born ends it, and is heard by nobody else."""
    for _ in range(20):
        child = os.fork()
        if not child:
            signal.sigtimedwait([], SECONDS)
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert caught.rung == []
    ear[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        ear[0].recv(1)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & SIGNALS
