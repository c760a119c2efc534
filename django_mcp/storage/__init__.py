"""
Storage of sessions, streams, events, calls and changes, and polling and wake-ups over them.

This package decides nothing about the protocol. Each function of the synchronous modules is one
short transaction in ``DJANGO_MCP["DATABASE"]``, never inside a transaction of the project.
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
