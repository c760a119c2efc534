"""Stored calls: park them while a question is open, claim, cancel and take them over; their steps.

Every change is a conditional UPDATE, so that of two competing processes one wins. A process that
claims a call raises its ``fence`` (a fencing token). Events, questions and responses of a call are
written only if it still has the writer's fence, so an earlier owner that was only suspended can
write none of them. The functions for steps do not compare fences. Their caller,
``SessionCallSteps``, checks ``is_owned``.

``CallManager`` is the interface through which the poller notifies the code that runs calls. Its
methods are called in the event loop and must not block. Only ``withdrawal_messages`` is called in
the thread of the pool ``polling``.

Steps (``request.once``) are rows too, so that they happen once across processes and restarts. The
row is inserted before the step runs. If the process dies in the step, the row is rolled back if
both are in one transaction. Otherwise the step is never repeated, because its outcome is unknown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from django.db import IntegrityError, transaction
from django.db.models import F, Max, Min, Q, QuerySet

from ..conf import settings
from ..exceptions import ToolError
from ..models import DONE, PARKED, RUNNING, Ask, Call, Process, Session, Step, Stream
from . import databases
from .databases import digest_of, erase, one_transaction, rows, unlocked
from .event_log import CLEARED, StoredResponse, append_response, append_unlimited, response_sent
from .jobs import BROKEN
from .sessions import SessionEnded, lock
from .streams import cancel_lifetime

logger = logging.getLogger("django_mcp.storage")
ASK_ID = re.compile(r"[0-9a-f]{32}\Z")
MAX_STORED_CANCELS = 100  # stored cancels of one session that found no call
CALLS_PER_POLL = 100  # calls handled in one poll


class TimedOutQuestions(NamedTuple):
    """Questions that timed out, and their call if it can continue."""

    stream: int | None
    asks: list[str]
    call: Call | None


# Returns the messages that withdraw questions, by their ids, from the client of a session.
WithdrawalEncoder = Callable[[Session, Sequence[str]], Sequence[str]]


def no_withdrawals(session: Session, asks: Sequence[str]) -> Sequence[str]:
    return ()


# Questions.


@one_transaction
def park(
    call_id: int,
    fence: int,
    asks: Sequence[Ask],
    messages: Sequence[str],
    *,
    known: dict[str, Any],
    high_water: float | None,
    rounds: int,
    is_retry: bool = False,
) -> bool:
    """Park a call and append its questions to the stream, in one transaction.

    Return False if the call was cancelled or taken over. Use ``is_retry=True`` to repeat it after
    an unknown commit: if the first attempt was committed, return True.
    """
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False)
    parked = {"known": known, "high_water": high_water, "rounds": rounds}
    # Without a process, no death of a process concerns it: a user may need days for the answer.
    if not mine.filter(state=RUNNING).update(state=PARKED, process="", **parked):
        return is_retry and rows(Ask).filter(pk__in=[ask.pk for ask in asks]).exists()
    erase(rows(Ask).filter(call=call_id))
    if not append_unlimited(
        rows(Call).values_list("stream_id", flat=True).get(pk=call_id), messages
    ):
        rows(Call).filter(pk=call_id).update(state=DONE, **CLEARED)  # its stream is closed
        return False
    now = databases.now()
    for ask in asks:
        ask.call_id, ask.deadline = call_id, now + timedelta(seconds=ask.seconds)
    rows(Ask).bulk_create(asks)
    return True


def open_question(session: Session, ask_id: str) -> Ask | None:
    """Return the open question of that id if its call is of this session, else None."""
    if not ASK_ID.match(ask_id):
        return None
    found = rows(Ask).filter(pk=ask_id, open=True, call__session=session.pk)
    return found.select_related("call").first()


def answer(
    session: Session, ask_id: str, answer: dict[str, Any] | None, *, process: str
) -> Call | None:
    """Store the answer to a question. With None it stays unanswered and is asked again.

    If it was the call's last open question, claim the call for ``process`` and return it, to be
    run. If ``process`` is "", any process may take it over. Ignore answers that come twice or
    late, or to no question of the session, and return None.
    """
    ask = open_question(session, ask_id)
    return None if ask is None else _answer(ask, answer, process)


def answered(session: Session, ask_id: str, *, process: str) -> Call | None:
    """Return the call that an ``answer`` with an unknown commit has claimed, or None."""
    if not ASK_ID.match(ask_id):
        return None
    mine = rows(Call).filter(session=session.pk, process=process, state=RUNNING)
    return mine.filter(ask=ask_id).first()


@one_transaction
def _answer(ask: Ask, answer: dict[str, Any] | None, process: str) -> Call | None:
    if not _lock_parked(ask.call_id):
        return None
    # The condition makes each answer count once, also if the client sends it to two workers.
    if not rows(Ask).filter(pk=ask.pk, open=True).update(open=False, answer=answer):
        return None
    return _claim(ask.call_id, process)


def _lock_parked(call_id: int) -> int:
    """Lock a parked call, so that two last answers are stored one after the other.

    Otherwise each transaction could see the question of the other still open, and none would
    continue the call.
    """
    return rows(Call).filter(pk=call_id, state=PARKED, cancelled=False).update(state=PARKED)


def _claim(call_id: int, process: str) -> Call | None:
    """Claim a call if it has no open question. The caller holds its lock."""
    asks = rows(Ask).filter(call=call_id)
    if asks.filter(open=True).exists():
        return None
    call = rows(Call).get(pk=call_id)
    answers = asks.exclude(answer=None).values_list("digest", "answer")
    call.known |= dict(answers)
    call.state, call.process, call.fence, call.runs = RUNNING, process, call.fence + 1, 0
    rows(Call).filter(pk=call_id).update(
        known=call.known, state=call.state, process=call.process, fence=call.fence, runs=0
    )
    return call


def time_out_questions(
    now: datetime, process: str, encode_withdrawals: WithdrawalEncoder = no_withdrawals
) -> list[TimedOutQuestions]:
    """Time out questions past their deadline, withdraw them, and claim calls that can continue.

    A call for which that fails keeps its questions, and the next poll tries again. Errors in
    ``BROKEN``, those of the database, are raised.
    """
    late = rows(Ask).filter(open=True, deadline__lte=now, call__state=PARKED)
    calls = late.order_by("deadline").values_list("call_id", flat=True)[:CALLS_PER_POLL]
    results = []
    for call in dict.fromkeys(calls):
        try:
            results.append(_time_out(call, now, process, encode_withdrawals))
        except BROKEN:
            raise
        # The call stays first in this order. If its error ended the poll, no later question of any
        # session would time out.
        except Exception:
            logger.exception("Question could not be timed out: call=%s", call)
    return [result for result in results if result is not None]


@one_transaction
def _time_out(
    call_id: int, now: datetime, process: str, encode_withdrawals: WithdrawalEncoder
) -> TimedOutQuestions | None:
    # The poller must not wait for locks. A call that is locked is found again by the next poll.
    if not (_lock_if_free(rows(Call).filter(pk=call_id)) and _lock_parked(call_id)):
        return None
    late = list(rows(Ask).filter(call=call_id, open=True, deadline__lte=now))
    for ask in late:
        timed_out = {"timeout": ask.seconds}
        rows(Ask).filter(pk=ask.pk).update(open=False, answer=timed_out)
    if not late:
        return None
    asks, claimed = [ask.pk for ask in late], _claim(call_id, process)
    stream = rows(Stream).select_related("session").get(call=call_id)
    append_unlimited(stream.pk, encode_withdrawals(stream.session, asks))
    return TimedOutQuestions(stream.pk, asks, claimed)


# Cancels.


def cancel(
    session: Session,
    request_id: str,
    may: Callable[[Call], bool] = lambda call: True,
    *,
    encode_withdrawals: WithdrawalEncoder = no_withdrawals,
) -> Call | None:
    """Cancel the call of that request id (JSON) in whichever process it runs, and return it.

    Decrement ``pending_responses`` of its stream. ``encode_withdrawals`` returns the messages that
    withdraw its open questions. Return None if there is no such call, it is done, or ``may`` is
    False for it. If there is none, store the cancel for ``cancel_lifetime()``: another process may
    be storing the call at this moment.
    """
    try:
        return _cancel(session, request_id, may, encode_withdrawals)
    except SessionEnded:
        return None


@one_transaction
def _cancel(
    session: Session,
    request_id: str,
    may: Callable[[Call], bool],
    encode_withdrawals: WithdrawalEncoder,
) -> Call | None:
    # A process that stores calls locks the session too. So this finds the call, or that process
    # finds the cancel.
    lock(session.pk)
    theirs = rows(Call).filter(session=session.pk, request_digest=digest_of(request_id))
    call = theirs.exclude(state=DONE).order_by("pk").last()
    if call is not None and may(call) and _end_cancelled(session, call, encode_withdrawals):
        return call
    if not theirs.exclude(stream=None).exists():
        _store_early_cancel(session.pk, request_id)
    return None


def _end_cancelled(session: Session, call: Call, encode_withdrawals: WithdrawalEncoder) -> bool:
    """Cancel a call without a response. Return False if its response was committed first."""
    if not _mark_cancelled(session, call, encode_withdrawals):
        return False
    rows(Stream).filter(pk=call.stream_id or 0, closed=False).update(**response_sent())
    return True


@one_transaction
def refuse(
    call: Call, response: str, *, encode_withdrawals: WithdrawalEncoder = no_withdrawals
) -> StoredResponse | None:
    """Cancel a stored call in whichever process it runs, and append this response to its stream.

    Return None if its own response was committed first, or if its stream is closed.
    """
    if not _mark_cancelled(call.session, call, encode_withdrawals):
        return None
    return append_response(call.stream_id or 0, response)


def _mark_cancelled(session: Session, call: Call, encode_withdrawals: WithdrawalEncoder) -> bool:
    """Mark a call as cancelled, and withdraw its questions. Return False if it is done.

    The process that runs the call notices it at its next poll. Until then its writes are rejected.
    """
    unfinished = rows(Call).filter(pk=call.pk).exclude(state=DONE)
    if not unfinished.update(state=DONE, cancelled=True, **CLEARED):
        return False
    asks = rows(Ask).filter(call=call.pk)
    if open := list(asks.filter(open=True).values_list("pk", flat=True)):
        # The client may be showing a question to its user. It must be withdrawn before the stream
        # is closed.
        append_unlimited(call.stream_id or 0, encode_withdrawals(session, open))
    erase(asks)
    erase(rows(Step).filter(call=f"c{call.pk}"))
    call.state, call.cancelled = DONE, True
    return True


def _store_early_cancel(session_id: int, request_id: str) -> None:
    """Store a cancel that found no call, and delete old ones."""
    stored = rows(Call).filter(session=session_id, stream=None)
    digest, now = digest_of(request_id), databases.now()
    erase(stored.filter(Q(created__lt=now - cancel_lifetime()) | Q(request_digest=digest)))
    if over := list(stored.order_by("-pk").values_list("pk", flat=True)[MAX_STORED_CANCELS - 1 :]):
        erase(rows(Call).filter(pk__in=over))
    rows(Call).create(
        session_id=session_id, request_id=request_id, request_digest=digest,
        state=DONE, cancelled=True, created=now,
    )  # fmt: skip


def not_running(process: str, ids: Collection[int]) -> set[int]:
    """Return which of these calls are not running rows of ``process``.

    They were cancelled, taken over or deleted, or belong to a former id of the process. Compare
    fences before stopping one.
    """
    mine = rows(Call).filter(pk__in=ids, process=process, state=RUNNING)
    return set(ids) - set(mine.values_list("pk", flat=True))


def running(fences: Mapping[int, int]) -> set[int]:
    """Return the ids of the calls that run with the given fences and are not cancelled."""
    found = rows(Call).filter(pk__in=fences, state=RUNNING, cancelled=False)
    return {pk for pk, fence in found.values_list("pk", "fence") if fences[pk] == fence}


# Takeovers.


def claimed(process: str, known: Collection[int], former: Collection[str] = ()) -> list[Call]:
    """Return running calls of ``process`` that are not ``known`` to it, and all of ``former`` ids.

    They were claimed by a commit whose result was lost because the connection broke, or the
    process stopped them when it gave up an id.
    """
    mine = Q(process=process) & ~Q(pk__in=known)
    found = rows(Call).filter(mine | Q(process__in=former), state=RUNNING)
    return list(found.order_by("pk")[:CALLS_PER_POLL])


def take_over_orphans(process: str, former: Collection[str] = ()) -> list[Call]:
    """Take over at most ``CALLS_PER_POLL`` running calls of processes without a row.

    Calls of the ``former`` ids of this process are left out, because they may still run here.
    ``claimed`` returns them.
    A process that is shutting down stores last answers with no process. Taking over such a call
    does not count as one of its ``runs``.
    """
    left = rows(Call).filter(state=RUNNING).exclude(process__in=rows(Process).values("pk"))
    left = left.exclude(process__in=former)
    # In random order: calls that stay locked must not fill every poll.
    found = [take_over(call, process) for call in left.order_by("?")[:CALLS_PER_POLL]]
    return [call for call in found if call is not None]


@one_transaction
def take_over(call: Call, process: str) -> Call | None:
    """Take over one running call with a new fence and return it, or None if it has changed."""
    same = rows(Call).filter(pk=call.pk, fence=call.fence, state=RUNNING)
    counted = int(call.process != "")  # without a process, the call has not begun a run
    if not _lock_if_free(same):
        return None
    # The condition on the fence: of two processes that take over the same call one wins.
    if not same.update(fence=F("fence") + 1, runs=F("runs") + counted, process=process):
        return None
    call.fence, call.runs, call.process = call.fence + 1, call.runs + counted, process
    return call


def _lock_if_free(call: QuerySet[Call]) -> bool:
    """Lock a call and its stream without waiting. Return False if one of them is locked.

    A process that is still appending for the call holds the stream's lock. Its events come first.
    """
    streams = rows(Stream).filter(pk__in=unlocked(call).values("stream"))
    return bool(unlocked(streams).update(pending_responses=F("pending_responses")))


def is_owned(call_id: int, fence: int) -> bool:
    """Whether a call runs with this fence. It locks the call to the end of the transaction."""
    same = rows(Call).filter(pk=call_id, fence=fence, cancelled=False, state=RUNNING)
    return bool(same.update(fence=fence))


def are_running(stream_id: int) -> bool:
    """Whether a call of this stream is running, in any process."""
    return bool(rows(Call).filter(stream=stream_id, state=RUNNING).exists())


def scopes(stream_id: int) -> list[list[str] | None]:
    """Return the distinct scopes with which the calls of a stream began."""
    found = rows(Call).filter(stream=stream_id).values_list("scopes", flat=True)
    return list(found.distinct())


def requests(stream_id: int) -> list[str]:
    """Return the request ids (JSON) of a stream's calls, without cancelled ones."""
    found = rows(Call).filter(stream=stream_id, cancelled=False).order_by("pk")
    return list(found.values_list("request_id", flat=True))


