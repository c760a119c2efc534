"""Wake-ups: tell stream readers, in this process and in others, that events were committed.

``wake_readers`` may be called from any thread. It wakes the readers of each event loop through
that loop's ``StreamWakeups``, and sends the ids of the streams to other processes through one
``ChannelLayerConnection``. That uses the project's channel layer, or LISTEN and NOTIFY
(``postgres_layer``) if the session database is PostgreSQL and no layer is configured.

A wake-up is a hint and may be lost: the poller finds the same events in the database, only later.
So nothing waits for the channel layer, and wake-ups are dropped while it is down. The connection
tests itself by messages to itself. At the first failure it is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.crypto import salted_hmac

from ..conf import settings
from ..runtime import outages, threads
from ..runtime.runtime import Service
from .streams import StreamState

logger = logging.getLogger("django_mcp.storage")
LAYER, KIND = "default", "mcp.wakeup"
MAX_STREAMS_PER_MESSAGE = 1_000
MAX_WAITING_STREAMS = 10_000  # that wait to be sent
MESSAGE_INTERVAL_SECONDS = 0.01  # between two messages: wake-ups of that time share one
PROBE_INTERVAL_SECONDS = 5.0  # between two tests of the connection
OPERATION_TIMEOUT_SECONDS = 2.0  # until an operation of the layer counts as failed
RECONNECT_SECONDS = 1.0  # between a failure and the next attempt to connect
SECOND_LOSS_SECONDS = 10.0  # after a failure, within which a second one is logged as a warning
SILENT_CHANNEL_SECONDS = 60.0  # without a message, after which a channel leaves the group
MAX_CHANNELS = 1_000  # that are remembered
MAX_CHANNEL_NAME_LENGTH = 100  # characters
# The method that closes the connections of each layer class. It is called for these classes only,
# because ``flush`` of other layers deletes data in Redis.
CLOSING = {
    "RedisChannelLayer": "close_pools",
    "RedisPubSubChannelLayer": "flush",
    "PostgresLayer": "close_pools",
}

Layer = Any  # of channels: it has no types


def is_configured() -> bool:
    """Whether the project configures a default channel layer, even one that is in memory."""
    return LAYER in (getattr(project, "CHANNEL_LAYERS", None) or {})


def is_postgres() -> bool:
    """Whether the session database is PostgreSQL, which has LISTEN and NOTIFY."""
    alias = settings.DATABASE
    return alias in connections and connections[alias].vendor == "postgresql"


def group() -> str:
    """Return the name of the group of all processes that share this session database.

    It is derived from ``SECRET_KEY``, so that two projects on one channel layer do not mix.
    """
    digest = salted_hmac("django_mcp.storage.wakeups", settings.DATABASE, algorithm="sha256")
    return f"mcp.{digest.hexdigest()[:32]}"


class ChannelLayerConnection:
    """The connection of one event loop to other processes, through a channel layer.

    ``open`` takes two callbacks: ``on_wakeup`` is called with the stream ids of each wake-up that
    is received, and ``on_loss`` when the connection fails, as wake-ups may have been lost.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sender_id = uuid.uuid4().hex
        self._on_wakeup: Callable[[Collection[int]], None] = lambda streams: None
        self._on_loss: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None  # the task that ``stop`` cancelled
        self._waiting: set[int] = set()  # the streams of the next message
        self._has_waiting, self._test_returned = asyncio.Event(), asyncio.Event()
        self._test_number = 0
        self._channels: dict[str, float] = {}  # other channels, and when each sent its last message
        self.is_working = False  # whether the latest test message came back
        self._is_lost = False  # whether a failure was logged, and not yet its end
        self._is_unusable = False  # whether reconnecting would not help
        self._is_in_database = False  # whether it is a connection to the session database
        self._lost_at = -math.inf  # when it failed last (monotonic clock)
        self.description, self.last_error = "channel layer", ""  # for log messages

    @property
    def is_open(self) -> bool:
        return self._task is not None and not self._task.done()

    def open(
        self,
        on_wakeup: Callable[[Collection[int]], None],
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_wakeup, self._on_loss = on_wakeup, on_loss
        if not self.is_open and not self._is_unusable and (is_configured() or is_postgres()):
            self._task = self._loop.create_task(self._run())

    def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._stopping = task
            task.cancel()

    async def close(self) -> None:
        """Stop, and wait for at most half a second until the connections are closed."""
        self.stop()
        if self._stopping is not None:
            await asyncio.wait([self._stopping], timeout=OPERATION_TIMEOUT_SECONDS / 4)

    def send(self, streams: Iterable[int]) -> None:
        """Send wake-ups for these streams with the next message. Call it in the event loop."""
        if len(self._waiting) < MAX_WAITING_STREAMS:
            self._waiting.update(streams)
            self._has_waiting.set()

    # Connecting and testing.

    async def _run(self) -> None:
        # With an eager task factory this runs before ``open`` has assigned ``_task``.
        await asyncio.sleep(0)
        # An error that is raised while the task is cancelled replaces the CancelledError, so
        # each round checks whether this is still the current task.
        while self._task is asyncio.current_task() and not self._is_unusable:
            layer = None
            try:
                layer = await threads.log.run(_create_layer)
                if layer is None:
                    return
                self.description = getattr(layer, "description", self.description)
                self._is_in_database = getattr(layer, "is_in_database", False)
                await self._serve(layer)
            except* ImproperlyConfigured as errors:  # retrying would not help
                self._give_up(errors)
            except* Exception as errors:
                self._note_failure(errors)
            finally:
                self.is_working = False
                await _close_layer(layer)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _serve(self, layer: Layer) -> None:
        """Send and receive until something fails. Raise what failed."""
        self._waiting.clear()
        self._has_waiting.clear()
        async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
            channel = await layer.new_channel("mcp")
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._renew_and_test, self._receive, self._send):
                    tasks.create_task(work(layer, channel))
        finally:
            await _leave_group(layer, channel)

    def _give_up(self, errors: BaseExceptionGroup[ImproperlyConfigured]) -> None:
        self.last_error, self._is_unusable = str(_first(errors)), True
        logger.warning("%s; the database is polled more often instead", self.last_error)

    def _note_failure(self, errors: BaseExceptionGroup[Exception]) -> None:
        error = _first(errors)
        self.last_error = f"{type(error).__name__} {error}".strip()
        if self._is_lost:
            return
        if self._should_warn():
            words = "Wake-ups do not arrive, the database is polled more often: by=%s error=%s"
            logger.warning(words, self.description, self.last_error)
            self._is_lost = True
        else:
            logger.debug(
                "Wake-ups lost, the connection is opened again: by=%s error=%s",
                self.description,
                self.last_error,
            )
        # If the whole database is away, the poll that follows notices it, and logs that, before the
        # second failure.
        self._on_loss()

    def _should_warn(self) -> bool:
        """Whether a failure says more than the log message about an outage of the database."""
        before, self._lost_at = self._lost_at, time.monotonic()
        if not self._is_in_database:
            return True
        is_second = self._lost_at - before < SECOND_LOSS_SECONDS
        return is_second and settings.DATABASE not in outages.outage_log.failed

    def _note_success(self) -> None:
        if self._is_lost:
            logger.info("Wake-ups arrive again: by=%s", self.description)
        self.is_working, self._is_lost, self.last_error = True, False, ""

    async def _renew_and_test(self, layer: Layer, channel: str) -> None:
        """Renew the group membership, which layers expire, and check that a test message returns.

        Raise ``TimeoutError`` if it does not.
        """
        while True:
            self._test_number += 1
            self._test_returned.clear()
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
                await layer.group_add(group(), channel)
                await self._remove_silent_channels(layer)
                await layer.group_send(
                    group(), self._message(probe=self._test_number, channel=channel)
                )
                await self._test_returned.wait()
            self._note_success()
            await asyncio.sleep(PROBE_INTERVAL_SECONDS)

    async def _remove_silent_channels(self, layer: Layer) -> None:
        """Remove silent channels from the group, because each costs a message in every round."""
        silent = time.monotonic() - SILENT_CHANNEL_SECONDS
        for channel in [one for one, heard in self._channels.items() if heard < silent]:
            del self._channels[channel]
            # The name came in a message that anybody may have sent, and the layer may reject it.
            with suppress(TypeError, AssertionError):
                await layer.group_discard(group(), channel)

    # Sending and receiving.

    async def _send(self, layer: Layer, channel: str) -> None:
        most = min(MAX_STREAMS_PER_MESSAGE, getattr(layer, "max_streams", MAX_STREAMS_PER_MESSAGE))
        while True:
            await self._has_waiting.wait()
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
                await layer.group_send(group(), self._message(streams=self._take_waiting(most)))
            await asyncio.sleep(MESSAGE_INTERVAL_SECONDS)

    def _take_waiting(self, most: int) -> list[int]:
        """Remove and return the streams of the next message."""
        ordered = list(self._waiting)
        self._waiting = set(ordered[most:])
        if not self._waiting:
            self._has_waiting.clear()
        return ordered[:most]

    def _message(self, **more: object) -> dict[str, object]:
        return {"type": KIND, "by": self._sender_id, **more}

    async def _receive(self, layer: Layer, channel: str) -> None:
        while True:
            self._handle(await layer.receive(channel))

    def _handle(self, message: object) -> None:
        """Handle a message. It is not authenticated, so it can only cause a poll of rows."""
        if not isinstance(message, dict):
            return
        if message.get("by") == self._sender_id:
            if message.get("probe") == self._test_number:
                self._test_returned.set()
            return
        channel, streams = message.get("channel"), message.get("streams")
        if isinstance(channel, str) and len(channel) < MAX_CHANNEL_NAME_LENGTH:
            self._note_channel(channel)
        if isinstance(streams, list | tuple):
            ids = [one for one in streams[:MAX_STREAMS_PER_MESSAGE] if type(one) is int]
            if ids:
                self._on_wakeup(ids)

    def _note_channel(self, channel: str) -> None:
        if channel in self._channels or len(self._channels) < MAX_CHANNELS:
            self._channels[channel] = time.monotonic()


