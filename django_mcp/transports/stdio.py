"""The stdio transport: one client on the standard streams of this process, and its shutdown.

Only MCP messages reach stdout. ``redirected_streams`` redirects the public streams first, so that
project code prints to stderr and reads an empty stdin. Lines are UTF-8 on every platform. A line
that is too long gets an error response and is skipped. Threads read and write the descriptors;
messages are handled in the event loop (``pipe.Conversation``).

End of input, SIGTERM or SIGINT ends the conversation. A dedicated thread waits for that, so a
blocked event loop or a client that reads nothing cannot delay it. All steps of the shutdown share
one deadline, ``EXIT_SECONDS``. A process that serves only this client exits normally before that,
with its exit hooks, or ``os._exit`` ends it then.

Source: basic/transports, "stdio", of each revision; basic/lifecycle and basic/transports/stdio,
"Shutdown".
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings

from ..protocol.jsonrpc import ParseError, encode
from ..runtime import threads
from .pipe import Conversation

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

# Deadlines, in seconds since the shutdown began.
CALLS_SECONDS = 1.0  # for running calls
CLEANUP_SECONDS = 1.2  # for calls that were cancelled, to clean up
FLUSH_SECONDS = 1.4  # for the client, to read the last responses
EXIT_SECONDS = 1.5  # for the process, to exit by itself
# Additional time, to write the last message to a stderr that may be blocked because nothing reads
# it.
STDERR_SECONDS = 0.2

END_BYTE = 0  # the byte for an end without a signal; 0 is no signal's number


SHUTDOWN_SIGNAL_NAMES = ("SIGTERM", "SIGINT", "SIGBREAK")  # SIGBREAK exists only on Windows
SIGNALS = {getattr(signal, name) for name in SHUTDOWN_SIGNAL_NAMES if hasattr(signal, name)}


class SignalSocket:
    """Send signals as bytes to a socket and call ``on_signal``, until ``restore`` is called.

    ``signal.set_wakeup_fd`` makes CPython's C code write the byte, even while the main thread
    executes no Python code. A Python handler does the same, in case other code replaces the wake-up
    descriptor. A forked child gets the earlier handlers back while signals are blocked, so that no
    signal to the child reaches this process's socket. Outside the main thread this does nothing.
    """

    def __init__(self, wakeup_fd: int, on_signal: Callable[..., None]) -> None:
        self._before: dict[Any, Any] = {}
        self._blocked = threading.local()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, on_signal) for number in SIGNALS}
            self._wakeup_before = signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
            self._guard_forks()

    def restore(self) -> None:
        """Restore the earlier handlers and wake-up descriptor."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if before:
            signal.set_wakeup_fd(self._wakeup_before)

    def _guard_forks(self) -> None:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._block_signals,
                after_in_parent=self._unblock_signals,
                after_in_child=self._restore_in_child,
            )

    # Signals are blocked during a fork: one that arrived in the child before its handlers are
    # restored would be written to the socket that it shares with the parent.

    def _block_signals(self) -> None:
        self._blocked.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked.mask)

    def _restore_in_child(self) -> None:
        self.restore()
        self._unblock_signals()