class CallManager(Protocol):
    """Interface of the object that runs the calls of one event loop.

    The poller passes it no calls while it ``is_ending``.
    """

    is_ending: bool

    def running_ids(self) -> Collection[int]:
        """Return the ids of the running calls."""
        ...

    def streams(self) -> Collection[int]:
        """Return the streams of these calls."""
        ...

    def stop(self, ids: Collection[int]) -> None:
        """Stop these calls."""
        ...

    def stop_if_lost(self, ids: Collection[int]) -> None:
        """Stop those of these calls that this process no longer owns.

        The poller read rows by which it owns none of them. It may have claimed some again since.
        """
        ...

    def handle_timeout(self, timed_out: TimedOutQuestions) -> None:
        """Continue a call whose question timed out, if there is one, and wake its stream."""
        ...

    def withdrawal_messages(self, session: Session, asks: Sequence[str]) -> Sequence[str]:
        """Return the messages that withdraw these questions from the client.

        This is called in the thread of the pool ``polling``, in a transaction.
        """
        ...

    def resume(self, call: Call) -> None:
        """Run a call that this process claimed, by its id or a former one, and does not run.

        The result of the claim was lost, or the process stopped the call when it gave up the id.
        """
        ...

    def take_over(self, call: Call) -> None:
        """Handle a call whose process died and that this process has taken over."""
        ...