channel_layer = Service(ChannelLayerConnection)


def send_wakeups(streams: Collection[int], here: asyncio.AbstractEventLoop | None) -> None:
    """Send wake-ups for these streams to other processes, by one connection of this process.

    May be called from any thread; ``here`` is the running loop, if there is one.
    """
    if not streams:  # each message makes all other processes poll
        return
    open_connections = [
        (loop, connection) for loop, connection in channel_layer.instances() if connection.is_open
    ]
    for loop, connection in open_connections:
        if loop is here:
            connection.send(streams)
            return
    for loop, connection in open_connections:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(connection.send, streams)
            return


def _create_layer() -> Layer | None:
    """Return a new channel layer, or None if it cannot reach other processes.

    It has its own connections, so that it can be replaced after a failure. It is called in a
    thread, because importing a backend takes long.
    """
    if not is_configured():
        return _create_postgres_layer()
    from channels.layers import ChannelLayerManager, InMemoryChannelLayer

    try:
        layer = ChannelLayerManager().make_backend(LAYER)
    except Exception:
        logger.exception("The channel layer cannot be created")
        return None
    return None if isinstance(layer, InMemoryChannelLayer) else layer


def _create_postgres_layer() -> Layer | None:
    try:
        from . import postgres_layer
    except ImportError:  # psycopg2, which has no asyncio connections
        logger.info("LISTEN and NOTIFY are not used: they need psycopg 3")
        return None
    return postgres_layer.PostgresLayer(postgres_layer.params_of(settings.DATABASE), group())


