"""
Graceful shutdown of the HTTP transports: open requests, the grace period, and signal handlers.

On SIGTERM or SIGINT, streaming clients are told to reconnect and running calls may finish for the
time in ``GRACE``. Then the signal is passed on to the handler that was installed before. Some
servers wait for open connections before they notify the application, and a stream would block
them for ever. Others close all connections at once. So these handlers run before the server's. At
a second signal both are passed on at once, and calls get no more time. No signal is lost.

Only the main thread can install signal handlers. In other threads, ASGI lifespan events start the
shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from ...calls.callers import revocations
from ...changes.permission_rechecks import rechecks
from ...conf import settings
from ...protocol.jsonrpc import InternalError, Overloaded
from ...runtime.runtime import Service, SharedTimer

# Seconds for calls to finish. After Ctrl-C a person waits. After SIGTERM a process manager usually
# sends SIGKILL ten seconds later.
GRACE = {"SIGTERM": 8.0, "SIGINT": 0.8, "SIGBREAK": 0.8}
ANSWER_SECONDS = (
    1.0  # seconds more, to send errors to clients that cannot reconnect for the response
)
CANCEL_SECONDS = 0.2  # seconds more, for each of two attempts to cancel the rest
SECOND_SIGNAL_SECONDS = 0.2  # seconds for streams to end after a second signal
# After one to two times this, a request gets a timer or a task of its own (``Exchange.tick``).
FIRST_CHECK_SECONDS = 0.02
RETRY_AFTER = ((b"retry-after", b"1"),)
ENDING = Overloaded("The server is about to end. Try again.", data={"retryAfter": 1})
UNKNOWN = InternalError("The server ended. This may or may not have been accepted.")


def retry_after(message: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header Retry-After if the response's error has ``retryAfter``, else nothing."""
    data = message.get("error", {}).get("data")
    if not (isinstance(data, dict) and "retryAfter" in data):
        return ()
    return ((b"retry-after", b"%d" % math.ceil(data["retryAfter"])),)


class OpenRequest(Protocol):
    """Work on an open request. Its owner's token or permission may be revoked (``revoke``)."""

    @property
    def owner(self) -> str: ...

    def revoke(self) -> None: ...

    def shut_down(self) -> None:
        """Start to end, because the shutdown has begun. Running calls may go on."""

    def late(self) -> None:
        """Send a last response or stop, because the grace period is over."""

    def cut(self) -> None:
        """Stop now."""


class OpenRequests:
    """The open requests of one event loop, and the state of its shutdown.

    ``ending`` is set when the shutdown starts, and ``is_late`` when the grace period is over. Only
    signal handlers use ``is_signalled``, to tell the first signal from later ones. ``first_checks``
    is for requests that wait for their client's body or are worked on, and ``keep_alives`` for
    calls that may have to send keep-alives.
    """

    def __init__(self) -> None:
        self.open: set[OpenRequest] = set()
        self.first_checks = SharedTimer(lambda: FIRST_CHECK_SECONDS)
        self.keep_alives = SharedTimer(lambda: float(settings.KEEPALIVE or 0))
        self.at_start: set[Callable[[], None]] = set()  # called once, when the shutdown starts
        self.ending = self.is_late = self.is_signalled = False
        self.held: Callable[[], object] | None = None  # passes on the signal that began it
        self._until = math.inf  # the time of the loop until which calls may finish
        self._changed = asyncio.Event()
        revocations().sources.append(lambda: self.open)
        rechecks()  # from the first request on, it ends calls whose caller loses a permission
        install_signal_handlers(self)

    @contextlib.contextmanager
    def working(self, work: OpenRequest) -> Iterator[None]:
        self.open.add(work)
        try:
            yield
        finally:
            self.done(work)

    def done(self, work: OpenRequest) -> None:
        self.open.discard(work)
        if self.ending and not self.open:
            self._changed.set()

    async def finish(self, grace: float = GRACE["SIGTERM"]) -> None:
        """Shut down: end streams, wait ``grace`` seconds for calls, then answer or cancel them."""
        self._until = min(self._until, asyncio.get_running_loop().time() + grace)
        if not self.ending:
            self.ending = True
            for work in list(self.open):
                work.shut_down()
            for start in self.at_start:
                start()
        await self._rest()
        self.is_late = True
        # Cancel twice: the first cancellation may only end the wait for a thread.
        for last, seconds in (
            ("late", ANSWER_SECONDS),
            ("cut", CANCEL_SECONDS),
            ("cut", CANCEL_SECONDS),
        ):
            for work in list(self.open):
                getattr(work, last)()
            self._until = asyncio.get_running_loop().time() + seconds
            await self._rest()

    def hurry(self) -> None:
        """Shorten the grace period to ``SECOND_SIGNAL_SECONDS``: a second signal arrived."""
        self._until = min(self._until, asyncio.get_running_loop().time() + SECOND_SIGNAL_SECONDS)
        self._changed.set()

    async def _rest(self) -> None:
        """Wait until nothing is open, or the current deadline has passed."""
        loop = asyncio.get_running_loop()
        while self.open and loop.time() < self._until:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await self._changed.wait()

    def let_go(self) -> None:
        """Pass on the signal that started the shutdown, once."""
        held, self.held = self.held, None
        if held is not None:
            held()


draining = Service(OpenRequests)


# Signals.


class ShutdownSignalHandler:
    """A signal handler that shuts down first, and then calls ``before``, the earlier handler."""

    def __init__(self, ending: OpenRequests, before: Any, grace: float) -> None:
        self.before, self._ending, self._grace = before, ending, grace
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, number: int, frame: Any) -> None:
        """Handle the signal. Python runs this in the main thread, between two instructions."""
        ending = self._ending
        # A forked child inherits this handler, but its copy of the loop does not run.
        is_ours = os.getpid() == self._process and self._loop.is_running()
        if is_ours and not ending.is_signalled:
            ending.is_signalled, ending.held = True, partial(self._pass_on, number, None)
            self._loop.call_soon_threadsafe(self._drain)
        else:
            if is_ours:
                self._loop.call_soon_threadsafe(ending.hurry)
            ending.let_go()
            self._pass_on(number, frame)

    def _drain(self) -> None:
        self._task = self._loop.create_task(self._ending.finish(self._grace))
        self._task.add_done_callback(lambda task: self._ending.let_go())

    def _pass_on(self, number: int, frame: Any) -> None:
        if callable(self.before):
            self.before(number, frame)
        else:
            signal.signal(number, self.before)
            signal.raise_signal(number)


def install_signal_handlers(ending: OpenRequests) -> None:
    """Install the signal handlers in front of the existing ones; do nothing in other threads.

    Only the main thread can. Elsewhere, ASGI lifespan events start the shutdown. A signal that the
    process ignores stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name, grace in GRACE.items():
        if (number := getattr(signal, name, None)) is not None:
            before = signal.getsignal(number)
            if isinstance(before, ShutdownSignalHandler):
                before = before.before
            if before not in (signal.SIG_IGN, None):
                signal.signal(number, ShutdownSignalHandler(ending, before, grace))
