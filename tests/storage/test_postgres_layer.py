"""Wake-ups by LISTEN and NOTIFY: connections, messages, and recovery of lost connections."""

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
from tools.ports import free_port

from .layer_connections import Receiver, logged, until, unusable_connection
from .test_poller import FakeCallRunner

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("by_postgres", "short_reconnect_intervals"),
]

END_LISTENERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE starts_with(query, 'LISTEN') AND datname = current_database()"
)


def ask(statement, *params):
    """Execute a statement on a separate connection and return its rows."""
    given = postgres_layer.params_of("default") | {"application_name": "a test"}
    with psycopg.connect(**given, autocommit=True) as asking:
        return asking.execute(statement, params).fetchall()


def count_connections() -> int:
    """Return how many connections of the layer the tests' database has."""
    found = ask(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database()",
        NAME,
    )
    return found[0][0]


# Connections.


async def test_layer_uses_two_connections_and_closes_them():
    async with Receiver(), Receiver():
        assert await asyncio.to_thread(count_connections) == 4
    await until(lambda: not count_connections())


async def test_layer_is_used_only_if_the_session_database_is_postgres(settings, monkeypatch):
    monkeypatch.setattr(wakeups.settings, "DATABASE", "elsewhere")
    assert not wakeups.is_postgres()
    line = ChannelLayerConnection()
    line.open(print)
    assert not line.is_open


