"""
The stream of change notifications that ``subscriptions/listen`` holds open over HTTP.

The acknowledgement is the first message, and every later change that matches is sent. If the server
ends the subscription, "the server MUST send ``notifications/cancelled``", and then the result. The
token is verified again before notifications are sent, at most every ``VERIFIED_SECONDS`` seconds. A
token that is no longer valid ends the subscription. Change sets arrive from any thread; all else
runs in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ...calls.revocations import renewed
from ...changes.change_set import ChangeSet
from ...changes.listeners import hearers, interest
from ...changes.permission_rechecks import rechecks
from ...changes.subscriptions import (
    BUSY_RETRY_SECONDS,
    SubscriptionFilter,
    start_listening,
    stop_listening,
)
from ...exceptions import Busy
from ...protocol.connection import Connection
from ...protocol.jsonrpc import JSON, Id
from ...runtime import threads
from .authentication import expiry_of, still, until

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from .request import Exchange

logger = logging.getLogger("django_mcp")
MAX_LISTENS = 10_000  # subscriptions in one process
MAX_LISTENS_PER_PRINCIPAL = 1_000  # of them, of one principal; all anonymous clients count as one
MAX_REQUEST_BYTES = 300_000  # bytes of the request: it stays in memory as long as the subscription
VERIFIED_SECONDS = 5.0  # seconds for which a token that was verified is not verified again


class ListenResponse:
    """One ``subscriptions/listen`` over HTTP, as a listener of ``changes.listeners``."""

    open: Counter[str] = Counter()  # open subscriptions in this process, by principal's key

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        who: Callable[[], Awaitable[Principal]],
        say: Callable[[JSON], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self.listening = SubscriptionFilter(exchange.server, connection, who, say, exchange.host)
        self._telling: asyncio.Task[None] | None = None
        self._known = time.monotonic()  # when the caller's token was last verified

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str]) -> None:
        """Acknowledge, and return when either side ends the subscription or the token expires.

        Raise ``Busy`` if there are too many subscriptions.
        """
        owner = self._exchange.principal.key
        if self.open[owner] >= MAX_LISTENS_PER_PRINCIPAL or self.open.total() >= MAX_LISTENS:
            raise Busy("There are too many listens.")
        self.open[owner] += 1
        self.listening.recognise(self._exchange.principal)
        start_listening(self)
        # The listener is registered before the acknowledgement. Changes between the two would be
        # lost otherwise.
        try:
            await hearers().admit(self, *interest(wanted, places))
            rechecks().attend()
            with until(expiry_of(self._exchange.principal), self.end):
                await self.listening.listen(id, wanted, places)
        finally:
            stop_listening(self)
            hearers().dismiss(self)
            # The operator drops counts of 0, so that the counter does not grow with each principal.
            ListenResponse.open -= Counter((owner,))
            if self._telling is not None:
                self._telling.cancel()

    def end(self) -> None:
        """End the subscription from the server's side, and notify the client."""
        self.listening.end()

    # What a listener of ``changes.listeners`` implements.

    @property
    def principal(self) -> Principal:
        return self._exchange.principal

    def renew(self, principal: Principal) -> None:
        self._exchange.principal = principal

    def complete(self, id: str) -> None:
        """Do nothing: in this revision the result names the page, and no notification follows."""

    def hear(self, server: str, news: ChangeSet) -> None:
        """Pass a change set on to the loop. Called from any thread."""
        if server == self._exchange.server.name:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._heard, news)

    def _heard(self, news: ChangeSet) -> None:
        if self.listening.take(news):
            self._telling = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        if await self.is_welcome() and await self._is_anybody():
            await self.listening.tell()
        else:
            self.end()

    async def _is_anybody(self) -> bool:
        """Reload the user, so that permissions are current; False if there is no such user now.

        The old user object has cached its permissions.
        """
        fresh, _ = await threads.lookups.run(renewed, {self: self.principal})
        if self in fresh:
            self.renew(fresh[self])
        return self in fresh

    async def is_welcome(self) -> bool:
        """Whether the caller's token is still valid; verify it at most every ``VERIFIED_SECONDS``.

        While the token cannot be verified, wait and try again: no notification is sent meanwhile.
        """
        while time.monotonic() - self._known > VERIFIED_SECONDS:
            try:
                if not await still(self._exchange):
                    return False
            except Busy:
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Nobody knows who listens, and so nothing is told for now")
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            else:
                self._known = time.monotonic()
        return True
