"""A client's session, and how a correct client repeats requests that get no response.

Idempotent requests are repeated until they succeed: the handshake, notifications, answers,
resumption and the end. Calls are not; their sender decides.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from .client import Address, Answer, Broken, request
from .context import CampaignContext, pause

JSON = dict[str, Any]
NEWEST = "2025-11-25"
PRIMING = frozenset((NEWEST,))  # revisions whose streams begin with an empty event
LATER = frozenset((429, 500, 502, 503, 504))  # "try again"
ACCEPT = "application/json, text/event-stream"
ALL: JSON = {"elicitation": {}, "sampling": {}, "roots": {}}


class Ended(Exception):
    """The session does not exist any more, or may not be used."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Session:
    """A client and its session. ``secret`` is its access token."""

    def __init__(
        self,
        context: CampaignContext,
        name: str,
        revision: str = NEWEST,
        *,
        secret: str | None = None,
        capabilities: JSON = ALL,
    ) -> None:
        self.context, self.name, self.revision, self.secret = context, name, revision, secret
        self.capabilities = capabilities
        self.rng = context.rng("session", name)
        self.id: str | None = None
        self.path: str | None = None  # where messages are posted; None: where all is
        self.primes = revision in PRIMING
        self.is_ended = False  # by this client, or by those who may
        self.renew: Callable[[], Awaitable[None]] | None = None  # the token, when it is refused
        self.refusals = 0
        self.places: Sequence[Address] = ()  # where alone it goes; anywhere else
        self._count = 0

    @property
    def headers(self) -> dict[str, str]:
        found = {"accept": ACCEPT, "content-type": "application/json"}
        if self.secret is not None:
            found["authorization"] = f"Bearer {self.secret}"
        if self.id is not None:
            found["mcp-session-id"] = self.id
            if self.revision > "2025-03-26":
                found["mcp-protocol-version"] = self.revision
        return found

    def next_id(self) -> int:
        self._count += 1
        return self._count

    def somewhere(self) -> Address:
        return self.rng.choice(self.places) if self.places else self.context.random_server(self.rng)

    # What may be repeated.

    async def open(self, to: Address | None = None) -> None:
        """Initialize the session, at any server that accepts it."""
        params = {
            "protocolVersion": self.revision, "capabilities": self.capabilities,
            "clientInfo": {"name": "checker", "version": "1"},
        }  # fmt: skip
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer, said = await self.repeated("POST", message, {200}, to=to)
        self.id = answer.headers.get("mcp-session-id")
        agreed = ((said or {}).get("result") or {}).get("protocolVersion")
        if self.id is None or agreed != self.revision:
            self._wrong(f"initialize was answered by {str(said)[:200]}")
        await self.notify("notifications/initialized", to=to)
        if self.rng.random() < 0.5:  # to be told which processes work on its calls
            level = {"jsonrpc": "2.0", "id": 1_000_000, "method": "logging/setLevel"}
            await self.repeated("POST", level | {"params": {"level": "info"}}, {200})

    async def notify(self, method: str, to: Address | None = None, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params}, to=to)

    async def say(self, message: Any, to: Address | None = None) -> None:
        """Send a notification or an answer until it is accepted."""
        await self.repeated("POST", message, {202}, to=to)

    async def close(self) -> None:
        """End the session. An earlier attempt whose response was lost may have ended it already."""
        already, self.is_ended = self.is_ended, True
        if self.id is not None and not already:
            with contextlib.suppress(Ended):
                await self.repeated("DELETE", None, {204, 200})

    async def resume(self, cursor: str | None, to: Address, **options: Any) -> Answer:
        """Try once to open a stream, or to resume it after ``cursor``. Raise ``Broken``."""
        more = {} if cursor is None else {"last-event-id": cursor}
        return await request(to, "GET", self.headers | more, **options)

    async def post(self, message: Any, to: Address | None = None) -> Answer:
        """Try once to send a message. Raise ``Broken``."""
        return await request(
            to or self.somewhere(), "POST", self.headers, json.dumps(message).encode(),
            path=self.path,
        )  # fmt: skip

    async def repeated(
        self, method: str, message: Any, wanted: set[int], to: Address | None = None
    ) -> tuple[Answer, Any]:
        """Send a request until its status is one of ``wanted``. Raise ``Ended``."""
        with self.context.waiting(lambda: f"{self.name}: {method} {_subject(message)}"):
            return await self._repeated(method, message, wanted, to)

    async def _repeated(
        self, method: str, message: Any, wanted: set[int], to: Address | None
    ) -> tuple[Answer, Any]:
        deadline = self.context.new_deadline()
        attempt = 0
        while not deadline.is_over:
            # The server of one's choice at first; whoever is there when it is not.
            target = to if to is not None and attempt < 2 else self.somewhere()
            if attempt and isinstance(message, dict) and "id" in message and "method" in message:
                message = message | {"id": self.next_id()}  # the first may be worked on still
            body = b"" if message is None else json.dumps(message).encode()
            try:
                answer = await request(target, method, self.headers, body, path=self.path)
                said = await answer.json()
            except Broken:
                deadline.count_failure()
            else:
                if answer.status in wanted:
                    return answer, said
                await self.check(answer.status, said, f"{method} {_subject(message)}")
                deadline.count_failure()
            attempt += 1
            await pause(self.rng, attempt)
        self.context.findings.add(
            "hanging", f"{self.name}: nobody takes {method} {_subject(message)}"
        )
        raise Ended(0)

    # What a status means.

    async def check(self, status: int, said: Any, what: str) -> None:
        """Return if the request may be repeated. Else raise ``Ended``, and report the status."""
        self.context.findings.counts[f"status {status}"] += 1
        if status in LATER:
            if status == 500 and self.context.is_quiet:
                self._wrong(f"{what} was answered by 500: {str(said)[:200]}")
            return
        if status == 401 and self.renew is not None:
            self.refusals += 1
            return await self.renew()
        if not (status in (401, 404) and self.is_ended):
            self._wrong(f"{what} was answered by {status}: {str(said)[:200]}")
        raise Ended(status)

    def _wrong(self, what: str) -> None:
        self.context.findings.add("wrong", f"{self.name} ({self.revision}): {what}")


def _subject(message: Any) -> str:
    if isinstance(message, dict):
        return str(message.get("method") or f"answer {message.get('id')}")
    return ""
