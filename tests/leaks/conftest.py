"""The seeds of the campaign, and fixtures for the models of a seed."""

from __future__ import annotations

import os
import random

import pytest

from .project import expose, without
from .schema import Schema

FIXED_SEED = 18
RANDOM_SEED = int(os.environ.get("LEAK_SEED") or random.SystemRandom().randrange(1000, 10**6))


def pytest_report_header() -> str:
    return f"leak campaign: LEAK_SEED={RANDOM_SEED}"


@pytest.fixture(scope="module", params=["fixed", "random"])
def schema(request, django_db_setup, django_db_blocker):
    """The models of one seed. Their tables exist while the tests of the module run."""
    seed = FIXED_SEED if request.param == "fixed" else RANDOM_SEED
    print(f"LEAK_SEED={seed}")
    with django_db_blocker.unblock():
        made = Schema(seed)
        made.create()
    yield made
    with django_db_blocker.unblock():
        made.drop()


@pytest.fixture
def alice(db, schema):
    return schema.fill()


@pytest.fixture
def servers(schema, settings):
    settings.ROOT_URLCONF, found = expose(schema)
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    yield found
    without.clear()
