"""Listens of the stateless revision: notified of rows that others save."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from ..calls import ExpectedCall, perform
from ..client import Address, Answer, Broken, request
from ..context import pause
from ..expectation import JSON
from ..reading import Plan
from ..sessions import ACCEPT, NEWEST
from ..sse import Parser
from ..stateless import META, REVISION
from ..virtual_client import VirtualClient

TOLD, SILENCE = 20.0, 0.05  # seconds in which it is told, and between two looks
TRIES, SAVES = 8, 3
METHOD = "subscriptions/listen"


class Listen:
    """One listen request, from its acknowledgement to its end."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.said: list[JSON] = []
        self.is_over = False
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        parser = Parser()
        try:
            async for piece in self._answer.pieces():
                self.said += [json.loads(event.data) for event in parser.feed(piece) if event.data]
        except Broken:
            pass
        finally:
            self.is_over = True

    def told(self, uri: str) -> int:
        """Return how often it was notified of the URI."""
        found = [one for one in self.said if one.get("method") == "notifications/resources/updated"]
        return sum(one["params"].get("uri") == uri for one in found)

    async def until(self, test: Any, seconds: float) -> bool:
        """Return whether ``condition`` becomes true in time, before the stream ends."""
        end = time.monotonic() + seconds
        while True:
            if test() or self.is_over or time.monotonic() >= end:
                return bool(test())
            await asyncio.sleep(SILENCE)

    def close(self) -> None:
        self._answer.cut(reset=False)
        self.task.cancel()


async def hear(person: VirtualClient) -> None:
    """Save a row at one worker. A listen request at another must be notified."""
    session = await person.session(NEWEST)
    who = f"l-{session.name.replace('.', '-')}"
    saved = 0
    for attempt in range(TRIES):
        if not await _save(person, session, who):
            continue
        here = person.rng.choice(person.context.workers)
        if (listen := await _begun(person, here, f"note://{who}")) is None:
            continue
        try:
            saved += await _heard(person, session, listen, who)
        finally:
            listen.close()
            times = listen.told(f"note://{who}")
            person.context.findings.record_reported_effect(
                f"listen {attempt} to {who}", f"note {who}", times
            )
        if saved >= SAVES:
            break
    person.context.findings.count_fault("listen", injected=1, observed=int(saved > 0))


async def _begun(person: VirtualClient, here: Address, uri: str) -> Listen | None:
    """Open a listen request. Return None if the worker is not available or shuts down."""
    params = {"_meta": META, "notifications": {"resourceSubscriptions": [uri]}}
    message = {"jsonrpc": "2.0", "id": person.rng.randrange(10**9), "method": METHOD}
    headers = {
        "accept": ACCEPT, "content-type": "application/json", "mcp-method": METHOD,
        "mcp-protocol-version": REVISION, "authorization": f"Bearer {person.secret}",
    }  # fmt: skip
    try:
        body = json.dumps(message | {"params": params}).encode()
        answer = await request(here, "POST", headers, body)
    except Broken:
        await pause(person.rng, 3)
        return None
    if not answer.is_stream:
        answer.cut(reset=False)
        return None
    listen = Listen(answer)
    if await listen.until(lambda: listen.said, TOLD):
        agreed = listen.said[0].get("params", {}).get("notifications", {})
        if uri in agreed.get("resourceSubscriptions", []):
            return listen
        person.context.findings.add("wrong", f"listen to {uri}: {str(listen.said[0])[:200]}")
    listen.close()
    return None


async def _save(person: VirtualClient, session: Any, who: str) -> bool:
    wanted = ExpectedCall("jot", person.seed(), {"who": who})
    _, issued = await perform(session, wanted, Plan())
    return issued.kind == "success"


async def _heard(person: VirtualClient, session: Any, listen: Listen, who: str) -> int:
    """Return how many saves it was notified of before it ended."""
    uri = f"note://{who}"
    for count in range(SAVES):
        before = listen.told(uri)
        if not await _save(person, session, who):
            return count
        seconds = TOLD + 5 * person.context.lease
        if not await listen.until(lambda before=before: listen.told(uri) > before, seconds):
            if listen.is_over:
                return count
            person.context.findings.add("lost", f"listen to {uri}: a save after {before} others")
            break
    return SAVES
