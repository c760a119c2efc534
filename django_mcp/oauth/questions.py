"""
Asking whether an account elsewhere still stands.

Rule: of one account one question is out at a time, in a process: who wants to know the same waits
for that. What could not be told is not asked for again at once. What was told is written down, and
an account that is gone takes with it all that it let in. What nobody waits for takes its turn in a
share of the threads, once, however often somebody wishes it asked.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Any

from django.utils import timezone

from .. import threads
from ..exceptions import Busy
from .models import Binding
from .revoking import end_account
from .upstream import Upstream

PAUSE = 10.0  # seconds after a question that was not answered
PATIENCE = 10.0  # seconds for which the answer to somebody else's question is waited for
REMEMBERED = 1_000  # questions that were not answered
LOST = 60.0  # seconds after which one that was begun is, if it has not come to its end
OWNER = "what is open"  # of the questions that nobody waits for
Key = tuple[Any, str]
logger = logging.getLogger("django_mcp")
_lock = threading.Lock()
_out: dict[Key, threading.Event] = {}  # what is being asked
_failed: dict[Key, float] = {}  # what could not be told, and when
_begun: dict[Key, float] = {}  # what will be asked for nobody who waits, and since when


def ask(upstream: Upstream, user: Any, account: str) -> None:
    """Ask, and write down what is told. Takes its thread; what ``upstream`` raises is logged."""
    key, own = (user.pk, account), threading.Event()
    with _lock:
        event = _out.setdefault(key, own)
    if event is not own:
        event.wait(PATIENCE)
        return
    try:
        _ask(upstream, user, account)
    finally:
        with _lock:
            del _out[key]
        own.set()


def begin(upstream: Upstream, user: Any, account: str) -> bool:
    """Ask when there is a thread for it; nobody waits. False where there is too much to do."""
    key = user.pk, account
    _begun[key] = time.monotonic()
    try:
        threads.verifiers.begin(partial(_ask_begun, upstream, user, account), OWNER)
    except Busy:
        _begun.pop(key, None)
        logger.info("Accounts elsewhere are asked for later: there is too much to do.")
        return False
    return True


def _ask_begun(upstream: Upstream, user: Any, account: str) -> None:
    try:
        ask(upstream, user, account)
    finally:
        _begun.pop((user.pk, account), None)


def is_begun(user: Any, account: str) -> bool:
    """Whether it will be asked anyhow."""
    when = _begun.get((user.pk, account))
    return when is not None and time.monotonic() - when < LOST


def in_vain(user: Any, account: str) -> bool:
    """Whether it was asked a moment ago, and could not be told."""
    when = _failed.get((user.pk, account))
    return when is not None and time.monotonic() - when < PAUSE


def _ask(upstream: Upstream, user: Any, account: str) -> None:
    began = timezone.now()
    try:
        stands = upstream.stands(user, account)
    except Exception as error:  # of the project, whose words may hold a token
        logger.warning("Whether an account elsewhere stands is not told: %s", type(error).__name__)
        _note((user.pk, account))
        return
    if stands:
        Binding.objects.filter(user=user, account=account).update(checked=began)
    else:
        logger.info("An account elsewhere of user %s is gone: what it let in ends", user.pk)
        end_account(account, user)


def _note(key: Key) -> None:
    with _lock:
        _failed.pop(key, None)
        _failed[key] = time.monotonic()
        while len(_failed) > REMEMBERED:
            del _failed[next(iter(_failed))]
