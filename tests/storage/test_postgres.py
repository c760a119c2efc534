"""LISTEN and NOTIFY: what is sent, what it costs, and how a lost connection is noticed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections

from django_mcp.management.doctor.installation import workers
from django_mcp.runtime import threads
from django_mcp.storage import leases, poller, postgres_layer, wakeups
from django_mcp.storage.postgres_layer import NAME, PostgresLayer
from django_mcp.storage.wakeups import ChannelLayerConnection
from tools.database_servers import free_port

from .lines import Ear, given_up, told, until
from .test_poller import Runner

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("by_postgres", "quick_lines"),
]

END_LISTENERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE starts_with(query, 'LISTEN') AND datname = current_database()"
)


def ask(statement, *params):
    """Of a connection that has nothing to do with the line."""
    given = postgres_layer.params_of("default") | {"application_name": "a test"}
    with psycopg.connect(**given, autocommit=True) as asking:
        return asking.execute(statement, params).fetchall()


def lines() -> int:
    """How many connections lines have to the tests' database."""
    found = ask(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database()",
        NAME,
    )
    return found[0][0]


# What it takes.


async def test_a_line_is_two_connections_and_leaves_none():
    async with Ear(), Ear():
        assert await asyncio.to_thread(lines) == 4
    await until(lambda: not lines())


async def test_a_worker_opens_it_only_where_the_log_is_kept_by_postgres(settings, monkeypatch):
    monkeypatch.setattr(wakeups.settings, "DATABASE", "elsewhere")
    assert not wakeups.is_postgres()
    line = ChannelLayerConnection()
    line.open(print)
    assert not line.is_open


async def test_a_configured_layer_goes_before_it_even_if_it_reaches_nobody(settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    await given_up()
    assert not lines()


async def test_nothing_of_it_is_in_a_transaction():
    """Transactions that notify wait for each other when they commit: ours holds up nobody."""
    async with Ear() as here, Ear() as there:
        here.line.send([1])
        await until(lambda: there.heard)
        assert not ask(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND xact_start IS NOT NULL"
            " AND state <> 'active'",
            NAME,
        )


# What it says.


async def test_a_message_names_streams_and_is_bounded(monkeypatch):
    messages = []
    take = ChannelLayerConnection._handle
    monkeypatch.setattr(
        ChannelLayerConnection, "_handle", lambda self, one: messages.append(one) or take(self, one)
    )
    streams = range(10**18, 10**18 + 1000)  # as long as a number can be
    async with Ear() as here, Ear() as there:
        here.line.send(streams)
        await until(lambda: len(there.heard) == len(streams))
        assert sorted(there.heard) == list(streams)
    rings = [one for one in messages if "streams" in one]
    assert all(one.keys() == {"type", "by", "streams"} for one in rings)
    assert max(len(json.dumps(one)) for one in rings) < 8000


@pytest.mark.parametrize("payload", ["", "no JSON", "[" * 4000, "7", "\N{SNOWMAN}"])
async def test_what_a_stranger_notifies_does_nothing(payload, caplog):
    async with Ear() as here, Ear() as there:
        await asyncio.to_thread(ask, "SELECT pg_notify(%s, %s)", wakeups.group(), payload)
        here.line.send([2])
        await until(lambda: there.heard)
        assert there.heard == [2] and not caplog.records


# The server goes and comes back.


class Wire:
    """What stands between a line and its server, and may be cut, or swallow everything."""

    def __init__(self) -> None:
        self.port, self._open, self.flows = free_port(), [], asyncio.Event()
        self.flows.set()
        self._to = {"host": connection.settings_dict["HOST"] or "127.0.0.1",
                    "port": int(connection.settings_dict["PORT"] or 5432)}  # fmt: skip

    async def __aenter__(self) -> Wire:
        await self.mend()
        return self

    async def __aexit__(self, *details: object) -> None:
        self.flows.set()
        await self.cut()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)

    async def cut(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _carry(self, reader, writer) -> None:
        there, back = await asyncio.open_connection(**self._to)
        self._open += [writer, back]
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader, writer) -> None:
        try:
            while data := await reader.read(65536):
                await self.flows.wait()
                writer.write(data)
        except OSError:
            pass
        writer.transport.abort()


@pytest.fixture
async def wire(monkeypatch):
    async with Wire() as made:
        place = connections["default"].settings_dict  # one dict, of all threads
        for name, value in (("HOST", "127.0.0.1"), ("PORT", str(made.port))):
            monkeypatch.setitem(place, name, value)
        yield made
        await asyncio.sleep(0)


async def test_the_server_goes_and_comes_back(wire, caplog):
    caplog.set_level("INFO", "django_mcp")
    async with Ear() as here, Ear() as there:
        await wire.cut()
        await until(lambda: not here.line.is_working and not there.line.is_working)
        for number in range(50):
            here.line.send([number])
        await until(lambda: told(caplog, "The LISTEN connection to PostgreSQL does not work") == 2)
        await asyncio.sleep(0.5)
        assert told(caplog, "The LISTEN connection to PostgreSQL does not work") == 2  # each, once
        await wire.mend()
        await until(lambda: here.line.is_working and there.line.is_working)
        there.heard.clear()
        await until(lambda: here.line.send([77]) or 77 in there.heard)
        assert told(caplog, "The LISTEN connection to PostgreSQL works again") == 2


