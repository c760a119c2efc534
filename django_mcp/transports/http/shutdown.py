"""
Graceful shutdown of the HTTP transports: open requests, the grace period, and signal handlers.

On SIGTERM or SIGINT, streaming clients are told to reconnect, and running calls may finish for
``GRACE_SECONDS``. Then the signal is passed on to the handler that was installed before. These
handlers run before the server's for two reasons. Some servers wait until all connections are closed
before they send the lifespan event, and a stream would keep them waiting for ever. Others close all
connections at once. At a second signal both signals are passed on at once, and the grace period
becomes ``SECOND_SIGNAL_SECONDS``. No signal is lost.

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

from ...calls.approvals import decisions
from ...calls.callers import revocation_checker
from ...changes.permission_rechecks import permission_rechecker
from ...conf import settings
from ...protocol.jsonrpc import InternalError, Overloaded
from ...runtime.runtime import Service, SharedTimer

# How long calls may take to finish. After Ctrl-C (SIGBREAK is Ctrl-Break on Windows) a person
# waits. After SIGTERM a process manager usually sends SIGKILL ten seconds later, so all of it
# together must take less: 8 + 1 + 2 * 0.2 seconds.
GRACE_SECONDS = {"SIGTERM": 8.0, "SIGINT": 0.8, "SIGBREAK": 0.8}
# After the grace period: to send errors to clients that cannot reconnect for the response.
ANSWER_SECONDS = 1.0
CANCEL_SECONDS = 0.2  # after that, for each of two attempts to cancel the other requests
SECOND_SIGNAL_SECONDS = 0.2  # what remains of the grace period after a second signal
# The period of a timer that all requests share. A request that takes less than one period never
# gets a timer or a task of its own (``Exchange.tick``).
FIRST_CHECK_SECONDS = 0.02
RETRY_AFTER_HEADERS = ((b"retry-after", b"1"),)
SHUTTING_DOWN_ERROR = Overloaded("The server is shutting down. Try again.", data={"retryAfter": 1})
OUTCOME_UNKNOWN_ERROR = InternalError(
    "The server shut down. The request may or may not have been processed."
)


def retry_after_headers(message: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header Retry-After if the response's error has ``retryAfter``, else nothing."""
    data = message.get("error", {}).get("data")
    if not (isinstance(data, dict) and "retryAfter" in data):
        return ()
    return ((b"retry-after", b"%d" % math.ceil(data["retryAfter"])),)


class OpenRequest(Protocol):
    """A request that is being processed, or whose stream is open."""

    @property
    def owner(self) -> str:
        """The key of the principal (``Principal.key``)."""

    def revoke(self) -> None:
        """End it, because the token of its owner was revoked or the user is inactive."""

    def shut_down(self) -> None:
        """Begin to end it, because the shutdown has begun. Running calls may go on."""

    def respond_or_stop(self) -> None:
        """Send a last response or stop, because the grace period is over."""

    def cancel(self) -> None:
        """Stop now."""


