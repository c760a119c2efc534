"""The output of calls in sessions, and which calls an event loop runs.

``SessionCall`` is one call, ``PostResponse`` answers one POST, and ``SessionCallRegistry`` has the
calls of an event loop. They are in one module because each refers to the others.

A fast call that sends no messages and asks nothing gets plain JSON and no rows. The calls of the
POST and their messages are stored when a call sends a message, asks a question, needs a step or is
durable, and after ``JSON_GRACE`` seconds. Then the HTTP response is a stream of events. Wake-ups
bring its reader the events that this process commits, and it reads all others from the rows. If a
tool has committed its outcome, that outcome is the response, whatever happens later.

If the response is stored in the tool's transaction, ``SessionCall.decide`` runs just before the
commit. From then on cancels are ignored and the call sends nothing more. Other calls (on SQLite,
asynchronous, or with ``atomic = False``) can be cancelled until their task ends.

``SessionCall.store_result`` stores the response in the tool's transaction, so that the tool's
writes and the response are committed together or not at all. The call's earlier messages are
committed first. The transaction of a call that was cancelled or taken over is rolled back. A call
that is still without a row is answered as plain JSON and gets none. On SQLite the response is
stored after the commit: a database file has one writer at a time, so the tool's transaction would
block the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction

from ..auth.principal import anonymous
from ..conf import settings
from ..declarations.declaration import NAME
from ..exceptions import Busy, Stopped, TooLarge, ToolError
from ..models import DONE, Session
from ..models import Call as Row
from ..protocol.connection import Cancelled, ClientCall, Connection
from ..protocol.jsonrpc import JSON, Id, InternalError, InvalidRequest, encode
from ..storage import calls as stored_calls
from ..storage import databases, event_log, sessions, streams
from ..storage.calls import WithdrawalEncoder, no_withdrawals
from ..storage.event_log import FULL, EventAddress, StoredResponse
from ..storage.event_writer import (
    MAX_QUEUED_MESSAGES,
    MAX_QUEUED_SIZE,
    PACED_MESSAGES,
    PACED_SIZE,
    TOO_MUCH,
    OutputTooLarge,
    pause_seconds,
    writer,
)
from ..storage.jobs import run_with_retries
from ..storage.leases import lease
from ..storage.poller import poller
from ..storage.sessions import SessionEnded
from ..storage.streams import DuplicateRequest, RequestRefused
from ..storage.wakeups import StreamWakeup, stream_wakeups, wake_readers
from .call_state import ActiveCall, CallOutput, CallRun
from .callers import SessionCaller, covers, revocation_checker
from .execution import can_store_result_in_transaction
from .interaction import Interaction, subscribe_to_completion
from .results import error_result

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.calls")
DUPLICATE = str(DuplicateRequest(()))
CALL_TOO_MUCH = "The call sends more messages than its client can receive."


@dataclass(eq=False, repr=False)
class SessionCall(CallOutput):
    """A call of a session: its response, its row, and what it has sent.

    ``_lock`` orders ``cancel``, ``decide`` and ``reopen``, which run in different threads. Without
    it a call could be cancelled and committed at once, and its client would get no response.
    """

    active: ActiveCall
    post: PostResponse
    interaction: Interaction = field(default_factory=Interaction)
    server: Server | None = None  # None until it is known on which server it runs
    row: Row | None = None
    address: EventAddress = field(init=False)  # of its messages, once it has a row
    response: JSON | None = None  # also None for a cancelled call
    has_outcome: bool = False  # its outcome is set (``PostResponse.set_outcome``)
    is_done: bool = False  # its outcome is stored, or needs no row
    is_decided: bool = False  # its tool is committing: a cancel comes too late
    is_plain: bool = False  # it is decided, and is answered without a row
    is_committed: bool = False  # its response is in the database
    wakeup: StreamWakeup | None = None  # with that response, if this run has committed it
    is_rejected: bool = False  # it cannot be stored, and has not begun
    is_full: bool = False  # its stream has no room for more messages
    count: int = 0  # messages it has sent
    size: int = 0  # their characters
    pause: float = 0.0  # seconds to sleep before it sends more
    elicitations: list[str] = field(default_factory=list)  # ids of URL elicitations in its error
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        # Without the arguments: asyncio logs the arguments of a callback that raises.
        call = self.active.call
        return f"<SessionCall id={call.id!r} method={call.method!r} row={self.row}>"

    @property
    def owner(self) -> str:
        """The key of the principal that it acts for (``callers.TokenHolder``)."""
        return self.post.session.owner

    @property
    def is_durable(self) -> bool:
        """Whether it is stored before it runs."""
        call = self.active.call
        if self.post.is_single:
            return True
        if self.server is None or call.method != "tools/call":
            return False
        tool = self.server._catalog.tools.get(str(call.params.get("name")))
        return tool is not None and (self.server.durable or tool.durable)

    def revoke(self) -> None:
        self.post.registry.revoke(self)

    @property
    def stop_response(self) -> JSON | None:
        """The response to a stopped call: None if the client cancelled it, else an error."""
        error = self.active.refusal
        return None if error is None else self.post.connection.error(self.active.call, error)

    # Messages.

    def open(self) -> None:
        """Allow the call to send messages, and to be stopped."""
        self.active.output, self.active.interrupt, self.active.over = self, self.cancel, False

    def release(self) -> None:
        if self.active.call.revision.priming:  # clients of older revisions do not reconnect
            self.post.release(self)

    def reopen(self) -> None:
        """Allow messages and cancels again, because the tool's transaction was rolled back."""
        with self._lock:
            self.is_decided = False
        self.post.allow_row(self)
        self.open()

    def send(self, message: JSON) -> None:
        """Send a message, from any thread. Raise ``ToolError`` if the call sends too much."""
        text = encode(message)
        self.count, self.size = self.count + 1, self.size + len(text)
        if self.is_full or self.count > settings.EVENTS or self.size > event_log.most_bytes():
            raise ToolError(CALL_TOO_MUCH)
        try:
            # It does not sleep here: it may run in the event loop, and under the call's lock.
            self.pause = pause_seconds(self.post.queue_message(self, text))
        except OutputTooLarge as error:
            raise ToolError(str(error)) from None

    def take_pause(self) -> float:
        pause, self.pause = self.pause, 0.0
        return pause

    def is_behind(self) -> bool:
        """Whether it should pause before it sends more. A call that is ending never pauses."""
        ends = self.is_full or self.is_decided or self.active.stop.is_set
        return not ends and self.post.is_behind(self)

    def handle_rejected_messages(self, outcome: int | None) -> None:
        """Handle that the log rejected messages: the stream is full, or the call was taken over.

        ``outcome`` is ``FULL`` or None. A call that was taken over is cancelled here.
        """
        if outcome == FULL:
            self.is_full = True
        else:
            self.cancel()

    # Steps and the result. A call is stored before its first step.

    stores_result = True

    def has_run_before(self) -> bool:
        return self.row is not None and self.row.fence > 0

    async def prepare_step(self) -> None:
        # The step needs the call's row: its steps are stored under the row's id, and without the
        # fence a worker that was taken over could repeat the step.
        await self.post.wait_for_row(self)

    def store_result(self, response: JSON) -> None:
        """Store the response at the end of the tool's transaction, in its thread.

        Raise ``Stopped``, which rolls back, if the call was cancelled or taken over. If the tool
        has marked its transaction for rollback, the response is stored afterwards instead.
        """
        # Before anything is written: a cancel from now on must not leave writes without a response.
        if not self.decide():
            raise Stopped()
        if self.post.stays_plain(self):
            return
        # Messages are written on other connections. They must be committed before the response,
        # which is the last event of the call.
        if self.row is None or self.count:
            _wait(self.post.loop, self.post.flush(self))
        if self.post.has_session_ended:
            raise Stopped()
        if self.is_full:
            raise ToolError(CALL_TOO_MUCH)
        if self.row is None or transaction.get_rollback(settings.DATABASE):
            return
        # It checks the fencing token. A call that another worker took over must not commit its
        # writes.
        to, text, has_asked = self.address, encode(response), self.interaction.may_return
        stored = event_log.finish_in_transaction(
            self.row.pk, to.fence, text, to.stream, has_asked=has_asked
        )
        if stored is None:
            raise Stopped()
        if self.interaction.has_steps:
            stored_calls.delete_steps(self.interaction.id)
        commit = partial(self.note_commit, response_wakeup(to.stream, stored, text))
        transaction.on_commit(commit, using=settings.DATABASE, robust=True)

    async def was_rolled_back(self, run: CallRun) -> bool:
        """Find out from the call's row, if the outcome was to be committed with the tool's writes.

        The broken transaction may hold the row's lock until the database ends it, so this waits
        for it. Raise ``Stopped`` if the outcome was committed or the call was taken over.
        """
        if not self.is_decided:
            return await super().was_rolled_back(run)
        row = None if self.is_plain else self.row
        if row is not None and not await run_with_retries(stored_calls.is_owned, row.pk, row.fence):
            self.note_commit()
            raise Stopped()
        self.reopen()
        return row is not None

    # Ending.

    def without_outcome(self, message: str) -> JSON:
        """Return the response to a call without an outcome: a tool error, or a JSON-RPC error."""
        call, connection = self.active.call, self.post.connection
        if call.method == "tools/call":
            return connection.result(call, error_result(message))
        return connection.error(call, InternalError(message))

    def cancel(self) -> None:
        """Stop the call, unless its outcome is decided."""
        with self._lock:
            if not self.is_decided:
                self.active.cancel()

    def decide(self) -> bool:
        """Ignore cancels and messages from now on. Return False if a cancel came before."""
        with self._lock:
            self.is_decided = not self.active.stop.is_set
        if self.is_decided:
            self.active.end()
        return self.is_decided

    def note_commit(self, wakeup: StreamWakeup | None = None) -> None:
        """Note that the response is in the database. ``wakeup`` is for the stream's readers."""
        self.is_committed, self.wakeup = True, wakeup

    def text(self, connection: Connection) -> str:
        """Return the encoded response. A value that is not JSON becomes an internal error.

        A success becomes one too if messages of the call were rejected because the stream is full.
        """
        if self.is_full and _is_success(self.response):
            self.response = connection.error(self.active.call, InternalError(CALL_TOO_MUCH))
        try:
            return encode(self.response)
        except (TypeError, ValueError):
            logger.exception("Response cannot be encoded: method=%s", self.active.call.method)
            self.response = connection.error(self.active.call, InternalError())
            return encode(self.response)