@pytest.fixture
async def worker(wire, monkeypatch):
    """What polls in a worker without work, whose connections all pass the wire."""
    for pool in (threads.polling, threads.log):
        await pool.run(connections.close_all)
    poller.poller().runner = Runner()
    line = wakeups.channel_layer()
    losses, lose = [], ChannelLayerConnection._note_failure
    monkeypatch.setattr(
        ChannelLayerConnection,
        "_note_failure",
        lambda self, why: losses.append(why) or lose(self, why),
    )
    await until(lambda: line.is_working)
    yield line, losses
    await poller.poller().close()
    await line.close()
    leases.lease.end()


async def test_an_outage_of_the_database_is_one_message(wire, worker, caplog):
    """The worker's own message names the database. One about the line would tell nothing new."""
    caplog.set_level("INFO", "django_mcp")
    line, losses = worker
    await wire.cut()
    await until(lambda: len(losses) > 3)
    await wire.mend()
    await until(lambda: line.is_working)
    await until(lambda: poller.poller()._poll_now.set() or told(caplog, "can be reached again"))
    assert told(caplog, "The database 'default' cannot be reached") == 1
    assert not told(caplog, "LISTEN connection to PostgreSQL")


async def test_a_line_that_fails_alone_is_told_once(wire, worker, caplog, monkeypatch):
    caplog.set_level("INFO", "django_mcp")
    line, losses = worker
    nowhere = postgres_layer.params_of("default") | {"port": free_port()}
    with monkeypatch.context() as patch:
        patch.setattr(
            wakeups, "_create_postgres_layer", lambda: PostgresLayer(nowhere, wakeups.group())
        )
        await asyncio.to_thread(ask, END_LISTENERS)
        await until(lambda: len(losses) > 3)
    assert told(caplog, "The LISTEN connection to PostgreSQL does not work") == 1
    await until(lambda: line.is_working)
    assert told(caplog, "The LISTEN connection to PostgreSQL works again") == 1
    assert not told(caplog, "cannot be reached")


async def test_a_line_that_is_back_at_once_is_not_told(worker, caplog):
    caplog.set_level("INFO", "django_mcp")
    line, losses = worker
    await asyncio.to_thread(ask, END_LISTENERS)
    await until(lambda: losses and line.is_working)
    assert len(losses) == 1 and not told(caplog, "LISTEN connection to PostgreSQL")


async def test_a_server_that_is_silent_is_given_up(wire, monkeypatch, caplog):
    """The driver would ask it to cancel, and wait for that; a line that waits rings nobody."""
    monkeypatch.setattr(wakeups, "OPERATION_TIMEOUT_SECONDS", 0.3)
    async with Ear() as here:
        wire.flows.clear()
        began = time.monotonic()
        await until(lambda: not here.line.is_working)
        assert time.monotonic() - began < 3
        await until(lambda: told(caplog, "The LISTEN connection to PostgreSQL does not work") == 1)
        wire.flows.set()
        await until(lambda: here.line.is_working)


async def test_a_listener_that_is_ended_alone_is_noticed():
    async with Ear() as here, Ear() as there:
        assert len(await asyncio.to_thread(ask, END_LISTENERS)) == 2
        await until(lambda: not there.line.is_working)
        await until(lambda: there.line.is_working and here.line.is_working)
        await until(lambda: here.line.send([1]) or there.heard)


# A pool in between.


@pytest.mark.usefixtures("pgbouncer")
async def test_through_a_pool_it_is_not_tried(caplog):
    line = await given_up()
    assert told(caplog, "There is a pool, such as PgBouncer, before PostgreSQL") == 1
    line.open(print)
    assert not line.is_open  # nor asked again


async def test_without_psycopg_3_there_is_none(monkeypatch, caplog):
    caplog.set_level("INFO", "django_mcp")
    monkeypatch.setitem(sys.modules, "django_mcp.storage.postgres_layer", None)
    monkeypatch.delattr("django_mcp.storage.postgres_layer")
    assert await threads.log.run(wakeups._create_layer) is None
    assert told(caplog, "they need psycopg 3") == 1


def test_the_wait_of_two_savers_is_not_ours():
    """No statement of the package notifies but those of this line."""
    command = ["grep", "-rlE", 'pg_notify|"NOTIFY ', str(Path(postgres_layer.__file__).parents[1])]
    found = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert [Path(one).name for one in found if one.endswith(".py")] == ["postgres_layer.py"]


# What ``mcp_doctor`` says of it.


def test_the_doctor_hears_it():
    (found,) = workers()
    assert found.level == "ok" and "through the LISTEN connection to PostgreSQL" in found.words


@pytest.mark.usefixtures("pgbouncer")
def test_the_doctor_notices_a_pool():
    connection.close()
    line, pool = workers()
    assert "There is a pool, such as PgBouncer" in line.words and line.level == "warning"
    assert pool.level == "warning" and "DISABLE_SERVER_SIDE_CURSORS = True" in pool.hint
    connection.close()
