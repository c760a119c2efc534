"""
The doorbell's line to other processes: the project's channel layer, if it has one;
else PostgreSQL itself, where that keeps the log (``postgres``).

Rule: a message names streams and nothing else, and only ever means "look". What
is lost is seen by the poller, so nothing waits for the layer: a ring is left
with this loop, and while the layer is gone rings are dropped. The line is
believed to work while what it sends to itself comes back; at the first trouble
it is made anew, with connections of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from django.conf import settings as project
from django.db import connections
from django.utils.crypto import salted_hmac

from .. import threads
from ..conf import settings
from .jobs import PerLoop

logger = logging.getLogger("django_mcp")
LAYER, KIND = "default", "mcp.ring"
MOST, MOST_WAITING = 1_000, 10_000  # streams: in a message, and until there is one
GAP = 0.01  # seconds between two messages: what is rung meanwhile goes together
PROBING = 5.0  # seconds between two looks whether the line works
PATIENCE = 2.0  # seconds that anything may take
PAUSE = 1.0  # seconds, after trouble
SILENT = 60.0  # seconds after which a member that says nothing is taken off the group
MEMBERS, MOST_NAMED = 1_000, 100  # that are remembered, and characters of a name
# How a layer that is no longer used lets its connections go. (The ``flush`` of others deletes
# what is in Redis.)
CLOSING = {
    "RedisChannelLayer": "close_pools",
    "RedisPubSubChannelLayer": "flush",
    "PostgresLayer": "close_pools",
}

Layer = Any  # of channels: it has no types


class Hopeless(Exception):
    """There is no such line, and there will be none."""


def is_configured() -> bool:
    """Whether the project says what its line is; if that reaches nobody, so be it."""
    return LAYER in (getattr(project, "CHANNEL_LAYERS", None) or {})


def is_postgres() -> bool:
    """Whether the log is kept by a server that can ring by itself."""
    alias = settings.DATABASE
    return alias in connections and connections[alias].vendor == "postgresql"


def group() -> str:
    """The group of all processes that share this log: no other project's can be in it."""
    digest = salted_hmac("django_mcp.delivery.layers", settings.DATABASE, algorithm="sha256")
    return f"mcp.{digest.hexdigest()[:32]}"


