"""Look-ups of concurrent requests: shared jobs and queries, contexts, errors and limits."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import UserManager
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from django_mcp.auth.principal import (
    LookupVerifier,
    Principal,
    RowVerifier,
    _grouped,
    takes_several,
)
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


class Gate:
    """Knows no token, and blocks on the token "blocked" until it is opened."""

    def __init__(self) -> None:
        self.opened, self.batches = threading.Event(), []
        gate = self

        class GateVerifier(RowVerifier):
            def look_up_all(self, requests):
                tokens = [token for token, _ in requests]
                gate.batches.append(tokens)
                if "blocked" in tokens:
                    assert gate.opened.wait(SECONDS)
                if "breaks the query" in tokens:
                    raise ValueError("a row that cannot be read")
                return [ValueError(token) if token == "bad" else None for token in tokens]

        self.verifier = GateVerifier()

    def others(self) -> list[list[str]]:
        """Return the batches without the blocked ones, whose threads may begin at any time."""
        return [batch for batch in self.batches if batch != ["blocked"]]


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
    verifiers = (gate.verifier, PersonalAccessTokens())

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


def test_wrapper_around_a_lookup_is_not_bypassed(gate):
    """``functools.wraps`` copies the attributes of the function, and a check may be in it."""

    class Stricter(type(gate.verifier)):
        @functools.wraps(type(gate.verifier).lookup)
        def lookup(self, token, server):
            return None

    assert takes_several(gate.verifier) and not takes_several(Stricter())


async def test_waiting_lookups_share_one_job(all_jobs_run, find, gate, alice, bob):
    secrets = [await threads.tools.run(make_token, user) for user in (alice, bob, alice)]
    blocked = await all_jobs_run()
    waiting = [find(secret) for secret in (*secrets, "unknown", secrets[0])]
    await asyncio.sleep(0)
    gate.opened.set()
    found = [principal for principal, _ in await asyncio.gather(*waiting)]
    await asyncio.gather(*blocked)
    assert gate.others() == [[*secrets, "unknown", secrets[0]]]
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
        found = PersonalAccessTokens().look_up_all(requests)
    assert [one.user for one in found] == [alice, bob, alice] and len(queries) == 1


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
    assert sorted(gate.others()) == [["1", "2", "4"], ["3"]]


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


async def test_row_that_cannot_be_read_fails_only_its_request(all_jobs_run, find, gate, alice, bob):
    """Attack: break the requests of others by data of one user. Each is looked up again, alone."""
    secrets = [await threads.tools.run(make_token, user) for user in (alice, bob)]
    await all_jobs_run()
    waiting = [find(token) for token in (secrets[0], "breaks the query", secrets[1])]
    gate.opened.set()
    first, broken, last = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(broken, ValueError)
    assert (first[0].user, last[0].user) == (alice, bob)


async def test_error_has_no_token_of_another_request(all_jobs_run, find, gate):
    """Attack: read the tokens of others in the frames of an error that is reported."""
    await all_jobs_run()
    waiting = [find(token) for token in ("breaks the query", "the-secret-of-another")]
    gate.opened.set()
    broken, _ = await asyncio.gather(*waiting, return_exceptions=True)
    frame, seen = broken.__traceback__, ""
    while frame is not None:
        names = frame.tb_frame.f_locals.items()
        seen += "".join(repr(value) for name, value in names if name != "self")
        frame = frame.tb_next
    assert "breaks the query" in seen and "the-secret-of-another" not in seen


@pytest.mark.parametrize("stricter_class", ["subclass", "mixin", "instance"])
def test_overridden_lookup_is_not_bypassed(alice, server, stricter_class):
    """Attack: use a token that the ``lookup`` of the project's class rejects."""

    class Subclass(PersonalAccessTokens):
        def lookup(self, token: str, server: Any) -> Principal | None:
            found = super().lookup(token, server)
            return None if found is None or found.user == alice else found

    class Mixin:
        def lookup(self, token: str, server: Any) -> Principal | None:
            found = super().lookup(token, server)
            return None if found is None or found.user == alice else found

    class Mixed(Mixin, PersonalAccessTokens):
        pass

    patched = PersonalAccessTokens()
    patched.lookup = lambda token, server: None
    verifier = {"subclass": Subclass(), "mixin": Mixed(), "instance": patched}[stricter_class]
    assert verifier.lookup(make_token(alice), server) is None
    assert not takes_several(verifier) and takes_several(PersonalAccessTokens())


def test_verifier_that_delegates_to_another_is_asked_itself(settings):
    """Attack: use a token that the ``verify`` of a wrapper rejects."""

    class Wrapper:
        def __init__(self) -> None:
            self.inner = PersonalAccessTokens()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        async def verify(self, token: str, server: Any) -> Principal | None:
            return None

    assert [only for only, _ in _grouped((Wrapper(), PersonalAccessTokens()))] == [False, True]


async def test_verifiers_of_the_project_look_up_one_token_in_each_job(all_jobs_run, find, gate):
    """A context variable that one look-up sets is not seen by another."""
    seen = []

    class Setting(LookupVerifier):
        def lookup(self, token: str, server: Any) -> Principal | None:
            seen.append((token, TENANT.get()))
            TENANT.set(token)
            return None

    verifiers = (Setting(),)
    await all_jobs_run()
    waiting = [find(token, by=verifiers) for token in "abc"]
    gate.opened.set()
    await asyncio.gather(*waiting)
    assert sorted(seen) == [("a", "none"), ("b", "none"), ("c", "none")]


async def test_cancelled_lookup_does_not_run(all_jobs_run, find, gate):
    await all_jobs_run()
    cancelled, other = find("cancelled"), find("other")
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    await other
    assert gate.others() == [["other"]]


def test_user_of_a_repeated_token_has_columns_of_its_own(alice, server):
    """Attack: change the user of a concurrent call by changing one's own."""
    secret = make_token(alice)
    Token.objects.update(scopes=["mcp"])
    rows = PersonalAccessTokens().find([secret, secret])
    assert rows[0].scopes == rows[1].scopes == ["mcp"]
    assert rows[0].scopes is not rows[1].scopes and rows[0].user is not rows[1].user


def test_manager_that_shows_no_user_rejects_tokens(alice, server, monkeypatch):
    class Nobody(UserManager[Any]):
        def get_queryset(self) -> Any:
            return super().get_queryset().filter(pk__in=[])

    secret, manager = make_token(alice), Nobody()
    manager.model = get_user_model()
    monkeypatch.setattr(get_user_model()._meta, "default_manager", manager, raising=False)
    assert PersonalAccessTokens().lookup(secret, server) is None


def test_router_that_forbids_relations_does_not_affect_tokens(alice, server, settings):
    class Forbidding:
        def allow_relation(self, *given: Any, **hints: Any) -> bool:
            return False

    secret = make_token(alice)
    settings.DATABASE_ROUTERS = [Forbidding()]
    assert PersonalAccessTokens().lookup(secret, server).user == alice


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
