"""``mcp_doctor`` tests wake-up messages between workers."""

from __future__ import annotations

import pytest

from django_mcp.conf import settings as ours
from django_mcp.management.doctor.installation import workers
from django_mcp.storage import wakeups

from ..redis import BACKENDS, a_redis
from .test_mcp_doctor import only_problem, words

MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


@pytest.fixture(autouse=True)
def _soon_lost(monkeypatch):
    monkeypatch.setattr(wakeups, "OPERATION_TIMEOUT_SECONDS", 5.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.django_db
def test_running_and_stopped_redis(tmp_path, settings, backend):
    with a_redis(tmp_path) as redis:
        settings.CHANNEL_LAYERS = redis.layers(backend)
        rings = "Workers notify each other through the channel layer: a test message came back."
        assert rings in words(workers(), "ok")
    assert (
        "The channel layer between workers does not work: " in only_problem(list(workers())).words
    )


@pytest.mark.django_db
def test_in_memory_channel_layer_is_reported(settings):
    settings.CHANNEL_LAYERS = MEMORY
    assert "The channel layer reaches no other worker." in words(workers(), "note")


@pytest.mark.django_db
def test_missing_channel_layer_is_reported(settings, monkeypatch):
    monkeypatch.setattr(wakeups, "is_postgres", lambda: False)
    settings.CHANNEL_LAYERS = {}
    assert "Workers do not notify each other." in words(workers(), "note")


def test_missing_database_is_left_to_another_check(settings):
    settings.CHANNEL_LAYERS = MEMORY
    settings.DJANGO_MCP = ours.given() | {"DATABASE": "nowhere"}
    assert len(list(workers())) == 1
