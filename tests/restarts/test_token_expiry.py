"""Expired and revoked tokens, and inactive users: streams and calls end in every process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_mcp.calls.callers import CHECK_INTERVAL_SECONDS
from django_mcp.transports.http.streams import parse_event_id

from .processes import Client, Response, text
from .token_clients import EXTEND, REVOKE, client_of, execute, fetch_row

pytestmark = pytest.mark.slow
SOON = CHECK_INTERVAL_SECONDS + 3  # seconds, on a busy machine


@pytest.fixture
def connect(tables: Path, pair: tuple[int, int]) -> Iterator[Callable[..., Client]]:
    """Create clients, each with its own token, and close their connections at the end."""
    made: list[Client] = []

    def connected(user: str, seconds: float = 0, revision: str = "2025-11-25") -> Client:
        made.append(client_of(tables, user, pair[0], seconds, revision))
        return made[-1]

    yield connected
    for client in made:
        client.close()


def read_to_end(*answers: Response) -> float:
    """Read all streams to their ends, and return how many seconds that took."""
    began = time.monotonic()
    for answer in answers:
        list(answer)
    return time.monotonic() - began


def test_revoked_token_ends_streams_and_calls_in_all_processes(tables, pair, connect):
    client, other = connect("alice"), connect("alice")
    call = client.call("private", seconds=60, steps=600)
    cursor = call.primed()
    rest, news = client.get(cursor, pair[1]), client.get(port=pair[1])
    untouched = other.call("private", seconds=SOON + 2, steps=20)
    execute(tables, REVOKE, client.token)
    assert read_to_end(rest, news) < SOON
    assert client.get(rest.last).status == 401
    said = int(rest.last.split("-")[1])
    time.sleep(0.5)
    last, closed = fetch_row(
        tables, "SELECT last, closed FROM django_mcp_stream WHERE id = ?", parse_event_id(cursor)[0]
    )
    assert closed and last - said <= 100  # events until the revocation was noticed, and none since
    assert text(list(untouched)[-1]) == "done for alice"


def test_deactivated_user_has_no_open_streams_or_calls(tables, pair, connect):
    client = connect("bob")
    call = client.call("private", seconds=60, steps=600)
    news = client.get(port=pair[1])
    execute(tables, "UPDATE auth_user SET is_active = 0 WHERE username = 'bob'")
    assert read_to_end(call, news) < SOON
    assert not any("result" in data for _, data in call.events)


def test_call_continues_after_its_token_expired(tables, pair, connect):
    client = connect("carol", 3)
    call, news = client.call("private", seconds=6, steps=30), client.get(port=pair[1])
    assert read_to_end(call, news) < 5 and call.retried and news.retried
    assert client.get(call.last).status == 401
    execute(tables, EXTEND, client.token)  # equivalent to a new token of the same grant
    rest = client.get(call.last, pair[1])
    assert text(list(rest)[-1]) == "done for carol"
    numbers = [int(id.split("-")[1]) for id, _ in [*call.events[:-1], *rest.events[1:]]]
    assert numbers == list(range(numbers[0], 32))


def test_older_client_gets_its_response_after_its_token_expired(connect):
    client = connect("dan", 3, "2025-06-18")
    assert text(list(client.call("private", seconds=5, steps=10))[-1]) == "done for dan"


def test_session_deleted_at_another_process_ends_here(pair, connect):
    client = connect("eve")
    call, news = client.call("private", seconds=60, steps=600), client.get()
    call.primed()
    assert client.delete(pair[1]).status == 204
    assert read_to_end(call, news) < 5 and not call.retried
    assert client.get(port=pair[1]).status == 404
