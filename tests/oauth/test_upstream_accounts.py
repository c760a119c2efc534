"""Accounts at other providers: binding of tokens, checks, outages and revocation."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import connection, connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_refresh_token_model,
)

from django_mcp.auth.principal import NotYetKnown, look_up_with_retry
from django_mcp.calls.callers import CHECK_INTERVAL_SECONDS
from django_mcp.declarations.server import default_server
from django_mcp.exceptions import Busy
from django_mcp.oauth import upstream_accounts
from django_mcp.oauth.models import Consent, TokenBinding
from django_mcp.oauth.revocation import end_account
from django_mcp.oauth.upstream_accounts import BINDING_RETENTION, Upstream, delete_old_bindings
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.runtime import threads
from django_mcp.runtime.thread_pools import ThreadPool

from .flows import at_once, browser, code_for, error, issued, query, redeem, refresh, registered

VERIFIER = OAuthTokens()
REFUSED = 400, "invalid_grant"
LATER = 503, "temporarily_unavailable"


class Accounts(Upstream):
    """What a test says of them: accounts are known by the names of users here."""

    max_age, grace = 100.0, 200.0
    by: str | None = None  # which account it is, if not the user's own
    local = refusing = False
    gone: set[str] = set()
    asked: list[str] = []
    wrong: Exception | None = None
    result: tuple[Any] | None = None  # what is_account_valid returns, if not a bool
    entered, gate = threading.Event(), threading.Event()

    def account(self, request: Any) -> str | None:
        if self.refusing:
            raise PermissionDenied
        return None if self.local else self.by or f"id:{request.user.username}"

    def is_account_valid(self, user: Any, account: str) -> Any:
        self.asked.append(account)
        self.entered.set()
        assert self.gate.wait(60)
        if self.wrong is not None:
            raise self.wrong
        return account not in self.gone if self.result is None else self.result[0]


@pytest.fixture(autouse=True)
def accounts(monkeypatch):
    """Accounts that exist, with all recorded calls reset."""
    fresh: dict[str, Any] = {"by": None, "local": False, "refusing": False, "gone": set(),
                             "asked": [], "wrong": None, "result": None}  # fmt: skip
    for name, value in fresh.items():
        monkeypatch.setattr(Accounts, name, value)
    Accounts.gate.set()
    upstream_accounts._failed.clear()
    upstream_accounts._queued.clear()
    named = {"UPSTREAM": f"{__name__}.Accounts"}
    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, "OAUTH": named}):
        yield Accounts
    upstream_accounts._failed.clear()
    upstream_accounts._queued.clear()


@pytest.fixture
def background_checks(monkeypatch):
    """Collect the checks that run in the background, to be run by the test."""
    found: list[Any] = []

    def note(function: Any, owner: str) -> None:
        found.append(function)

    monkeypatch.setattr(threads.verifiers, "run_in_background", note)
    return found


@pytest.fixture
def agent(db):
    return registered("dcr")


def is_accepted(tokens: Any) -> bool:
    return VERIFIER.lookup(tokens["access_token"], default_server) is not None


def make_bindings_older(seconds: float) -> None:
    assert TokenBinding.objects.update(checked=timezone.now() - timedelta(seconds=seconds))


# Binding.


def test_tokens_are_bound_to_the_account_of_the_sign_in(alice, agent, accounts):
    tokens = issued(alice, agent)
    (row,) = TokenBinding.objects.all()
    family = get_refresh_token_model().objects.get().token_family
    assert (row.account, row.user, row.family) == ("id:alice", alice, family)
    assert is_accepted(tokens) and accounts.asked == ["id:alice"]
    again = refresh(tokens["refresh_token"], agent).json()
    assert is_accepted(again) and accounts.asked == ["id:alice"] * 2
    assert TokenBinding.objects.count() == 1


def test_binding_is_read_in_the_query_of_the_token(alice, agent, accounts):
    tokens = issued(alice, agent)
    is_accepted(tokens)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert is_accepted(tokens)
    assert len(asked) == 1


def test_local_sign_in_is_bound_to_no_account(alice, agent, accounts):
    accounts.local = True
    tokens = issued(alice, agent)
    assert is_accepted(tokens) and refresh(tokens["refresh_token"], agent).status_code == 200
    assert accounts.asked == [] and end_account("") == 0
    assert [row.account for row in TokenBinding.objects.all()] == [""]


def test_account_that_the_project_rejects_gets_no_code(alice, agent, accounts):
    accounts.refusing = True
    answered = browser(alice).post(f"/oauth/authorize?{query(agent)}", {"allow": "on"})
    assert answered.status_code == 403
    assert not get_grant_model().objects.exists() and not Consent.objects.exists()


def test_token_without_a_binding_is_rejected(alice, agent):
    """T22: such as one from before UPSTREAM was set."""
    tokens = issued(alice, agent)
    TokenBinding.objects.all().delete()
    assert not is_accepted(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED


def test_code_without_a_binding_is_rejected(alice, agent):
    """T22: such as one of another authorization view."""
    code = code_for(alice, agent)
    TokenBinding.objects.all().delete()
    assert error(redeem(code, agent)) == REFUSED
    assert not get_access_token_model().objects.exists()


def test_machine_client_needs_no_account(alice, accounts):
    client = registered(
        "manual", client_type="confidential", authorization_grant_type="client-credentials",
        user=alice, client_secret="secret", hash_client_secret=True,
    )  # fmt: skip
    answered = browser().post(
        "/oauth/token",
        {"grant_type": "client_credentials", "client_id": client.client_id,
         "client_secret": "secret", "scope": "mcp"},
    )  # fmt: skip
    assert is_accepted(answered.json()) and accounts.asked == []


def test_no_binding_is_stored_without_upstream(alice, agent):
    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, "OAUTH": {}}):
        tokens = issued(alice, agent)
        assert is_accepted(tokens) and refresh(tokens["refresh_token"], agent).status_code == 200
    assert not TokenBinding.objects.exists()


# Removed accounts.


def test_removed_account_cannot_refresh_or_redeem(alice, agent, accounts):
    """T22: an account that was removed at the provider."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    accounts.gone.add("id:alice")
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert not is_accepted(tokens) and error(redeem(code, agent)) == REFUSED
    accounts.gone.clear()  # revoked tokens stay revoked
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED


