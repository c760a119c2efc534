"""
Tokens of an issuer elsewhere that only it can read: it is asked about each (RFC 7662).

Rule: a token goes to the issuer in the body of a POST, and nowhere else; it is remembered by its
digest, for seconds. Where the issuer does not answer, nobody can tell, and no token is taken. What
is plainly another's token is not shown to it.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ..exceptions import Busy
from . import claims as said
from .discovery import Discovery
from .fetching import Unanswered, fetch
from .flights import UNKNOWN, Flights
from .issued import FindUser, IssuedTokens, checked
from .unread import is_of_others

if TYPE_CHECKING:
    from ..declare.servers import Server

REMEMBERED = 1_000  # answers
LONGEST_MEMORY = 60.0  # seconds
RECHECKED = timedelta(minutes=5)  # after which what is open has to show its token again
logger = logging.getLogger("django_mcp")


class IntrospectedTokens(IssuedTokens):
    """The ``TokenVerifier`` of tokens that one issuer is asked about.

    ``client_id`` and ``client_secret`` are those by which this project may ask it. ``issuer``,
    ``user``, ``audience``, ``scopes`` and ``ask`` are as for ``JWTTokens``, the claims being what
    the issuer answers; ``endpoint`` is for issuers whose metadata does not tell it. An answer is
    good for ``memory`` seconds, at most 60: so long a token goes on that was revoked.

    Put it at the end of ``VERIFIERS``: what nobody before it knows is sent to the issuer. Raises
    ``ImproperlyConfigured``. ``verify`` raises ``Busy`` where the issuer does not answer.
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        user: FindUser,
        audience: str | None = None,
        scopes: Collection[str] = (),
        ask: Sequence[str] | None = None,
        endpoint: str | None = None,
        memory: float = 5.0,
    ) -> None:
        super().__init__(issuer, user=user, audience=audience, scopes=scopes, ask=ask)
        if not (client_id and client_secret) or not 0 <= memory <= LONGEST_MEMORY:
            raise ImproperlyConfigured("client_id and client_secret are needed, memory is 0 to 60.")
        self._endpoint = checked(endpoint, "endpoint") if endpoint is not None else None
        self._authorization = _basic(client_id, client_secret)
        self._discovery, self._memory = Discovery(issuer), Memory(memory)
        self._flights: Flights[dict[str, Any]] = Flights()

    async def _read(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        if is_of_others(token, self.issuer):
            return None
        answer = await self._answer(token)
        if answer.get("active") is not True:
            return None
        now = timezone.now()
        ends = said.expiry(answer) if "exp" in answer else now + RECHECKED
        if ends <= now:
            raise said.NoToken("it has expired")
        return answer, min(ends, now + RECHECKED)

    def _wrong(self, claims: said.Claims, server: Server) -> str | None:
        if claims.get("iss", self.issuer) != self.issuer:
            return "it is another issuer's"
        return super()._wrong(claims, server)

    async def _answer(self, token: str) -> dict[str, Any]:
        digest = hashlib.sha256(token.encode()).hexdigest()
        if (kept := self._memory.get(digest)) is not None:
            return kept
        try:
            return await self._flights.run(digest, lambda: self._ask(token, digest))
        except Unanswered as error:
            logger.warning("%s does not tell of tokens: %s", self.issuer, error)
            raise Busy(UNKNOWN) from None

    def _ask(self, token: str, digest: str) -> dict[str, Any]:
        """In a thread."""
        form = {"token": token, "token_type_hint": "access_token"}
        endpoint = self._endpoint or self._discovery.endpoint("introspection_endpoint")
        began = time.monotonic()
        answer = fetch(endpoint, form, self._authorization)
        self._memory.keep(digest, answer, began)
        return answer


def _basic(client_id: str, secret: str) -> str:
    """RFC 6749, 2.3.1: each is encoded first, and then both as HTTP has it."""
    both = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(both.encode()).decode()}"


class Memory:
    """What was answered, for some seconds after it was asked; the oldest goes for the newest."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[str, tuple[dict[str, Any], float]] = {}
        self._lock = threading.Lock()

    def get(self, digest: str) -> dict[str, Any] | None:
        answer, asked = self._kept.get(digest, (None, 0.0))
        return answer if time.monotonic() - asked < self._seconds else None

    def keep(self, digest: str, answer: dict[str, Any], asked: float) -> None:
        with self._lock:
            self._kept.pop(digest, None)
            self._kept[digest] = answer, asked
            while len(self._kept) > REMEMBERED:
                del self._kept[next(iter(self._kept))]
