"""Wake-ups between processes over a channel layer: a real Redis, and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from channels.layers import ChannelLayerManager

from django_mcp.storage import wakeups
from django_mcp.storage.wakeups import (
    ChannelLayerConnection,
    StreamWakeup,
    send_wakeups,
    wake_readers,
)

from ..redis import BACKENDS, a_redis
from .layer_connections import SECONDS, Receiver, logged, until, unusable_connection

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_reconnect_intervals")]


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with a_redis(tmp_path_factory.mktemp("redis")) as made:
        yield made


HAS_DATABASE = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[*BACKENDS, pytest.param("postgres", marks=HAS_DATABASE)])
def configured(request, settings):
    if request.param == "postgres":
        request.getfixturevalue("by_postgres")
    else:
        settings.CHANNEL_LAYERS = request.getfixturevalue("redis").layers(request.param)


async def foreign_layer():
    """Return a layer that can send to the group without being a connection of the package."""
    made = wakeups._create_layer()
    await made.new_channel("stranger")
    return made


async def test_wakeup_reaches_all_other_connections_and_not_its_sender(configured):
    async with Receiver() as here, Receiver() as there, Receiver() as elsewhere:
        here.line.send([1, 2])
        await until(lambda: there.heard and elsewhere.heard)
        await asyncio.sleep(0.1)
        assert sorted(there.heard) == sorted(elsewhere.heard) == [1, 2] and here.heard == []


async def test_wake_readers_sends_to_other_processes_from_any_thread(configured):
    async with Receiver(wakeups.channel_layer()), Receiver() as there:
        wake_readers(StreamWakeup(1, [(1, "a")]), StreamWakeup(2))
        await asyncio.to_thread(wake_readers, StreamWakeup(3))
        await until(lambda: len(there.heard) == 3)
        assert sorted(there.heard) == [1, 2, 3]


async def test_wakeups_are_combined_into_few_messages(configured, monkeypatch):
    messages = []
    take = ChannelLayerConnection._handle
    monkeypatch.setattr(
        ChannelLayerConnection, "_handle", lambda self, one: messages.append(one) or take(self, one)
    )
    async with Receiver() as here, Receiver() as there:
        for number in range(500):
            here.line.send([number % 7, 8])
            await asyncio.sleep(0)
        await until(lambda: len(set(there.heard)) == 8)
        await asyncio.sleep(0.1)
    rings = [one for one in messages if "streams" in one]
    assert len(rings) < 100  # to both


async def test_number_of_queued_wakeups_is_limited(configured, monkeypatch):
    monkeypatch.setattr(wakeups, "MAX_STREAMS_PER_MESSAGE", 3)
    monkeypatch.setattr(wakeups, "MAX_WAITING_STREAMS", 9)
    async with Receiver() as here, Receiver() as there:
        for number in range(100):
            here.line.send([number])
        await until(lambda: len(there.heard) == 9)
        await asyncio.sleep(0.1)
        assert sorted(there.heard) == list(range(9))


async def test_closed_connection_can_be_opened_again(configured):
    async with Receiver() as here, Receiver() as there:
        there.line.stop()
        there.line.open(there.heard.extend)
        assert there.line.is_open
        await until(lambda: here.line.send([1]) or there.heard)


async def test_error_while_closing_does_not_reopen_the_connection(configured, monkeypatch):
    began = asyncio.Event()

    async def broken(self, layer):
        began.set()
        try:
            await asyncio.sleep(SECONDS)
        finally:
            raise OSError

    monkeypatch.setattr(ChannelLayerConnection, "_serve", broken)
    line = ChannelLayerConnection()
    line.open(lambda streams: None)
    await began.wait()
    await line.close()
    began.clear()
    await until(lambda: line._stopping.done())
    assert not began.is_set()


# Messages that are no wake-ups of this project.


async def test_wakeups_of_another_project_are_not_received(configured, settings):
    async with Receiver() as here, Receiver() as there:
        theirs = await foreign_layer()
        settings.SECRET_KEY = "another"
        other = wakeups.group()
        settings.SECRET_KEY = "only for the tests"
        assert other != wakeups.group()
        await theirs.group_send(other, {"type": wakeups.KIND, "streams": [1]})
        here.line.send([2])
        await until(lambda: there.heard)
        assert there.heard == [2]
        await wakeups._close_layer(theirs)


@pytest.mark.parametrize(
    "message",
    [
        {}, {"streams": 5}, {"streams": "123"}, {"streams": {"1": 2}}, {"channel": "no channel!!"},
        {"streams": ["1", None, True, 1.5, [1]]}, {"channel": 7, "probe": 1}, {"by": [1]},
    ],
)  # fmt: skip
async def test_malformed_messages_are_ignored(configured, monkeypatch, message, caplog):
    monkeypatch.setattr(wakeups, "SILENT_CHANNEL_SECONDS", 1.5)
    monkeypatch.setattr(wakeups, "OPERATION_TIMEOUT_SECONDS", SECONDS)
    async with Receiver() as here, Receiver() as there:
        stranger = await foreign_layer()
        await stranger.group_send(wakeups.group(), {"type": wakeups.KIND, **message})
        await asyncio.sleep(2.5)
        await until(lambda: here.line.send([2]) or there.heard)
        assert set(there.heard) == {2} and not caplog.records
        await wakeups._close_layer(stranger)


async def test_number_of_streams_read_from_a_message_is_limited(monkeypatch):
    monkeypatch.setattr(wakeups, "MAX_STREAMS_PER_MESSAGE", 3)
    line, heard = ChannelLayerConnection(), []
    line._on_wakeup = heard.extend
    line._handle({"streams": list(range(10))})
    assert heard == [0, 1, 2]


async def test_message_without_streams_causes_no_poll():
    line, received = ChannelLayerConnection(), []
    line._on_wakeup = received.append
    for streams in ([], ["1", None]):
        line._handle({"streams": streams})
    assert received == []


async def test_wakeup_for_no_streams_sends_no_message(configured):
    async with Receiver() as here, Receiver() as there:
        received = []
        there.line._on_wakeup = received.append
        send_wakeups((), asyncio.get_running_loop())
        assert not here.line._has_waiting.is_set()
        here.line.send([3])
        await until(lambda: received)
        assert received == [[3]]


async def test_number_of_remembered_channels_is_limited(monkeypatch):
    monkeypatch.setattr(wakeups, "MAX_CHANNELS", 2)
    line = ChannelLayerConnection()
    for name in ("a" * 100, *"abcab"):
        line._handle({"channel": name})
    assert list(line._channels) == ["a", "b"]


async def test_channel_of_a_dead_process_is_removed_from_the_group(redis, settings, monkeypatch):
    settings.CHANNEL_LAYERS = redis.layers("core")
    async with Receiver() as here:
        layer = ChannelLayerManager().make_backend("default")
        counted = layer.connection(0).zcard
        key = layer._group_key(wakeups.group())
        there = Receiver()
        async with there:
            await until(lambda: here.line._channels)
            assert await counted(key) == 2
            there.line.stop()
            await asyncio.sleep(0.1)
            assert await counted(key) == 1  # an orderly end leaves the group
            await layer.group_add(
                wakeups.group(), next(iter(here.line._channels))
            )  # as a dead process
            monkeypatch.setattr(wakeups, "SILENT_CHANNEL_SECONDS", 0.2)
            await until(lambda: not here.line._channels)
            await asyncio.sleep(0.1)
            assert await counted(key) == 1 and here.line.is_working
        await wakeups._close_layer(layer)


# Without a channel layer.


async def test_connection_stays_closed_without_a_channel_layer(settings, monkeypatch):
    monkeypatch.setattr(wakeups, "is_postgres", lambda: False)
    del settings.CHANNEL_LAYERS
    line = ChannelLayerConnection()
    line.open(print)
    assert not line.is_open and not line.is_working
    await line.close()
    settings.CHANNEL_LAYERS = {"other": {}}
    line.open(print)
    assert not line.is_open


async def test_in_memory_layer_is_not_used(settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    await unusable_connection()


async def test_layer_that_cannot_be_created_is_logged(settings, caplog):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "no.such.Layer"}}
    await unusable_connection()
    assert "cannot be created" in caplog.text


def test_channels_and_redis_are_not_imported_without_a_layer():
    code = """
