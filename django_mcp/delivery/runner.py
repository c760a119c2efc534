"""
What the poller tells whoever works on the calls of this process.

Rule: the log knows nothing of how a call is run; who runs it knows nothing of how
others are noticed. All of it is told within the loop, and none of it waits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..models import Call, Session
from .calls import Overdue


class Runner(Protocol):
    """Who works on calls in this process; nothing new where it ``is_ending``."""

    is_ending: bool

    def held(self) -> Collection[int]:
        """The calls that are worked on."""
        ...

    def streams(self) -> Collection[int]:
        """The streams of these calls."""
        ...

    def stop(self, ids: Collection[int]) -> None:
        """These are not to be worked on any more."""
        ...

    def recheck(self, ids: Collection[int]) -> None:
        """These were not, when it was looked; a new claim may have been made since."""
        ...

    def expired(self, overdue: Overdue) -> None:
        """Nobody answered these questions in time; go on with their call, if there is one."""
        ...

    def withdrawals(self, session: Session, asks: Sequence[str]) -> Sequence[str]:
        """What tells the client that nobody waits for these answers any more."""
        ...

    def resume(self, call: Call) -> None:
        """Begin with a call that was claimed here, and of which nobody here was told."""
        ...

    def take_over(self, call: Call) -> None:
        """Do what is to be done about a call whose process died."""
        ...
