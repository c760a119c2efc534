"""A client of the stateless revision: a request is repeated when its connection breaks.

Streams are not resumed. Messages of a broken attempt do not count, but its effects may have
happened.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from .client import Address, Answer, Broken, request
from .context import CampaignContext, pause
from .expectation import JSON
from .reading import Cut
from .sessions import ACCEPT, LATER
from .sse import Parser

REVISION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
META = {
    PREFIX + "protocolVersion": REVISION,
    PREFIX + "clientCapabilities": {"elicitation": {}},
    PREFIX + "clientInfo": {"name": "checker", "version": "1"},
    PREFIX + "logLevel": "info",
}


@dataclass
class StatelessClient:
    """Sends requests of one client, each until it is answered."""

    context: CampaignContext
    rng: random.Random
    secret: str | None
    attempts: int = 0  # of the last request, which servers may have worked on
    began: float = field(default_factory=time.monotonic)
    place: Address | None = None  # of the last attempt
    said: list[str] = field(default_factory=list)  # progress, of attempts that were answered
    progress: list[float] = field(default_factory=list)

    async def call(self, label: str, params: JSON, cuts: list[Cut]) -> JSON | None:
        """Send a request until it has a response, and return it. None if there is none in time."""
        deadline, self.attempts = self.context.new_deadline(), 0
        count = 0
        while not deadline.is_over:
            cut = cuts.pop(0) if cuts else None
            response = await self.attempt(label, params, cut)
            if response is not None:
                return response
            deadline.count_failure()
            count += 1
            await pause(self.rng, count)
        self.context.findings.add("hanging", f"{label}: nobody answers")
        return None

    async def attempt(self, label: str, params: JSON, cut: Cut | None = None) -> JSON | None:
        """Try once. Return the response, or None if the request may be repeated."""
        self.context.findings.counts["calls"] += 1
        id, token = self.rng.randrange(10**9), f"t{self.rng.randrange(10**9)}"
        params = params | {"_meta": META | {"progressToken": token}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        try:
            self.place = self.context.random_server(self.rng)
            answer = await request(
                self.place, "POST", self._headers(params),
                json.dumps(message).encode(),
            )  # fmt: skip
            found = await self._messages(answer, cut)
        except Broken as broken:
            self.attempts += broken.sent
            return None
        if answer.status == 503:
            return None
        self.attempts += 1
        return self._response(label, answer, found, id, token)

    def _headers(self, params: JSON) -> dict[str, str]:
        found = {
            "accept": ACCEPT, "content-type": "application/json", "mcp-method": "tools/call",
            "mcp-protocol-version": REVISION, "mcp-name": params["name"],
        }  # fmt: skip
        return found | ({"authorization": f"Bearer {self.secret}"} if self.secret else {})

    async def _messages(self, answer: Answer, cut: Cut | None) -> list[JSON] | None:
        """Read the response, and return it. None if the connection was cut."""
        if not answer.is_stream:
            said = await answer.json()
            return [said] if isinstance(said, dict) else []
        parser, found, left = Parser(), list[JSON](), cut.after if cut else -1
        async for piece in answer.pieces():
            if 0 <= left < len(piece):
                answer.cut(reset=cut is not None and cut.reset)
                return None
            left -= len(piece) if left > 0 else 0
            found += [json.loads(event.data) for event in parser.feed(piece) if event.data]
            self.context.findings.counts["events"] += 1
        return found

    def _response(
        self, label: str, answer: Answer, found: list[JSON] | None, id: int, token: str
    ) -> JSON | None:
        findings = self.context.findings
        findings.counts[f"status {answer.status}"] += answer.status != 200
        if found is None or answer.status in LATER:
            return None
        responses = [one for one in found if "method" not in one and one.get("id") == id]
        if len(responses) != 1 or found[-1] is not responses[0]:
            kind = "lost" if not responses else "duplicated"
            findings.add(kind, f"{label}: {len(responses)} responses, status {answer.status}")
            return None
        if "retryAfter" in str(responses[0].get("error", {}).get("data")):
            return None  # the server is about to end
        told = [one["params"] for one in found if one.get("method") == "notifications/progress"]
        mine = [params for params in told if params["progressToken"] == token]
        if len(mine) != len(told):
            findings.add("wrong", f"{label}: progress of another call")
        self.said += [params.get("message", "") for params in mine]
        self.progress += [params["progress"] for params in mine]
        return responses[0]


def questions_of(response: JSON) -> dict[str, Any] | None:
    """Return the questions in a response by key, or None if it has no questions."""
    result = response.get("result") or {}
    return result.get("inputRequests", {}) if result.get("resultType") == "input_required" else None
