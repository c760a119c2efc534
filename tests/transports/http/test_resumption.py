"""Resumption of a stream with an event id: what is sent again, and what is reported as lost."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone

import django_mcp as mcp
from django_mcp.auth.principal import anonymous
from django_mcp.storage import calls, event_log, retention, sessions, streams
from django_mcp.transports.http.streams import event_id, resume_stream

from ...storage import rows

pytestmark = pytest.mark.django_db


def test_resumption_in_an_ended_session_raises_session_ended():
    session = rows.session()
    stream = streams.open(session, pending_responses=1)
    cursor = event_id(stream.pk, 0)
    assert resume_stream(mcp.server, session, anonymous(), cursor).stream == stream.pk
    assert resume_stream(mcp.server, session, anonymous(), event_id(stream.pk + 1, 0)) is None
    sessions.end(session)
    with pytest.raises(sessions.SessionEnded):
        resume_stream(mcp.server, session, anonymous(), cursor)
    assert streams.states([stream.pk]) == {}


# Pruned streams.


def response(id):
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": {}})


def trimmed(session, *ids, said=3):
    """Return a stream of these calls that has ended and was pruned; call 0 was cancelled."""
    made = [rows.call(id) for id in ids]
    stream = streams.open(session, calls=made, messages=["x"] * said)
    for id, one in zip(ids, made, strict=True):
        event_log.append(stream.pk, ["y"])
        if id == 0:
            calls.cancel(session, "0")
        else:
            assert event_log.finish(one.pk, 0, response(id), stream.pk)
    retention.prune(now=timezone.now() + timedelta(hours=3))
    return stream


def given(session, stream, after):
    """Return the numbered messages that a resuming client gets, or ``None`` at the end."""
    at = resume_stream(mcp.server, session, anonymous(), event_id(stream.pk, after))
    if at.is_over:
        return None
    found = event_log.read(stream.pk, after) if at.given is None else at.given
    return [(seq, json.loads(text)) for seq, text in found]


def errors(found):
    """Return the number of the error event, and the ids of the requests it reports as lost."""
    ((seq, reported),) = found
    reported = reported if isinstance(reported, list) else [reported]
    assert all(one["error"]["code"] == -32603 for one in reported)
    return seq, [one["id"] for one in reported]


def test_pruned_stream_sends_its_response_if_nothing_else_is_missing():
    session = rows.session()
    stream = trimmed(session, 1)
    assert given(session, stream, 4) == [(5, json.loads(response(1)))]
    assert given(session, stream, 5) is None
    for after in (0, 1, 3):  # a replay is never partial
        assert errors(given(session, stream, after)) == (5, [1])


def test_response_deleted_by_the_byte_budget_is_reported_as_lost(monkeypatch):
    monkeypatch.setattr(streams, "SIZE_CHECKED_ONE_IN", 1)
    monkeypatch.setattr(streams, "max_closed_bytes", lambda: 10)
    session = rows.session()
    stream = streams.open(session, calls=[one := rows.call(1)], messages=["x"])
    assert event_log.finish(one.pk, 0, response(1), stream.pk)
    streams.open(session, calls=[rows.call(2)])
    assert errors(given(session, stream, 1)) == (2, [1])


def test_pruned_batch_reports_requests_whose_responses_are_missing():
    session = rows.session(revision="2025-03-26")
    stream = trimmed(session, 1, 0, "é", 2)
    # 1-3 x, 4 y, 5 is 1's, 6 y, 7 y, 8 is é's, 9 y, 10 is 2's
    assert errors(given(session, stream, 1)) == (10, [1, "é", 2])
    assert errors(given(session, stream, 5)) == (10, ["é", 2])
    assert errors(given(session, stream, 8)) == (10, [2])
    assert given(session, stream, 9) == [(10, json.loads(response(2)))]
    assert given(session, stream, 10) is None


def test_errors_of_a_pruned_batch_are_one_event():
    session = rows.session(revision="2025-03-26")
    made = [rows.call(id) for id in (1, 2)]
    stream = streams.open(session, calls=made, messages=["x"] * 3)
    streams.close(stream.pk)
    retention.prune(now=timezone.now() + timedelta(hours=3))
    assert errors(given(session, stream, 1)) == (3, [1, 2])
    assert given(session, stream, 3) is None


def test_client_that_has_all_responses_gets_no_error():
    session = rows.session(revision="2025-03-26")
    stream = streams.open(session, calls=[one := rows.call(1)], messages=["x"], pending_responses=2)
    assert event_log.finish(one.pk, 0, response(1), stream.pk)
    event_log.append(stream.pk, ["y", "y"])
    streams.close(stream.pk)
    retention.prune(now=timezone.now() + timedelta(hours=3))
    assert errors(given(session, stream, 0)) == (4, [1])
    assert given(session, stream, 2) is None
