"""Fixtures that start worker processes and clients, and end them with the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from .processes import ROOT, Client, Process, Response, environment, migrate
from .revocation import Shell, StreamRecorder

NAME = f"django_mcp_restarts_{os.getpid()}"


@pytest.fixture(scope="module")
def project() -> dict[str, str]:
    """Environment variables for the project's settings; a module may override them."""
    return {}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, project: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("restarts")
    migrate(folder, **project)
    return folder


@pytest.fixture
def begin(tables: Path) -> Iterator[Callable[..., Process]]:
    """Start worker processes, and kill those that still run at the end."""
    begun: list[Process] = []

    def made(**options: Any) -> Process:
        begun.append(Process(tables, **options))
        return begun[-1]

    yield made
    for process in begun:
        process.kill()


@pytest.fixture
def pair(begin: Callable[..., Process]) -> tuple[int, int]:
    """The ports of two worker processes that share their databases."""
    return begin().port, begin().port


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Create clients, and close their connections at the end."""
    made: list[Client] = []

    def connected(port: int, token: str = "", **more: str) -> Client:
        made.append(Client(port, token=token, **more))
        return made[-1]

    yield connected
    for client in made:
        client.close()


# Three worker processes, and a shell that changes their database.


@pytest.fixture
def more(request: pytest.FixtureRequest, project: dict[str, str]) -> dict[str, str]:
    """Variables that name the suite's database server, if it is not SQLite."""
    is_file = connection.vendor == "sqlite"
    named = {} if is_file else {"RESTARTS_DATABASE": request.getfixturevalue("database")}
    return project | named


@pytest.fixture
def shell(tables: Path, more: dict[str, str]) -> Iterator[Shell]:
    made = Shell(tables, **more)
    yield made
    made.do("Switch.objects.all().delete()")
    made.close()


@pytest.fixture
def ports(begin: Callable[..., Process], more: dict[str, str]) -> list[int]:
    return [begin(**more).port for _ in range(3)]


@pytest.fixture
def record() -> Iterator[Callable[..., StreamRecorder]]:
    """Record streams, and close their connections at the end."""
    made: list[StreamRecorder] = []

    def reading(answer: Response) -> StreamRecorder:
        made.append(StreamRecorder(answer))
        return made[-1]

    yield reading
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def database(
    tables: Path, project: dict[str, str], django_db_setup: Any, django_db_blocker: Any
) -> Iterator[str]:
    """A separate database for processes that are killed."""
    with django_db_blocker.unblock():
        _statement(f"CREATE DATABASE {NAME}")
        try:
            migrate = [sys.executable, "-m", "django", "migrate", "-v0"]
            given = environment(tables, RESTARTS_DATABASE=NAME, **project)
            subprocess.run(migrate, check=True, cwd=ROOT, env=given)
            yield NAME
        finally:
            _statement(f"DROP DATABASE {NAME}")


def _statement(statement: str) -> None:
    with connection._nodb_cursor() as cursor:
        cursor.execute(statement)
