"""Several processes that ring each other through PostgreSQL: what is cut is seen, and made anew."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from django_mcp.storage.postgres_layer import NAME

from .test_workers import heard_after, listening
from .wire import SECONDS, SERVERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),  # else what is looked at stays as it was
    pytest.mark.skipif(
        connection.vendor != "postgresql", reason="LISTEN is PostgreSQL's: TEST_DATABASE=postgres."
    ),
]


def test_where_postgres_rings_nothing_is_lost_when_its_lines_are_cut(begin, connect, database):
    def process():
        return begin(RESTARTS_DATABASE=database)

    client, messages = listening(connect, process(), process())
    until_lines(database, 4)  # two processes, two connections each
    heard_after(client, messages)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    asked(f"{cut} WHERE application_name = %s AND datname = %s", NAME, database)
    for _ in range(10):
        heard_after(client, messages)
    until_lines(database, 4)


def asked(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall()


def until_lines(database, count):
    end = time.monotonic() + SECONDS
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
    while asked(query, NAME, database) != [(count,)]:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("server", SERVERS)
def test_a_process_with_a_line_through_postgres_ends_in_silence(begin, connect, database, server):
    process = begin(server=server, RESTARTS_DATABASE=database)
    news = connect(process.port).get()
    news.primed()
    time.sleep(1)
    assert process.terminate() < 8
    words = [line for line in process.words.splitlines() if "WARNING" in line or "rror" in line]
    assert "destroyed" not in process.words and not words, process.words
