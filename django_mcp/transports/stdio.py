"""
stdio: one client, on the standard streams of this process.

Rule: nothing but MCP reaches stdout. The streams are taken away before the
project is served: what it prints goes to stderr, what it reads is empty. Lines
are UTF-8 on every platform; one that is too long is refused and skipped. The
end of stdin, or SIGTERM, ends everything.

Source: basic/transports, "stdio", of each revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings

from ..dispatch.conversations import Conversation
from ..protocol.jsonrpc import ParseError, encode

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

logger = logging.getLogger("django_mcp")
CHUNK = 65_536
BACKLOG = 16_000_000  # bytes that wait for a slow reader before less is taken and said
GRACE = 1.0  # seconds for calls to finish once the client has closed its end
DROPPED_FIRST = ("notifications/progress", "notifications/message")


@contextlib.contextmanager
def taken_streams(*, for_good: bool = False) -> Iterator[tuple[int, int]]:
    """Private copies of stdin and stdout; the public ones lead to nothing and to stderr.

    What was printed before, and waits in a buffer, goes to stderr as well.
    ``for_good`` is for a process that ends with the conversation: what it
    prints at its end is no message either.
    """
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    printed, sys.stdout = sys.stdout, sys.stderr
    for stream in (printed, sys.__stdout__, sys.stderr):
        _settle(stream, for_good)
    try:
        yield reading, writing
    finally:
        if not for_good:
            sys.stdout = printed
            os.dup2(reading, 0)
            os.dup2(writing, 1)
        os.close(writing)
        os.close(reading)


def _settle(stream: Any, for_good: bool) -> None:
    """Write what waits in a buffer and, for good, UTF-8 from now on (basic/transports/stdio)."""
    if stream is not None:
        stream.flush()
    if for_good and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


class Writer:
    """Writes messages as lines, in order, in a thread of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._backlog = 0
        self._thread = threading.Thread(target=self._write, name="mcp-stdout", daemon=True)
        self._thread.start()

    def send(self, message: Any) -> None:
        """Take a message, from any thread; chatter is left out when too much waits."""
        chatter = isinstance(message, dict) and message.get("method") in DROPPED_FIRST
        if chatter and self._backlog > BACKLOG:
            return
        line = encode(message).encode() + b"\n"
        with self._lock:
            self._backlog += len(line)
            self._waiting.put(line)

    def wait_for_room(self) -> None:
        """Return when the reader has caught up, or is gone."""
        with self._room:
            self._room.wait_for(lambda: self._backlog <= BACKLOG)

    def close(self, seconds: float = 2) -> None:
        """Write what waits, for as long as ``seconds``."""
        self._waiting.put(None)
        self._thread.join(seconds)

    def _write(self) -> None:
        gone = False
        while (line := self._waiting.get()) is not None:
            gone = gone or not self._written(line)
            with self._room:
                self._backlog -= len(line)
                self._room.notify_all()

    def _written(self, line: bytes) -> bool:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            return False  # the client is gone; its closed stdin ends the conversation
        return True


def lines(descriptor: int, limit: int | None) -> Iterator[bytes | None]:
    """The lines of a stream; None for one that is longer than ``limit``."""
    rest, skipping = b"", False
    while chunk := os.read(descriptor, CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if skipping or (limit is not None and len(line) > limit):
                skipping = False
                yield None
            elif line.strip():
                yield line
        if limit is not None and len(rest) > limit:
            rest, skipping = b"", True
    if rest.strip() and not skipping:
        yield rest


async def serve(
    server: Server, principal: Callable[[], Awaitable[Principal]], reading: int, writing: int
) -> None:
    """Serve one client on two descriptors until it closes its end, or SIGTERM."""
    writer = Writer(writing)
    conversation = Conversation(server, principal, writer.send)
    end = asyncio.Event()
    with _ending_on_signals(end):
        _read(conversation, writer, reading, end)
        await end.wait()
        await conversation.finish(GRACE)
        await conversation.close()
    await asyncio.to_thread(writer.close)


def _read(conversation: Conversation, writer: Writer, reading: int, end: asyncio.Event) -> None:
    """Read in a thread, a message at a time: no faster than they are taken."""
    loop, limit = asyncio.get_running_loop(), django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    async def take(line: bytes | None) -> None:
        if line is None:
            writer.send(conversation.connection.refuse(ParseError("The message is too long")))
        else:
            conversation.receive(line)

    def read() -> None:
        try:
            for line in lines(reading, limit):
                writer.wait_for_room()
                asyncio.run_coroutine_threadsafe(take(line), loop).result()
        except (OSError, RuntimeError):
            logger.debug("stdin was closed under the reader", exc_info=True)
        finally:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end.set)

    threading.Thread(target=read, name="mcp-stdin", daemon=True).start()


@contextlib.contextmanager
def _ending_on_signals(end: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the conversation, on every platform."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        _on_signal(loop, number, end.set)
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _on_signal(
    loop: asyncio.AbstractEventLoop, number: signal.Signals, act: Callable[[], None]
) -> None:
    """Act in the loop. Its own way wakes it even if the signal meets it falling asleep."""

    def soon(*args: Any) -> None:
        loop.call_soon_threadsafe(act)

    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:  # on Windows, whose loop wakes at every signal
        signal.signal(number, soon)
