"""The log's own SQLite file."""

from django.db import connections

from django_mcp.storage import sqlite


def test_a_file_for_this_app_alone(tmp_path, django_db_blocker):
    alias = "a test's own"
    connections.settings[alias] = connections.settings["default"] | sqlite(tmp_path / "a.sqlite3")
    connection = connections.create_connection(alias)
    try:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            told = [
                cursor.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "busy_timeout")
            ]
        assert told == ["wal", 1, 20_000] and connection.transaction_mode == "IMMEDIATE"
    finally:
        connection.close()
        del connections.settings[alias]
