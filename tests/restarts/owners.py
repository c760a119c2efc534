"""Users with tokens, made in the project's own database, and what becomes of them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from .wire import ROOT, Client, environment

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
REVOKED = "UPDATE django_mcp_token SET revoked = '2026-01-01' WHERE id = ?"
LATER = "UPDATE django_mcp_token SET expires = NULL WHERE id = ?"


def client_of(
    folder: Path, user: str, port: int, seconds: float = 0, revision: str = "2025-11-25"
) -> Client:
    """A client with a token of its own, which lasts so long."""
    made = subprocess.run(
        [sys.executable, "-c", MAKE, user, str(seconds)],
        check=True, cwd=ROOT, env=environment(folder), capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    client = Client(port, token=made[1], revision=revision)
    client.token = int(made[0])
    return client


def changed(folder: Path, statement: str, *values: object) -> None:
    """Change the project's database behind everybody's back."""
    connection = sqlite3.connect(folder / "db.sqlite3", timeout=10)
    with connection:
        assert connection.execute(statement, values).rowcount
    connection.close()


def asked(folder: Path, statement: str, *values: object) -> tuple[int, ...]:
    """One row of the log's database."""
    connection = sqlite3.connect(folder / "mcp.sqlite3", timeout=10)
    found: tuple[int, ...] = connection.execute(statement, values).fetchone()
    connection.close()
    return found
