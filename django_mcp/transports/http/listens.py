"""
A stream of what changes, held open by ``subscriptions/listen`` over HTTP.

Rule: it is acknowledged before anything else, hears of everything from then
on, and ends in words where it is this side that ends it: "the server MUST send
``notifications/cancelled``", then the result. It tells nothing to a token that
is no longer valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ... import threads
from ...dispatch.announcements import listen, stop_listening
from ...dispatch.bulletins import Bulletin
from ...dispatch.hearing import hearers, interest
from ...dispatch.listening import BUSY_PAUSE, Listening
from ...dispatch.rechecks import rechecks
from ...dispatch.revocations import renewed
from ...exceptions import Busy
from ...protocol.connection import Connection
from ...protocol.jsonrpc import JSON, Id
from .callers import still
from .expiry import expiry_of, until

if TYPE_CHECKING:
    from ...principal import Principal
    from .exchanges import Exchange

logger = logging.getLogger("django_mcp")
MAX_LISTENS = 10_000  # in one process
MAX_EACH = 1_000  # of them of one principal; nobody in particular is one
MAX_SIZE = 300_000  # bytes of a request to listen: it stays in memory as long as the listen
FRESH = 5.0  # seconds for which a token, once found valid, is taken to be


class Listens:
    """What one ``subscriptions/listen`` hears."""

    open: Counter[str] = Counter()  # in this process, by principal

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        who: Callable[[], Awaitable[Principal]],
        say: Callable[[JSON], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self.listening = Listening(exchange.server, connection, who, say, exchange.host)
        self._telling: asyncio.Task[None] | None = None
        self._known = time.monotonic()  # when the caller's token was looked at

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str]) -> None:
        """Acknowledge, and stay until either side ends it, or the caller's token does."""
        owner = self._exchange.principal.key
        if self.open[owner] >= MAX_EACH or self.open.total() >= MAX_LISTENS:
            raise Busy("There are too many listens.")
        self.open[owner] += 1
        self.listening.recognise(self._exchange.principal)
        listen(self)
        try:  # before the acknowledgement: nothing may fall between
            await hearers().admit(self, *interest(wanted, places))
            rechecks().attend()
            with until(expiry_of(self._exchange.principal), self.end):
                await self.listening.listen(id, wanted, places)
        finally:
            stop_listening(self)
            hearers().dismiss(self)
            Listens.open -= Counter((owner,))  # who has none any more is forgotten
            if self._telling is not None:
                self._telling.cancel()

    def end(self) -> None:
        """Close it from this side, and say so."""
        self.listening.end()

    # What it hears (``hearing.Ear``).

    @property
    def principal(self) -> Principal:
        return self._exchange.principal

    def renew(self, principal: Principal) -> None:
        self._exchange.principal = principal

    def complete(self, id: str) -> None:
        """Its client was told by the answer where to go, and is not waited for."""

    def hear(self, server: str, news: Bulletin) -> None:
        """Pass an announcement on; from any thread."""
        if server == self._exchange.server.name:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._heard, news)

    def _heard(self, news: Bulletin) -> None:
        if self.listening.take(news):
            self._telling = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        if await self.is_welcome() and await self._is_anybody():
            await self.listening.tell()
        else:
            self.end()

    async def _is_anybody(self) -> bool:
        """Be told as who its user is now: of the one before, what it may do is known already."""
        fresh, _ = await threads.lookups.run(renewed, {self: self.principal})
        if self in fresh:
            self.renew(fresh[self])
        return self in fresh

    async def is_welcome(self) -> bool:
        """Whether its token still is what it was: looked at before something is told, if at all."""
        while time.monotonic() - self._known > FRESH:
            try:
                if not await still(self._exchange):
                    return False
            except Busy:
                await asyncio.sleep(BUSY_PAUSE)
            except Exception:
                logger.exception("Nobody knows who listens, and so nothing is told for now")
                await asyncio.sleep(BUSY_PAUSE)
            else:
                self._known = time.monotonic()
        return True