def response_wakeup(stream: int, stored: StoredResponse, text: str) -> StreamWakeup:
    """Return the wake-up for the readers of a stream in which a response was stored."""
    if stored.seq is None:
        return StreamWakeup(stream, changed=True)
    return StreamWakeup(stream, [(stored.seq, text)], closed=stored.closed, reader=stored.reader)


def _is_success(response: JSON | None) -> bool:
    return response is not None and not response.get("result", {"isError": True}).get("isError")


WRITE_TIMEOUT_SECONDS = 10.0  # for which ``store_result`` waits for the call's row and messages
UNWRITTEN = (
    "The messages of this call could not be stored, so its database writes were rolled back."
)


def of_tool(server: Server | None, call: ClientCall) -> bool:
    """Whether the response of this call will be stored in the tool's transaction."""
    if server is None or call.method != "tools/call":
        return False
    tool = server._catalog.called_tool(call.params)
    return tool is not None and can_store_result_in_transaction(tool._transaction)


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


class PostResponse:
    """The response to one POST, or to one call that was loaded from its row.

    ``answered`` resolves to True if there is a ``stream`` to read, or to False if ``responses`` are
    the whole answer. Methods run in the event loop unless their docstring allows any thread.
    ``_lock`` guards what the threads of calls share with the loop: ``stream``, ``_messages``,
    ``_size`` and the flags.
    """

    def __init__(
        self,
        registry: SessionCallRegistry,
        session: Session,
        caller: SessionCaller,
        connection: Connection,
        received: float | None = None,
    ) -> None:
        self.registry, self.session = registry, session
        self.caller, self.connection = caller, connection
        # Whether the session has only one stream (HTTP+SSE). Its responses go to that stream, so
        # every call is stored before it runs.
        self.is_single = connection.revision.one_stream
        self._received = time.monotonic() if received is None else received
        self._created: datetime | None = None
        self.loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self.calls: list[SessionCall] = []
        self.ready: list[JSON] = []  # responses to messages that became no call
        self.stream: int | None = None
        self._first_events: StreamWakeup | None = None  # the first events of the stream
        self.has_session_ended = False
        self.answered: asyncio.Future[bool] = self.loop.create_future()
        self._messages: list[tuple[SessionCall, str]] = []
        self._size = 0
        self._storing: asyncio.Future[None] | None = None
        self._is_releasing = False
        self._drops_messages = False  # the calls cannot be stored, so messages are dropped
        self._grace: asyncio.TimerHandle | None = None

    @classmethod
    def resumed(
        cls, registry: SessionCallRegistry, session: Session, row: Row, connection: Connection
    ) -> PostResponse:
        """Return the response object of a call that was loaded from its row."""
        post = cls(registry, session, SessionCaller.from_call(session, row), connection)
        post.stream, post._storing = row.stream_id, post.loop.create_future()
        post._storing.set_result(None)
        post._settle(True)
        return post

    def wait(self) -> None:
        """Start the ``JSON_GRACE`` timer, after which unfinished calls are stored as rows.

        In a session with a single stream, store them at once.
        """
        if self.is_single:
            self.start_storing()
        elif self.calls:
            self._grace = self.loop.call_later(settings.JSON_GRACE, self._store_late_calls)
        else:
            self._settle(False)

    def _store_late_calls(self) -> None:
        if not all(session_call.is_done or session_call.is_plain for session_call in self.calls):
            self.start_storing()

    @property
    def responses(self) -> list[JSON]:
        answered = (session_call.response for session_call in self.calls)
        return [*self.ready, *(response for response in answered if response is not None)]

    @property
    def texts(self) -> list[str]:
        """The encoded responses of all calls that are done."""
        done = (
            session_call
            for session_call in self.calls
            if session_call.is_done and session_call.response is not None
        )
        return [
            *map(encode, self.ready),
            *(session_call.text(self.connection) for session_call in done),
        ]

    def take_first_events(self) -> StreamWakeup | None:
        """Return the first events of the stream, for its reader, and forget them."""
        first, self._first_events = self._first_events, None
        return first

    # Messages of calls.

    def queue_message(self, session_call: SessionCall, text: str) -> int:
        """Queue a message of a call, from any thread. Return how many are queued.

        The first message starts storing the calls. Messages wait here until the stream exists.
        Raise ``OutputTooLarge`` if too many wait.
        """
        # ``_enter`` sets ``stream`` and forwards the waiting messages under the same lock.
        # Otherwise a message could overtake the ones that wait.
        with self._lock:
            if self.stream is not None:
                return self.registry.writer.queue_message(
                    session_call.address, text, session_call.handle_rejected_messages
                )
            if self._drops_messages:
                return 0
            if (
                len(self._messages) >= MAX_QUEUED_MESSAGES
                or self._size + len(text) > MAX_QUEUED_SIZE
            ):
                raise OutputTooLarge(TOO_MUCH)
            self._messages.append((session_call, text))
            self._size += len(text)
            waiting = len(self._messages)
            first = self._storing is None and waiting == 1
        if first:
            self.loop.call_soon_threadsafe(self.start_storing)
        return waiting

    def is_behind(self, session_call: SessionCall) -> bool:
        """Whether a call should pause before it sends more. May be called from any thread."""
        if self.stream is None:
            return len(self._messages) >= PACED_MESSAGES or self._size >= PACED_SIZE
        return self.registry.writer.is_behind(session_call.address)

    # Storing the calls.

    def start_storing(self) -> asyncio.Future[None]:
        """Start storing the calls and their messages as rows. Only the first call has an effect."""
        # ``stays_plain`` reads ``_storing`` in the threads of tools. Under the lock a call either
        # stays plain, and ``_store`` waits for it, or its tool waits for the row.
        with self._lock:
            if self._storing is None:
                if self._grace is not None:
                    self._grace.cancel()
                self._storing = self.registry.spawn(self._store())
            return self._storing

    def stays_plain(self, session_call: SessionCall) -> bool:
        """Whether a decided call is answered by plain JSON without a row, from any thread.

        The answer is final: once it is True, no row is created for the call.
        """
        with self._lock:
            needs_row = self._storing is not None or self._messages or self._is_releasing
            # True stays True, unless ``allow_row`` has reset it: ``_store`` may rely on it.
            session_call.is_plain = session_call.is_plain or self._drops_messages or not needs_row
            return session_call.is_plain

    def allow_row(self, session_call: SessionCall) -> None:
        """Let a call whose commit failed become a row, unless ``_store`` waits for it already.

        Its next run may ask the client or need a step, for which it must be a row.
        """
        with self._lock:
            if self._storing is None:
                session_call.is_plain = False

    async def flush(self, session_call: SessionCall) -> None:
        """Wait until the call and all of its messages are stored, or cannot be stored."""
        # All calls of the POST share this task. The cancel of one call must not cancel it.
        await asyncio.shield(self.start_storing())
        if session_call.row is not None:
            await self.registry.writer.flush(session_call.address)

    async def wait_for_row(self, session_call: SessionCall) -> None:
        """Wait until the calls are stored, in the task of this call. Raise ``Busy`` if they cannot.

        A call that stays without a row cannot be: ``_store`` waits for the end of its task.
        """
        if not session_call.is_plain:
            await asyncio.shield(self.start_storing())
        if session_call.is_plain or self.stream is None:
            raise Busy("Too many requests are being answered in this session.")

    async def _store(self) -> None:
        # These calls are committing without a row. If a row were created now, the response would
        # be missing from their transaction, and a takeover could run the tool twice.
        if plain := [
            session_call.active.task
            for session_call in self.calls
            if session_call.is_plain and not session_call.is_done
        ]:
            await asyncio.wait([task for task in plain if task is not None])
        # The rows belong to this process as soon as they are committed. Without ``claiming`` a
        # reconciliation could find them before ``_enter`` has registered them, and run the calls
        # twice.
        async with self.registry.poller.claiming():
            try:
                with self._lock:
                    messages, self._messages, self._size = self._messages, [], 0
                await self._insert_calls([text for _, text in messages])
            except SessionEnded:
                self._end()
            except Busy:
                self._drop_messages()
            except Exception:
                logger.exception("Calls could not be stored")
                self._drop_messages()

    async def _insert_calls(self, messages: list[str]) -> None:
        """Store the calls without a response, and the responses of the others.

        Repeat without those that are refused. Raise ``SessionEnded`` or ``Busy``.
        """
        while True:
            left = [session_call for session_call in self.calls if not session_call.is_done]
            calls = [self._row(session_call) for session_call in left]
            # The request ids of calls that begin only after they are stored.
            unbegun = [
                call.request_id
                for call, session_call in zip(calls, left, strict=True)
                if session_call.is_durable
            ]
            try:
                wakeup = await run_with_retries(
                    self._insert_rows, calls, unbegun, messages, self.texts, uuid.uuid4().hex,
                    is_retry=False,
                )  # fmt: skip
            except RequestRefused as refused:
                self._reject(refused)
                if not self.is_single and all(session_call.is_done for session_call in self.calls):
                    raise Busy(str(refused)) from None  # no stream: plain JSON has the errors
            else:
                self._enter(left, calls, wakeup)
                return

    def _reject(self, refused: RequestRefused) -> None:
        """Respond to the refused calls with an error."""
        for session_call in self.calls:
            if json.dumps(session_call.active.call.id) in refused.ids and not session_call.is_done:
                error = InvalidRequest(str(refused))
                session_call.response = self.connection.error(session_call.active.call, error)
                session_call.is_rejected = session_call.is_done = True

    def _insert_rows(
        self,
        calls: list[Row],
        unbegun: list[str],
        messages: list[str],
        finals: list[str],
        nonce: str,
        *,
        is_retry: bool,
    ) -> StreamWakeup:
        """Insert the rows. Return the wake-up for the stream's reader. Runs in the pool ``log``.

        ``nonce`` and ``is_retry`` let a retry after an unknown commit find what the first attempt
        stored. Raise ``SessionEnded``, ``Busy`` or a ``RequestRefused``.
        """
        process = lease.hold()
        if self._created is None:  # a retry finds the calls of the first attempt by this time
            age = timedelta(seconds=time.monotonic() - self._received)
            self._created = databases.now() - age
        for call in calls:
            call.process, call.created = process, self._created
        if self.is_single:
            stream = streams.enter_only_stream(
                self.session, calls, finals, nonce, is_retry=is_retry
            )
            return StreamWakeup(stream, changed=True)
        opened = streams.open(
            self.session, calls=calls, unbegun=unbegun, messages=messages, finals=finals,
            nonce=nonce, is_retry=is_retry,
        )  # fmt: skip
        if is_retry:  # others may have appended since the first attempt
            return StreamWakeup(opened.pk, changed=True)
        events = list(enumerate([*messages, *finals], 1))
        return StreamWakeup(opened.pk, events, closed=opened.closed)

    def _row(self, session_call: SessionCall) -> Row:
        call = session_call.active.call
        name = call.params.get("name")
        return Row(
            request_id=json.dumps(call.id), method=call.method, params=call.params, meta=call.meta,
            # A client may send any name. The admin shows only those that a declaration can have.
            name=name if isinstance(name, str) and NAME.match(name) else "",
            user=self.caller.user, scopes=self.caller.scopes,
            atomic=of_tool(session_call.server, call),
        )  # fmt: skip

    def _enter(self, left: list[SessionCall], calls: list[Row], wakeup: StreamWakeup) -> None:
        for session_call, row in zip(left, calls, strict=True):
            session_call.interaction.id = f"c{row.pk}"
            self.registry.enter(session_call, row)
            if row.cancelled or row.state == DONE:  # a cancel was stored before the call was
                session_call.cancel()
        with self._lock:  # new messages must come after those that waited
            self.stream = wakeup.stream
            messages, self._messages = self._messages, []
            for session_call, text in messages:
                self.registry.writer.queue_message(
                    session_call.address, text, session_call.handle_rejected_messages, must=True
                )
        if not self.answered.done():  # otherwise its client has disconnected
            self._first_events = wakeup
        self._settle(True)

    def _drop_messages(self) -> None:
        """Drop all messages, because they cannot be stored. The response will be plain JSON."""
        with self._lock:
            self._drops_messages, self._messages, self._size = True, [], 0
        self._answer_if_done()

    def _end(self) -> None:
        """Cancel the calls, because the session has ended."""
        self.has_session_ended = self._drops_messages = True
        for session_call in self.calls:
            session_call.cancel()
        self._settle(False)

    # Releasing the connection.

    def release(self, session_call: SessionCall) -> None:
        """End the HTTP response, so that the client reconnects for the rest. From any thread."""
        with self._lock:
            self._is_releasing = True
        self.loop.call_soon_threadsafe(lambda: self.registry.spawn(self._release(session_call)))

    async def _release(self, session_call: SessionCall) -> None:
        with suppress(Busy):
            await asyncio.shield(self.start_storing())
            if session_call.row is None:
                return  # it cannot be stored, or was answered before that
            # The client should receive what the call sent before, and not only after it reconnects.
            await self.registry.writer.flush(session_call.address)
            await run_with_retries(streams.release, session_call.address.stream)
            wake_readers(StreamWakeup(session_call.address.stream, changed=True))

    # Responses.

    def set_outcome(self, session_call: SessionCall, response: JSON | None) -> None:
        """Set the outcome of a call: its response, or None if it was cancelled.

        Only the first outcome counts. A shutdown may set one while the task still runs.
        """
        if session_call.has_outcome:
            return
        session_call.has_outcome = True
        session_call.active.end()
        session_call.response = response
        if self._messages:
            self.start_storing()
        if session_call.is_plain or (self._storing is None and not session_call.elicitations):
            session_call.is_done = True
            self.registry.leave(session_call)
            if self._storing is None or self._drops_messages:
                self._answer_if_done()
        else:
            self.registry.spawn(self._conclude(session_call))

    async def _conclude(self, session_call: SessionCall) -> None:
        try:
            if session_call.elicitations:
                await run_with_retries(
                    subscribe_to_completion, self.session, session_call.elicitations
                )
            if self._storing is not None:
                await asyncio.shield(self._storing)
            session_call.is_done = True
            is_stopped = session_call.response is None and not session_call.is_committed
            if session_call.row is not None and not is_stopped:
                await self._finish(session_call)
        except TooLarge as error:
            await self._store_error_instead(session_call, session_call.without_outcome(str(error)))
        except Exception:
            logger.exception("Response not stored: method=%s", session_call.active.call.method)
            await self._store_error_instead(
                session_call, self.connection.error(session_call.active.call, InternalError())
            )
        finally:
            session_call.is_done = True
            self.registry.leave(session_call)
            if self._storing is None or self._drops_messages:
                self._answer_if_done()

    async def _store_error_instead(self, session_call: SessionCall, instead: JSON) -> None:
        """Store an error response because the real one cannot be stored.

        If this fails too, the call is left without a response, and can be taken over.
        """
        # The row may be inserted at this moment. Without the wait it would stay without an outcome.
        if self._storing is not None:
            await asyncio.wait([self._storing])
        if session_call.is_committed or session_call.response is None:
            return
        session_call.response = instead
        try:
            if session_call.row is not None:
                await self._finish(session_call)
        except Exception:
            logger.exception("Call left without a response: call=%s", session_call.row)
            session_call.response = None

    async def _finish(self, session_call: SessionCall) -> None:
        """Store the response, unless the transaction of the tool has stored it.

        If the connection broke at that commit, it is unknown whether it was stored. Then
        ``event_log.finish`` waits for the row's lock and finds out.
        """
        to = session_call.address
        if not session_call.is_committed:
            # The response must be the last event of the call: streams end after it.
            await self.registry.writer.flush(to)
            text, interaction = session_call.text(self.connection), session_call.interaction
            stored = await run_with_retries(
                event_log.finish, to.call, to.fence, text, to.stream,
                has_asked=interaction.may_return, is_retry=False,
            )  # fmt: skip
            if stored is not None:
                session_call.wakeup = response_wakeup(to.stream, stored, text)
                if interaction.has_steps:
                    await run_with_retries(stored_calls.delete_steps, interaction.id)
        wake_readers(session_call.wakeup or StreamWakeup(to.stream, changed=True))

    def _answer_if_done(self) -> bool:
        """If all calls are done, resolve ``answered`` for plain JSON. Return whether they are."""
        if not all(session_call.is_done for session_call in self.calls):
            return False
        self._settle(False)
        return True

    def _settle(self, streamed: bool) -> None:
        if self._grace is not None:
            self._grace.cancel()
        if not self.answered.done():
            self.answered.set_result(streamed)


