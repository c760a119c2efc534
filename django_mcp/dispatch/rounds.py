"""
What one round of a call hands to the next, where the client carries it.

Rule: ``requestState`` is attacker-controlled input. It is sealed, bound to the
principal, the method, the target and the arguments, and has a lifetime; what
does not open is refused (basic/patterns/mrtr, server requirements). An answer
belongs to the exact question: the key on the wire leads to its digest, and the
digest to the answer.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..declare.cursors import digest, opened, seal
from ..declare.questions import Question
from ..declare.requests import Answers
from ..exceptions import ToolError
from ..protocol.events import Call
from ..protocol.jsonrpc import JSON, InvalidParams
from ..protocol.revisions import decode_answer, encode_input_requests

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

MAX_STATE = 1_000_000
Asking = tuple[str, str, Question]  # its key on the wire, its digest, the question


@dataclass
class Rounds:
    """A call's memory: which answers it has, what it asked, how far it was."""

    id: str = field(default_factory=lambda: secrets.token_hex(16))
    known: dict[str, JSON] = field(default_factory=dict)
    asked: dict[str, list[str]] = field(default_factory=dict)  # key: [digest, method]
    high_water: float | None = None
    count: int = 0
    has_steps: bool = False  # whether ``once`` has done anything

    @property
    def may_return(self) -> bool:
        """Whether a client was given a state by which the call can come back."""
        return self.count > 0

    def answers(self, call: Call) -> Answers:
        """The answers a run starts with: those from before, and those that came now."""
        named: dict[str, JSON] = {}
        for key, response in (call.input_responses or {}).items():
            wanted = self.asked.get(key)
            if wanted is None:
                named[key] = {"result": response}
            elif answer := _decoded(call, wanted[1], response):
                self.known[wanted[0]] = answer
        return Answers(known=dict(self.known), named=named)

    def ask(self, call: Call, asking: dict[str, Asking], answers: Answers) -> JSON:
        """The result that asks. Raises ``ToolError`` after too many rounds."""
        self.next(answers)
        self.asked = {key: [digest, question.method] for key, digest, question in asking.values()}
        requests = {key: _placed(question, self.id, key) for key, _, question in asking.values()}
        return {
            "resultType": "input_required",
            "inputRequests": encode_input_requests(call.revision, requests),
        }

    def next(self, answers: Answers) -> None:
        """Keep what the run has looked at: an answer it asked past is stale."""
        self.count += 1
        if self.count > settings.QUESTION_ROUNDS:
            raise ToolError(f"The call asked more than {settings.QUESTION_ROUNDS} times.")
        self.known = {key: value for key, value in answers.known.items() if key in answers.used}


def _decoded(call: Call, method: str, response: Any) -> JSON | None:
    try:
        return {"result": decode_answer(call.revision, method, {}, response)}
    except InvalidParams:
        return None


def _placed(question: Question, id: str, key: str) -> JSON:
    """The question as it is sent, with the id of this asking where its URL wants one."""
    wire = question.wire()
    url = wire["params"].get("url")
    if url is None:
        return wire
    params = wire["params"] | {"url": url.replace("{elicitation_id}", f"{id}-{key}")}
    return wire | {"params": params}


# Sealing.


def purpose(call: Call, server: Server, principal: Principal) -> str:
    """What a call's state may be opened for: the same request, by the same principal."""
    target = call.params.get("name") or call.params.get("uri")
    arguments = call.params.get("arguments") or {}
    return "state:" + digest(server.name, principal.key, call.method, target, arguments)


def sealed(rounds: Rounds, purpose: str) -> str:
    """The state as the client carries it. Raises ``ToolError`` when it grows too large."""
    text = seal(asdict(rounds), purpose)
    if len(text) > MAX_STATE:
        raise ToolError("The answers are too large to go on with.")
    return text


def resumed(call: Call, purpose: str) -> Rounds:
    """The rounds so far, from what the client brings. Raises ``InvalidParams``."""
    if call.request_state is None:
        return Rounds()
    try:
        values = opened(
            call.request_state, purpose, seconds=settings.STATE_LIFETIME, limit=MAX_STATE
        )
    except ValueError as error:
        raise InvalidParams(f"requestState: {error}") from None
    return Rounds(**values)
