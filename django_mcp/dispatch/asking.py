"""
Questions to a client that answers by requests of ours, over one pipe.

Rule: a question has an id nobody can guess, a deadline, and one answer; what
comes twice, late or unasked is ignored. None is sent before the client has
said that it is ready (basic/lifecycle).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..conf import settings
from ..declare.questions import Question
from ..exceptions import Unsupported
from ..protocol.events import Answered
from ..protocol.jsonrpc import JSON, InvalidParams
from ..protocol.revisions import Revision, decode_answer, encode_notification, encode_request
from .rounds import Asking, Rounds

logger = logging.getLogger("django_mcp")
MAX_ELICITATIONS = 1_000
WITHDRAWN = "Nobody waits for the answer any more."


class Written(NamedTuple):
    """A question on its way to a client."""

    id: str
    wire: JSON  # in the newest revision's words
    message: JSON  # in the client's
    seconds: float

    @property
    def is_page(self) -> bool:
        """Whether the user is sent to a page, whose end the client is told of."""
        return "url" in self.wire["params"]


def written(revision: Revision, question: Question) -> Written:
    """A question with an id of its own. Raises ``Unsupported``."""
    wire, id = question.wire(), uuid.uuid4().hex
    if "url" in wire["params"]:
        wire["params"]["url"] = wire["params"]["url"].replace("{elicitation_id}", id)
    message = encode_request(revision, id, wire["method"], wire["params"])
    if message is None:
        raise Unsupported(question.required())
    seconds = settings.QUESTION_TIMEOUT if question.timeout is None else question.timeout
    return Written(id, wire, message, seconds)


def withdrawal(revision: Revision, id: str) -> JSON | None:
    """What tells a client that nobody waits for its answer any more."""
    logger.info("The question %s was cancelled: %s", id, WITHDRAWN)
    params = {"requestId": id, "reason": WITHDRAWN}
    return encode_notification(revision, "notifications/cancelled", params)


def understood(revision: Revision, wire: JSON, reply: Answered) -> JSON | None:
    """A client's reply as it is kept; None for what does not answer the question."""
    if reply.error is not None:
        return {"error": {"code": reply.error.get("code"), "message": reply.error.get("message")}}
    try:
        return {"result": decode_answer(revision, wire["method"], wire["params"], reply.result)}
    except InvalidParams:
        logger.info("An answer to %s was of no such form; it is asked again", wire["method"])
        return None


class Questions:
    """The requests of ours that a client has not answered yet."""

    def __init__(self, send: Callable[[JSON], None]) -> None:
        self._send = send
        self._open: dict[str, asyncio.Future[Answered]] = {}
        self.ready = asyncio.Event()
        self.elicitations: dict[str, None] = {}  # whose end the client may be told of

    async def ask(
        self, revision: Revision, asking: Iterable[Asking], rounds: Rounds | None = None
    ) -> dict[str, JSON]:
        """The answers, by digest; what does not answer its question is left out."""
        questions = {digest: question for _, digest, question in asking}
        # All are written before the first is sent: what cannot be asked leaves none waiting.
        asked = [written(revision, question) for question in questions.values()]
        self.expect(*(one.id for one in asked if one.is_page))
        answers = await asyncio.gather(*(self._one(revision, one) for one in asked))
        found = zip(questions, answers, strict=True)
        return {digest: answer for digest, answer in found if answer is not None}

    async def _one(self, revision: Revision, asked: Written) -> JSON | None:
        try:
            reply = await self._sent(asked.id, asked.message, asked.seconds)
        except TimeoutError:
            return {"timeout": asked.seconds}
        finally:
            self._withdraw(revision, asked.id)
        return understood(revision, asked.wire, reply)

    async def _sent(self, id: str, message: JSON, seconds: float) -> Answered:
        async with asyncio.timeout(seconds):
            await self.ready.wait()
            self._open[id] = asyncio.get_running_loop().create_future()
            self._send(message)
            return await self._open[id]

    def _withdraw(self, revision: Revision, id: str) -> None:
        """Tell the client that nobody waits any more, unless it has answered."""
        future = self._open.pop(id, None)
        if future is None or (future.done() and not future.cancelled()):
            return
        message = withdrawal(revision, id)
        if message is not None:
            self._send(message)

    def expect(self, *elicitations: str) -> None:
        """These were sent: the end of the latest will be told."""
        self.elicitations.update(dict.fromkeys(elicitations))
        for id in list(self.elicitations)[:-MAX_ELICITATIONS]:
            del self.elicitations[id]

    def answered(self, reply: Answered) -> None:
        """Pass a reply on to whoever asked."""
        future = self._open.get(str(reply.id))
        if future is None or future.done():
            logger.debug("Ignored an answer to nothing that was asked: %.80r", reply.id)
        else:
            future.set_result(reply)

    async def ping(self, revision: Revision, seconds: float) -> bool:
        """Whether the client answers within ``seconds`` (basic/utilities/ping)."""
        id = uuid.uuid4().hex
        message = encode_request(revision, id, "ping", {})
        if message is None:
            return True
        try:
            return await self._sent(id, message, seconds) is not None
        except TimeoutError:
            logger.warning("The client did not answer a ping within %s s", seconds)
            return False
        finally:
            self._open.pop(id, None)
