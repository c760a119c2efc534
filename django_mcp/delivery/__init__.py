"""
What must not be lost: sessions, their streams, and the calls that speak on them.

Rule: rows are stored, and nothing is decided about the protocol. Each function
of the synchronous modules is one short transaction in ``DJANGO_MCP["DATABASE"]``,
never inside one of the project's.
"""

from __future__ import annotations

import os
from typing import Any


def sqlite(path: str | os.PathLike[str]) -> dict[str, Any]:
    """An entry of ``DATABASES``: a SQLite file for this app alone.

    SQLite has one writer. In a file of its own what a call says does not wait
    for the project's transactions, nor they for it.
    """
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # Few threads look here often, and opening a file takes longer than reading a row.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # Readers never wait for the writer; a writer waits for its turn when it begins.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }
