"""
The public keys of an issuer (RFC 7517), as this process knows them.

Rule: however many unknown keys are named, the issuer is asked once in a while. What was known is
good for a bounded time where the issuer cannot be asked; after that nobody can tell, and no token
is taken.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress

from ..exceptions import Busy
from .fetching import Unanswered, fetch
from .flights import UNKNOWN, Flights
from .signatures import Key, read_key

FRESH = 600.0  # seconds
KEPT = 14_400.0  # seconds, where no others can be had
PAUSE = 10.0  # seconds between two attempts
AT_MOST = 64  # keys that are looked at
TRIED = 4  # keys that one signature is tried with
logger = logging.getLogger("django_mcp")


class Keys:
    """Those of ``issuer``; ``place`` tells the URL, in a thread, or raises ``Unanswered``."""

    def __init__(self, issuer: str, place: Callable[[], str]) -> None:
        self.issuer, self._place = issuer, place
        self._flights: Flights[None] = Flights()
        self._known: tuple[list[Key], float] = ([], -math.inf)  # and when they were had
        self._tried = -math.inf  # when they were last asked for

    async def matching(self, algorithm: str, kid: str | None) -> list[Key]:
        """Those by which a signature may be, maybe none. Raises ``Busy`` if that cannot be told."""
        found = self._fitting(algorithm, kid)
        if not found or self._age() > FRESH:
            await self._look(patient=not (found and self._is_away()))
            found = self._fitting(algorithm, kid)
        if not found and self._age() > PAUSE:
            raise Busy(UNKNOWN)
        return found

    def _is_away(self) -> bool:
        """Whether the issuer did not answer when it was last asked."""
        return self._tried > self._known[1]

    def _age(self) -> float:
        return time.monotonic() - self._known[1]

    def _fitting(self, algorithm: str, kid: str | None) -> list[Key]:
        known = self._known[0] if self._age() <= KEPT else []
        return [key for key in known if key.fits(algorithm, kid)][:TRIED]

    async def _look(self, *, patient: bool) -> None:
        """Ask the issuer, unless that was done just now; and wait for what it says, or not."""
        if time.monotonic() - self._tried < PAUSE:
            return
        with suppress(Busy):
            if patient:
                await self._flights.run("keys", self._fetch)
            else:
                self._flights.begin("keys", self._fetch)

    def _fetch(self) -> None:
        try:
            found = fetch(self._place()).get("keys")
            if not isinstance(found, list):
                raise Unanswered("it has no keys")
        except Unanswered as error:
            logger.warning("The keys of %s cannot be had: %s", self.issuer, error)
            self._tried = time.monotonic()
        else:
            read = map(read_key, found[:AT_MOST])
            self._tried = time.monotonic()
            self._known = ([key for key in read if key is not None], self._tried)
