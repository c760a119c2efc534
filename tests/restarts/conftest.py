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

from .wire import ROOT, Client, Process, environment, migrate

NAME = f"django_mcp_restarts_{os.getpid()}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("restarts")
    migrate(folder)
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
def connect() -> Iterator[Callable[[int], Client]]:
    """Makes clients, and closes all of their connections."""
    made: list[Client] = []

    def connected(port: int) -> Client:
        made.append(Client(port))
        return made[-1]

    yield connected
    for client in made:
        client.close()


@pytest.fixture(scope="module")
def database(tables: Any, django_db_setup: Any, django_db_blocker: Any) -> Iterator[str]:
    """A database of their own for processes that are killed."""
    with django_db_blocker.unblock():
        _statement(f"CREATE DATABASE {NAME}")
        try:
            migrate = [sys.executable, "-m", "django", "migrate", "-v0"]
            given = environment(tables, RESTARTS_DATABASE=NAME)
            subprocess.run(migrate, check=True, cwd=ROOT, env=given)
            yield NAME
        finally:
            _statement(f"DROP DATABASE {NAME}")


def _statement(statement: str) -> None:
    with connection._nodb_cursor() as cursor:
        cursor.execute(statement)
