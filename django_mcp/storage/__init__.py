"""
Storage of sessions, streams, events, calls and changes, and polling and wake-ups over them.

This package decides nothing about the protocol. Each function of the synchronous modules is one
short transaction in ``DJANGO_MCP["DATABASE"]``, never inside a transaction of the project.

Rows:

- ``sessions``, ``streams``, ``event_log``, ``calls``: one module for each kind of row
- ``event_writer``: write the messages of running calls in batches
- ``change_log``: changes of rows, and which sessions were notified of them
- ``approvals``: calls that a second person must approve, in the database of the users
- ``leases``: which worker processes are alive and may own calls
- ``audit_log``: insert entries of the audit log, in batches
- ``retention``: delete old rows

Reading a stream:

- ``stream_reader``: the events of one stream after a cursor, for one connection
- ``wakeups``: tell readers, in all processes, that events were committed
- ``postgres_layer``: wake-ups by PostgreSQL's LISTEN and NOTIFY
- ``poller``: poll for what other processes did, as wake-ups may be lost

Access to databases:

- ``databases``: clock, lock timeouts and transactions of the session database
- ``router``: which database holds which tables
- ``jobs``: run database jobs for the event loop, and retry them
- ``compiled_queries``: frequent queries, whose SQL is compiled once
"""

from __future__ import annotations

import os
from typing import Any


def sqlite(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return an entry of ``DATABASES`` for a SQLite file of this app alone.

    SQLite has one writer. With a separate file, writing events does not wait for the project's
    transactions, nor they for it.
    """
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # A few threads read here often, and opening a file takes longer than reading a row.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # Readers never wait for the writer. A writer waits for the lock when it begins.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }
