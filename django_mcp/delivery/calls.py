"""
Calls that are rows: parked while they ask, claimed by who has the last answer.

Rule: every change is an UPDATE that says what it expects, so that of two who
compete one wins. Whoever claims a call raises its fence; the call is then
theirs alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F, QuerySet

from ..models import DONE, PARKED, RUNNING, Ask, Call, Process, Session, Step, Stream
from . import clock
from .events import CLEARED, enlarge, settled
from .patience import unlocked
from .rows import digest_of, erase, one_transaction, rows
from .sessions import Gone, lock

ASK_ID = re.compile(r"[0-9a-f]{32}\Z")
TOMBSTONES = 100  # cancels of a session that found no call
SWEEP = 100  # calls looked at in one go


class Overdue(NamedTuple):
    """Questions that nobody answered in time, and their call if it can go on."""

    stream: int | None
    asks: list[str]
    call: Call | None


# What tells the client of a session that nobody waits for these answers any more.
Words = Callable[[Session, Sequence[str]], Sequence[str]]


def _silently(session: Session, asks: Sequence[str]) -> Sequence[str]:
    return ()


# Asking.


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
    again: bool = False,
) -> bool:
    """Leave the call to whoever brings the answers, and ask. False: it is no longer mine.

    ``again`` asks after an unknown commit: True as well if it was parked before.
    """
    mine = rows(Call).filter(pk=call_id, fence=fence, cancelled=False)
    parked = {"known": known, "high_water": high_water, "rounds": rounds}
    if not mine.filter(state=RUNNING).update(state=PARKED, process="", **parked):
        return again and rows(Ask).filter(pk__in=[ask.pk for ask in asks]).exists()
    erase(rows(Ask).filter(call=call_id))
    if not enlarge(rows(Call).values_list("stream_id", flat=True).get(pk=call_id), messages):
        rows(Call).filter(pk=call_id).update(state=DONE, **CLEARED)  # its stream is closed
        return False
    now = clock.now()
    for ask in asks:
        ask.call_id, ask.deadline = call_id, now + timedelta(seconds=ask.seconds)
    rows(Ask).bulk_create(asks)
    return True


def asked(session: Session, ask_id: str) -> Ask | None:
    """The open question of that id, of a call of this session."""
    if not ASK_ID.match(ask_id):
        return None
    found = rows(Ask).filter(pk=ask_id, open=True, call__session=session.pk)
    return found.select_related("call").first()


def answer(
    session: Session, ask_id: str, answer: dict[str, Any] | None, *, process: str
) -> Call | None:
    """Store an answer; None answers nothing, and the question will be asked anew.

    The call is returned to who brings its last answer, as theirs to run; where ``process`` is
    "" it is anybody's. What comes twice, late or unasked is ignored.
    """
    ask = asked(session, ask_id)
    return None if ask is None else _answer(ask, answer, process)


def answered(session: Session, ask_id: str, *, process: str) -> Call | None:
    """The call that an answer made this process's, though the connection broke when it did."""
    if not ASK_ID.match(ask_id):
        return None
    mine = rows(Call).filter(session=session.pk, process=process, state=RUNNING)
    return mine.filter(ask=ask_id).first()


@one_transaction
def _answer(ask: Ask, answer: dict[str, Any] | None, process: str) -> Call | None:
    if not _lock_parked(ask.call_id):
        return None
    if not rows(Ask).filter(pk=ask.pk, open=True).update(open=False, answer=answer):
        return None
    return _claim(ask.call_id, process)


def _lock_parked(call_id: int) -> int:
    """Take the lock of a call that waits: two last answers come one after the other."""
    return rows(Call).filter(pk=call_id, state=PARKED, cancelled=False).update(state=PARKED)


def _claim(call_id: int, process: str) -> Call | None:
    """A call without open questions becomes mine; its lock is held."""
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


def overdue(now: datetime, process: str, words: Words = _silently) -> list[Overdue]:
    """Time out what nobody has answered, and withdraw it; the calls that can go on are mine."""
    late = rows(Ask).filter(open=True, deadline__lte=now, call__state=PARKED)
    calls = late.order_by("deadline").values_list("call_id", flat=True)[:SWEEP]
    found = [_time_out(call, now, process, words) for call in dict.fromkeys(calls)]
    return [one for one in found if one is not None]


@one_transaction
def _time_out(call_id: int, now: datetime, process: str, words: Words) -> Overdue | None:
    if not (_seize(rows(Call).filter(pk=call_id)) and _lock_parked(call_id)):
        return None
    late = list(rows(Ask).filter(call=call_id, open=True, deadline__lte=now))
    for ask in late:
        timed_out = {"timeout": ask.seconds}
        rows(Ask).filter(pk=ask.pk).update(open=False, answer=timed_out)
    if not late:
        return None
    asks, claimed = [ask.pk for ask in late], _claim(call_id, process)
    stream = rows(Stream).select_related("session").get(call=call_id)
    enlarge(stream.pk, words(stream.session, asks))
    return Overdue(stream.pk, asks, claimed)


# Cancelling.