class Line:
    """The line of one event loop. ``hear`` is told what other processes ring."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = uuid.uuid4().hex
        self._hear: Callable[[Collection[int]], None] = lambda streams: None
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None  # the one before
        self._waiting: set[int] = set()
        self._rung, self._answered = asyncio.Event(), asyncio.Event()
        self._probe = 0
        self._members: dict[str, float] = {}  # others, and when they were last heard
        self.is_prompt = False  # whether it works, as far as is known
        self._is_lost = self._is_hopeless = False
        self.called, self.trouble = "channel layer", ""  # what it is, and what was wrong with it

    @property
    def is_open(self) -> bool:
        return self._task is not None and not self._task.done()

    def open(self, hear: Callable[[Collection[int]], None]) -> None:
        self._hear = hear
        if not self.is_open and not self._is_hopeless and (is_configured() or is_postgres()):
            self._task = self._loop.create_task(self._run())

    def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._ending = task
            task.cancel()

    async def closed(self) -> None:
        """Come back when it is closed, soon."""
        self.close()
        if self._ending is not None:
            await asyncio.wait([self._ending], timeout=PATIENCE / 4)

    def say(self, streams: Iterable[int]) -> None:
        """Ring for these at other processes, soon; in this line's loop."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.update(streams)
            self._rung.set()

    # Keeping it up.

    async def _run(self) -> None:
        await asyncio.sleep(0)  # a task that begins eagerly is not known before
        # Trouble that comes with the word to end takes its place.
        while self._task is asyncio.current_task() and not self._is_hopeless:
            layer = None
            try:
                layer = await threads.log.run(_made)
                if layer is None:
                    return
                self.called = getattr(layer, "called", self.called)
                await self._serve(layer)
            except* Hopeless as trouble:
                self._give_up(trouble)
            except* Exception as trouble:
                self._lose(trouble)
            finally:
                self.is_prompt = False
                await _closed(layer)
            await asyncio.sleep(PAUSE)

    async def _serve(self, layer: Layer) -> None:
        """Until there is trouble, which is raised."""
        self._waiting.clear()
        async with asyncio.timeout(PATIENCE):
            channel = await layer.new_channel("mcp")
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._keep, self._receive, self._send):
                    tasks.create_task(work(layer, channel))
        finally:
            await _left(layer, channel)

    def _give_up(self, trouble: BaseExceptionGroup[Hopeless]) -> None:
        self.trouble, self._is_hopeless = str(_first(trouble)), True
        logger.warning("%s; rows are looked at more often instead", self.trouble)

    def _lose(self, trouble: BaseExceptionGroup[Exception]) -> None:
        why = _first(trouble)
        self.trouble = f"{type(why).__name__} {why}".strip()
        if not self._is_lost:
            words = "The %s does not work; rows are looked at more often instead: %s"
            logger.warning(words, self.called, self.trouble)
        self._is_lost = True

    def _find(self) -> None:
        if self._is_lost:
            logger.info("The %s works again", self.called)
        self.is_prompt, self._is_lost, self.trouble = True, False, ""

    async def _keep(self, layer: Layer, channel: str) -> None:
        """Join again and again, for the layer may forget; and see that what is sent comes back."""
        while True:
            self._probe += 1
            self._answered.clear()
            async with asyncio.timeout(PATIENCE):
                await layer.group_add(group(), channel)
                await self._shed(layer)
                await layer.group_send(group(), self._message(probe=self._probe, channel=channel))
                await self._answered.wait()
            self._find()
            await asyncio.sleep(PROBING)

    async def _shed(self, layer: Layer) -> None:
        """Take off the group who has died: each member is a message in every round."""
        silent = time.monotonic() - SILENT
        for channel in [one for one, heard in self._members.items() if heard < silent]:
            del self._members[channel]
            with suppress(TypeError, AssertionError):  # it never was the name of a channel
                await layer.group_discard(group(), channel)

    # What goes, and what comes.

    async def _send(self, layer: Layer, channel: str) -> None:
        most = min(MOST, getattr(layer, "most", MOST))
        while True:
            await self._rung.wait()
            async with asyncio.timeout(PATIENCE):
                await layer.group_send(group(), self._message(streams=self._rings(most)))
            await asyncio.sleep(GAP)

    def _rings(self, most: int) -> list[int]:
        """What goes into the next message."""
        ordered = list(self._waiting)
        self._waiting = set(ordered[most:])
        if not self._waiting:
            self._rung.clear()
        return ordered[:most]

    def _message(self, **more: object) -> dict[str, object]:
        return {"type": KIND, "by": self._name, **more}

    async def _receive(self, layer: Layer, channel: str) -> None:
        while True:
            self._take(await layer.receive(channel))

    def _take(self, message: object) -> None:
        """Heed a message. Anybody may have sent it: it is good for a look, and for no more."""
        if not isinstance(message, dict):
            return
        if message.get("by") == self._name:
            if message.get("probe") == self._probe:
                self._answered.set()
            return
        channel, streams = message.get("channel"), message.get("streams")
        if isinstance(channel, str) and len(channel) < MOST_NAMED:
            self._note(channel)
        if isinstance(streams, list | tuple):
            self._hear([one for one in streams[:MOST] if type(one) is int])

    def _note(self, channel: str) -> None:
        if channel in self._members or len(self._members) < MEMBERS:
            self._members[channel] = time.monotonic()


line = PerLoop(Line)


def tell(streams: Collection[int], here: asyncio.AbstractEventLoop | None) -> None:
    """Ring for these in other processes, by one line of this one; from any thread."""
    for loop, one in line.items():
        if one.is_open and loop is here:
            one.say(streams)
            return
    for loop, one in line.items():
        if one.is_open:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(one.say, streams)
                return


def _made() -> Layer | None:
    """A layer as the project's, with connections of its own; None if it reaches nobody else.

    In a thread: what it imports takes a while.
    """
    if not is_configured():
        return _by_postgres()
    from channels.layers import ChannelLayerManager, InMemoryChannelLayer

    try:
        layer = ChannelLayerManager().make_backend(LAYER)
    except Exception:
        logger.exception("The channel layer cannot be made")
        return None
    return None if isinstance(layer, InMemoryChannelLayer) else layer


def _by_postgres() -> Layer | None:
    try:
        from . import postgres
    except ImportError:  # another driver, which is none of asyncio's
        logger.info("There is no line through PostgreSQL: it needs psycopg 3")
        return None
    return postgres.PostgresLayer(postgres.params_of(settings.DATABASE), group())


def _first(trouble: BaseExceptionGroup[Exception]) -> BaseException:
    """What it was, of several at once."""
    why: BaseException = trouble
    while isinstance(why, BaseExceptionGroup):
        why = why.exceptions[0]
    return why


async def _left(layer: Layer, channel: str) -> None:
    with suppress(Exception):
        async with asyncio.timeout(PATIENCE / 4):
            await layer.group_discard(group(), channel)


async def _closed(layer: Layer) -> None:
    names = {cls.__name__ for cls in type(layer).__mro__}
    for how in (CLOSING[name] for name in names & CLOSING.keys()):
        with suppress(Exception):
            async with asyncio.timeout(PATIENCE / 4):
                await getattr(layer, how)()
