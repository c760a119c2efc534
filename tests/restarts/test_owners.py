"""Tokens that expire and are revoked, users who may no longer sign in: in every process, soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_mcp.calls.callers import CHECK_INTERVAL_SECONDS
from django_mcp.transports.http.streams import parse_event_id

from .owners import LATER, REVOKED, asked, changed, client_of
from .wire import Answer, Client, text

pytestmark = pytest.mark.slow
SOON = CHECK_INTERVAL_SECONDS + 3  # seconds, of a busy machine


@pytest.fixture
def connect(tables: Path, pair: tuple[int, int]) -> Iterator[Callable[..., Client]]:
    """Makes clients, each with a token of its own, and closes their connections."""
    made: list[Client] = []

    def connected(user: str, seconds: float = 0, revision: str = "2025-11-25") -> Client:
        made.append(client_of(tables, user, pair[0], seconds, revision))
        return made[-1]

    yield connected
    for client in made:
        client.close()


def ended(*answers: Answer) -> float:
    """Read them to their ends, and say how long that took."""
    began = time.monotonic()
    for answer in answers:
        list(answer)
    return time.monotonic() - began


def test_a_revoked_token_has_nothing_open_anywhere(tables, pair, connect):
    client, other = connect("alice"), connect("alice")
    call = client.call("private", seconds=60, steps=600)
    cursor = call.primed()
    rest, news = client.get(cursor, pair[1]), client.get(port=pair[1])
    untouched = other.call("private", seconds=SOON + 2, steps=20)
    changed(tables, REVOKED, client.token)
    assert ended(rest, news) < SOON
    assert client.get(rest.last).status == 401
    said = int(rest.last.split("-")[1])
    time.sleep(0.5)
    last, closed = asked(
        tables, "SELECT last, closed FROM django_mcp_stream WHERE id = ?", parse_event_id(cursor)[0]
    )
    assert closed and last - said <= 100  # what was said until it was noticed; nothing since
    assert text(list(untouched)[-1]) == "done for alice"


def test_who_may_no_longer_sign_in_has_nothing_open(tables, pair, connect):
    client = connect("bob")
    call = client.call("private", seconds=60, steps=600)
    news = client.get(port=pair[1])
    changed(tables, "UPDATE auth_user SET is_active = 0 WHERE username = 'bob'")
    assert ended(call, news) < SOON
    assert not any("result" in data for _, data in call.events)


def test_a_call_outlives_its_token(tables, pair, connect):
    client = connect("carol", 3)
    call, news = client.call("private", seconds=6, steps=30), client.get(port=pair[1])
    assert ended(call, news) < 5 and call.retried and news.retried
    assert client.get(call.last).status == 401
    changed(tables, LATER, client.token)  # as good as a fresh one of the same grant
    rest = client.get(call.last, pair[1])
    assert text(list(rest)[-1]) == "done for carol"
    numbers = [int(id.split("-")[1]) for id, _ in [*call.events[:-1], *rest.events[1:]]]
    assert numbers == list(range(numbers[0], 32))


def test_an_older_client_has_its_answer_though_its_token_has_expired(connect):
    client = connect("dan", 3, "2025-06-18")
    assert text(list(client.call("private", seconds=5, steps=10))[-1]) == "done for dan"


def test_a_session_that_is_ended_elsewhere_ends_here(pair, connect):
    client = connect("eve")
    call, news = client.call("private", seconds=60, steps=600), client.get()
    call.primed()
    assert client.delete(pair[1]).status == 204
    assert ended(call, news) < 5 and not call.retried
    assert client.get(port=pair[1]).status == 404
