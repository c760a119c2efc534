"""Wake-ups by PostgreSQL, if the tests run on it, and a pooler in front of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tools.database_servers import folder_of, program, start, wait_for
from tools.ports import free_port

SECONDS = 20


@pytest.fixture
def by_postgres(transactional_db: None, settings: Any) -> None:
    """Configure no channel layer, so that PostgreSQL sends the wake-ups."""
    if connection.vendor != "postgresql":
        pytest.skip("LISTEN is PostgreSQL's: TEST_DATABASE=postgres.")
    del settings.CHANNEL_LAYERS


POOL = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = any
pool_mode = transaction
pidfile = {folder}/pid
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture
def pgbouncer(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pooler in front of the tests' database. Each transaction gets another connection."""
    if shutil.which("pgbouncer") is None and not os.environ.get("CI"):
        pytest.skip("There is no pgbouncer.")
    found = program("pgbouncer", "pgbouncer")
    given, own = connection.settings_dict, free_port()
    words = {"host": given["HOST"] or "127.0.0.1", "port": given["PORT"] or 5432}
    with folder_of("postgres") as (folder, account):
        configured = Path(folder, "pool.ini")
        configured.write_text(POOL.format(**words, user=given["USER"], own=own, folder=folder))
        with Path(folder, "log").open("wb") as log:
            running = start(account, log, found, configured)
        try:
            wait_for(own, running)
            monkeypatch.setitem(given, "HOST", "127.0.0.1")
            monkeypatch.setitem(given, "PORT", str(own))
            yield own
        finally:
            running.terminate()
            running.wait(SECONDS)
