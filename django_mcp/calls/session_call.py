"""One call of a session that runs in this process, and its row if it has one.

A cancel stops the call until ``SessionCall.decide``, just before the commit. From then on the
outcome stands and the call sends nothing more.

``conclude`` stores the response in the tool's transaction, so that the tool's writes and the
response are committed together or not at all. The call's earlier messages are committed first. The
transaction of a call that was cancelled or taken over is rolled back. A call without a row stays
without one. On SQLite the response is stored after the commit: a database file has one writer at a
time, so the tool's transaction would block the log.

``connection_of``, ``call_of`` and ``rounds_of`` load sessions and calls from their rows. The rows
are the whole state, so any process can continue a call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from ..conf import settings
from ..exceptions import Stopped, ToolError
from ..models import Call as Row
from ..models import Session
from ..protocol.connection import Connection, Phase, State
from ..protocol.envelope import progress_token
from ..protocol.events import ClientCall
from ..protocol.jsonrpc import JSON, InternalError, encode
from ..runtime.environment import environment
from ..storage import calls, event_log
from ..storage.event_log import FULL, EventAddress
from ..storage.event_writer import OutputTooLarge, pace
from .call_state import ActiveCall
from .interaction import Interaction, withdrawal

if TYPE_CHECKING:
    from ..declarations.server import Server
    from .session_replies import PostResponse

logger = logging.getLogger("django_mcp")
TOO_MUCH = "The call says more than its client can be told."


@dataclass(eq=False)
class SessionCall:
    """A call of a session: its response, its row, and what it has sent.

    ``_lock`` orders ``cancel``, ``decide`` and ``reopen``, which run in different threads. Without
    it a call could be cancelled and committed at once, and its client would get no response.
    """

    active: ActiveCall
    reply: PostResponse
    rounds: Interaction = field(default_factory=Interaction)
    server: Server | None = None  # None until it is known on which server it runs
    row: Row | None = None
    response: JSON | None = None  # also None for a cancelled call
    is_taken: bool = False  # its outcome is set (``PostResponse.take``)
    is_done: bool = False  # its outcome is stored, or needs no row
    is_decided: bool = False  # its tool is committing: a cancel comes too late
    is_plain: bool = False  # it is decided, and is answered without a row
    is_committed: bool = False  # its response is in the database
    is_refused: bool = False  # it cannot be stored, and has not begun
    is_full: bool = False  # its stream has no room for more messages
    count: int = 0  # messages it has sent
    size: int = 0  # their characters
    pages: list[str] = field(default_factory=list)  # elicitation ids of pages in its error
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> EventAddress:
        assert self.row is not None and self.row.stream_id is not None
        return EventAddress(self.row.stream_id, self.row.pk, self.row.fence)

    @property
    def owner(self) -> str:
        """The key of the principal that it acts for (``revocations.TokenHolder``)."""
        return self.reply.session.owner

    @property
    def is_durable(self) -> bool:
        """Whether it is stored before it runs."""
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
        """The response to a stopped call: None if the client cancelled it, else an error."""
        error = self.active.refusal
        return None if error is None else self.reply.connection.error(self.active.call, error)

    # Messages.

    def open(self) -> None:
        """Allow the call to send messages, and to be stopped."""
        active = self.active
        active.send, active.interrupt, active.over = self.send, self.cancel, False
        if active.call.revision.priming:  # clients of older revisions do not reconnect
            active.let_go = partial(self.reply.let_go, self)

    def reopen(self) -> None:
        """Allow messages and cancels again, because the tool's transaction was rolled back."""
        with self._lock:
            self.is_decided = False
        self.open()

    def send(self, message: JSON) -> None:
        """Send a message, from any thread. Raise ``ToolError`` if the call sends too much."""
        text = encode(message)
        self.count, self.size = self.count + 1, self.size + len(text)
        if self.is_full or self.count > settings.EVENTS or self.size > event_log.most_bytes():
            raise ToolError(TOO_MUCH)
        try:
            waiting = self.reply.say(self, text)
        except OutputTooLarge as error:
            raise ToolError(str(error)) from None
        pace(waiting)

    def is_behind(self) -> bool:
        """Whether it should pause before it sends more. A call that is ending never pauses."""
        ends = self.is_full or self.is_decided or self.active.stop.is_set()
        return not ends and self.reply.is_behind(self)

    def refused(self, outcome: int | None) -> None:
        """Handle that the log rejected messages: the stream is full, or the call was taken over.

        ``outcome`` is ``FULL`` or None. A call that was taken over is cancelled here.
        """
        if outcome == FULL:
            self.is_full = True
        else:
            self.cancel()

    # Ending.

    def cancel(self) -> None:
        """Stop the call, unless its outcome is decided."""
        with self._lock:
            if not self.is_decided:
                self.active.cancel()

    def decide(self) -> bool:
        """Ignore cancels and messages from now on. Return False if a cancel came before."""
        with self._lock:
            self.is_decided = not self.active.stop.is_set()
        if self.is_decided:
            self.active.end()
        return self.is_decided

    def commit(self) -> None:
        """Note that the response is in the database."""
        self.is_committed = True

    def text(self, connection: Connection) -> str:
        """Return the encoded response. A value that is not JSON becomes an internal error.

        A success becomes one too if messages of the call were rejected because the stream is full.
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


WRITE_TIMEOUT_SECONDS = 10.0  # for which ``conclude`` waits for the call's row and messages
UNWRITTEN = "What this said could not be written down. What it wrote to the database was undone."


def beside(atomic: bool | str) -> bool:
    """Whether rows of the log can be written in the project's transaction.

    It must be in the same database, and that must not be SQLite.
    """
    alias = atomic if isinstance(atomic, str) else DEFAULT_DB_ALIAS
    at_home = bool(atomic) and alias == settings.DATABASE
    return at_home and connections[alias].vendor != "sqlite"


def may_hold(atomic: bool | str) -> bool:
    """Whether the response of a call can be stored in the tool's transaction."""
    # If jobs run one at a time, ``conclude`` would wait for a job that cannot start.
    return beside(atomic) and environment().runs_jobs_in_parallel


