"""
What becomes of the calls of sessions when their process is about to end.

Rule: they have a while to finish, and what is not done is left to other
processes. A call whose client has no way to come back for the answer is not
left: it is answered, before the process ends, by an error that is its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..declare.servers import server_named
from ..protocol.jsonrpc import JSON, Overloaded
from .durable import docket
from .takeovers import LOST, may_run_again, told

if TYPE_CHECKING:
    from ..models import Call as Row
    from .kept import Kept

AGAIN = Overloaded("The server is about to end. Try again.", data={"retryAfter": 1})


def answer(stream: int) -> None:
    """Answer the calls of a stream by errors; what they still bring is nobody's."""
    for kept in docket().kept():
        if kept.row is not None and kept.row.stream_id == stream:
            kept.reply.take(kept, _last_word(kept, kept.row))
            kept.cancel()


def _last_word(kept: Kept, row: Row) -> JSON:
    if may_run_again(server_named(kept.reply.session.server), row):
        return kept.reply.connection.error(kept.active.call, AGAIN)
    return told(kept, LOST)