def cancel(
    session: Session, request_id: str, may: Callable[[Call], bool] = lambda call: True
) -> Call | None:
    """Stop the call of that request id (JSON), wherever it runs, and end its stream.

    None where there is none to stop, or it is none that one ``may``; where there is none, the
    cancel is kept for a call whose row is still to come.
    """
    try:
        return _cancel(session.pk, request_id, may)
    except Gone:
        return None


@one_transaction
def _cancel(session_id: int, request_id: str, may: Callable[[Call], bool]) -> Call | None:
    lock(session_id)
    theirs = rows(Call).filter(session=session_id, request_digest=digest_of(request_id))
    call = theirs.exclude(state=DONE).order_by("pk").last()
    if call is not None and may(call) and _stop(call):
        return call
    if not theirs.exists():
        _bury(session_id, request_id)
    return None


def _stop(call: Call) -> bool:
    """Before the outcome's commit the cancel wins, after it the answer does."""
    undone = rows(Call).filter(pk=call.pk).exclude(state=DONE)
    if not undone.update(state=DONE, cancelled=True, **CLEARED):
        return False
    erase(rows(Ask).filter(call=call.pk))
    erase(rows(Step).filter(call=f"c{call.pk}"))
    rows(Stream).filter(pk=call.stream_id or 0, closed=False).update(**settled())
    call.state, call.cancelled = DONE, True
    return True


def _bury(session_id: int, request_id: str) -> None:
    """Keep the latest cancels that found no call."""
    kept = rows(Call).filter(session=session_id, stream=None).order_by("-pk")
    if stale := list(kept.values_list("pk", flat=True)[TOMBSTONES - 1 :]):
        erase(rows(Call).filter(pk__in=stale))
    rows(Call).create(
        session_id=session_id, request_id=request_id, request_digest=digest_of(request_id),
        state=DONE, cancelled=True, created=clock.now(),
    )  # fmt: skip


def cancelled_of(process: str, ids: Collection[int]) -> set[int]:
    """Which of these calls the process must stop: cancelled, taken over, or gone."""
    mine = rows(Call).filter(pk__in=ids, process=process, state=RUNNING)
    return set(ids) - set(mine.values_list("pk", flat=True))


def running(fences: Mapping[int, int]) -> set[int]:
    """Those of these calls, by id with the fence, that still belong to who speaks for them."""
    found = rows(Call).filter(pk__in=fences, state=RUNNING, cancelled=False)
    return {pk for pk, fence in found.values_list("pk", "fence") if fences[pk] == fence}


# Taking over.


def claimed(process: str, known: Collection[int]) -> list[Call]:
    """The running calls of my own process that it does not know.

    They were claimed, and the connection broke before I heard of it.
    """
    mine = rows(Call).filter(process=process, state=RUNNING).exclude(pk__in=known)
    return list(mine.order_by("pk")[:SWEEP])


def orphans(process: str) -> list[Call]:
    """The running calls of processes that are no more, some at a time; they are mine now.

    One whose last answer came to a process that was about to end is nobody's, and has no ``runs``.
    """
    left = rows(Call).filter(state=RUNNING).exclude(process__in=rows(Process).values("pk"))
    # In no order: those that are locked for long keep no others waiting.
    found = [_take_over(call, process) for call in left.order_by("?")[:SWEEP]]
    return [call for call in found if call is not None]


@one_transaction
def _take_over(call: Call, process: str) -> Call | None:
    same = rows(Call).filter(pk=call.pk, fence=call.fence, state=RUNNING)
    died = int(call.process != "")
    if not _seize(same):
        return None
    if not same.update(fence=F("fence") + 1, runs=F("runs") + died, process=process):
        return None
    call.fence, call.runs, call.process = call.fence + 1, call.runs + died, process
    return call


def _seize(call: QuerySet[Call]) -> bool:
    """Lock a call and its stream, if nobody else has.

    Who still appends in its name has the stream's lock: what it says comes before.
    """
    streams = rows(Stream).filter(pk__in=unlocked(call).values("stream"))
    return bool(unlocked(streams).update(owed=F("owed")))


def take_over(call: Call, process: str) -> Call | None:
    """A running call, with a new fence, for another attempt at it; None if it is another's."""
    return _take_over(call, process)


def is_mine(call_id: int, fence: int) -> bool:
    """Whether a call still belongs to who speaks for it; within a transaction, to its end."""
    same = rows(Call).filter(pk=call_id, fence=fence, cancelled=False, state=RUNNING)
    return bool(same.update(fence=fence))


def are_running(stream_id: int) -> bool:
    """Whether anything is being worked on that a stream answers, in any process."""
    return bool(rows(Call).filter(stream=stream_id, state=RUNNING).exists())


def scopes(stream_id: int) -> list[list[str] | None]:
    """With which scopes the calls began that a stream answers."""
    found = rows(Call).filter(stream=stream_id).values_list("scopes", flat=True)
    return list(found.distinct())


def requests(stream_id: int) -> list[str]:
    """The request ids, as JSON, that a stream answers; a call that was cancelled is not."""
    found = rows(Call).filter(stream=stream_id, cancelled=False).order_by("pk")
    return list(found.values_list("request_id", flat=True))