class SessionCallRegistry:
    """The calls of sessions that one event loop runs, and their tasks.

    ``_requests`` has all of them, by session and request id. ``_rows`` has those that are stored,
    by primary key. Only the event loop changes these, so there is no lock.
    """

    def __init__(self) -> None:
        self.writer, self.poller, self._revocations = writer(), poller(), revocation_checker()
        self._requests: dict[tuple[int, Id], SessionCall] = {}
        self._rows: dict[int, SessionCall] = {}
        self._claimed: set[int] = set()  # claimed in the database, and not yet in ``_rows``
        self._streams: Counter[int] = Counter()  # number of calls in ``_rows`` by stream
        # Ids and fences of calls that ended here without a response (``SessionCallManager.resume``)
        self._left: deque[tuple[int, int]] = deque(maxlen=1_000)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._revocations.sources.append(self.running)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        # The event loop keeps only weak references to tasks. Without this set the garbage collector
        # could delete a running one. ``finish`` waits for them.
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._log_failure)
        return task

    def _log_failure(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            logger.error("Work for a session failed", exc_info=task.exception())

    def running(self) -> list[SessionCall]:
        """Return the calls that run here."""
        return list(self._requests.values())

    def enter(self, session_call: SessionCall, row: Row) -> None:
        """Register a call that has become a row."""
        assert row.stream_id is not None
        session_call.row = row
        session_call.address = EventAddress(row.stream_id, row.pk, row.fence)
        if row.pk not in self._rows:  # a parked call may still be here when its answer comes
            self._streams[row.stream_id] += 1
        self._rows[row.pk] = session_call
        self.poller.poll_often()
        self._revocations.start_if_needed()

    def leave(self, session_call: SessionCall) -> None:
        """Remove a call that does not run here any more."""
        request = (session_call.post.session.pk, session_call.active.call.id)
        if self._requests.get(request) is session_call:
            del self._requests[request]
        if session_call.row is not None and self._rows.get(session_call.row.pk) is session_call:
            del self._rows[session_call.row.pk]
            self._streams -= Counter([session_call.address.stream])
            if session_call.response is None:
                self._left.append((session_call.row.pk, session_call.row.fence))
            self.poller.stop_if_idle()

    def running_ids(self) -> Collection[int]:
        """Return the primary keys of the stored calls that run here or were claimed."""
        return self._rows.keys() | self._claimed

    def streams(self) -> Collection[int]:
        """Return the streams of the stored calls that run here."""
        return self._streams.keys()

    def stop(self, ids: Collection[int]) -> None:
        """Cancel these calls, because the lease of this process may have expired."""
        for id in ids:
            if session_call := self._rows.get(id):
                session_call.cancel()

    def stop_if_lost(self, ids: Collection[int]) -> None:
        """Cancel those of these calls that another process cancelled or took over.

        The rows are read again, because an answer may have restarted a call since the poll.
        """
        possibly_lost = {id: self._rows[id] for id in ids if id in self._rows}
        if possibly_lost:
            self.spawn(self._stop_lost(possibly_lost))

    async def _stop_lost(self, possibly_lost: Mapping[int, SessionCall]) -> None:
        fences = {id: session_call.address.fence for id, session_call in possibly_lost.items()}
        still_mine = await run_with_retries(stored_calls.running, fences)
        for id in possibly_lost.keys() - still_mine:
            possibly_lost[id].cancel()

    # Ending calls.

    async def _cancelled(
        self,
        session: Session,
        principal: Principal,
        event: Cancelled,
        encode_withdrawals: WithdrawalEncoder,
    ) -> None:
        session_call = self._requests.get((session.pk, event.id))
        if session_call is not None:
            # A token with fewer scopes must not stop a call that a broader token began.
            if not covers(principal, session_call.post.caller.scopes):
                return
            method = session_call.active.call.method
            logger.info("Call cancelled: method=%s reason=%.200r", method, event.reason)
            session_call.cancel()
            if session_call.is_plain:  # its response is plain JSON, so it never becomes a row
                return
        id, may = json.dumps(event.id), lambda row: covers(principal, row.scopes)
        # Until the cancel is committed, the row says that the call runs, but it is no longer in
        # ``_rows``. ``claiming`` makes the poller wait, which would start such a call again.
        async with self.poller.claiming():
            row = await run_with_retries(
                stored_calls.cancel, session, id, may, encode_withdrawals=encode_withdrawals
            )
        if row is not None and row.stream_id is not None:
            wake_readers(StreamWakeup(row.stream_id, changed=True))

    def revoke(self, session_call: SessionCall) -> None:
        """Stop a call whose token was revoked or whose user is inactive, as a cancel does."""
        event = Cancelled(session_call.active.call.id, "its owner may not go on")
        # ``no_withdrawals``: write nothing more to a client whose access was revoked.
        # This is no request of a client, so scopes are not compared: ``anonymous()`` has no token.
        self.spawn(self._cancelled(session_call.post.session, anonymous(), event, no_withdrawals))

    async def end(self, session: Session) -> None:
        """End a session: cancel its calls, end its row, and wake the readers of its streams."""
        calls = [call for (pk, _), call in self._requests.items() if pk == session.pk]
        for session_call in calls:
            session_call.post.has_session_ended = True
            session_call.cancel()
        # As in ``_cancelled``: before the commit the poller would start the calls again.
        async with self.poller.claiming():
            await run_with_retries(sessions.end, session)
        stream_ids = [reader.stream for reader in stream_wakeups() if reader.session == session.pk]
        wake_readers(*(StreamWakeup(id, changed=True) for id in stream_ids))