def of_tool(server: Server | None, call: ClientCall) -> bool:
    """Whether the response of this call will be stored in the tool's transaction."""
    if server is None or call.method != "tools/call":
        return False
    tool = server.catalog.tools.get(str(call.params.get("name")))
    return tool is not None and may_hold(tool.transaction)


def conclude(kept: SessionCall, response: JSON) -> None:
    """Store the response at the end of the tool's transaction, in its thread.

    Raise ``Stopped``, which rolls back, if the call was cancelled or taken over. If the tool has
    marked its transaction for rollback, the response is stored afterwards instead.
    """
    # Before anything is written: a cancel from now on must not leave writes without a response.
    if not kept.decide():
        raise Stopped()
    reply = kept.reply
    if reply.stays_plain(kept):
        return
    # Messages are written on other connections. They must be committed before the response, which
    # is the last event of the call.
    if kept.row is None or kept.count:
        _wait(reply.loop, reply.written(kept))
    if reply.is_gone:
        raise Stopped()
    if kept.is_full:
        raise ToolError(TOO_MUCH)
    if kept.row is not None and not transaction.get_rollback(settings.DATABASE):
        _write(kept, encode(response))


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` in the event loop and block this thread for it.

    Without the timeout the tool's transaction could hold its locks for ever.
    """
    waiting = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        waiting.result(WRITE_TIMEOUT_SECONDS)
    except TimeoutError:
        waiting.cancel()
        raise ToolError(UNWRITTEN) from None


def _write(kept: SessionCall, text: str) -> None:
    to = kept.address
    assert to.call is not None
    # It checks the fencing token. A call that another worker took over must not commit its writes.
    if not event_log.finish_here(to.call, to.fence, text, to.stream):
        raise Stopped()
    if kept.rounds.has_steps:
        calls.forget(kept.rounds.id)
    transaction.on_commit(kept.commit, using=settings.DATABASE, robust=True)


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
        progress_token=progress_token(row.meta), meta=row.meta,
    )  # fmt: skip


def rounds_of(row: Row) -> Interaction:
    """Return a call's answers and progress from its row."""
    return Interaction(
        f"c{row.pk}", known=row.known, high_water=row.high_water, count=row.rounds, has_steps=True
    )


def withdrawals(session: Session, asks: Collection[str]) -> list[str]:
    """Return the encoded messages that withdraw these questions from the client."""
    revision = connection_of(session).revision
    told = (withdrawal(revision, ask) for ask in asks)
    return [encode(message) for message in told if message is not None]
