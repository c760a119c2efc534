"""
The end of a conversation on the standard streams: heard at once, and over soon.

Rule: a thread that does nothing else hears of it, so that neither a loop that is stuck nor a
client that reads nothing can hide it. All that follows shares one wait, until ``GONE``. By then
a process that serves nobody else has exited as any does, with its hooks; or it ends there, and
leaves behind what has not stopped.

Source: basic/lifecycle and basic/transports/stdio, "Shutdown".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .. import threads
from .signals import SIGNALS, Caught

# Seconds since the end began.
FINISHED = 1.0  # so long calls may go on
STOPPED = 1.2  # and so long be tidied up
WRITTEN = 1.4  # so long the client may read what was answered
GONE = 1.5  # and so long the process may take for an exit of its own
LAST_WORDS = 0.2  # more, to write to a stream that perhaps nobody reads

BELL = 0  # which is no signal


class Ending:
    """The end of the conversation that is served in this loop.

    ``begun`` is set when it is heard of. If ``leaves``, it is the end of the process as well;
    signals mean this conversation unless they are not ``caught``.
    """

    def __init__(self, *, leaves: bool = False, caught: bool = True) -> None:
        self.begun = asyncio.Event()
        self._loop, self._leaves, self._caught = asyncio.get_running_loop(), leaves, caught
        self._at, self._code = 0.0, 0
        self._ear, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._due, self._said = threading.Event(), threading.Event()

    def begin(self, *_: Any) -> None:
        """Begin the end; from any thread, and from signal handlers, which must wait for no lock."""
        with contextlib.suppress(OSError):  # it has ended, or was begun very often
            self._bell.send(bytes([BELL]))

    def left(self, until: float) -> float:
        """The seconds that are left until then."""
        return max(0.0, self._at + until - time.monotonic())

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Hear of the end from here on. The block's own end begins it, if nothing has before."""
        hearing = self._started()
        caught = Caught(self._bell.fileno(), self.begin) if self._caught else None
        try:
            yield
        except BaseException:
            self._code = 1
            raise
        finally:
            self.begin()
            if self._leaves:
                let_pools_go()
            else:
                if caught is not None:
                    caught.give_back()
                hearing.join()
                self._bell.close()
                self._ear.close()

    def _started(self) -> threading.Thread:
        """The thread that hears. Threads are made now: an interpreter that exits makes none."""
        if self._leaves:
            threading.Thread(target=self._speak, name="mcp-last-words", daemon=True).start()
        hearing = threading.Thread(target=self._hear, name="mcp-end", daemon=True)
        hearing.start()
        return hearing

    def _hear(self) -> None:
        while self._ear.recv(1)[0] not in (BELL, *SIGNALS):
            pass
        self._at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.begun.set)
        if self._leaves:
            time.sleep(GONE)
            self._leave()

    def _leave(self) -> None:
        """End the process, whoever holds the streams that the last words are for."""
        self._due.set()
        self._said.wait(LAST_WORDS)
        os._exit(self._code)

    def _speak(self) -> None:
        self._due.wait()
        with contextlib.suppress(Exception):
            stuck = ", ".join(one.name for one in threading.enumerate() if not one.daemon)
            sys.stderr.write(f"Left behind, as they did not stop: {stuck}.\n")
            flush()
        self._said.set()


def let_pools_go() -> None:
    for pool in (threads.tools, threads.lookups):
        pool.shutdown(wait=False)


def flush() -> None:
    """Write what waits in the buffers of the standard streams."""
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        if stream is not None:
            stream.flush()