class StdioShutdown:
    """The shutdown of the conversation that is served in this event loop.

    ``begun`` is set when the shutdown starts. If ``exits_process``, the process ends with it. If
    ``handles_signals``, signals start it. Signals and ``begin`` write a byte to a socket, which a
    thread reads.
    """

    # Why this is no ``OpenRequests.finish``, the shutdown over HTTP: there the process belongs to
    # the ASGI server. After the grace period the signal is passed on to the server's own handler,
    # and a process manager kills a process whose event loop is blocked, so a task of the loop is
    # enough. Here nobody else ends the process: the client only closes its end. The deadline must
    # hold although the loop is blocked by the project's code, so a thread keeps it, and signals
    # reach that thread by a socket, because Python runs signal handlers in the main thread.

    def __init__(self, *, exits_process: bool = False, handles_signals: bool = True) -> None:
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._exits_process, self._handles_signals = exits_process, handles_signals
        self._begun_at = 0.0  # monotonic clock
        self._exit_code = 0
        self._signal_reader, self._signal_writer = socket.socketpair()
        self._signal_writer.setblocking(False)
        self._report_due, self._report_written = threading.Event(), threading.Event()

    def begin(self, *_: Any) -> None:
        """Start the shutdown. Safe in any thread and in signal handlers: it takes no lock."""
        with contextlib.suppress(OSError):  # the socket is closed, or full of such bytes
            self._signal_writer.send(bytes([END_BYTE]))

    def seconds_left(self, until: float) -> float:
        """Return the seconds left until a deadline, which counts from the start of the shutdown."""
        return max(0.0, self._begun_at + until - time.monotonic())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for the end during the block. The end of the block starts the shutdown as well."""
        waiter = self._start_threads()
        signals = None
        if self._handles_signals:
            signals = SignalSocket(self._signal_writer.fileno(), self.begin)
        try:
            yield
        except BaseException:
            self._exit_code = 1
            raise
        finally:
            self.begin()
            if self._exits_process:
                # The signal handlers stay. With the earlier ones, another signal would end the
                # process before its exit hooks have run.
                shut_down_pools()
            else:
                if signals is not None:
                    signals.restore()
                waiter.join()
                self._signal_writer.close()
                self._signal_reader.close()

    def _start_threads(self) -> threading.Thread:
        """Start the threads of the shutdown. Return the one that waits for the end.

        All threads start now, because an interpreter that is exiting cannot start any.
        """
        if self._exits_process:
            threading.Thread(
                target=self._report_stuck_threads, name="mcp-exit-report", daemon=True
            ).start()
        waiter = threading.Thread(target=self._wait_for_end, name="mcp-end", daemon=True)
        waiter.start()
        return waiter

    def _wait_for_end(self) -> None:
        # Ignore other bytes: ``set_wakeup_fd`` writes one for every signal that has a Python
        # handler, also for signals that the project handles.
        while self._signal_reader.recv(1)[0] not in (END_BYTE, *SIGNALS):
            pass
        self._begun_at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.begun.set)
        if self._exits_process:
            time.sleep(EXIT_SECONDS)
            self._exit()

    def _exit(self) -> None:
        """End the process, even if the write of the last message to stderr blocks."""
        self._report_due.set()
        self._report_written.wait(STDERR_SECONDS)
        os._exit(self._exit_code)

    def _report_stuck_threads(self) -> None:
        self._report_due.wait()
        with contextlib.suppress(Exception):
            stuck = ", ".join(one.name for one in threading.enumerate() if not one.daemon)
            sys.stderr.write(f"These threads did not stop: {stuck}.\n")
            flush()
        self._report_written.set()


def shut_down_pools() -> None:
    """Shut down the thread pools that run the project's code, without waiting for their jobs.

    The interpreter would wait for them on exit. Jobs of other pools are short queries.
    """
    for pool in (threads.tools, threads.lookups):
        pool.shutdown(wait=False)


def flush() -> None:
    """Flush the standard streams: ``os._exit`` would drop their buffers."""
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        if stream is not None:
            stream.flush()


logger = logging.getLogger("django_mcp.sessions")
CHUNK_BYTES = 65_536
# Bytes that may wait for a slow reader, in each direction. Above that, the server stops reading,
# and drops the notifications below.
MAX_BUFFERED_BYTES = 16_000_000
DROPPED_FIRST = ("notifications/progress", "notifications/message")


@contextlib.contextmanager
def redirected_streams(*, permanent: bool = False) -> Iterator[tuple[int, int]]:
    """Yield private descriptors of stdin and stdout, and redirect the public ones.

    During the block stdin is empty and stdout leads to stderr. Text that was printed before and is
    still in a buffer goes to stderr as well. ``permanent`` is for a process that ends with the
    conversation: the streams stay redirected, so that what its exit hooks print is no message.
    """
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    printed, sys.stdout = sys.stdout, sys.stderr
    for stream in (printed, sys.__stdout__, sys.stderr):
        _prepare(stream, permanent)
    try:
        yield reading, writing
    finally:
        # With ``permanent`` the descriptors stay open: a thread may still read or write them, and
        # on Windows closing them would wait for that thread.
        if not permanent:
            sys.stdout = printed
            os.dup2(reading, 0)
            os.dup2(writing, 1)
            os.close(writing)
            os.close(reading)


def _prepare(stream: Any, permanent: bool) -> None:
    """Flush a stream and, if ``permanent``, make it UTF-8 from now on (basic/transports/stdio)."""
    if stream is not None:
        stream.flush()
    if permanent and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


class LineWriter:
    """A queue of messages that a thread writes to a descriptor as lines, in order."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._backlog = 0
        self._thread = threading.Thread(target=self._write, name="mcp-stdout", daemon=True)
        self._thread.start()

    def send(self, message: Any) -> None:
        """Queue a message. Safe in any thread; never blocks.

        Progress and log notifications are dropped while more than ``MAX_BUFFERED_BYTES`` bytes
        wait.
        """
        may_drop = isinstance(message, dict) and message.get("method") in DROPPED_FIRST
        if may_drop and self._backlog > MAX_BUFFERED_BYTES:
            return
        line = encode(message).encode() + b"\n"
        # Under the lock, the thread cannot subtract a line from the count before it was added.
        with self._lock:
            self._backlog += len(line)
            self._waiting.put(line)

    def wait_for_room(self) -> None:
        """Block until at most ``MAX_BUFFERED_BYTES`` wait to be written, or writing has failed."""
        with self._room:
            self._room.wait_for(lambda: self._backlog <= MAX_BUFFERED_BYTES)

    def close(self, seconds: float) -> None:
        """Write what is queued, for at most ``seconds``."""
        self._waiting.put(None)
        self._thread.join(seconds)

    def _write(self) -> None:
        has_failed = False
        while (line := self._waiting.get()) is not None:
            has_failed = has_failed or not self._write_line(line)
            with self._room:
                self._backlog -= len(line)
                self._room.notify_all()

    def _write_line(self, line: bytes) -> bool:
        """Write all bytes. Return False if the client has closed its end."""
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            return False  # no error is raised: the end of stdin ends the conversation
        return True


