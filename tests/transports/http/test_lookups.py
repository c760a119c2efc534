"""Look-ups of concurrent requests: shared jobs and queries, contexts, errors and limits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from django_mcp.auth.principal import LookupVerifier, Principal
from django_mcp.conf import settings
from django_mcp.exceptions import Busy
from django_mcp.models import Token
from django_mcp.runtime import threads
from django_mcp.storage import sessions
from django_mcp.transports.http import lookups
from django_mcp.transports.http.lookups import LookupQueue
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens

pytestmark = pytest.mark.django_db
SECONDS = 10
TENANT = contextvars.ContextVar("TENANT", default="none")


class Gate(LookupVerifier):
    """Knows no token, and blocks on the token "blocked" until it is opened."""

    def __init__(self) -> None:
        self.opened, self.batches = threading.Event(), []

    def lookup(self, token: str, server: Any) -> Principal | None:
        if token == "blocked":
            assert self.opened.wait(SECONDS)
        if token == "bad":
            raise ValueError("a token that breaks the verifier")
        return None

    def _lookup_all(self, requests):
        self.batches.append([token for token, _ in requests])
        return super()._lookup_all(requests)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def queue():
    return LookupQueue()


@pytest.fixture
def find(queue, gate, server):
    """Start a look-up, and return its task."""
    verifiers = (gate, PersonalAccessTokens())

    def start(token, session_id=None, by=verifiers):
        return asyncio.ensure_future(queue.find(by, server, token, session_id))

    return start


@pytest.fixture
def all_jobs_run(find, gate):
    """Keep every job busy, so that further look-ups wait."""

    async def block():
        blocked = [find("blocked") for _ in range(lookups.MAX_JOBS)]
        for _ in range(lookups.MAX_JOBS):
            await asyncio.sleep(0)
        return blocked

    return block


def make_token(user):
    return Token.make(user, "tests")[1]


def make_session(principal):
    id, _ = sessions.create(
        server="default", owner=principal, user=None, revision="2025-11-25", client_info={},
        capabilities={},
    )  # fmt: skip
    return id


async def test_waiting_lookups_share_one_job(all_jobs_run, find, gate, alice, bob):
    secrets = [await threads.tools.run(make_token, user) for user in (alice, bob, alice)]
    blocked = await all_jobs_run()
    waiting = [find(secret) for secret in (*secrets, "unknown", secrets[0])]
    await asyncio.sleep(0)
    gate.opened.set()
    found = [principal for principal, _ in await asyncio.gather(*waiting)]
    await asyncio.gather(*blocked)
    assert gate.batches[lookups.MAX_JOBS :] == [[*secrets, "unknown", secrets[0]]]
    names = [principal and principal.user.username for principal in found]
    assert names == ["alice", "bob", "alice", None, "alice"]


async def test_single_lookup_starts_at_once(find, gate):
    assert await find("unknown") == (None, None)
    assert gate.batches == [["unknown"]]


async def test_requests_with_the_same_token_get_their_own_user(all_jobs_run, find, gate, alice):
    secret = await threads.tools.run(make_token, alice)
    await all_jobs_run()
    waiting = [find(secret) for _ in range(2)]
    gate.opened.set()
    (one, _), (other, _) = await asyncio.gather(*waiting)
    assert one == other and one.user is not other.user


def test_tokens_are_found_by_one_query(alice, bob, server):
    requests = [(make_token(user), server) for user in (alice, bob, alice)]
    with CaptureQueriesContext(connection) as queries:
        found = PersonalAccessTokens()._lookup_all(requests)
    assert [one.get().user for one in found] == [alice, bob, alice] and len(queries) == 1


async def test_sessions_are_found_by_one_query(all_jobs_run, find, gate, alice):
    secret = await threads.tools.run(make_token, alice)
    ids = [await threads.tools.run(make_session, "") for _ in range(2)]
    await all_jobs_run()
    # Without a token the session is found too. For an unknown token it is not looked up.
    waiting = [find(secret, ids[0]), find(None, ids[1]), find("unknown", ids[0]), find(secret)]
    waiting.append(find(secret, ids[0]))
    gate.opened.set()
    found = [session for _, session in await asyncio.gather(*waiting)]
    assert [session and session.digest for session in found] == [
        sessions.digest_of(ids[0]), sessions.digest_of(ids[1]), None, None,
        sessions.digest_of(ids[0]),
    ]  # fmt: skip
    assert found[0] is not found[4]


def test_find_all_takes_one_query_and_none_for_malformed_ids():
    ids = [make_session("") for _ in range(5)]
    with CaptureQueriesContext(connections[settings.DATABASE]) as queries:
        found = sessions.find_all([*ids, "malformed", ids[0], sessions.new_id()])
    assert [session is not None for session in found] == [True] * 5 + [False, True, False]
    assert len(queries) == 1
    with CaptureQueriesContext(connections[settings.DATABASE]) as queries:
        assert sessions.find_all(["malformed", ""]) == [None, None]
    assert len(queries) == 0


async def test_requests_in_different_contexts_are_looked_up_apart(all_jobs_run, find, gate):
    """Attack: have a token looked up in the database of another tenant."""
    await all_jobs_run()
    waiting = []
    for tenant, token in (("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")):
        reset = TENANT.set(tenant)
        waiting.append(find(token))
        TENANT.reset(reset)
    gate.opened.set()
    await asyncio.gather(*waiting)
    assert sorted(gate.batches[lookups.MAX_JOBS :]) == [["1", "2"], ["3"], ["4"]]


async def test_job_runs_in_the_context_of_its_requests(queue, server):
    seen = []

    class Reading(LookupVerifier):
        def lookup(self, token: str, server: Any) -> None:
            seen.append(TENANT.get())

    TENANT.set("a")
    await queue.find((Reading(),), server, "token", None)
    assert seen == ["a"]


async def test_error_for_one_token_does_not_affect_others(all_jobs_run, find, gate, alice):
    """Attack: break the requests of others with a token that raises an error."""
    secret = await threads.tools.run(make_token, alice)
    await all_jobs_run()
    waiting = [find("bad"), find(secret)]
    gate.opened.set()
    bad, good = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(bad, ValueError) and good[0].user == alice


async def test_failed_query_fails_its_requests_and_no_later_ones(
    find, alice, monkeypatch, all_jobs_run, gate
):
    secret = await threads.tools.run(make_token, alice)
    with monkeypatch.context() as patch:
        patch.setattr(PersonalAccessTokens, "_lookup_all", lambda *given: 1 / 0)
        for found in await asyncio.gather(
            *(find(secret) for _ in range(5)), return_exceptions=True
        ):
            assert isinstance(found, ZeroDivisionError)
    principal, _ = await find(secret)
    assert principal.user == alice


def test_overridden_lookup_of_a_subclass_is_not_bypassed(alice, server):
    """Attack: use a token that the ``lookup`` of the project's subclass rejects."""

    class Stricter(PersonalAccessTokens):
        def lookup(self, token: str, server: Any) -> Principal | None:
            found = super().lookup(token, server)
            return None if found is None or found.user == alice else found

    class EvenStricter(Stricter):
        pass

    secret = make_token(alice)
    for verifier in (Stricter(), EvenStricter()):
        assert verifier._lookup_all([(secret, server)])[0].get() is None
    assert PersonalAccessTokens()._lookup_all([(secret, server)])[0].get()


async def test_cancelled_request_does_not_disturb_its_job(all_jobs_run, find, gate, alice):
    secret = await threads.tools.run(make_token, alice)
    await all_jobs_run()
    cancelled, other = find(secret), find(secret)
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.opened.set()
    assert (await other)[0].user == alice
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_too_many_waiting_lookups_are_rejected(all_jobs_run, find, gate, monkeypatch):
    monkeypatch.setattr(lookups, "MAX_LOOKUPS_PER_JOB", 2)
    monkeypatch.setattr(lookups, "MAX_WAITING_LOOKUPS", 4)
    await all_jobs_run()
    waiting = [find("unknown") for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await find("unknown")
    gate.opened.set()
    assert await asyncio.gather(*waiting) == [(None, None)] * 4
    assert await find("unknown") == (None, None)


async def test_full_thread_pool_rejects_the_requests_of_the_job(find, monkeypatch):
    def full(*given):
        raise Busy

    with monkeypatch.context() as patch:
        patch.setattr(threads.lookups, "submit", full)
        with pytest.raises(Busy):
            await find("unknown")
    assert await find("unknown") == (None, None)
