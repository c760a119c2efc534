"""Fixtures of the atlas. Nothing is collected with other settings."""

from datetime import date

import pytest
from django.conf import settings

from django_mcp.testing.environment import TestEnvironment

if settings.SETTINGS_MODULE != "example_project.settings":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """The three thousand largest cities of the world, loaded once for all tests."""
    from example_project.atlas.loading import load

    with django_db_blocker.unblock():
        load(largest=3_000)


@pytest.fixture(autouse=True)
def _jobs_on_test_connections(request):
    """Run jobs on the connections of the test, because the database is in memory."""
    if "db" not in request.fixturenames and not request.node.get_closest_marker("django_db"):
        yield
        return
    request.getfixturevalue("db")
    with TestEnvironment().installed():
        yield


@pytest.fixture
def atlas(db):
    """The rows of the atlas, unchanged at the start of every test."""


@pytest.fixture
def alice(django_user_model, db):
    return django_user_model.objects.create_user("alice")


@pytest.fixture
def trip(alice):
    from example_project.atlas.models import Trip

    return Trip.objects.create(
        owner=alice, title="Japan", starts=date(2027, 4, 1), ends=date(2027, 4, 12)
    )


@pytest.fixture
def city(atlas):
    from example_project.atlas.models import City

    return lambda name: City.objects.named(name).first()
