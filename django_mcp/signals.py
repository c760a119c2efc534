"""
Signals that a project's code may receive, as it receives Django's own.

``call_started`` and ``call_finished`` are sent for each ``tools/call``, ``prompts/get`` and
``resources/read``, in the event loop, with ``sender``, the ``Server``, and ``record``, a
``CallRecord``. Synchronous receivers run in a thread and may query the database. The response is
sent after all receivers have returned.

``session_started`` and ``session_ended`` are sent with ``sender``, the model ``Session``, and
``session``, the row. ``token_created`` and ``token_revoked`` are sent with ``sender``, the model of
the token, and ``token``, the row: for personal access tokens, and for the OAuth access tokens that
the embedded authorization server issues. These four are sent in the thread and the transaction that
write the row. ``token_revoked`` is not sent if a row is deleted, for example with its user: that
sends Django's ``post_delete``. A receiver that acts outside of the database should do so in
``transaction.on_commit``. Do not log an OAuth token's attribute ``token``: it is the secret.

The error of a receiver is logged, and affects neither the call nor other receivers. But everything
that receivers have written for this signal is rolled back if a query of a receiver fails outside of
a ``transaction.atomic`` block of its own.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.dispatch import Signal

logger = logging.getLogger("django_mcp")

call_started = Signal()
call_finished = Signal()
session_started = Signal()
session_ended = Signal()
token_created = Signal()
token_revoked = Signal()


def send_row_signal(signal: Signal, sender: Any, **row: Any) -> None:
    """Send a signal about a row of a session or token, in the transactions of the caller."""
    if not signal.has_listeners(sender):
        return
    try:
        with ExitStack() as savepoints:
            # After the failed query of a receiver, Django would roll back the whole transaction
            # without an error. So a token could stay valid that was reported as revoked.
            for connection in connections.all(initialized_only=True):
                if connection.in_atomic_block:
                    savepoints.enter_context(transaction.atomic(using=connection.alias))
            signal.send_robust(sender, **row)
    except DatabaseError:  # PostgreSQL does not release a savepoint after a failed query
        logger.exception("A query of a receiver failed: sender=%s", sender.__name__)
