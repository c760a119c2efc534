"""``mcp_doctor`` tries what rings between workers, as a worker would."""

from __future__ import annotations

import pytest

from django_mcp.conf import settings as ours
from django_mcp.management.doctor.installation import workers
from django_mcp.storage import wakeups

from ..redis import BACKENDS, a_redis
from .test_mcp_doctor import only, words

MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


@pytest.fixture(autouse=True)
def _soon_lost(monkeypatch):
    monkeypatch.setattr(wakeups, "OPERATION_TIMEOUT_SECONDS", 5.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.django_db
def test_redis_that_is_there_and_one_that_is_not(tmp_path, settings, backend):
    with a_redis(tmp_path) as redis:
        settings.CHANNEL_LAYERS = redis.layers(backend)
        rings = "Workers notify each other through the channel layer: a test message came back."
        assert rings in words(workers(), "ok")
    assert "The channel layer between workers does not work: " in only(list(workers())).words


@pytest.mark.django_db
def test_a_layer_in_memory_reaches_nobody(settings):
    settings.CHANNEL_LAYERS = MEMORY
    assert "The channel layer reaches no other worker." in words(workers(), "note")


@pytest.mark.django_db
def test_nothing_rings(settings, monkeypatch):
    monkeypatch.setattr(wakeups, "is_postgres", lambda: False)
    settings.CHANNEL_LAYERS = {}
    assert "Workers do not notify each other." in words(workers(), "note")


def test_a_database_there_is_not_is_told_elsewhere(settings):
    settings.CHANNEL_LAYERS = MEMORY
    settings.DJANGO_MCP = ours.given() | {"DATABASE": "nowhere"}
    assert len(list(workers())) == 1
