"""Questions to the client, and the state of a call between its runs.

``Interaction`` has the answers that a call has received so far. In revisions with
``input_required`` results the client carries it as ``requestState``. That is attacker-controlled
input. So the state is sealed, expires, and is bound to the principal, method, target and arguments
(basic/patterns/mrtr, server requirements). An answer belongs to one exact question: the key in the
request leads to the digest of the question, and the digest to the answer.

``PendingQuestions`` asks a client over a stdio connection by requests. A question has a random id,
a deadline and one answer. Answers that come twice, late or without a question are ignored. No
question is sent before ``notifications/initialized`` (basic/lifecycle).

``connection_of``, ``call_of`` and ``interaction_of`` load sessions and calls from their rows. The
rows are the whole state, so any process can continue a call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf import settings
from ..declarations.cursors import digest, seal, unseal
from ..declarations.questions import Question
from ..declarations.request import KnownAnswers
from ..exceptions import Busy, ToolError, Unsupported
from ..protocol.connection import Answered, ClientCall, Connection, Phase, State
from ..protocol.jsonrpc import JSON, InvalidParams, encode
from ..protocol.revisions import (
    Revision,
    decode_answer,
    encode_input_requests,
    encode_notification,
    encode_request,
)
from ..storage import sessions

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server
    from ..models import Call as Row
    from ..models import Session

MAX_STATE = 1_000_000  # characters of a sealed state
Asking = tuple[str, str, Question]  # the key in the message, the digest, the question


@dataclass
class Interaction:
    """The state of a call between its runs.

    ``known`` has answers by the digest of their question. ``asked`` has the open questions of an
    ``input_required`` result. ``high_water`` is the last progress value, and ``count`` the number
    of rounds of questions.
    """

    id: str = field(default_factory=partial(secrets.token_hex, 16))
    known: dict[str, JSON] = field(default_factory=dict)
    asked: dict[str, list[str]] = field(default_factory=dict)  # key: [digest, method]
    high_water: float | None = None
    count: int = 0
    has_steps: bool = False  # whether ``once`` has done anything

    @property
    def may_return(self) -> bool:
        """Whether the call has asked, so that the client may hold a state to resume it with."""
        return self.count > 0

    @property
    def resumes(self) -> str:
        """A name of this round of the call, or "" if the call has not asked yet."""
        return f"{self.id}:{self.count}" if self.count else ""

    def answers(self, call: ClientCall) -> KnownAnswers:
        """Return the answers that a run starts with: stored ones, and those in the request."""
        named: dict[str, JSON] = {}
        for key, response in (call.input_responses or {}).items():
            wanted = self.asked.get(key)
            if wanted is None:
                named[key] = {"result": response}
            elif answer := _decoded(call, wanted[1], response):
                self.known[wanted[0]] = answer
        return KnownAnswers(known=dict(self.known), named=named)

    def ask(self, call: ClientCall, asking: dict[str, Asking], answers: KnownAnswers) -> JSON:
        """Return the ``input_required`` result. Raise ``ToolError`` after too many rounds."""
        self.next(answers)
        self.asked = {key: [digest, question.method] for key, digest, question in asking.values()}
        requests = {
            key: _with_elicitation_id(question, self.id, key)
            for key, _, question in asking.values()
        }
        return {
            "resultType": "input_required",
            "inputRequests": encode_input_requests(call.revision, requests),
        }

    def next(self, answers: KnownAnswers) -> None:
        """Begin a round of questions, and drop answers that the run did not use.

        The run came to a new question without them, so they answer questions it no longer asks.
        Raise ``ToolError`` after too many rounds.
        """
        self.count += 1
        if self.count > settings.QUESTION_ROUNDS:
            raise ToolError(f"The call asked more than {settings.QUESTION_ROUNDS} times.")
        self.known = {key: value for key, value in answers.known.items() if key in answers.used}


def _decoded(call: ClientCall, method: str, response: Any) -> JSON | None:
    try:
        return {"result": decode_answer(call.revision, method, {}, response)}
    except InvalidParams:
        return None


def _with_elicitation_id(question: Question, id: str, key: str) -> JSON:
    """Return the question as JSON. Replace ``{elicitation_id}`` in its URL."""
    wire = question.wire()
    url = wire["params"].get("url")
    if url is None:
        return wire
    params = wire["params"] | {"url": url.replace("{elicitation_id}", f"{id}-{key}")}
    return wire | {"params": params}


# Sealing.


def purpose(call: ClientCall, server: Server, principal: Principal) -> str:
    """Return what a state is bound to: this request, by this principal, to this server.

    Otherwise a client could use the answers of one call for another, or those of another user.
    """
    target = call.params.get("name") or call.params.get("uri")
    arguments = call.params.get("arguments") or {}
    return "state:" + digest(server.name, principal.key, call.method, target, arguments)


def sealed(interaction: Interaction, purpose: str) -> str:
    """Return the sealed ``requestState``. Raise ``ToolError`` if it is too large."""
    text = seal(asdict(interaction), purpose)
    if len(text) > MAX_STATE:
        raise ToolError("The answers are too large to go on with.")
    return text


def resumed(call: ClientCall, purpose: str) -> Interaction:
    """Return the state from the client's ``requestState``. Raise ``InvalidParams``."""
    if call.request_state is None:
        return Interaction()
    try:
        values = unseal(
            call.request_state, purpose, seconds=settings.STATE_LIFETIME, limit=MAX_STATE
        )
    except ValueError as error:
        raise InvalidParams(f"requestState: {error}") from None
    return Interaction(**values)


