"""
The audit log of calls: which calls are audited, and what their entries contain.

If a tool runs in a transaction of the audit log's database, its entry is inserted at the end of
that transaction: both are committed, or neither is. All other entries are committed after the call
has ended and before the response is sent. These are the entries of reads, of failed and denied
calls, and of asynchronous and non-atomic tools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings as django_settings
from django.utils import timezone

from ..declarations.redaction import MASK, redacted_json
from ..declarations.throttles import Rate
from ..storage import audit_log
from ..storage.audit_log import NewEntry
from .records import RECORDED_METHODS, CallOutcome
from .throttling import ProcessCounts, count_calls

if TYPE_CHECKING:
    from ..declarations.declaration import Declaration
    from ..declarations.resources import Resource
    from ..declarations.server import Server
    from .call_state import CallRun
    from .records import CallRecord

logger = logging.getLogger("django_mcp.calls")
MAX_URI_LENGTH = 2_000  # characters
MAX_TEXT_LENGTH = 255  # characters of a column
# Stored entries of rejected calls: for each caller, and for all anonymous callers together.
# Rejected calls cost a client nothing, so without these limits it could fill the database.
REJECTED_PER_CALLER, REJECTED_PER_GROUP = Rate(60, 60), Rate(600, 60)
WARNINGS = Rate(1, 60)
_rejected = ProcessCounts()


def is_audited(server: Server, declaration: Declaration | None) -> bool:
    """Whether calls of a declaration are audited: by its owner's ``audit``, or else the server's.

    ``declaration`` is None for a call of a name that does not exist.
    """
    own = None if declaration is None else declaration._owner.audit
    return server.audit if own is None else own


def store_in_transaction(record: CallRecord, run: CallRun, result: Mapping[str, Any]) -> None:
    """Insert the entry at the end of the tool's transaction, if both are in one database."""
    work = run.work
    if work is None or not is_audited(run.server, work.declaration):
        return
    if (alias := work.transaction_alias) == audit_log.database():
        record.declaration = work.declaration
        # The call has not ended, so the record does not have these values yet.
        entry = entry_of(record)._replace(
            outcome=str(CallOutcome.ERROR if result.get("isError") else CallOutcome.OK),
            duration=record.elapsed(),
            queries=record.queries + run.request._queries,
            rows_written=record.rows_written + run.request._rows_written,
            approval=run.approval_pk,
        )
        audit_log.insert([entry], alias)
        record.is_audited = True


async def store(record: CallRecord) -> None:
    """Commit the entry of a call that has ended, if it is audited and not stored yet."""
    if record.is_audited or record.call.method not in RECORDED_METHODS:
        return
    if is_audited(record.server, record.declaration) and _has_room(record):
        await audit_log.audit_writer().write(entry_of(record))


def _has_room(record: CallRecord) -> bool:
    """Whether an entry may be stored now. Only entries of rejected calls are limited.

    Forbidden and unknown names share a limit. Otherwise a caller at the limit could tell them apart
    by time, because only one kind would wait for an INSERT.
    """
    if record.outcome not in (CallOutcome.DENIED, CallOutcome.THROTTLED):
        return True
    *groups, caller = record.principal.limit_keys or ("",)
    limits = [(caller, REJECTED_PER_CALLER), *((group, REJECTED_PER_GROUP) for group in groups)]
    for key, rate in limits:
        if not count_calls(_rejected, key, rate)[0]:
            if count_calls(_rejected, f"warning {key}", WARNINGS)[0]:
                logger.warning("Audit entries of rejected calls are left out: caller=%r", key)
            return False
    return True


def entry_of(record: CallRecord) -> NewEntry:
    """Return the entry of a call, not yet stored."""
    user = record.user if record.principal.is_authenticated else None
    name = record.client_info.get("name")
    return NewEntry(
        at=_stored_time(record.started),
        server=record.server.name,
        method=record.method,
        name=as_column(record.name),
        user=None if user is None else as_column(str(user.pk)),
        username="" if user is None else as_column(str(user.get_username())),
        client=as_column(record.client),
        client_name=as_column(name) if isinstance(name, str) else "",
        session=record.session,
        transport=record.transport,
        revision=record.revision,
        approval=record.approval,
        arguments=_arguments(record),
        outcome=str(record.outcome),
        error=as_column(type(record.error).__name__) if record.error is not None else "",
        duration=record.duration,
        queries=record.queries,
        rows_written=record.rows_written,
        trace_id=record.trace_id,
    )


def as_column(text: str) -> str:
    """Return a text that every database can store, and that fits into a column.

    Clients choose some of these texts. PostgreSQL rejects NUL, so a client could avoid the audit
    log with it. Line breaks and characters that change the direction of text could forge what an
    administrator reads.
    """
    text = text[:MAX_TEXT_LENGTH]
    if not text.isprintable():
        escaped = (char if char.isprintable() else _escaped(char) for char in text)
        text = "".join(escaped)[:MAX_TEXT_LENGTH]
    return text


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _stored_time(moment: datetime) -> datetime:
    return moment if django_settings.USE_TZ else timezone.make_naive(moment)


def _arguments(record: CallRecord) -> str | None:
    """Return the redacted arguments as JSON."""
    arguments = record.arguments
    if record.method != "resources/read":
        return redacted_json(arguments, record.declaration) if arguments else None
    uri, resource = arguments.get("uri"), cast("Resource | None", record.declaration)
    if resource is None or not isinstance(uri, str) or resource._has_secret_variable:
        uri = MASK
    return json.dumps({"uri": uri[:MAX_URI_LENGTH]})