def test_account_removed_before_the_consent_gets_no_token(alice, agent, accounts):
    """T22: a new code does not help."""
    accounts.gone.add("id:alice")
    assert error(redeem(code_for(alice, agent), agent)) == REFUSED
    assert not get_access_token_model().objects.exists()


def test_lookup_of_a_token_waits_for_a_due_check(alice, agent, accounts):
    """T22: not before the check is due, and never in the lookup thread."""
    tokens = issued(alice, agent)
    accounts.gone.add("id:alice")
    make_bindings_older(accounts.max_age - 5)
    assert is_accepted(tokens)
    make_bindings_older(accounts.max_age + 1)
    with pytest.raises(NotYetKnown):
        is_accepted(tokens)
    assert accounts.asked == ["id:alice"]


async def test_verify_checks_the_account_once_and_looks_up_again(db, accounts):
    def made() -> Any:
        alice = get_user_model().objects.create_user("alice")
        found = issued(alice, registered("dcr"))
        make_bindings_older(accounts.max_age + 1)
        return found

    tokens = await threads.tools.run(made)
    for _ in range(2):
        found = await VERIFIER.verify(tokens["access_token"], default_server)
        assert found is not None and found.user.username == "alice"
    assert accounts.asked == ["id:alice"] * 2  # the first with the code
    await threads.tools.run(make_bindings_older, accounts.max_age + 1)
    accounts.gone.add("id:alice")
    assert await VERIFIER.verify(tokens["access_token"], default_server) is None


async def test_verify_raises_busy_if_the_check_has_no_result(db):
    def unknown() -> None:
        raise NotYetKnown(found_out)

    asked = []

    async def found_out() -> None:
        asked.append(True)

    with pytest.raises(Busy):
        await look_up_with_retry(unknown)
    assert asked == [True]


def test_end_account_revokes_only_tokens_of_that_account(alice, agent, accounts):
    """T22: another account of the same user with the same client keeps its tokens."""
    first, second = issued(alice, agent), issued(alice, registered("dcr"))
    accounts.by = "id:alice too"
    third = issued(alice, agent)
    assert end_account("id:alice") == 2
    assert [is_accepted(one) for one in (first, second, third)] == [False, False, True]
    assert error(refresh(first["refresh_token"], agent)) == REFUSED
    assert refresh(third["refresh_token"], agent).status_code == 200
    assert end_account("id:alice") == 0