logger = logging.getLogger("django_mcp.calls")
MAX_ELICITATIONS = 1_000
WITHDRAWN = "Nobody waits for the answer any more."


class WrittenQuestion(NamedTuple):
    """A question encoded for a client, with its id and its timeout in seconds."""

    id: str
    wire: JSON  # in the form of the newest revision
    message: JSON  # the request, in the client's revision
    seconds: float

    @property
    def is_url_elicitation(self) -> bool:
        """Whether it sends the user to a web page. The client is notified of the completion."""
        return "url" in self.wire["params"]


def written(revision: Revision, question: Question) -> WrittenQuestion:
    """Encode a question with a new random id.

    Raise ``Unsupported`` if the client's revision has no such request.
    """
    wire, id = question.wire(), uuid.uuid4().hex
    if "url" in wire["params"]:
        wire["params"]["url"] = wire["params"]["url"].replace("{elicitation_id}", id)
    message = encode_request(revision, id, wire["method"], wire["params"])
    if message is None:
        raise Unsupported(question.required())
    seconds = settings.QUESTION_TIMEOUT if question.timeout is None else question.timeout
    return WrittenQuestion(id, wire, message, seconds)


def withdrawal(revision: Revision, id: str) -> JSON | None:
    """Return the ``notifications/cancelled`` message that withdraws a question, or None.

    None if the client's revision has no such notification.
    """
    logger.info("Question cancelled: id=%s reason=%s", id, WITHDRAWN)
    params = {"requestId": id, "reason": WITHDRAWN}
    return encode_notification(revision, "notifications/cancelled", params)


def understood(revision: Revision, wire: JSON, answered: Answered) -> JSON | None:
    """Return a client's answer in the form that is stored, or None if it does not fit the question.

    The question is asked again in that case.
    """
    if answered.error is not None:
        return {
            "error": {"code": answered.error.get("code"), "message": answered.error.get("message")}
        }
    try:
        return {"result": decode_answer(revision, wire["method"], wire["params"], answered.result)}
    except InvalidParams:
        logger.info(
            "Answer does not fit the requested schema, the question is sent again: method=%s",
            wire["method"],
        )
        return None


