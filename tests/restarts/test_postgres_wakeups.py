"""Wake-ups between processes over PostgreSQL: terminated connections are made again."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from django_mcp.storage.postgres_layer import NAME

from .processes import SECONDS, SERVERS
from .test_workers import listening, notification_seconds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),  # otherwise the statistics are a snapshot
    pytest.mark.skipif(
        connection.vendor != "postgresql", reason="LISTEN is PostgreSQL's: TEST_DATABASE=postgres."
    ),
]


def test_notifications_arrive_after_listen_connections_were_terminated(begin, connect, database):
    def process():
        return begin(RESTARTS_DATABASE=database)

    client, messages = listening(connect, process(), process())
    wait_for_connections(database, 4)  # two connections per process
    notification_seconds(client, messages)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    query(f"{cut} WHERE application_name = %s AND datname = %s", NAME, database)
    for _ in range(10):
        notification_seconds(client, messages)
    wait_for_connections(database, 4)


def query(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall()


def wait_for_connections(database, count):
    end = time.monotonic() + SECONDS
    statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
    while query(statement, NAME, database) != [(count,)]:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("server", SERVERS)
def test_process_with_a_listen_connection_shuts_down_without_warnings(
    begin, connect, database, server
):
    process = begin(server=server, RESTARTS_DATABASE=database)
    news = connect(process.port).get()
    news.primed()
    time.sleep(1)
    assert process.terminate() < 8
    output = [line for line in process.output.splitlines() if "WARNING" in line or "rror" in line]
    assert "destroyed" not in process.output and not output, process.output
