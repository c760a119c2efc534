"""Decisions about the calls of a dead worker process.

A call that is safe to repeat runs again, at most ``MAX_RUNS`` times. If the outcome would have been
in the tool's transaction, that was rolled back: the call runs again if the tool is transactional,
otherwise the client is told of the rollback. The outcome of all other calls is unknown, and their
response says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..declarations.server import Server, server_named
from ..models import Call as Row
from ..protocol.jsonrpc import JSON, Id, Overloaded
from ..storage import calls, event_log
from ..storage.jobs import run_with_retries
from .execution import can_store_result_in_transaction
from .session_output import SessionCall

if TYPE_CHECKING:
    from ..declarations.tools import Tool

logger = logging.getLogger("django_mcp.calls")
# Decides about a call to continue: the server on which it runs, or the response that ends it.
Decision = Callable[[SessionCall, Row], Awaitable[Server | JSON]]
# Reruns of a call whose process died. A call that crashes its process must not crash all of them.
MAX_RUNS = 2
LOST = (
    "The server process that worked on this ended before it had an outcome. "
    "It may or may not have taken effect."
)
UNDONE = (
    "The server process that worked on this ended before it had an outcome. "
    "Its database writes were rolled back."
)


async def server_of(session_call: SessionCall, row: Row) -> Server:
    """Return the server on which the call continues. Raise ``LookupError`` if it is not served."""
    return server_named(session_call.post.session.server)


async def verdict(session_call: SessionCall, row: Row) -> Server | JSON:
    """Return the server on which the call runs again, or the response that ends it.

    The response says whether the tool's writes were rolled back, or that this is unknown.
    """
    undone = False
    try:
        server = server_named(session_call.post.session.server)
        if row.runs <= MAX_RUNS and may_run_again(server, row):
            session_call.interaction.high_water = await _high_water(session_call, row)
            return server
        undone = await run_with_retries(_is_undone, server, row)
    except LookupError as error:
        logger.error("Call cannot continue: call=%s error=%s", row, error)
    return session_call.without_outcome(UNDONE if undone else LOST)


def may_run_again(server: Server, row: Row) -> bool:
    """Whether a call that may have been executed in part is safe to run again."""
    if row.method != "tools/call":
        return True
    tool = _tool(server, row)
    if tool is None:
        return False
    return bool(
        tool.read_only or tool.idempotent or (tool.transactional and _may_hold_outcome(tool, row))
    )


def _tool(server: Server, row: Row) -> Tool | None:
    return server._catalog.called_tool(row.params)


def _may_hold_outcome(tool: Tool, row: Row) -> bool:
    """Whether the outcome is stored in the tool's transaction, at the first run and now.

    ``row.atomic`` is the value at the first run. A deployment may have changed the tool since.
    """
    return row.atomic and can_store_result_in_transaction(tool._transaction)


def _is_undone(server: Server, row: Row) -> bool:
    """Whether everything the tool wrote was rolled back. Queries the database.

    Steps of ``request.once`` are committed separately, so there must be none.
    """
    tool = _tool(server, row)
    return tool is not None and _may_hold_outcome(tool, row) and not calls.has_steps(f"c{row.pk}")


# Progress.


async def _high_water(session_call: SessionCall, row: Row) -> float | None:
    """Return the last progress value that the call sent, or None.

    The next run sends only higher values, because progress MUST increase (utilities/progress).
    """
    token = session_call.active.call.progress_token
    if token is None or row.stream_id is None:
        return row.high_water
    last = await run_with_retries(last_progress, row.stream_id, token)
    return row.high_water if last is None else last


def last_progress(stream: int, token: Id) -> float | None:
    """Return the last progress with that token on a stream, or None. Queries the database."""
    for text in event_log.find_messages(stream, "notifications/progress"):
        message = json.loads(text)
        params = message["params"] if message.get("method") == "notifications/progress" else {}
        if params.get("progressToken") == token:
            return float(params["progress"])
    return None


AGAIN = Overloaded("The server is shutting down. Try again.", data={"retryAfter": 1})


def shutdown_error(session_call: SessionCall, row: Row) -> JSON:
    """Return the response to a call that this process cannot finish before it ends."""
    if may_run_again(server_named(session_call.post.session.server), row):
        return session_call.post.connection.error(session_call.active.call, AGAIN)
    return session_call.without_outcome(LOST)
