"""Where a connection goes on: not in a session that ends at the same moment."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone

import django_mcp as mcp
from django_mcp.auth.principal import anonymous
from django_mcp.storage import calls, event_log, retention, sessions, streams
from django_mcp.transports.http.streams import event_id, resumed

from ...storage import rows

pytestmark = pytest.mark.django_db


def test_a_session_that_ends_meanwhile_is_gone_and_its_cursors_are_not_unknown():
    session = rows.session()
    stream = streams.open(session, pending_responses=1)
    cursor = event_id(stream.pk, 0)
    assert resumed(mcp.server, session, anonymous(), cursor).stream == stream.pk
    assert resumed(mcp.server, session, anonymous(), event_id(stream.pk + 1, 0)) is None
    sessions.end(session)
    with pytest.raises(sessions.SessionEnded):
        resumed(mcp.server, session, anonymous(), cursor)
    assert streams.states([stream.pk]) == {}


# Of what was trimmed.


def response(id):
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": {}})


def trimmed(session, *ids, said=3):
    """A stream of these calls, which has ended and was trimmed; call 0 was cancelled."""
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
    """What a client that comes back is given, each with its number; None if all is over."""
    at = resumed(mcp.server, session, anonymous(), event_id(stream.pk, after))
    if at.is_over:
        return None
    found = event_log.read(stream.pk, after) if at.given is None else at.given
    return [(seq, json.loads(text)) for seq, text in found]


def errors(found):
    """The requests that are told of a loss, and by which event."""
    ((seq, told),) = found
    told = told if isinstance(told, list) else [told]
    assert all(one["error"]["code"] == -32603 for one in told)
    return seq, [one["id"] for one in told]


def test_a_response_is_given_if_it_is_all_that_followed():
    session = rows.session()
    stream = trimmed(session, 1)
    assert given(session, stream, 4) == [(5, json.loads(response(1)))]
    assert given(session, stream, 5) is None
    for after in (0, 1, 3):  # a replay is never partial
        assert errors(given(session, stream, after)) == (5, [1])


def test_client_is_told_of_an_answer_that_was_beyond_the_byte_budget(monkeypatch):
    monkeypatch.setattr(streams, "SIZE_CHECKED_ONE_IN", 1)
    monkeypatch.setattr(streams, "max_closed_bytes", lambda: 10)
    session = rows.session()
    stream = streams.open(session, calls=[one := rows.call(1)], messages=["x"])
    assert event_log.finish(one.pk, 0, response(1), stream.pk)
    streams.open(session, calls=[rows.call(2)])
    assert errors(given(session, stream, 1)) == (2, [1])


def test_of_a_batch_those_are_told_whose_responses_the_client_has_not_had():
    session = rows.session(revision="2025-03-26")
    stream = trimmed(session, 1, 0, "é", 2)
    # 1-3 x, 4 y, 5 is 1's, 6 y, 7 y, 8 is é's, 9 y, 10 is 2's
    assert errors(given(session, stream, 1)) == (10, [1, "é", 2])
    assert errors(given(session, stream, 5)) == (10, ["é", 2])
    assert errors(given(session, stream, 8)) == (10, [2])
    assert given(session, stream, 9) == [(10, json.loads(response(2)))]
    assert given(session, stream, 10) is None


def test_the_errors_of_a_batch_are_one_event():
    session = rows.session(revision="2025-03-26")
    made = [rows.call(id) for id in (1, 2)]
    stream = streams.open(session, calls=made, messages=["x"] * 3)
    streams.close(stream.pk)
    retention.prune(now=timezone.now() + timedelta(hours=3))
    assert errors(given(session, stream, 1)) == (3, [1, 2])
    assert given(session, stream, 3) is None


def test_who_has_read_all_responses_is_told_nothing_more():
    session = rows.session(revision="2025-03-26")
    stream = streams.open(session, calls=[one := rows.call(1)], messages=["x"], pending_responses=2)
    assert event_log.finish(one.pk, 0, response(1), stream.pk)
    event_log.append(stream.pk, ["y", "y"])
    streams.close(stream.pk)
    retention.prune(now=timezone.now() + timedelta(hours=3))
    assert errors(given(session, stream, 0)) == (4, [1])
    assert given(session, stream, 2) is None
