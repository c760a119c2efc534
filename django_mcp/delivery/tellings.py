"""
Turns at telling sessions what changed: who has one, and how far they came.

Rule: each page of changes is told by one process, to sessions in their order, a
few in a transaction, and how far it came is written in the same transaction. So
whoever goes on tells nobody twice and passes nobody over. Who has lost the turn
writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from ..models import Process, Telling
from . import clock, sessions, sights, streams
from .rows import one_transaction, rows
from .sights import Seen

START = -1  # lower than what is forgotten ever is: a page after it is never whole


class Lost(Exception):
    """The turn is another's."""


class Turn(NamedTuple):
    """A page of changes, after one number and up to another, and to whom it was told before."""

    name: str
    claim: int
    after: int
    until: int
    told: int = 0


News = Mapping[int, Sequence[tuple[str, str]]]  # to each session its messages, with their marks
Saw = Sequence[tuple[int, bool, str]]  # of subscriptions: whether they are seen, and where
NOTHING: Mapping[str, Seen] = {}


def begin(name: str, seq: int) -> Telling:
    """How far it is told; from ``seq`` on, if that never was."""
    return rows(Telling).get_or_create(name=name, defaults={"seq": seq, "until": seq})[0]


def has_changed(name: str, digest: str) -> bool:
    """Keep what something is like now; whether it was otherwise before."""
    _, is_new = rows(Telling).get_or_create(name=name, defaults={"holder": digest})
    others = rows(Telling).filter(pk=name).exclude(holder=digest)
    return not is_new and bool(others.update(holder=digest))


def may(name: str, every: float) -> bool:
    """Whether it is time again, after so many seconds; for one of all who ask."""
    begin(name, 0)
    now, pause = clock.now(), timedelta(seconds=every)
    due = rows(Telling).filter(pk=name).exclude(at__range=(now - pause, now + pause))
    return bool(due.update(at=now))


def claim(found: Telling, until: int, process: str) -> Turn | None:
    """Tell the next page, or go on where another ended; None if somebody is at it."""
    if found.until > found.seq:
        if found.holder != process and rows(Process).filter(pk=found.holder).exists():
            return None
        until = found.until
    mine = rows(Telling).filter(pk=found.pk, claim=found.claim)
    if not mine.update(claim=found.claim + 1, until=until, holder=process):
        return None
    return Turn(found.name, found.claim + 1, found.seq, until, found.told)


def put_back(found: Telling) -> None:
    """Begin anew, before the first change: the database was put back to what it was once."""
    mine = rows(Telling).filter(pk=found.pk, claim=found.claim)
    mine.update(claim=found.claim + 1, seq=START, until=START, told=0)


@one_transaction
def tell(
    turn: Turn, news: News, saw: Saw = (), seen: Mapping[str, Seen] = NOTHING, *,
    over: bool = False, again: bool = False,
) -> list[int]:  # fmt: skip
    """Tell these sessions, and say that it is done; the streams that took it. Raises ``Lost``.

    ``over`` if they are the last of the page; what was ``seen`` in lists is kept then, for who
    goes on with the page must know it as it was. ``again`` after an unknown commit.
    """
    last = max(news, default=turn.told)
    mine = rows(Telling).filter(pk=turn.name, claim=turn.claim, seq__lt=turn.until)
    done = {"seq": turn.until, "told": 0} if over else {"told": last}
    if not (mine if over else mine.filter(told__lt=last)).update(**done):
        if again and _is_done(turn, last, over=over):
            return []
        raise Lost(Lost.__doc__)
    if saw:
        sessions.saw(saw)
    if over and seen:
        sights.keep(seen)
    return streams.announce_here(news) if news else []


def _is_done(turn: Turn, last: int, *, over: bool) -> bool:
    """Whether the attempt of which nobody knew came through."""
    mine = rows(Telling).filter(pk=turn.name, claim=turn.claim)
    if over:
        return bool(mine.filter(seq=turn.until).exists())
    return bool(mine.filter(told__gte=last).exists())
