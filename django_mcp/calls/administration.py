"""
Cancel calls and end sessions for an administrator, in whichever process they run.

The functions query the session database, and may be called in a process that serves no client. They
change rows, and send wake-ups to the workers after the commit. A worker that gets no wake-up finds
the change with its next poll.
"""

from __future__ import annotations

import logging
from functools import partial

from django.db import transaction

from ..conf import settings
from ..models import DONE, Session, Stream
from ..models import Call as Row
from ..protocol.jsonrpc import InternalError, encode
from ..storage import calls, sessions
from ..storage.databases import rows
from ..storage.wakeups import StreamWakeup, wake_readers
from .interaction import call_of, connection_of, withdrawal_messages

logger = logging.getLogger("django_mcp.calls")
CANCELLED = "The call was cancelled by an administrator."


def cancel_call(pk: int) -> bool:
    """Cancel a call that runs or waits for an answer, and send its client an error response.

    Return False if there is no such call, or if its own response was stored first. A tool whose
    response is stored in its transaction is rolled back. Other tools stop at their next query.
    """
    row = rows(Row).exclude(state=DONE).select_related("session").filter(pk=pk).first()
    if row is None or row.stream_id is None:
        return False
    connection = connection_of(row.session)
    response = connection.error(call_of(row, connection), InternalError(CANCELLED))
    stored = calls.refuse(row, encode(response), encode_withdrawals=withdrawal_messages)
    if stored is None:
        return False
    logger.info("Call cancelled by an administrator: call=%s", row.pk)
    _wake_after_commit([row.stream_id])
    return True


def end_session(session: Session) -> bool:
    """End a session and cancel its calls. Return False if it has ended already.

    Its streams are closed, and the client's next request gets the response for an unknown session.
    """
    # Read them first: ``sessions.end`` deletes the rows.
    open_streams = rows(Stream).filter(session=session.pk, closed=False)
    stream_ids = list(open_streams.values_list("pk", flat=True))
    if not sessions.end(session):
        return False
    _wake_after_commit(stream_ids)
    return True


def _wake_after_commit(streams: list[int]) -> None:
    # A worker that is woken before the commit would find the old rows, and wait for its next poll.
    wakeups = [StreamWakeup(stream, changed=True) for stream in streams]
    wake = partial(wake_readers, *wakeups)
    transaction.on_commit(wake, using=settings.DATABASE, robust=True)
