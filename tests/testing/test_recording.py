"""Recording of exceptions and queries for each call of a client."""

from __future__ import annotations

import logging
import threading
from contextvars import copy_context

import pytest
from django.contrib.auth.models import User
from django.db import transaction

import django_mcp as mcp
from django_mcp.calls.execution import around
from django_mcp.testing import Client
from django_mcp.testing.results import _note_queries, recorded, unwatch, watch

logger = logging.getLogger("django_mcp.calls")


@pytest.fixture
def watched():
    watch()
    yield
    unwatch()


def fail(level: int = logging.ERROR) -> ZeroDivisionError:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        logger.log(level, "It failed", exc_info=True)
        return error


def test_logged_exception_is_recorded(watched, caplog):
    with recorded() as record:
        bug = fail()
    fail()
    assert record.bugs == [bug]
    assert len(caplog.records) == 2  # the exceptions are still logged


def test_warnings_and_errors_without_an_exception_are_not_recorded(watched):
    with recorded() as record:
        fail(logging.WARNING)
        logger.error("without an exception")
    assert record.bugs == []


def test_nested_calls_have_separate_records(watched):
    with recorded() as first:
        inner = copy_context()
        with recorded() as second:
            later = fail()
            earlier = inner.run(fail)
    assert (first.bugs, second.bugs) == ([earlier], [later])


def test_exception_without_context_is_recorded_if_only_one_call_runs(watched):
    with recorded() as record:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        assert len(record.bugs) == 1
        with recorded():
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
    assert len(record.bugs) == 1


def test_queries_are_recorded_without_savepoints(db):
    with recorded() as record:
        User.objects.count()
        with _note_queries(None), transaction.atomic():
            User.objects.count()
        User.objects.count()
    assert [sql.partition(" ")[0] for sql in record.queries] == ["SELECT"]


def test_recording_is_active_only_while_a_client_is_open(db):
    before = list(around)
    with Client() as first:
        with Client():
            first.call("add", a=1)
            assert around == [*before, _note_queries]
        assert around == [*before, _note_queries]
    assert around == before
    with recorded() as record:
        fail()
    assert record.bugs == []


def test_queries_of_an_async_tool_are_counted(server, alice):
    @server.tool
    async def count(request: mcp.Request) -> int:
        return await User.objects.acount()

    for transport in ("memory", "http", "stdio"):
        with Client(alice, server=server, transport=transport) as client:
            client.call("count").assert_data(1).assert_num_queries(1)