class LineReader:
    """A thread that reads ahead from a descriptor, about ``MAX_BUFFERED_BYTES`` at most.

    Reading ahead notices the end of the input although earlier messages still wait. At the end the
    thread calls ``ended``.
    """

    def __init__(self, descriptor: int, ended: Callable[[], None]) -> None:
        self.is_finished = False  # at the end of the input, and after ``close``
        self._descriptor, self._ended = descriptor, ended
        self._ahead = bytearray()
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="mcp-stdin", daemon=True).start()

    def read(self) -> bytes:
        """Return the next bytes, and block until there are some; ``b""`` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead or self.is_finished)
            chunk = bytes(self._ahead[:CHUNK_BYTES])
            del self._ahead[:CHUNK_BYTES]
            self._changed.notify_all()
        return chunk

    def close(self) -> None:
        """Stop reading: the descriptor's number may soon belong to another file."""
        with self._changed:
            self.is_finished = True
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            while (chunk := os.read(self._descriptor, CHUNK_BYTES)) and self._buffer(chunk):
                pass
        except OSError:
            logger.debug("stdin was closed under the reader", exc_info=True)
        self.close()
        self._ended()

    def _buffer(self, chunk: bytes) -> bool:
        """Buffer a chunk, and wait while the buffer is full. Return whether to read on."""
        with self._changed:
            self._ahead += chunk
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: len(self._ahead) < MAX_BUFFERED_BYTES or self.is_finished
            )
            return not self.is_finished


def lines(read: Callable[[], bytes], limit: int | None) -> Iterator[bytes | None]:
    """Yield the lines of a stream that are not blank; None for one longer than ``limit`` bytes."""
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
    if skipping:  # the last line is too long and has no newline
        yield None
    elif rest.strip():
        yield rest


async def serve(
    server: Server,
    principal: Callable[[], Awaitable[Principal]],
    reading: int,
    writing: int,
    *,
    exits_process: bool = False,
    handles_signals: bool = True,
    host: str | None = None,
) -> None:
    """Serve one client on two descriptors until it closes its end, or a signal arrives.

    If ``exits_process``, the process ends with the conversation. If ``handles_signals``, signals
    end it; pass False for one of several conversations in a process. ``host`` is the host of the
    site in requests, by default that of the setting ``URL``.
    """
    shutdown = StdioShutdown(exits_process=exits_process, handles_signals=handles_signals)
    writer = LineWriter(writing)
    conversation = Conversation(server, principal, writer.send, host=host)
    with shutdown.watching(), contextlib.closing(LineReader(reading, shutdown.begin)) as reader:
        all_received = _start_receiving(conversation, writer, reader)
        await shutdown.begun.wait()
        # Messages that were read before the end of the input are still handled. After a signal,
        # the client may go on sending, so nothing more is read.
        if reader.is_finished:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(all_received.wait(), shutdown.seconds_left(CALLS_SECONDS))
        await conversation.finish(shutdown.seconds_left(CALLS_SECONDS))
        # Half of the time, because ``close`` waits twice: after it asks calls to stop, and after it
        # cancels their tasks.
        await conversation.close(shutdown.seconds_left(CLEANUP_SECONDS) / 2)
        writer.close(shutdown.seconds_left(FLUSH_SECONDS))


def _start_receiving(
    conversation: Conversation, writer: LineWriter, reader: LineReader
) -> asyncio.Event:
    """Start a thread that passes messages to the conversation; return an event for its end.

    The thread waits while the client is slow to read responses, so that a client that only sends
    cannot fill the memory. The event is set in the loop after the last message.
    """
    loop, limit = asyncio.get_running_loop(), django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    all_received = asyncio.Event()
    # The thread passes one message at a time to the loop, and waits until it was handled. Otherwise
    # a client that sends much would fill the loop's queue.
    handled = threading.Semaphore(0)

    def receive(line: bytes | None) -> None:
        try:
            if line is None:
                writer.send(conversation.connection.refuse(ParseError("The message is too long")))
            else:
                conversation.receive(line)
        finally:
            handled.release()

    def receive_all() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            for line in lines(reader.read, limit):
                writer.wait_for_room()
                loop.call_soon_threadsafe(receive, line)
                handled.acquire()
            loop.call_soon_threadsafe(all_received.set)

    threading.Thread(target=receive_all, name="mcp-receive", daemon=True).start()
    return all_received