MAX_STEPS_PER_CALL = 100
MAX_STEPS = 1_000_000  # steps of all calls
TOO_MANY_STEPS = "The server keeps too many steps of other calls. Try again later."
CALLS_PER_DELETE = 500  # calls whose steps are deleted at once
STORED_CALL_NAME = re.compile(r"c([0-9]{1,18})\Z")  # the name of a call that has a row in ``Call``


def step_values(call: str) -> dict[str, Any]:
    """Return the results of a call's finished steps, by key."""
    done = rows(Step).filter(call=call, doing=False)
    return dict(done.values_list("key", "value"))


def has_steps(call: str) -> bool:
    """Whether a call has finished or begun a step."""
    return rows(Step).filter(call=call).exists()


def begin_step(call: str, key: str) -> bool:
    """Insert a step. Return True if the caller must do it, False if it is done.

    Raise ``ToolError`` if it was begun and not finished, or if there are too many steps.
    """
    steps = rows(Step).filter(call=call)
    known = steps.filter(digest=digest_of(key)).values_list("doing", flat=True).first()
    if known is None:
        _check_limits(steps.count())
        return _insert_step(call, key)
    if known:
        raise ToolError(
            f"The step {key!r} is already running, or was interrupted, and may be incomplete."
        )
    return False


def _check_limits(count: int) -> None:
    if count >= MAX_STEPS_PER_CALL:
        raise ToolError(f"A call remembers at most {MAX_STEPS_PER_CALL} steps.")
    # The range of the primary keys is cheap to read and is an upper bound of the number of rows.
    ends = rows(Step).aggregate(first=Min("pk"), last=Max("pk"))
    if (ends["last"] or 0) - (ends["first"] or 0) < MAX_STEPS:
        return
    delete_expired_steps()
    if rows(Step).count() >= MAX_STEPS:
        raise ToolError(TOO_MANY_STEPS)