async def test_configured_channel_layer_takes_precedence(settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    await unusable_connection()
    assert not count_connections()


async def test_layer_keeps_no_transaction_open():
    """Transactions that notify wait for each other when they commit."""
    async with Receiver() as here, Receiver() as there:
        here.line.send([1])
        await until(lambda: there.heard)
        assert not ask(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND xact_start IS NOT NULL"
            " AND state <> 'active'",
            NAME,
        )


# Messages.


async def test_messages_contain_only_stream_ids_and_stay_below_the_size_limit(monkeypatch):
    messages = []
    take = ChannelLayerConnection._handle
    monkeypatch.setattr(
        ChannelLayerConnection, "_handle", lambda self, one: messages.append(one) or take(self, one)
    )
    streams = range(10**18, 10**18 + 1000)  # as many digits as possible
    async with Receiver() as here, Receiver() as there:
        here.line.send(streams)
        await until(lambda: len(there.heard) == len(streams))
        assert sorted(there.heard) == list(streams)
    rings = [one for one in messages if "streams" in one]
    assert all(one.keys() == {"type", "by", "streams"} for one in rings)
    assert max(len(json.dumps(one)) for one in rings) < 8000


@pytest.mark.parametrize("payload", ["", "no JSON", "[" * 4000, "7", "\N{SNOWMAN}"])
async def test_malformed_notifications_are_ignored(payload, caplog):
    async with Receiver() as here, Receiver() as there:
        await asyncio.to_thread(ask, "SELECT pg_notify(%s, %s)", wakeups.group(), payload)
        here.line.send([2])
        await until(lambda: there.heard)
        assert there.heard == [2] and not caplog.records


# Outages.


class CuttableProxy:
    """A TCP proxy in front of PostgreSQL that can cut connections or stop forwarding."""

    def __init__(self) -> None:
        self.port, self._open, self.flows = free_port(), [], asyncio.Event()
        self.flows.set()
        self._to = {"host": connection.settings_dict["HOST"] or "127.0.0.1",
                    "port": int(connection.settings_dict["PORT"] or 5432)}  # fmt: skip

    async def __aenter__(self) -> CuttableProxy:
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
    async with CuttableProxy() as made:
        place = connections["default"].settings_dict  # one dict, of all threads
        for name, value in (("HOST", "127.0.0.1"), ("PORT", str(made.port))):
            monkeypatch.setitem(place, name, value)
        yield made
        await asyncio.sleep(0)


async def test_connections_recover_after_an_outage_of_postgres(wire, caplog):
    caplog.set_level("INFO", "django_mcp")
    async with Receiver() as here, Receiver() as there:
        await wire.cut()
        await until(lambda: not here.line.is_working and not there.line.is_working)
        for number in range(50):
            here.line.send([number])
        await until(lambda: logged(caplog, "by=LISTEN connection to PostgreSQL error=") == 2)
        await asyncio.sleep(0.5)
        assert logged(caplog, "by=LISTEN connection to PostgreSQL error=") == 2  # one each
        await wire.mend()
        await until(lambda: here.line.is_working and there.line.is_working)
        there.heard.clear()
        await until(lambda: here.line.send([77]) or 77 in there.heard)
        assert logged(caplog, "Wake-ups arrive again: by=LISTEN connection to PostgreSQL") == 2


@pytest.fixture
async def worker(wire, monkeypatch):
    """Run the poller of an idle worker whose connections all pass the proxy."""
    for pool in (threads.polling, threads.log):
        await pool.run(connections.close_all)
    poller.poller().call_manager = FakeCallRunner()
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


async def test_outage_of_the_database_is_logged_once(wire, worker, caplog):
    """The message about the database is enough; a second one would add nothing."""
    caplog.set_level("INFO", "django_mcp")
    line, losses = worker
    await wire.cut()
    await until(lambda: len(losses) > 3)
    await wire.mend()
    await until(lambda: line.is_working)
    await until(lambda: poller.poller()._poll_now.set() or logged(caplog, "can be reached again"))
    assert logged(caplog, "Database cannot be reached: database=default") == 1
    assert not logged(caplog, "LISTEN connection to PostgreSQL")


async def test_failure_of_the_listen_connection_alone_is_logged_once(
    wire, worker, caplog, monkeypatch
):
    caplog.set_level("INFO", "django_mcp")
    line, losses = worker
    nowhere = postgres_layer.params_of("default") | {"port": free_port()}
    with monkeypatch.context() as patch:
        patch.setattr(
            wakeups, "_create_postgres_layer", lambda: PostgresLayer(nowhere, wakeups.group())
        )
        await asyncio.to_thread(ask, END_LISTENERS)
        await until(lambda: len(losses) > 3)
    assert logged(caplog, "by=LISTEN connection to PostgreSQL error=") == 1
    await until(lambda: line.is_working)
    assert logged(caplog, "Wake-ups arrive again: by=LISTEN connection to PostgreSQL") == 1
    assert not logged(caplog, "cannot be reached")


async def test_immediate_reconnect_is_not_logged(worker, caplog):
    caplog.set_level("INFO", "django_mcp")
    line, losses = worker
    await asyncio.to_thread(ask, END_LISTENERS)
    await until(lambda: losses and line.is_working)
    assert len(losses) == 1 and not logged(caplog, "LISTEN connection to PostgreSQL")


async def test_silent_server_is_given_up_after_the_timeout(wire, monkeypatch, caplog):
    """The driver would send a cancel request and wait for it; nothing is sent meanwhile."""
    monkeypatch.setattr(wakeups, "OPERATION_TIMEOUT_SECONDS", 0.3)
    async with Receiver() as here:
        wire.flows.clear()
        began = time.monotonic()
        await until(lambda: not here.line.is_working)
        assert time.monotonic() - began < 3
        await until(lambda: logged(caplog, "by=LISTEN connection to PostgreSQL error=") == 1)
        wire.flows.set()
        await until(lambda: here.line.is_working)


async def test_terminated_listener_reconnects():
    async with Receiver() as here, Receiver() as there:
        assert len(await asyncio.to_thread(ask, END_LISTENERS)) == 2
        await until(lambda: not there.line.is_working)
        await until(lambda: there.line.is_working and here.line.is_working)
        await until(lambda: here.line.send([1]) or there.heard)


# Connection pools.


@pytest.mark.usefixtures("pgbouncer")
async def test_layer_is_not_used_through_a_connection_pool(caplog):
    line = await unusable_connection()
    assert logged(caplog, "A pooler, such as PgBouncer, is in front of PostgreSQL") == 1
    line.open(print)
    assert not line.is_open  # and not tried again


async def test_layer_is_not_used_without_psycopg_3(monkeypatch, caplog):
    caplog.set_level("INFO", "django_mcp")
    monkeypatch.setitem(sys.modules, "django_mcp.storage.postgres_layer", None)
    monkeypatch.delattr("django_mcp.storage.postgres_layer")
    assert await threads.log.run(wakeups._create_layer) is None
    assert logged(caplog, "they need psycopg 3") == 1


def test_no_other_module_executes_notify():
    """Only the PostgreSQL layer executes ``NOTIFY``."""
    command = ["grep", "-rlE", 'pg_notify|"NOTIFY ', str(Path(postgres_layer.__file__).parents[1])]
    found = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert [Path(one).name for one in found if one.endswith(".py")] == ["postgres_layer.py"]


# Output of ``mcp_doctor``.


def test_doctor_reports_the_listen_connection():
    (found,) = workers()
    assert found.level == "ok" and "through the LISTEN connection to PostgreSQL" in found.words


@pytest.mark.usefixtures("pgbouncer")
def test_doctor_warns_about_a_connection_pool():
    connection.close()
    line, pool = workers()
    assert "A pooler, such as PgBouncer" in line.words and line.level == "warning"
    assert pool.level == "warning" and "DISABLE_SERVER_SIDE_CURSORS = True" in pool.hint
    connection.close()
