"""Clients with personal tokens, and direct changes of the SQLite databases."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from .processes import ROOT, Client, environment

MAKE = """
import sys, django
from datetime import timedelta
django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from django_mcp.models import Token
user, _ = User.objects.get_or_create(username=sys.argv[1])
seconds = float(sys.argv[2])
expires = timezone.now() + timedelta(seconds=seconds) if seconds else None
token, secret = Token.make(user, "tests", expires=expires)
print(token.pk, secret)
"""
REVOKE = "UPDATE django_mcp_token SET revoked = '2026-01-01' WHERE id = ?"
EXTEND = "UPDATE django_mcp_token SET expires = NULL WHERE id = ?"


def client_of(
    folder: Path, user: str, port: int, seconds: float = 0, revision: str = "2025-11-25"
) -> Client:
    """Create a client with its own token, which expires after ``seconds`` unless that is 0."""
    made = subprocess.run(
        [sys.executable, "-c", MAKE, user, str(seconds)],
        check=True, cwd=ROOT, env=environment(folder), capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    client = Client(port, token=made[1], revision=revision)
    client.token = int(made[0])
    return client


def execute(folder: Path, statement: str, *values: object) -> None:
    """Change the project's database without the knowledge of any worker."""
    connection = sqlite3.connect(folder / "db.sqlite3", timeout=10)
    with connection:
        assert connection.execute(statement, values).rowcount
    connection.close()


def fetch_row(folder: Path, statement: str, *values: object) -> tuple[int, ...]:
    """Return one row of the session database."""
    connection = sqlite3.connect(folder / "mcp.sqlite3", timeout=10)
    found: tuple[int, ...] = connection.execute(statement, values).fetchone()
    connection.close()
    return found
