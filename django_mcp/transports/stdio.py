"""
stdio: one client, on the standard streams of this process.

Rule: nothing but MCP reaches stdout. The streams are taken away before the
project is served: what it prints goes to stderr, what it reads is empty. Lines
are UTF-8 on every platform; one that is too long is refused and skipped. The
end of stdin, or SIGTERM, ends everything; how, is told in ``endings``.

Source: basic/transports, "stdio", of each revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings

from ..dispatch.conversations import Conversation
from ..protocol.jsonrpc import ParseError, encode
from .endings import FINISHED, STOPPED, WRITTEN, Ending

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

logger = logging.getLogger("django_mcp")
CHUNK = 65_536
BACKLOG = 16_000_000  # bytes that wait for a slow reader, on either side, before less is taken
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
        if (
            not for_good
        ):  # or they stay as they are: a thread may be at them, and Windows waits for it
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

    def close(self, seconds: float) -> None:
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


class Reader:
    """Reads ahead, in a thread of its own: the end of the input is seen behind what waits.

    ``ended`` is called at the end, from that thread.
    """

    def __init__(self, descriptor: int, ended: Callable[[], None]) -> None:
        self.over = False
        self._descriptor, self._ended = descriptor, ended
        self._ahead = bytearray()
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="mcp-stdin", daemon=True).start()

    def read(self) -> bytes:
        """The next bytes, once there are some; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead or self.over)
            chunk = bytes(self._ahead[:CHUNK])
            del self._ahead[:CHUNK]
            self._changed.notify_all()
        return chunk

    def close(self) -> None:
        """Read no more: the descriptor may soon be another's."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            while (chunk := os.read(self._descriptor, CHUNK)) and self._kept(chunk):
                pass
        except OSError:
            logger.debug("stdin was closed under the reader", exc_info=True)
        self.close()
        self._ended()

    def _kept(self, chunk: bytes) -> bool:
        """Keep what was read until there is room for more; whether more is wanted."""
        with self._changed:
            self._ahead += chunk
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._ahead) < BACKLOG or self.over)
            return not self.over


def lines(read: Callable[[], bytes], limit: int | None) -> Iterator[bytes | None]:
    """The lines of a stream; None for one that is longer than ``limit``."""
    rest, skipping = b"", False
    while chunk := read():
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
    server: Server,
    principal: Callable[[], Awaitable[Principal]],
    reading: int,
    writing: int,
    *,
    leaves: bool = False,
    caught: bool = True,
    host: str | None = None,
) -> None:
    """Serve one client on two descriptors until it closes its end, or SIGTERM.

    If ``leaves``, the process ends with it; signals are ``caught`` unless it is one of several
    (``endings``). ``host`` is what the site is called; that of ``URL`` unless it is given.
    """
    ending, writer = Ending(leaves=leaves, caught=caught), Writer(writing)
    conversation = Conversation(server, principal, writer.send, host=host)
    with ending.awaited(), contextlib.closing(Reader(reading, ending.begin)) as reader:
        taken = _taking(conversation, writer, reader)
        await ending.begun.wait()
        if reader.over:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(taken.wait(), ending.left(FINISHED))
        await conversation.finish(ending.left(FINISHED))
        await conversation.close(ending.left(STOPPED) / 2)  # it cancels twice, and waits each time
        writer.close(ending.left(WRITTEN))


def _taking(conversation: Conversation, writer: Writer, reader: Reader) -> asyncio.Event:
    """Take messages in a thread, no faster than the client reads; the event comes after them."""
    loop, limit = asyncio.get_running_loop(), django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    taken, done = asyncio.Event(), threading.Semaphore(0)

    def take(line: bytes | None) -> None:
        try:
            if line is None:
                writer.send(conversation.connection.refuse(ParseError("The message is too long")))
            else:
                conversation.receive(line)
        finally:
            done.release()

    def take_all() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            for line in lines(reader.read, limit):
                writer.wait_for_room()
                loop.call_soon_threadsafe(take, line)
                done.acquire()
            loop.call_soon_threadsafe(taken.set)

    threading.Thread(target=take_all, name="mcp-take", daemon=True).start()
    return taken
