"""Processes that serve, and clients of them, ended with the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from .rights import Hand, Told
from .wire import ROOT, Answer, Client, Process, environment, migrate

NAME = f"django_mcp_restarts_{os.getpid()}"


@pytest.fixture(scope="module")
def project() -> dict[str, str]:
    """What the environment says of the project: a module may have it otherwise."""
    return {}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, project: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("restarts")
    migrate(folder, **project)
    return folder


@pytest.fixture
def begin(tables: Path) -> Iterator[Callable[..., Process]]:
    """Begins processes, and kills those that are left."""
    begun: list[Process] = []

    def made(**options: Any) -> Process:
        begun.append(Process(tables, **options))
        return begun[-1]

    yield made
    for process in begun:
        process.kill()


@pytest.fixture
def pair(begin: Callable[..., Process]) -> tuple[int, int]:
    """The ports of two processes on the same databases."""
    return begin().port, begin().port


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Makes clients, and closes all of their connections."""
    made: list[Client] = []

    def connected(port: int, token: str = "", **more: str) -> Client:
        made.append(Client(port, token=token, **more))
        return made[-1]

    yield connected
    for client in made:
        client.close()


# Three processes that serve, and one that changes what they know.


@pytest.fixture
def more(request: pytest.FixtureRequest, project: dict[str, str]) -> dict[str, str]:
    """The database that the suite runs on: SQLite's is a file that processes share anyway."""
    is_file = connection.vendor == "sqlite"
    named = {} if is_file else {"RESTARTS_DATABASE": request.getfixturevalue("database")}
    return project | named


@pytest.fixture
def hand(tables: Path, more: dict[str, str]) -> Iterator[Hand]:
    made = Hand(tables, **more)
    yield made
    made.do("Switch.objects.all().delete()")
    made.close()


@pytest.fixture
def ports(begin: Callable[..., Process], more: dict[str, str]) -> list[int]:
    return [begin(**more).port for _ in range(3)]


@pytest.fixture
def told() -> Iterator[Callable[..., Told]]:
    """Reads streams, and breaks their connections at the end."""
    made: list[Told] = []

    def reading(answer: Answer) -> Told:
        made.append(Told(answer))
        return made[-1]

    yield reading
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def database(
    tables: Path, project: dict[str, str], django_db_setup: Any, django_db_blocker: Any
) -> Iterator[str]:
    """A database of their own for processes that are killed."""
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