import sys, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django_mcp"], SECRET_KEY="x")
django.setup()
import asyncio
from django_mcp.storage.wakeups import ChannelLayerConnection
async def main():
    line = ChannelLayerConnection()
    line.open(print)
    assert not line.is_open
asyncio.run(main())
unwanted = ("channels.layers", "channels_redis", "redis")
sys.exit(any(name.startswith(unwanted) for name in sys.modules))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


# Outages of Redis.


@pytest.fixture
def own_redis(tmp_path):
    """A Redis that the test kills."""
    with a_redis(tmp_path) as made:
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
async def test_connections_recover_after_a_restart_of_redis(own_redis, backend, settings, caplog):
    caplog.set_level("INFO", "django_mcp")
    settings.CHANNEL_LAYERS = own_redis.layers(backend)
    async with Receiver() as here, Receiver() as there:
        await asyncio.to_thread(own_redis.kill)
        await until(lambda: not here.line.is_working and not there.line.is_working)
        for number in range(50):  # sending never waits, and messages are not kept for long
            began = time.monotonic()
            here.line.send([number])
            assert time.monotonic() - began < 1
            await asyncio.sleep(0.01)
        assert logged(caplog, "by=channel layer error=") == 2  # one each
        await asyncio.to_thread(own_redis.start)
        await until(lambda: here.line.is_working and there.line.is_working)
        there.heard.clear()
        assert here.line.is_open
        here.line.send([77])
        await until(lambda: 77 in there.heard)
        assert logged(caplog, "Wake-ups arrive again: by=channel layer") == 2
        assert logged(caplog, "by=channel layer error=") == 2