def _first(errors: BaseExceptionGroup[Exception]) -> BaseException:
    """Return the first error of a possibly nested group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _leave_group(layer: Layer, channel: str) -> None:
    with suppress(Exception):
        async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS / 4):
            await layer.group_discard(group(), channel)


async def _close_layer(layer: Layer) -> None:
    names = {cls.__name__ for cls in type(layer).__mro__}
    for how in (CLOSING[name] for name in names & CLOSING.keys()):
        with suppress(Exception):
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS / 4):
                await getattr(layer, how)()


Event = tuple[int, str]  # its number in the stream, and its message
CHANGES_STREAM_ID = 0  # the stream id in wake-ups for changes of the project's rows


@dataclass(frozen=True, slots=True)
class StreamWakeup:
    """A wake-up for one stream, with its new events if this process has committed them."""

    stream: int
    events: Sequence[Event] = ()
    changed: bool = False  # the reader must read the rows
    closed: bool = False  # the stream is closed, and ``events`` has its last one
    reader: int = 0  # the number of the connection that reads the stream now; 0: not known


class WakeupListener(Protocol):
    """The interface of a stream reader that is woken.

    ``stream_reader.StreamReader`` implements it.
    """

    session: int
    stream: int
    idle_since: float  # when it last returned events or a keep-alive (monotonic clock)
    may_return: bool

    def wake(self, wakeup: StreamWakeup) -> None: ...

    def update_state(self, state: StreamState | None) -> None: ...

    def send_keepalive(self) -> None: ...

    def release(self) -> None: ...


class StreamWakeups:
    """The stream readers of one event loop, by stream."""

    def __init__(self) -> None:
        self._at: dict[int, tuple[WakeupListener, ...]] = {}
        self._on_change: Callable[[], None] | None = None
        # Of the four threads for the log at most three read, so that one is free to write.
        self.reads = asyncio.Semaphore(3)

    def __bool__(self) -> bool:
        return bool(self._at)

    def __iter__(self) -> Iterator[WakeupListener]:
        return (one for listed in list(self._at.values()) for one in listed)

    def streams(self) -> list[int]:
        return list(self._at)

    def register(self, one: WakeupListener) -> None:
        self._at[one.stream] = (*self._at.get(one.stream, ()), one)

    def forget(self, one: WakeupListener) -> None:
        left = tuple(other for other in self._at.get(one.stream, ()) if other is not one)
        if left:
            self._at[one.stream] = left
        else:
            self._at.pop(one.stream, None)

    def at(self, stream: int) -> tuple[WakeupListener, ...]:
        return self._at.get(stream, ())

    @property
    def follows_changes(self) -> bool:
        return self._on_change is not None

    def follow_changes(self, on_change: Callable[[], None] | None) -> None:
        """Call ``on_change`` in this loop when rows of the project changed. None ends that."""
        self._on_change = on_change

    def deliver(self, wakeups: Sequence[StreamWakeup]) -> None:
        for wakeup in wakeups:
            if wakeup.stream == CHANGES_STREAM_ID and self._on_change is not None:
                self._on_change()
            for one in self.at(wakeup.stream):
                one.wake(wakeup)


stream_wakeups = Service(StreamWakeups)


def wake_readers(*wakeups: StreamWakeup) -> None:
    """Wake the readers of these streams in all loops and processes. Call from any thread."""
    try:
        here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    for loop, readers in stream_wakeups.instances():
        if loop is here:
            readers.deliver(wakeups)
        elif readers or readers.follows_changes:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(readers.deliver, wakeups)
    send_wakeups([wakeup.stream for wakeup in wakeups], here)


def wake_for_changes() -> None:
    """Wake the tasks that poll the change logs, in all processes. Call from any thread."""
    wake_readers(StreamWakeup(CHANGES_STREAM_ID, changed=True))