class PendingQuestions:
    """The server's open requests to the client of one connection. Used in its event loop only."""

    def __init__(self, send: Callable[[JSON], None]) -> None:
        self._send = send
        self._open: dict[str, asyncio.Future[Answered]] = {}
        self.ready = asyncio.Event()
        # Ids of URL elicitations, in the order in which they were sent.
        self.elicitations: dict[str, None] = {}

    async def ask(
        self, revision: Revision, asking: Iterable[Asking], interaction: Interaction | None = None
    ) -> dict[str, JSON]:
        """Send the questions and return the answers by digest, without those that do not fit.

        A timeout is an answer. Raise ``Unsupported`` if a question cannot be sent to this client.
        """
        questions = {digest: question for _, digest, question in asking}
        # Encode all before the first is sent. If one is unsupported, none is left open.
        asked = [written(revision, question) for question in questions.values()]
        self.expect(*(question.id for question in asked if question.is_url_elicitation))
        answers = await asyncio.gather(*(self._ask_one(revision, question) for question in asked))
        by_digest = zip(questions, answers, strict=True)
        return {digest: answer for digest, answer in by_digest if answer is not None}

    async def _ask_one(self, revision: Revision, asked: WrittenQuestion) -> JSON | None:
        try:
            answered = await self._sent(asked.id, asked.message, asked.seconds)
        except TimeoutError:
            return {"timeout": asked.seconds}
        finally:
            self._withdraw(revision, asked.id)  # also if the call was cancelled
        return understood(revision, asked.wire, answered)

    async def _sent(self, id: str, message: JSON, seconds: float) -> Answered:
        async with asyncio.timeout(seconds):
            await self.ready.wait()
            self._open[id] = asyncio.get_running_loop().create_future()
            self._send(message)
            return await self._open[id]

    def _withdraw(self, revision: Revision, id: str) -> None:
        """Close a question, and withdraw it from the client, unless the client has answered."""
        future = self._open.pop(id, None)
        if future is None or (future.done() and not future.cancelled()):
            return
        message = withdrawal(revision, id)
        if message is not None:
            self._send(message)

    def expect(self, *elicitations: str) -> None:
        """Remember the pages that were sent, by elicitation id: at most ``MAX_ELICITATIONS``.

        The client is notified when one is completed.
        """
        self.elicitations.update(dict.fromkeys(elicitations))
        for id in list(self.elicitations)[:-MAX_ELICITATIONS]:
            del self.elicitations[id]

    def answered(self, answer: Answered) -> None:
        """Pass an answer to the question that waits for it."""
        future = self._open.get(str(answer.id))
        if future is None or future.done():
            logger.debug("Response without a request ignored: id=%.80r", answer.id)
        else:
            future.set_result(answer)

    async def ping(self, revision: Revision, seconds: float) -> bool:
        """Whether the client answers within ``seconds`` (basic/utilities/ping)."""
        id = uuid.uuid4().hex
        message = encode_request(revision, id, "ping", {})
        if message is None:
            return True
        try:
            return await self._sent(id, message, seconds) is not None
        except TimeoutError:
            logger.warning("Client did not answer a ping: timeout=%ss", seconds)
            return False
        finally:
            self._open.pop(id, None)


# Completed URL elicitations.

# A URL elicitation sends the user to a web page. When the user has completed it, only that session
# is sent ``notifications/elicitation/complete``. The subscription is stored like one to a resource.
# No resource has this URI, because it is not valid. So the limits of subscriptions apply without
# further code.
COMPLETION_URI_PREFIX = "?page/"


def completion_uri(id: str) -> str:
    return COMPLETION_URI_PREFIX + id


def is_completion_uri(uri: str) -> bool:
    return uri.startswith(COMPLETION_URI_PREFIX)


def subscribe_to_completion(session: Session, ids: Iterable[str]) -> None:
    """Subscribe a session to the completion of these elicitations. Queries the database."""
    try:
        for id in ids:
            sessions.subscribe(session, completion_uri(id))
    except Busy:
        logger.warning(
            "Session not notified of a completed elicitation, it has too many subscriptions: "
            "session=%s",
            session,
        )
    except sessions.SessionEnded:
        pass  # there is no client left to notify


def unsubscribe_from_completion(session_ids: Iterable[int], id: str) -> None:
    """Unsubscribe sessions from an elicitation that was completed. Queries the database."""
    for session_id in session_ids:
        sessions.unsubscribe(session_id, completion_uri(id))


# Sessions and calls that are rows.


def connection_of(session: Session) -> Connection:
    """Return the protocol state of a session from its row."""
    phase = Phase.OPENING if session.revision else Phase.NEW
    phase = Phase.OPEN if session.initialized else phase
    state = State(session.revision, phase, session.client_info, session.capabilities)
    return Connection(state, transport=session.transport)


def call_of(row: Row, connection: Connection) -> ClientCall:
    """Return the call from its row."""
    state = connection.state
    return ClientCall(
        json.loads(row.request_id), row.method, row.params, connection.revision,
        client_info=state.client_info, capabilities=state.capabilities,
        progress_token=row.meta.get("progressToken"), meta=row.meta,
    )  # fmt: skip


def interaction_of(row: Row) -> Interaction:
    """Return a call's answers and progress from its row."""
    return Interaction(
        f"c{row.pk}", known=row.known, high_water=row.high_water, count=row.rounds, has_steps=True
    )


def withdrawal_messages(session: Session, asks: Collection[str]) -> list[str]:
    """Return the encoded messages that withdraw these questions from the client."""
    revision = connection_of(session).revision
    withdrawals = (withdrawal(revision, ask) for ask in asks)
    return [encode(message) for message in withdrawals if message is not None]