async def test_group_is_joined_again_after_redis_lost_its_data(own_redis, settings, monkeypatch):
    settings.CHANNEL_LAYERS = own_redis.layers("core")
    async with Receiver() as here, Receiver() as there:
        layer = ChannelLayerManager().make_backend("default")
        await layer.flush()
        await asyncio.sleep(0.5)
        here.line.send([5])
        await until(lambda: there.heard == [5])


async def test_hanging_layer_is_reported_and_recovers(own_redis, settings, monkeypatch, caplog):
    monkeypatch.setattr(wakeups, "OPERATION_TIMEOUT_SECONDS", 1.5)
    settings.CHANNEL_LAYERS = own_redis.layers("core")
    async with Receiver() as here:
        own_redis._process.send_signal(19)  # SIGSTOP
        try:
            await until(lambda: not here.line.is_working)
            assert logged(caplog, "by=channel layer error=") == 1
        finally:
            own_redis._process.send_signal(18)
        await until(lambda: here.line.is_working)


# Two processes.

OTHER_PROCESS = """
import asyncio, json, os, sys, time, django
django.setup()
from django.test import override_settings
from django_mcp.storage.wakeups import ChannelLayerConnection

async def main():
    loop, line = asyncio.get_running_loop(), ChannelLayerConnection()
    line.open(lambda streams: print(json.dumps([time.monotonic(), list(streams)]), flush=True))
    while not line.is_working:
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    await line.close()

with override_settings(CHANNEL_LAYERS=json.loads(os.environ["LAYERS"])):
    asyncio.run(main())
"""


class OtherProcess:
    """Another process, which prints the wake-ups it receives."""

    def __init__(self, given: dict[str, object]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "error", "-c", OTHER_PROCESS], cwd=ROOT,
            env=os.environ | {"LAYERS": json.dumps(given),
                              "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def heard(self) -> tuple[float, list[int]]:
        assert self._process.stdout is not None
        at, streams = json.loads(self._process.stdout.readline())
        return at, streams

    def end(self) -> str:
        """Return its warnings, except those about a slow machine."""
        _, complaints = self._process.communicate(timeout=SECONDS)
        return "".join(one for one in complaints.splitlines(True) if " took " not in one)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
async def test_another_process_is_woken_within_a_tenth_of_a_second(redis, backend, settings):
    settings.CHANNEL_LAYERS = given = redis.layers(backend)
    there = await asyncio.to_thread(OtherProcess, given)
    took = []
    async with Receiver() as here:
        for number in range(11):
            began = time.monotonic()
            here.line.send([number])
            at, streams = await asyncio.to_thread(there.heard)
            assert streams == [number]
            took.append(at - began)
            await asyncio.sleep(0.05)
    assert min(took) < 0.1
    assert await asyncio.to_thread(there.end) == ""