def test_end_account_of_one_user_keeps_tokens_of_another(alice, agent, accounts):
    bob = get_user_model().objects.create_user("bob")
    accounts.by = "id:shared"
    hers, his = issued(alice, agent), issued(bob, agent)
    assert end_account("id:shared", alice) == 1
    assert [is_accepted(hers), is_accepted(his)] == [False, True]


def test_end_account_revokes_codes(alice, agent):
    code = code_for(alice, agent)
    assert end_account("id:alice") == 1
    assert error(redeem(code, agent)) == REFUSED


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_code_redeemed_while_the_account_ends_gives_no_valid_token():
    """T22: whichever of both is first."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    for _ in range(5):
        code = code_for(alice, agent)
        works = [lambda code=code: redeem(code, agent), lambda: end_account("id:alice")]
        answered = at_once(2, lambda index, works=works: works[index]())
        end_account("id:alice")  # as if it had started a moment later
        for one in answered:
            if getattr(one, "status_code", None) == 200:
                assert not is_accepted(one.json())
                assert error(refresh(one.json()["refresh_token"], agent)) == REFUSED


# Unreachable providers.


def test_tokens_stay_valid_during_the_grace_of_an_outage(alice, agent, accounts):
    tokens = issued(alice, agent)
    accounts.wrong = OSError()
    make_bindings_older(accounts.max_age + 1)
    with pytest.raises(NotYetKnown):
        is_accepted(tokens)
    tokens = refresh(tokens["refresh_token"], agent).json()
    asked = len(accounts.asked)
    assert is_accepted(tokens) and len(accounts.asked) == asked  # the last check just failed
    make_bindings_older(accounts.max_age + accounts.grace + 1)
    with pytest.raises(Busy):
        is_accepted(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == LATER
    assert len(accounts.asked) == asked
    upstream_accounts._failed.clear()
    accounts.wrong = None
    assert refresh(tokens["refresh_token"], agent).status_code == 200


def test_code_is_answered_503_during_an_outage_and_stays_valid(alice, agent, accounts):
    """T22: nothing is known of the account yet."""
    code = code_for(alice, agent)
    accounts.wrong = TimeoutError()
    assert error(answered := redeem(code, agent)) == LATER
    assert answered["Retry-After"] and not get_access_token_model().objects.exists()
    upstream_accounts._failed.clear()
    accounts.wrong = None
    assert redeem(code, agent).status_code == 200


def test_failed_check_is_repeated_after_an_interval(alice, agent, accounts, monkeypatch):
    tokens = issued(alice, agent)
    accounts.wrong = OSError()
    make_bindings_older(accounts.max_age + 1)
    assert refresh(tokens["refresh_token"], agent).status_code == 200
    assert upstream_accounts.failed_recently(alice, "id:alice")
    monkeypatch.setattr(upstream_accounts, "ERROR_RETRY_SECONDS", 0.0)
    assert not upstream_accounts.failed_recently(alice, "id:alice")


def test_exception_of_the_project_is_logged_without_its_message(alice, agent, accounts, caplog):
    """T25: the message may contain a token of the provider."""
    tokens = issued(alice, agent)
    accounts.wrong = OSError("Bearer s3cret")
    with caplog.at_level(logging.DEBUG):
        refresh(tokens["refresh_token"], agent)
    assert "OSError" in caplog.text and "s3cret" not in caplog.text


@pytest.mark.parametrize("result", [None, "", 0, 1, "id:alice"])
def test_result_that_is_not_a_bool_counts_as_an_error(result, alice, agent, accounts, caplog):
    """A forgotten ``return`` must not revoke everything, and must not keep tokens valid."""
    tokens = issued(alice, agent)
    accounts.result = (result,)
    tokens = refresh(tokens["refresh_token"], agent).json()
    assert f"returned {type(result).__name__} instead of True or False" in caplog.text
    make_bindings_older(accounts.max_age + accounts.grace + 1)
    assert error(refresh(tokens["refresh_token"], agent)) == LATER


def test_number_of_remembered_failures_is_limited(alice, accounts, monkeypatch):
    monkeypatch.setattr(upstream_accounts, "MAX_REMEMBERED_FAILURES", 3)
    accounts.wrong = OSError()
    for number in range(5):
        upstream_accounts.check_account(accounts(), alice, f"id:{number}")
    assert [account for _, account in upstream_accounts._failed] == ["id:2", "id:3", "id:4"]
    assert not upstream_accounts._running


@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_concurrent_check_of_the_same_account_is_not_repeated(accounts, monkeypatch):
    alice = get_user_model().objects.create_user("alice")
    monkeypatch.setattr(upstream_accounts, "WAIT_SECONDS", 0.0)
    accounts.gate.clear()
    accounts.entered.clear()
    first = threading.Thread(target=_ask, args=(accounts, alice))
    first.start()
    assert accounts.entered.wait(60)
    for _ in range(3):
        upstream_accounts.check_account(accounts(), alice, "id:alice")
    accounts.gate.set()
    first.join()
    assert accounts.asked == ["id:alice"] and not upstream_accounts._running


def _ask(accounts: Any, user: Any) -> None:
    try:
        upstream_accounts.check_account(accounts(), user, "id:alice")
    finally:
        connections.close_all()


# Open streams.


def stay_open(*owners: Any) -> list[bool]:
    keys = [f"{user.pk}:{client.pk}:" for user, client in owners]
    told = VERIFIER.still_valid(keys)
    return [told[key] for key in keys]


def test_account_of_an_open_stream_is_checked_when_due(alice, agent, accounts, background_checks):
    """T24, T22: though the client sends no request."""
    issued(alice, agent)
    assert stay_open((alice, agent)) == [True] and background_checks == []
    make_bindings_older(accounts.max_age + 1)
    assert stay_open((alice, agent)) == [True] and len(background_checks) == 1
    accounts.gone.add("id:alice")
    background_checks.pop()()
    assert stay_open((alice, agent)) == [False] and background_checks == []


def test_open_stream_ends_after_the_grace_of_an_outage(alice, agent, accounts, background_checks):
    """T24, T22: after the grace."""
    issued(alice, agent)
    accounts.wrong = OSError()
    make_bindings_older(accounts.max_age + 1)
    assert stay_open((alice, agent)) == [True]
    background_checks.pop()()
    assert (
        stay_open((alice, agent)) == [True] and background_checks == []
    )  # the last check just failed
    make_bindings_older(accounts.max_age + accounts.grace + 1)
    assert stay_open((alice, agent)) == [False]


def test_checks_of_open_streams_are_limited_per_round(
    alice, agent, accounts, background_checks, monkeypatch
):
    monkeypatch.setattr(upstream_accounts, "MIN_CHECKS_PER_ROUND", 2)
    for account in ("id:1", "id:1", "id:2", "id:3"):
        accounts.by = account
        issued(alice, agent)
    make_bindings_older(accounts.max_age + 1)
    accounts.wrong = OSError()
    for expected in (2, 1, 0):  # failed checks do not delay others
        stay_open((alice, agent))
        assert len(background_checks) == expected
        while background_checks:
            background_checks.pop()()
    assert sorted(accounts.asked[4:]) == ["id:1", "id:2", "id:3"]


def test_check_is_postponed_if_the_thread_pool_is_full(alice, agent, accounts, monkeypatch):
    def busy(function: Any, owner: str) -> None:
        tried.append(owner)
        raise Busy

    tried: list[str] = []

    monkeypatch.setattr(threads.verifiers, "run_in_background", busy)
    issued(alice, agent)
    accounts.by = "id:alice too"
    issued(alice, agent)
    make_bindings_older(accounts.max_age + 1)
    for number in (1, 2):  # the rejected check is tried again, and the others wait
        assert stay_open((alice, agent)) == [True] and len(tried) == number


# No grace.


@pytest.fixture
def no_grace(accounts, monkeypatch):
    """No grace: a known answer is valid until its maximum age."""
    monkeypatch.setattr(accounts, "grace", 0.0)
    return accounts


def stream_stays_open(seconds: float, background_checks: list[Any], *owner: Any) -> bool:
    """Return whether the stream passed every check, with each check answered at once."""
    for _ in range(int(seconds / CHECK_INTERVAL_SECONDS)):
        for row in TokenBinding.objects.all():
            TokenBinding.objects.filter(pk=row.pk).update(
                checked=row.checked - timedelta(seconds=CHECK_INTERVAL_SECONDS)
            )
        if stay_open(owner) != [True]:
            return False
        while background_checks:
            background_checks.pop()()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("max_age", [10.0, 11.0, 15.0, 100.0, 300.0])
def test_stream_without_grace_stays_open_while_the_account_exists(
    alice, agent, no_grace, background_checks, monkeypatch, max_age
):
    """T24: and it is not checked in every round."""
    monkeypatch.setattr(no_grace, "max_age", max_age)
    issued(alice, agent)
    assert stream_stays_open(3 * max_age + CHECK_INTERVAL_SECONDS, background_checks, alice, agent)
    assert 3 <= len(no_grace.asked) - 1 <= 8
    no_grace.gone.add("id:alice")
    assert not stream_stays_open(max_age + CHECK_INTERVAL_SECONDS, background_checks, alice, agent)


def test_stream_without_grace_ends_during_an_outage(alice, agent, no_grace, background_checks):
    """T24: in the first round after the known answer has expired."""
    issued(alice, agent)
    no_grace.wrong = OSError()
    assert stream_stays_open(
        no_grace.max_age - 4 * CHECK_INTERVAL_SECONDS, background_checks, alice, agent
    )
    assert not stream_stays_open(5 * CHECK_INTERVAL_SECONDS, background_checks, alice, agent)


def test_request_without_grace_is_not_checked_before_max_age(alice, agent, no_grace):
    tokens = issued(alice, agent)
    make_bindings_older(no_grace.max_age - 5)
    assert is_accepted(tokens)


def test_number_of_checks_per_round_grows_with_the_due_accounts(
    alice, agent, no_grace, background_checks, monkeypatch
):
    """So that no check is late, however many streams are open."""
    monkeypatch.setattr(upstream_accounts, "MIN_CHECKS_PER_ROUND", 1)
    for number in range(12):
        no_grace.by = f"id:{number}"
        issued(alice, agent)
    del no_grace.asked[:]
    make_bindings_older(no_grace.max_age / 2 + 1)
    for expected in (3, 2, 2, 1, 1, 1, 1, 1, 0):
        stay_open((alice, agent))
        assert len(background_checks) == expected
        while background_checks:
            background_checks.pop()()
    assert len(no_grace.asked) == 12 == len(set(no_grace.asked))


def test_queued_check_is_not_started_again(alice, agent, accounts, background_checks, monkeypatch):
    """Until it times out."""
    issued(alice, agent)
    make_bindings_older(accounts.max_age + 1)
    for _ in range(3):
        stay_open((alice, agent))
    assert len(background_checks) == 1
    monkeypatch.setattr(upstream_accounts, "CHECK_TIMEOUT_SECONDS", 0.0)
    stay_open((alice, agent))
    assert len(background_checks) == 2


@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_background_checks_leave_threads_for_requests(accounts):
    """However many accounts are due, and however slow the provider is."""
    alice = get_user_model().objects.create_user("alice")
    accounts.gate.clear()
    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, "THREADS": 4, "QUEUE": 100}):
        pool, before = ThreadPool("verify", 4), threads.verifiers
        threads.verifiers = pool
        try:
            found = [
                upstream_accounts.queue_check(accounts(), alice, f"id:{number}")
                for number in range(200)
            ]
            assert pool.wait(lambda: "a stranger's token", 60) == "a stranger's token"
        finally:
            threads.verifiers = before
            accounts.gate.set()
            pool.shutdown()
    assert found == sorted(found, reverse=True) and found.count(True) == 104 * 3 // 4


# Tidying up.


def test_bindings_without_a_token_are_deleted(alice, agent):
    kept, _ = issued(alice, agent), code_for(alice, agent)
    assert delete_old_bindings() == 0
    TokenBinding.objects.update(created=timezone.now() - BINDING_RETENTION - timedelta(seconds=1))
    assert delete_old_bindings() == 1 and is_accepted(kept)
    get_refresh_token_model().objects.all().delete()
    assert delete_old_bindings() == 1 and not TokenBinding.objects.exists()
