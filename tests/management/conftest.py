"""Fixtures of the commands: projects with their own databases."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spec.process import ROOT, command, environment

from .processes import Done, at_terminal, run_atlas

PEOPLE = """
from datetime import date
from django.contrib.auth.models import Permission, User
from example_project.atlas.models import City, Continent, Country, Trip
boss = User.objects.create_superuser("boss")
alice = User.objects.create_user("alice")
allowed = ["add_trip", "view_trip", "change_trip"]
europe = Continent.objects.create(pk="EU", name="Europe", population=1)
about = {"continent": europe, "population": 67_000_000, "area": 551_695, "capital": "Paris"}
france = Country.objects.create(pk="FR", name="France", **about)
for key, name in enumerate(["Paris", "Lyon", "Nice"], start=1):
    place = {"latitude": 48 + key, "longitude": 2 + key, "timezone": "Europe/Paris"}
    City.objects.create(pk=key, name=name, plain_name=name.lower(), country=france,
                        population=100_000 * key, **place)
alice.user_permissions.set(Permission.objects.filter(codename__in=allowed))
Trip.objects.create(owner=boss, title="Alps", starts=date(2026, 1, 1), ends=date(2026, 1, 5))
Trip.objects.create(owner=alice, title="Norway", starts=date(2026, 5, 1), ends=date(2026, 5, 9))
"""


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a project without declarations."""
    path = tmp_path_factory.mktemp("quiet") / "quiet.sqlite3"
    settings = {"DJANGO_SETTINGS_MODULE": "tests.management.quiet"}
    environ = environment(path, **settings)
    subprocess.run(command("migrate", "-v0"), cwd=ROOT, env=environ, check=True)
    return path


@pytest.fixture(scope="session")
def atlas_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the example project with two users, each with a trip."""
    path = tmp_path_factory.mktemp("atlas") / "atlas.sqlite3"
    for arguments in (["migrate", "-v0"], ["shell", "-v0", "-c", PEOPLE]):
        done = run_atlas(path, *arguments)
        assert done.returncode == 0, done
    return path


@pytest.fixture
def atlas(atlas_database: Path) -> Callable[..., Done]:
    """Return a function that runs ``manage.py`` of the example project."""

    def atlas(*arguments: str, terminal: bool = False, **options: Any) -> Done:
        ran = at_terminal if terminal else run_atlas
        return ran(atlas_database, *arguments, **options)

    return atlas