class OpenRequests:
    """The open requests of one event loop, and the state of its shutdown.

    ``is_shutting_down`` is set when the shutdown starts, and ``is_late`` when the grace period is
    over. Only signal handlers use ``is_signalled``, to tell the first signal from later ones. The
    timers call ``tick``: ``first_checks`` of requests whose body is still arriving or that are
    being processed, ``keep_alives`` of calls that may have to send keep-alives.

    Creating the object installs the signal handlers of the process.
    """

    def __init__(self) -> None:
        self.open: set[OpenRequest] = set()
        self.first_checks = SharedTimer(lambda: FIRST_CHECK_SECONDS)
        self.keep_alives = SharedTimer(lambda: float(settings.KEEPALIVE or 0))
        # Called once, when the shutdown starts. Calls that wait for an approval end at once.
        self.at_start: set[Callable[[], None]] = {decisions().release}
        self.is_shutting_down = self.is_late = self.is_signalled = False
        self.first_signal: Callable[[], object] | None = None  # passes on the signal that began it
        self._until = math.inf  # the time of the loop until which calls may finish
        self._changed = asyncio.Event()
        revocation_checker().sources.append(lambda: self.open)
        permission_rechecker()  # ends calls whose caller loses a permission
        install_signal_handlers(self)

    @contextlib.contextmanager
    def track(self, work: OpenRequest) -> Iterator[None]:
        self.open.add(work)
        try:
            yield
        finally:
            self.done(work)

    def done(self, work: OpenRequest) -> None:
        self.open.discard(work)
        if self.is_shutting_down and not self.open:
            self._changed.set()

    async def finish(self, grace: float = GRACE_SECONDS["SIGTERM"]) -> None:
        """Shut down: end streams, wait ``grace`` seconds for calls, then answer or cancel them.

        It may run twice at once, after a signal and a lifespan event. The earlier deadline counts.
        """
        self._until = min(self._until, asyncio.get_running_loop().time() + grace)
        if not self.is_shutting_down:
            self.is_shutting_down = True
            for work in list(self.open):
                work.shut_down()
            for start in self.at_start:
                start()
        await self._wait_until_done()
        self.is_late = True
        for method, seconds in (
            ("respond_or_stop", ANSWER_SECONDS),
            # Cancel twice: the first cancellation may interrupt only an await on a thread, after
            # which the code around it goes on.
            ("cancel", CANCEL_SECONDS),
            ("cancel", CANCEL_SECONDS),
        ):
            for work in list(self.open):
                getattr(work, method)()
            self._until = asyncio.get_running_loop().time() + seconds
            await self._wait_until_done()

    def shorten_grace_period(self) -> None:
        """Let calls finish for ``SECOND_SIGNAL_SECONDS`` only: a second signal arrived."""
        self._until = min(self._until, asyncio.get_running_loop().time() + SECOND_SIGNAL_SECONDS)
        self._changed.set()

    async def _wait_until_done(self) -> None:
        """Wait until nothing is open, or the current deadline has passed."""
        loop = asyncio.get_running_loop()
        while self.open and loop.time() < self._until:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await self._changed.wait()

    def pass_on_first_signal(self) -> None:
        """Pass on the signal that started the shutdown, once."""
        pass_on, self.first_signal = self.first_signal, None
        if pass_on is not None:
            pass_on()


draining = Service(OpenRequests)


# Signals.


class ShutdownSignalHandler:
    """A signal handler that shuts down first, and then calls ``before``, the earlier handler."""

    def __init__(self, requests: OpenRequests, before: Any, grace: float) -> None:
        self.before, self._requests, self._grace = before, requests, grace
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, number: int, frame: Any) -> None:
        """Handle the signal.

        Python runs this in the main thread between two instructions, of the event loop too. So it
        changes the loop only by ``call_soon_threadsafe``.
        """
        requests = self._requests
        # A forked child inherits this handler and a loop that claims to run. A loop that does not
        # run any more would never pass the signal on.
        is_ours = os.getpid() == self._process and self._loop.is_running()
        if is_ours and not requests.is_signalled:
            requests.is_signalled = True
            requests.first_signal = partial(self._pass_on, number, None)
            self._loop.call_soon_threadsafe(self._shut_down)
        else:
            if is_ours:
                self._loop.call_soon_threadsafe(requests.shorten_grace_period)
            requests.pass_on_first_signal()
            self._pass_on(number, frame)

    def _shut_down(self) -> None:
        self._task = self._loop.create_task(self._requests.finish(self._grace))
        self._task.add_done_callback(lambda task: self._requests.pass_on_first_signal())

    def _pass_on(self, number: int, frame: Any) -> None:
        if callable(self.before):
            self.before(number, frame)
        else:
            signal.signal(number, self.before)
            signal.raise_signal(number)


def install_signal_handlers(requests: OpenRequests) -> None:
    """Install the signal handlers in front of the existing ones; do nothing in other threads.

    Only the main thread can install handlers. Elsewhere, ASGI lifespan events start the shutdown. A
    signal that the process ignores stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name, grace in GRACE_SECONDS.items():
        if (number := getattr(signal, name, None)) is not None:
            before = signal.getsignal(number)
            if isinstance(before, ShutdownSignalHandler):
                # Of an event loop that ran before in this thread, and does not run any more.
                before = before.before
            if before not in (signal.SIG_IGN, None):
                signal.signal(number, ShutdownSignalHandler(requests, before, grace))
