"""Events that are inserted by SQL have the values that the model would have stored."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_mcp.checks import check_deployment
from django_mcp.conf import settings
from django_mcp.exceptions import TooLarge
from django_mcp.models import Event
from django_mcp.storage import event_log, streams
from django_mcp.storage.event_log import COLUMNS, entry, insert

from .rows import call, given, queries, session

pytestmark = pytest.mark.django_db
NONCE = "0123456789abcdef" * 2


@pytest.fixture
def stream():
    return streams.open(session(), calls=[call()])


@pytest.fixture
def statements():
    with CaptureQueriesContext(connections[settings.DATABASE]) as captured:
        yield captured


def stored(stream):
    return list(Event.objects.filter(stream=stream).order_by("seq"))


def test_insert_writes_each_column_of_the_model():
    assert set(COLUMNS) == {f.column for f in Event._meta.concrete_fields if not f.primary_key}


def test_inserted_events_equal_those_of_the_model(stream):
    before = timezone.now()
    insert([entry(stream.pk, 1, '{"a": 1}'), entry(stream.pk, 2, "ä€😀", final=True)], NONCE)
    first, second = stored(stream)
    assert (first.data, first.size, first.final, first.nonce) == ('{"a": 1}', 8, False, NONCE)
    assert (second.data, second.size, second.final, second.nonce) == ("ä€😀", 9, True, NONCE)
    assert first.created == second.created
    assert before - timedelta(seconds=1) < first.created < timezone.now() + timedelta(seconds=1)
    copy = Event.objects.create(stream=stream, seq=3, data="x", size=1, created=first.created)
    assert Event.objects.filter(created=first.created).count() == 3
    assert Event.objects.get(pk=copy.pk).created == Event.objects.get(pk=first.pk).created


@pytest.mark.parametrize(
    "text", ["", "%", "%s %(a)s %%", "'; DROP TABLE x; --", '"`\\', "\\'", "?", ":1 $1", "a\tb\\n"]
)
def test_message_is_passed_as_a_parameter(stream, text):
    insert([entry(stream.pk, 1, text), entry(stream.pk, 2, text)])
    assert [one.data for one in stored(stream)] == [text, text]


@pytest.mark.parametrize("nonce", ["'", "a b", "a'||'b", "%s", "a-b"])
def test_invalid_nonce_is_rejected(stream, nonce):
    with pytest.raises(ValueError, match="no nonce"):
        insert([entry(stream.pk, 1, "a")], nonce)
    assert not stored(stream)


def test_inserting_no_events_executes_no_statement(statements):
    insert([])
    assert not statements.captured_queries


def test_many_events_are_inserted_by_few_statements(stream, statements):
    insert(entry(stream.pk, n, str(n)) for n in range(1, 2 * event_log.MAX_EVENTS_PER_APPEND + 2))
    assert len(statements) == 3
    assert [one.data for one in stored(stream)] == [
        str(n) for n in range(1, 2 * event_log.MAX_EVENTS_PER_APPEND + 2)
    ]


def test_size_of_an_insert_statement_is_limited(stream, statements, monkeypatch):
    monkeypatch.setattr(event_log, "MAX_BYTES_PER_APPEND", 10)
    insert(entry(stream.pk, n, text) for n, text in enumerate(["x" * 20, "y" * 5, "z" * 5, "!"], 1))
    assert len(statements) == 3
    assert [one.size for one in stored(stream)] == [20, 5, 5, 1]


# The packet limit of MariaDB.

mariadb = pytest.mark.skipif(connection.vendor != "mysql", reason="only MariaDB has this limit")


@mariadb
def test_response_up_to_the_packet_limit_of_mariadb_is_written(monkeypatch, stream):
    monkeypatch.setitem(event_log._packets, settings.DATABASE, 10_000)
    event_log.insert([event_log.entry(stream.pk, 1, "x" * 9_000)])
    event_log.insert([event_log.entry(stream.pk, 2, '"' * 4_500)])
    with pytest.raises(TooLarge, match="10,000 bytes"):
        event_log.insert([event_log.entry(stream.pk, 3, '"' * 5_000)])
    assert Event.objects.filter(stream=stream).count() == 2


@mariadb
def test_messages_above_the_packet_limit_use_several_statements(monkeypatch, stream):
    monkeypatch.setitem(event_log._packets, settings.DATABASE, 10_000)
    with queries() as done:
        event_log.insert([event_log.entry(stream.pk, seq, "x" * 4_000) for seq in (1, 2, 3)])
    assert len([one for one in done() if one.startswith("INSERT")]) == 3
    assert Event.objects.filter(stream=stream).count() == 3


def test_deployment_check_compares_the_packet_size_with_the_size_of_results(db):
    def found():
        return [one for one in check_deployment() if one.id == "django_mcp.W159"]

    with given(RESULT_SIZE=100_000):
        assert found() == []
    with given(RESULT_SIZE=600_000_000):  # MariaDB takes at most a gigabyte
        assert bool(found()) is (connection.vendor == "mysql")
