"""
The outcome of a call in the transaction of its tool.

Rule: what a tool wrote and the response that says so are committed together, or
neither is. What the call said before is committed first; a call that was
cancelled or taken over is rolled back. A call that nobody has written down
stays so. On SQLite, whose one writer the tool is, the outcome follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from .. import threads
from ..conf import settings
from ..delivery import events, steps
from ..exceptions import Stopped, ToolError
from ..protocol.jsonrpc import JSON, encode
from .kept import TOO_MUCH

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..protocol.events import Call
    from .kept import Kept

PATIENCE = 10.0  # seconds until what a call said, and its row, are written
UNWRITTEN = "What this said could not be written down. What it wrote to the database was undone."


def beside(atomic: bool | str) -> bool:
    """Whether a transaction of the project's can hold what is written to the log."""
    alias = atomic if isinstance(atomic, str) else DEFAULT_DB_ALIAS
    at_home = bool(atomic) and alias == settings.DATABASE
    return at_home and connections[alias].vendor != "sqlite"


def may_hold(atomic: bool | str) -> bool:
    """Whether it can hold the outcome of its call."""
    # In a test all jobs take turns, and none may wait for another.
    return beside(atomic) and not threads.is_adopted()


def of_tool(server: Server | None, call: Call) -> bool:
    """Whether the outcome of a call will be in its tool's transaction."""
    if server is None or call.method != "tools/call":
        return False
    tool = server.catalog.tools.get(str(call.params.get("name")))
    return tool is not None and may_hold(tool.transaction)


def conclude(kept: Kept, response: JSON) -> None:
    """Write the response down, at the end of the tool's transaction and in its thread.

    Raises ``Stopped`` where there is to be none. What the tool itself has marked to be rolled
    back holds nothing: then the outcome follows.
    """
    if not kept.decide():
        raise Stopped()
    reply = kept.reply
    if reply.stays_plain(kept):
        return
    if kept.row is None or kept.count:
        _wait(reply.loop, reply.written(kept))
    if reply.is_gone:
        raise Stopped()
    if kept.is_full:
        raise ToolError(TOO_MUCH)
    if kept.row is not None and not transaction.get_rollback(settings.DATABASE):
        _write(kept, encode(response))


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    waiting = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        waiting.result(PATIENCE)
    except TimeoutError:
        waiting.cancel()
        raise ToolError(UNWRITTEN) from None


def _write(kept: Kept, text: str) -> None:
    to = kept.address
    assert to.call is not None
    if not events.finish_here(to.call, to.fence, text, to.stream):
        raise Stopped()
    if kept.rounds.has_steps:
        steps.forget(kept.rounds.id)
    transaction.on_commit(kept.commit, using=settings.DATABASE, robust=True)
