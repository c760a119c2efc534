"""
One call of a session that this process works on, and its row once it has one.

Rule: what the log takes nothing from any more is told so, or stopped. A cancel
counts until the outcome is on its way into the database: from then on the
outcome stands, and nothing more is said.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..conf import settings
from ..delivery import events
from ..delivery.events import FULL, Address
from ..delivery.writer import TooMuch, pace
from ..exceptions import ToolError
from ..models import Call as Row
from ..protocol.connection import Connection
from ..protocol.jsonrpc import JSON, InternalError, encode
from .active import Active
from .rounds import Rounds

if TYPE_CHECKING:
    from ..declare.servers import Server
    from .replies import Reply

logger = logging.getLogger("django_mcp")
TOO_MUCH = "The call says more than its client can be told."


@dataclass(eq=False)
class Kept:
    """A call, its reply, and how far they have come."""

    active: Active
    reply: Reply
    rounds: Rounds = field(default_factory=Rounds)
    server: Server | None = None  # on which it runs
    row: Row | None = None
    response: JSON | None = None
    is_taken: bool = False  # it is known what its response is
    is_done: bool = False
    is_decided: bool = False  # its outcome is being committed by its tool
    is_plain: bool = False  # and will be answered without a row
    is_committed: bool = False
    is_full: bool = False  # the log has no room for what else it says
    count: int = 0  # of what it said, and its size
    size: int = 0
    pages: list[str] = field(default_factory=list)  # that its client was sent to
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> Address:
        assert self.row is not None and self.row.stream_id is not None
        return Address(self.row.stream_id, self.row.pk, self.row.fence)

    @property
    def owner(self) -> str:
        """In whose name it goes on (``revocations.Holder``)."""
        return self.reply.session.owner

    @property
    def is_durable(self) -> bool:
        """Whether it is written down before it begins."""
        call = self.active.call
        if self.reply.is_single:
            return True
        if self.server is None or call.method != "tools/call":
            return False
        tool = self.server.catalog.tools.get(str(call.params.get("name")))
        return tool is not None and (self.server.durable or tool.durable)

    def revoke(self) -> None:
        self.reply.docket.revoke(self)

    @property
    def last_word(self) -> JSON | None:
        """What is said of it when it was stopped: nothing, unless it was not its client."""
        error = self.active.refusal
        return None if error is None else self.reply.connection.error(self.active.call, error)

    # Saying.

    def send(self, message: JSON) -> None:
        """Say something; from any thread. Raises ``ToolError`` when that is too much."""
        text = encode(message)
        self.count, self.size = self.count + 1, self.size + len(text)
        if self.is_full or self.count > settings.EVENTS or self.size > events.most_bytes():
            raise ToolError(TOO_MUCH)
        try:
            waiting = self.reply.say(self, text)
        except TooMuch as error:
            raise ToolError(str(error)) from None
        pace(waiting)

    def refused(self, outcome: int | None) -> None:
        """The log took nothing: there is no room, or the call is no longer this process's."""
        if outcome == FULL:
            self.is_full = True
        else:
            self.cancel()

    # Ending.

    def cancel(self) -> None:
        """Stop it; what is decided is not stopped any more."""
        with self._lock:
            if not self.is_decided:
                self.active.cancel()

    def decide(self) -> bool:
        """Say nothing more, and heed no cancel; False if one came before."""
        with self._lock:
            self.is_decided = not self.active.stop.is_set()
        if self.is_decided:
            self.active.end()
        return self.is_decided

    def commit(self) -> None:
        """Its outcome is in the database."""
        self.is_committed = True

    def text(self, connection: Connection) -> str:
        """Its response as it is written; what holds no JSON becomes an internal error.

        So does a success of which not all could be said.
        """
        if self.is_full and _is_success(self.response):
            self.response = connection.error(self.active.call, InternalError(TOO_MUCH))
        try:
            return encode(self.response)
        except (TypeError, ValueError):
            logger.exception("The answer to %s cannot be written", self.active.call.method)
            self.response = connection.error(self.active.call, InternalError())
            return encode(self.response)


def _is_success(response: JSON | None) -> bool:
    return response is not None and not response.get("result", {"isError": True}).get("isError")