def _insert_step(call: str, key: str) -> bool:
    """Insert a step. Return False if another process has done it meanwhile."""
    try:
        with transaction.atomic(using=settings.DATABASE):
            rows(Step).create(call=call, digest=digest_of(key), key=key, at=databases.now())
    # Another process inserted the step first. If this insert waited for its commit, it is done.
    except IntegrityError:
        if rows(Step).filter(call=call, digest=digest_of(key), doing=False).exists():
            return False
        raise ToolError(f"The step {key!r} is already running.") from None
    return True


def store_step_value(call: str, key: str, value: Any) -> None:
    """Store the result of a step, which is done."""
    step = rows(Step).filter(call=call, digest=digest_of(key))
    step.update(value=value, doing=False, at=databases.now())


def discard_step(call: str, key: str) -> None:
    """Delete a step that failed, so that it can be tried again."""
    erase(rows(Step).filter(call=call, digest=digest_of(key), doing=True))


def delete_steps(call: str) -> None:
    """Delete the steps of a call that cannot run again."""
    erase(rows(Step).filter(call=call))


def delete_expired_steps() -> int:
    """Delete the steps of calls that can no longer be resumed. Return how many."""
    oldest = max(2 * settings.STATE_LIFETIME, settings.SESSION_LIFETIME)
    old = rows(Step).filter(at__lt=databases.now() - timedelta(seconds=oldest))
    names = list(old.order_by("call").values_list("call", flat=True).distinct())
    count = 0
    for start in range(0, len(names), CALLS_PER_DELETE):
        some = names[start : start + CALLS_PER_DELETE]
        count += erase(old.filter(call__in=set(some) - _unfinished(some)))
    return count


def _unfinished(names: Sequence[str]) -> set[str]:
    """Return the names of those calls that have a row and are not done.

    Their steps are old but needed: a question may wait for days.
    """
    ids = [int(match[1]) for name in names if (match := STORED_CALL_NAME.match(name))]
    unfinished = rows(Call).filter(pk__in=ids).exclude(state=DONE)
    return {f"c{pk}" for pk in unfinished.values_list("pk", flat=True)}
