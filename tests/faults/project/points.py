"""Injection points of a call, and the statements, requests and responses that mark them.

A point is recognized by tables and columns, not by the text of one statement; test_points checks
each against what ``storage`` really executes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

Reach = Callable[[str], None]

# Points within a transaction are reached before its commit.
STATEMENTS = {
    "session-found": "the session of the request was looked up",
    "stream-inserted": "the rows of the stream and its call are inserted, not committed",
    "events-inserted": "events are inserted, not committed",
    "question-inserted": "a question is inserted, not committed",
    "answer-stored": "an answer is stored, not committed",
    "cancel-stored": "a cancel is stored, not committed",
    "outcome-updated": "the call is done, not committed",
    "outcome-inserted": "the final event is inserted, not committed",
    "answer-claimed": "the last answer has claimed the call, which has not begun",
    "takeover-claimed": "the call of a dead process is claimed, and has not begun",
    "step-entered": "a step is entered, and not done",
    "step-kept": "a step is done, and its call has not gone on",
}
REQUESTS = {
    "request-read": "the request is read, nothing is done",
    "stream-opened": "the stream is committed, nothing of it is written",
    "first-written": "the first event is written",
    "outcome-committed": "the outcome is committed, the final event is not written",
    "final-written": "the final event is written",
    "accepted": "what the client said is stored, and 202 not yet written",
}
TOOLS = {
    "tool-before-write": "in the tool, before its write",
    "tool-after-write": "in the tool, after its write",
    "tool-working": "in the tool, between two things it says",
}
POINTS = STATEMENTS | REQUESTS | TOOLS

Pause = Callable[[float, float], None]
LEFT = -1  # where the counter of a process stands that leaves calls behind
LOOKED_AT = 2000  # characters of a statement: there are some with thousands of rows
QUOTES = str.maketrans("", "", '"`')
INSERT = re.compile(r"INSERT INTO (?:\w+\.)?django_mcp_(\w+) ")
DELETE = re.compile(r"DELETE FROM (?:\w+\.)?django_mcp_(process) ")
UPDATE = re.compile(r"UPDATE (?:\w+\.)?django_mcp_(\w+) SET (.*?)( WHERE |$)", re.DOTALL)
COLUMN = re.compile(r"(?:^|, )(?:django_mcp_\w+\.)?(\w+) = ")
SESSION_BY_ID = re.compile(
    r"SELECT .* FROM django_mcp_session .*WHERE .*digest (?:=|IN) ", re.DOTALL
)
SESSION_BY_STREAM = re.compile(
    r"SELECT .* FROM django_mcp_session INNER JOIN django_mcp_stream ", re.DOTALL
)


@lru_cache(maxsize=2048)
def _kind(sql: str) -> tuple[str, str, frozenset[str]]:
    """Return the verb, the table and the columns of a statement."""
    bare = sql.translate(QUOTES)
    if found := INSERT.match(bare):
        return "insert", found[1], frozenset()
    if found := DELETE.match(bare):
        return "delete", found[1], frozenset()
    if found := UPDATE.match(bare):
        return "update", found[1], frozenset(COLUMN.findall(found[2]))
    if SESSION_BY_STREAM.match(bare):
        return "select", "session-of-stream", frozenset()
    if SESSION_BY_ID.match(bare):
        return "select", "session", frozenset()
    return "", "", frozenset()


class StatementWatcher:
    """Watches the statements of one connection (``connection.execute_wrappers``)."""

    # Calls that were claimed in this process: by what, and in which transaction.
    claims: dict[str, tuple[Any, Any]] = {}
    clock: float | None = None  # how far the time of day was from time itself, at the last event
    beaten: float | None = None  # when this process began to write its last heartbeat

    def __init__(
        self,
        connection: Any,
        reach: Reach,
        saw: Callable[[str], None],
        paused: Pause = lambda began, ended: None,
    ) -> None:
        self._connection, self._reach, self._saw = connection, reach, saw
        self._paused = paused
        self._transaction: Any = None
        self._began = 0.0  # when the statement began
        self._is_outcome = False

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        verb, table, columns = _kind(str(sql)[:LOOKED_AT])
        if not verb:
            return execute(sql, params, many, context)
        if (now := transaction_of(self._connection)) is not self._transaction:
            self._transaction, self._is_outcome = now, False
        if table == "session-of-stream":
            self._begin_claimed()
        self._began = time.monotonic()
        result = execute(sql, params, many, context)
        if rule := RULES.get((verb, table)):
            rule(self, columns, tuple(params or ()), context["cursor"].rowcount)
        return result

    def _begin_claimed(self) -> None:
        """A call is loaded to run: the claim has been committed by now."""
        for point, (connection, transaction) in list(StatementWatcher.claims.items()):
            if transaction_of(connection) is not transaction or connection is self._connection:
                StatementWatcher.claims.pop(point, None)
                self._reach(point)

    def _claimed(self, point: str) -> None:
        StatementWatcher.claims[point] = (self._connection, self._transaction)

    # Executed statements.

    def session(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._reach("session-found")

    def call_inserted(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._reach("stream-inserted")

    def event_inserted(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._look_at_clock()
        self._reach("outcome-inserted" if self._is_outcome else "events-inserted")

    def _look_at_clock(self) -> None:
        """Report whether the clock has stepped since the last events of this process."""
        before, now = StatementWatcher.clock, time.time() - time.monotonic()
        StatementWatcher.clock = now
        if before is not None and abs(now - before) > 0.3:
            self._saw("step-back" if now < before else "step")

    def ask_inserted(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._reach("question-inserted")

    def ask_updated(self, columns: frozenset[str], params: Any, count: int) -> None:
        if count:
            self._reach("answer-stored")

    def call_updated(self, columns: frozenset[str], params: Any, count: int) -> None:
        if not count:
            return
        if columns >= {"fence", "known", "state"}:
            self._claimed("answer-claimed")
        elif columns >= {"fence", "runs"}:
            self._connection.on_commit(partial(self._saw, "takeover"))
            self._claimed("takeover-claimed")
        elif columns >= {"state", "cancelled"}:
            self._reach("cancel-stored")
        elif "state" in columns and "done" in params:
            self._is_outcome = True
            self._reach("outcome-updated")

    def process_deleted(self, columns: frozenset[str], params: Any, count: int) -> None:
        if count:
            self._saw("left")

    def process_updated(self, columns: frozenset[str], params: Any, count: int) -> None:
        if count and params[0] == LEFT:  # what is set comes first
            self._saw("left")
        elif count:
            self._beat()

    def process_inserted(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._beat()

    def _beat(self) -> None:
        """Report the time since the last heartbeat, from before that one was sent."""
        before, StatementWatcher.beaten = StatementWatcher.beaten, self._began
        if before is not None:
            self._paused(before, time.monotonic())

    def step_inserted(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._reach("step-entered")

    def step_updated(self, columns: frozenset[str], params: Any, count: int) -> None:
        self._reach("step-kept")


RULES: dict[tuple[str, str], Callable[..., None]] = {
    ("select", "session"): StatementWatcher.session,
    ("insert", "call"): StatementWatcher.call_inserted,
    ("insert", "event"): StatementWatcher.event_inserted,
    ("insert", "ask"): StatementWatcher.ask_inserted,
    ("update", "ask"): StatementWatcher.ask_updated,
    ("update", "call"): StatementWatcher.call_updated,
    ("insert", "process"): StatementWatcher.process_inserted,
    ("delete", "process"): StatementWatcher.process_deleted,
    ("update", "process"): StatementWatcher.process_updated,
    ("insert", "step"): StatementWatcher.step_inserted,
    ("update", "step"): StatementWatcher.step_updated,
}


def transaction_of(connection: Any) -> Any:
    """Return an object that identifies the open transaction, or ``None``."""
    return connection.atomic_blocks[0] if connection.atomic_blocks else None


# Requests and responses.

FINAL = re.compile(rb'^data: (?!.*"method":).*"(?:result|error)":', re.MULTILINE)


class RequestWatcher:
    """Watches one request and its response in ASGI."""

    def __init__(self, method: str, reach: Reach) -> None:
        self._method, self._reach = method, reach
        self._is_stream = self._is_first = False

    def received(self, message: Any) -> None:
        whole = message["type"] == "http.request" and not message.get("more_body")
        if whole and self._method == "POST":
            self._reach("request-read")

    def before(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._start(message)
        elif self._is_stream and FINAL.search(message.get("body", b"")):
            self._reach("outcome-committed")

    def _start(self, message: Any) -> None:
        kinds = [value for name, value in message["headers"] if name == b"content-type"]
        self._is_stream = self._is_first = any(b"event-stream" in kind for kind in kinds)
        if self._is_stream and self._method == "POST":
            self._reach("stream-opened")
        elif message["status"] == 202:
            self._reach("accepted")

    def after(self, message: Any) -> None:
        if not self._is_stream or message["type"] != "http.response.body":
            return
        if self._is_first:
            self._is_first = False
            self._reach("first-written")
        if FINAL.search(message.get("body", b"")):
            self._reach("final-written")
