"""
What becomes of a call whose process died while it worked on it.

Rule: what does no harm when it is done again is done again, a few times. Of
what held its outcome in its transaction it is known that there is neither: its
client is told, or, where that transaction is all there is, it is done again.
Of anything else nobody knows how far it came, and that is said.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..declare.servers import server_named
from ..delivery import events, steps
from ..delivery.jobs import surely
from ..protocol.jsonrpc import JSON, Id, InternalError
from .outcomes import may_hold
from .results import error_result

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..declare.tools import Tool
    from ..models import Call as Row
    from .kept import Kept

# On a call that is to go on: the server on which it runs, or the response that ends it.
Decision = Callable[["Kept", "Row"], Awaitable["Server | JSON"]]
logger = logging.getLogger("django_mcp")
MOST_RUNS = 2  # of a call whose process died, where it may run again
LOST = (
    "The server process that worked on this ended before it had an outcome. "
    "It may or may not have taken effect."
)
UNDONE = (
    "The server process that worked on this ended before it had an outcome. "
    "Its database writes were rolled back."
)


async def server_of(kept: Kept, row: Row) -> Server:
    """The server on which the call goes on. Raises ``LookupError``."""
    return server_named(kept.reply.session.server)


async def verdict(kept: Kept, row: Row) -> Server | JSON:
    """The server on which the call runs again, or the response that says what is known of it."""
    undone = False
    try:
        server = server_named(kept.reply.session.server)
        if row.runs <= MOST_RUNS and may_run_again(server, row):
            kept.rounds.high_water = await _high_water(kept, row)
            return server
        undone = await surely(_is_undone, server, row)
    except LookupError as error:
        logger.error("%s cannot go on: %s", row, error)
    return told(kept, UNDONE if undone else LOST)


def may_run_again(server: Server, row: Row) -> bool:
    """Whether it does no harm that part of the call may have been done."""
    if row.method != "tools/call":
        return True
    tool = _tool(server, row)
    if tool is None:
        return False
    return bool(tool.read_only or tool.idempotent or (tool.transactional and _is_held(tool, row)))


def _tool(server: Server, row: Row) -> Tool | None:
    return server.catalog.tools.get(str(row.params.get("name")))


def _is_held(tool: Tool, row: Row) -> bool:
    """Whether the transaction of the tool holds its outcome, then as now."""
    return row.atomic and may_hold(tool.transaction)


def _is_undone(server: Server, row: Row) -> bool:
    """Whether all that the tool wrote was rolled back; steps were done apart from it."""
    tool = _tool(server, row)
    return tool is not None and _is_held(tool, row) and not steps.are_there(f"c{row.pk}")


def told(kept: Kept, words: str) -> JSON:
    """The response that says what is known of a call that has no outcome."""
    call, connection = kept.active.call, kept.reply.connection
    if call.method == "tools/call":
        return connection.result(call, error_result(words))
    return connection.error(call, InternalError(words))


# Progress.


async def _high_water(kept: Kept, row: Row) -> float | None:
    """How far the call said it was: it goes on from there (utilities/progress)."""
    token = kept.active.call.progress_token
    if token is None or row.stream_id is None:
        return row.high_water
    last = await surely(last_progress, row.stream_id, token)
    return row.high_water if last is None else last


def last_progress(stream: int, token: Id) -> float | None:
    """The last progress of that token on a stream. Asks the database."""
    for text in events.latest(stream, "notifications/progress"):
        message = json.loads(text)
        params = message["params"] if message.get("method") == "notifications/progress" else {}
        if params.get("progressToken") == token:
            return float(params["progress"])
    return None
