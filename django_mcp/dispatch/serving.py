"""
From a call to its response: one run after another, until it is done or the client is asked.

Rule: whatever happens while a call runs becomes a response, silence because it
was cancelled, or an ``Unwound`` that whoever keeps the call knows how to go on
from; nothing of the project's errors gets out. How a client is asked, and what
a call remembers of its steps, is its keeper's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..declare.requests import Answers
from ..exceptions import Asked, Busy, OnceNeeded, Parked, Stopped, Unwound
from ..protocol.connection import Connection
from ..protocol.events import Call
from ..protocol.headers import Mirrored
from ..protocol.jsonrpc import (
    JSON,
    InternalError,
    Overloaded,
    ProtocolError,
    UrlElicitationRequired,
)
from ..protocol.revisions import Revision
from .active import Active
from .failures import failure
from .methods import dispatch
from .once import Memory, done_once, remembered
from .presentation import SERVER_INFO, server_info
from .rechecks import rechecks
from .rounds import Asking, Rounds, purpose, resumed, sealed
from .runs import Conclusion, Run, Session
from .saying import Saying

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

logger = logging.getLogger("django_mcp")


class Asker(Protocol):
    """How a client is asked that answers by responses to requests of ours."""

    async def ask(
        self, revision: Revision, asking: Sequence[Asking], rounds: Rounds
    ) -> dict[str, JSON]:
        """The answers, by digest. Raises ``Parked`` where the call waits as rows."""
        ...

    def expect(self, *elicitations: str) -> None:
        """The client was sent to these pages by an error; their end will be told."""
        ...


@dataclass
class Serving:
    """Turns calls to ``server`` into responses, for one client.

    ``who`` is awaited anew for every run of a call. ``asker`` is needed for
    clients that shake hands; the others are asked by a result. ``log_level`` is
    the least level that a client which shook hands wants to hear; ``mirrored``
    are the headers that must say what the arguments do.
    """

    server: Server
    connection: Connection
    who: Callable[[], Awaitable[Principal]]
    session: Session
    asker: Asker | None = None
    log_level: Callable[[], str | None] = lambda: None
    memory: Memory = remembered
    host: str | None = None
    mirrored: Mirrored | None = None

    async def response(self, active: Active, rounds: Rounds | None = None) -> JSON | None:
        """The response to a call; None when it was cancelled. Raises ``Parked``.

        ``rounds`` is what a call brings that has run before.
        """
        call = active.call
        try:
            return self._result(call, await self._outcome(active, rounds))
        except ProtocolError as error:
            return self._error(call, error)
        except Stopped:
            return None
        except Parked:
            raise
        except Busy as error:
            return self.connection.error(call, overloaded(str(error)))
        except (Exception, Unwound, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            logger.exception("%s failed", call.method)
            return self.connection.error(call, InternalError())

    def _result(self, call: Call, result: JSON) -> JSON:
        meta = {SERVER_INFO: server_info(self.server)} | result.get("_meta", {})
        return self.connection.result(call, result | {"_meta": meta})

    def _error(self, call: Call, error: ProtocolError) -> JSON:
        if self.asker is not None and isinstance(error, UrlElicitationRequired):
            self.asker.expect(*(page["elicitationId"] for page in error.elicitations))
        return self.connection.error(call, error)

    async def _outcome(self, active: Active, rounds: Rounds | None) -> JSON:
        """The result of the call, or the one that asks for what it needs."""
        call, principal = active.call, await self.who()
        if rounds is None:
            rounds = self._resumed(call, principal)
        try:
            return await self._runs(active, principal, rounds)
        finally:
            if rounds.has_steps and not (call.revision.input_required and rounds.may_return):
                await self.memory.aforget(rounds.id)

    def _resumed(self, call: Call, principal: Principal) -> Rounds:
        if call.request_state is None:
            return Rounds()
        return resumed(call, purpose(call, self.server, principal))

    async def _runs(self, active: Active, principal: Principal, rounds: Rounds) -> JSON:
        """Run the call, again and again, until it is done or the client must be asked."""
        call, answers = active.call, rounds.answers(active.call)
        saying, conclude = self._saying(active, principal, rounds), self._conclusion(call)
        goes_on = self._goes_on()
        while True:
            if rounds.may_return or rounds.has_steps:
                answers.remembered = await self.memory.recall(rounds.id)
                rounds.has_steps = bool(answers.remembered)
            run = Run(
                call, self.server, principal, self.session, saying, answers, active.stop,
                self.host, self.mirrored, conclude, goes_on,
            )  # fmt: skip
            try:
                with rechecks().over(run, active):
                    return await dispatch(run)
            except Unwound as unwound:
                rounds.high_water, goes_on = saying.high_water, True
                asking = await self._unwound(unwound, run, rounds)
            if asking is not None:
                return asking
            answers, principal = Answers(known=dict(rounds.known)), await self.who()

    async def _unwound(self, unwound: Unwound, run: Run, rounds: Rounds) -> JSON | None:
        """Get what the run lacks; or the result that asks for it, to be retried with it."""
        try:
            if isinstance(unwound, OnceNeeded):
                rounds.known, rounds.has_steps = dict(run.answers.known), True
                await done_once(self.memory, rounds.id, unwound, run)
                return None
            if isinstance(unwound, Asked):
                return await self._asked(unwound, run, rounds)
        except Exception as error:
            return failure(error, run)
        raise unwound

    async def _asked(self, asked: Asked, run: Run, rounds: Rounds) -> JSON | None:
        revision = run.call.revision
        if revision.input_required:
            asking = rounds.ask(run.call, asked.questions, run.answers)
            bound = purpose(run.call, run.server, run.principal)
            return asking | {"requestState": sealed(rounds, bound)}
        assert self.asker is not None, "Whoever shakes hands is asked by requests."
        rounds.next(run.answers)
        questions = list(asked.questions.values())
        rounds.known.update(await self.asker.ask(revision, questions, rounds))
        return None

    def _goes_on(self) -> bool:
        """Whether the call has begun before, and is not turned away however much there is to do."""
        return False

    def _conclusion(self, call: Call) -> Conclusion | None:
        """What writes its result down in the transaction of its tool, where that is to be."""
        return None

    def _saying(self, active: Active, principal: Principal, rounds: Rounds) -> Saying:
        call, owner = active.call, (principal.key, self.server.name)
        level = self.log_level if call.revision.handshake else lambda: call.log_level
        return Saying(call, owner, active.say, level, rounds.high_water, active.release)


def overloaded(why: str) -> Overloaded:
    """What is refused before it has any effect, and may be tried again."""
    return Overloaded(why, data={"retryAfter": 1})


def _is_cancelled() -> bool:
    """Whether the current task is; its code may raise the same on its own account."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
