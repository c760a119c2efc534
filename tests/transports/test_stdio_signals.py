"""Signals that end the stdio process: received through a socket and a handler, and restored."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from django_mcp.transports.stdio import SIGNALS, SignalSocket

SECONDS = 30


@pytest.fixture
def sockets():
    """A pair of sockets: the reading end, and the end for ``set_wakeup_fd``."""
    pair = socket.socketpair()
    pair[0].settimeout(SECONDS)
    pair[1].setblocking(False)
    yield pair
    for one in pair:
        one.close()


@pytest.fixture
def caught(sockets):
    handled = []
    made = SignalSocket(sockets[1].fileno(), lambda number, frame: handled.append(number))
    made.handled = handled
    yield made
    made.restore()


@pytest.mark.parametrize("number", sorted(SIGNALS), ids=str)
def test_signal_reaches_the_socket_and_the_handler(caught, sockets, number):
    signal.raise_signal(number)
    assert sockets[0].recv(1) == bytes([number])
    assert caught.handled == [number]


def test_handler_is_called_if_the_wakeup_fd_was_replaced(caught, sockets):
    mine = signal.set_wakeup_fd(-1)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.set_wakeup_fd(mine)
    assert caught.handled == [signal.SIGTERM]


def test_restore_sets_the_previous_handlers(sockets):
    before = {number: signal.getsignal(number) for number in SIGNALS}
    caught = SignalSocket(sockets[1].fileno(), lambda *_: None)
    assert not set(map(signal.getsignal, SIGNALS)) & set(before.values())
    caught.restore()
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
    mine = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(mine)
    assert mine != sockets[1].fileno()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        caught.restore()  # a handler that was set since is kept
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])


def test_signals_are_not_caught_outside_the_main_thread(sockets):
    before, made = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: made.append(SignalSocket(sockets[1].fileno(), print)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    made[0].restore()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_handles_signals_itself(caught, sockets):
    """A signal right after the fork ends the child and does not reach the parent."""
    for _ in range(20):
        child = os.fork()
        if not child:
            signal.sigtimedwait([], SECONDS)
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert caught.handled == []
    sockets[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        sockets[0].recv(1)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & SIGNALS
