"""
The stream of change notifications that ``subscriptions/listen`` holds open over HTTP.

The acknowledgement is the first message, and every later change that matches is sent. If the server
ends the subscription, "the server MUST send ``notifications/cancelled``", and then the result. A
token that was revoked ends the subscription before the next notification, and so does its expiry,
as it was when the subscription began. If the verifier cannot tell which tokens were revoked, it
verifies the token again, at most every ``VERIFIED_SECONDS`` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ...auth.principal import ANONYMOUS
from ...changes.permission_rechecks import rechecks
from ...changes.subscriptions import (
    BUSY_RETRY_SECONDS,
    SubscriptionFilter,
    followed_models,
    listener_registry,
)
from ...exceptions import Busy
from ...protocol.connection import Connection
from ...protocol.jsonrpc import JSON, Id
from .authentication import expiry_of, still, until

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from .request import Exchange

logger = logging.getLogger("django_mcp")
MAX_LISTENS = 10_000  # subscriptions in one process
MAX_ANONYMOUS_LISTENS = 7_500  # of them, of all anonymous clients: users with a token need the rest
MAX_LISTENS_PER_PRINCIPAL = 1_000  # of them, of one principal, or of one network without a token
MAX_REQUEST_BYTES = 300_000  # bytes of the request: it stays in memory as long as the subscription
VERIFIED_SECONDS = 5.0  # seconds for which a token that was verified is not verified again


class ListenResponse:
    """One ``subscriptions/listen`` over HTTP, as a listener of ``changes.subscriptions``."""

    # Open subscriptions in this process, by ``Principal.limit_keys``.
    open: Counter[tuple[str, ...]] = Counter()

    def __init__(
        self,
        exchange: Exchange,
        connection: Connection,
        who: Callable[[], Awaitable[Principal]],
        say: Callable[[JSON], None],
    ) -> None:
        self._exchange = exchange
        self.listening = SubscriptionFilter(exchange.server, connection, who, say, exchange.host)
        self._known = time.monotonic()  # when the caller's token was last verified

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str]) -> None:
        """Acknowledge, and return when either side ends the subscription or the token expires.

        Raise ``Busy`` if there are too many subscriptions.
        """
        owner = self._exchange.principal.limit_keys
        if self.open[owner] >= MAX_LISTENS_PER_PRINCIPAL or self._is_full(owner[0]):
            raise Busy("There are too many listens.")
        self.open[owner] += 1
        self.listening.set_principal(self._exchange.principal)
        listener_registry().add(self)
        # The listener is registered before the acknowledgement. Changes between the two would be
        # lost otherwise.
        try:
            await listener_registry().follow(self, *followed_models(wanted, places))
            rechecks().attend()
            with until(expiry_of(self._exchange.principal), self.end):
                await self.listening.listen(id, wanted, places)
        finally:
            listener_registry().remove(self)
            # The operator drops counts of 0, so that the counter does not grow with each principal.
            ListenResponse.open -= Counter((owner,))

    def _is_full(self, owner: str) -> bool:
        """Whether the process has too many subscriptions for another one of ``owner``."""
        if owner == ANONYMOUS:
            theirs = sum(count for keys, count in self.open.items() if keys[0] == ANONYMOUS)
            if theirs >= MAX_ANONYMOUS_LISTENS:
                return True
        return self.open.total() >= MAX_LISTENS

    def end(self) -> None:
        """End the subscription from the server's side, and notify the client."""
        self.listening.end()

    # What a listener of ``changes.subscriptions`` implements.

    @property
    def principal(self) -> Principal:
        return self._exchange.principal

    def renew(self, principal: Principal) -> None:
        self._exchange.principal = principal

    def complete(self, id: str) -> None:
        """Do nothing: in this revision the result names the page, and no notification follows."""

    async def is_token_valid(self) -> bool:
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
                logger.exception(
                    "Notifications postponed: the token of a listener cannot be verified"
                )
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            else:
                self._known = time.monotonic()
        return True
