"""Accounts elsewhere: what tokens are bound to, when that is asked for, and what is believed."""

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

from django_mcp.auth.principal import NotYetKnown, looked_up
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
    entered, gate = threading.Event(), threading.Event()

    def account(self, request: Any) -> str | None:
        if self.refusing:
            raise PermissionDenied
        return None if self.local else self.by or f"id:{request.user.username}"

    def stands(self, user: Any, account: str) -> bool:
        self.asked.append(account)
        self.entered.set()
        assert self.gate.wait(60)
        if self.wrong is not None:
            raise self.wrong
        return account not in self.gone


@pytest.fixture(autouse=True)
def accounts(monkeypatch):
    """They all stand, and are asked for anew."""
    fresh: dict[str, Any] = {"by": None, "local": False, "refusing": False, "gone": set(),
                             "asked": [], "wrong": None}  # fmt: skip
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
def begun(monkeypatch):
    """The questions that nobody waits for, to be asked by the test."""
    found: list[Any] = []

    def note(function: Any, owner: str) -> None:
        found.append(function)

    monkeypatch.setattr(threads.verifiers, "run_in_background", note)
    return found


@pytest.fixture
def agent(db):
    return registered("dcr")


def opens(tokens: Any) -> bool:
    return VERIFIER.lookup(tokens["access_token"], default_server) is not None


def age(seconds: float) -> None:
    assert TokenBinding.objects.update(checked=timezone.now() - timedelta(seconds=seconds))


# What is bound.


def test_tokens_are_bound_to_the_account_that_the_person_signed_in_by(alice, agent, accounts):
    tokens = issued(alice, agent)
    (row,) = TokenBinding.objects.all()
    family = get_refresh_token_model().objects.get().token_family
    assert (row.account, row.user, row.family) == ("id:alice", alice, family)
    assert opens(tokens) and accounts.asked == ["id:alice"]
    again = refresh(tokens["refresh_token"], agent).json()
    assert opens(again) and accounts.asked == ["id:alice"] * 2
    assert TokenBinding.objects.count() == 1


def test_what_is_known_comes_with_the_row_of_a_token(alice, agent, accounts):
    tokens = issued(alice, agent)
    opens(tokens)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert opens(tokens)
    assert len(asked) == 1


def test_who_signed_in_here_is_bound_to_nothing_elsewhere(alice, agent, accounts):
    accounts.local = True
    tokens = issued(alice, agent)
    assert opens(tokens) and refresh(tokens["refresh_token"], agent).status_code == 200
    assert accounts.asked == [] and end_account("") == 0
    assert [row.account for row in TokenBinding.objects.all()] == [""]


def test_whom_the_project_does_not_let_in_so_gets_no_code(alice, agent, accounts):
    accounts.refusing = True
    answered = browser(alice).post(f"/oauth/authorize?{query(agent)}", {"allow": "on"})
    assert answered.status_code == 403
    assert not get_grant_model().objects.exists() and not Consent.objects.exists()


def test_a_token_of_which_nobody_knows_how_its_user_signed_in_is_refused(alice, agent):
    """T22: as one from before there was an upstream."""
    tokens = issued(alice, agent)
    TokenBinding.objects.all().delete()
    assert not opens(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED


def test_a_code_of_which_nobody_knows_how_its_user_signed_in_gives_no_token(alice, agent):
    """T22: as one of another door."""
    code = code_for(alice, agent)
    TokenBinding.objects.all().delete()
    assert error(redeem(code, agent)) == REFUSED
    assert not get_access_token_model().objects.exists()


def test_a_machine_has_signed_in_nowhere(alice, accounts):
    client = registered(
        "manual", client_type="confidential", authorization_grant_type="client-credentials",
        user=alice, client_secret="secret", hash_client_secret=True,
    )  # fmt: skip
    answered = browser().post(
        "/oauth/token",
        {"grant_type": "client_credentials", "client_id": client.client_id,
         "client_secret": "secret", "scope": "mcp"},
    )  # fmt: skip
    assert opens(answered.json()) and accounts.asked == []


def test_without_an_upstream_nothing_is_kept(alice, agent):
    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, "OAUTH": {}}):
        tokens = issued(alice, agent)
        assert opens(tokens) and refresh(tokens["refresh_token"], agent).status_code == 200
    assert not TokenBinding.objects.exists()


# When it is gone.


def test_an_account_that_is_gone_has_no_code_and_no_refresh(alice, agent, accounts):
    """T22: whoever has left elsewhere."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    accounts.gone.add("id:alice")
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert not opens(tokens) and error(redeem(code, agent)) == REFUSED
    accounts.gone.clear()  # what was ended does not begin again
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED


def test_a_code_is_no_way_around(alice, agent, accounts):
    """T22: nor is one of somebody who was gone when they consented."""
    accounts.gone.add("id:alice")
    assert error(redeem(code_for(alice, agent), agent)) == REFUSED
    assert not get_access_token_model().objects.exists()


def test_a_token_that_is_used_waits_until_it_is_asked_whether_the_account_stands(
    alice, agent, accounts
):
    """T22: but not before its time, and never in the thread of look-ups."""
    tokens = issued(alice, agent)
    accounts.gone.add("id:alice")
    age(accounts.max_age - 5)
    assert opens(tokens)
    age(accounts.max_age + 1)
    with pytest.raises(NotYetKnown):
        opens(tokens)
    assert accounts.asked == ["id:alice"]


async def test_it_is_asked_once_and_then_looked_up_again(db, accounts):
    def made() -> Any:
        alice = get_user_model().objects.create_user("alice")
        found = issued(alice, registered("dcr"))
        age(accounts.max_age + 1)
        return found

    tokens = await threads.tools.run(made)
    for _ in range(2):
        found = await VERIFIER.verify(tokens["access_token"], default_server)
        assert found is not None and found.user.username == "alice"
    assert accounts.asked == ["id:alice"] * 2  # the first with the code
    await threads.tools.run(age, accounts.max_age + 1)
    accounts.gone.add("id:alice")
    assert await VERIFIER.verify(tokens["access_token"], default_server) is None


async def test_what_is_not_known_though_it_was_asked_is_to_be_asked_for_later(db):
    def unknown() -> None:
        raise NotYetKnown(found_out)

    asked = []

    async def found_out() -> None:
        asked.append(True)

    with pytest.raises(Busy):
        await looked_up(unknown)
    assert asked == [True]


def test_all_that_an_account_let_in_ends_and_what_another_did_stays(alice, agent, accounts):
    """T22: of the same person, by the same client."""
    first, second = issued(alice, agent), issued(alice, registered("dcr"))
    accounts.by = "id:alice too"
    third = issued(alice, agent)
    assert end_account("id:alice") == 2
    assert [opens(one) for one in (first, second, third)] == [False, False, True]
    assert error(refresh(first["refresh_token"], agent)) == REFUSED
    assert refresh(third["refresh_token"], agent).status_code == 200
    assert end_account("id:alice") == 0


def test_an_account_that_changed_hands_ends_for_who_had_it(alice, agent, accounts):
    bob = get_user_model().objects.create_user("bob")
    accounts.by = "id:shared"
    hers, his = issued(alice, agent), issued(bob, agent)
    assert end_account("id:shared", alice) == 1
    assert [opens(hers), opens(his)] == [False, True]


def test_a_code_that_was_not_redeemed_ends_as_well(alice, agent):
    code = code_for(alice, agent)
    assert end_account("id:alice") == 1
    assert error(redeem(code, agent)) == REFUSED


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_who_redeems_while_an_account_ends_has_no_token_that_is_good():
    """T22: whichever of both is first."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    for _ in range(5):
        code = code_for(alice, agent)
        works = [lambda code=code: redeem(code, agent), lambda: end_account("id:alice")]
        answered = at_once(2, lambda index, works=works: works[index]())
        end_account("id:alice")  # had it begun a moment later
        for one in answered:
            if getattr(one, "status_code", None) == 200:
                assert not opens(one.json())
                assert error(refresh(one.json()["refresh_token"], agent)) == REFUSED


# When nobody can tell.


def test_what_is_known_is_good_for_a_while_longer(alice, agent, accounts):
    tokens = issued(alice, agent)
    accounts.wrong = OSError()
    age(accounts.max_age + 1)
    with pytest.raises(NotYetKnown):
        opens(tokens)
    tokens = refresh(tokens["refresh_token"], agent).json()
    asked = len(accounts.asked)
    assert opens(tokens) and len(accounts.asked) == asked  # it was asked in vain just now
    age(accounts.max_age + accounts.grace + 1)
    with pytest.raises(Busy):
        opens(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == LATER
    assert len(accounts.asked) == asked
    upstream_accounts._failed.clear()
    accounts.wrong = None
    assert refresh(tokens["refresh_token"], agent).status_code == 200


def test_a_code_waits_for_who_can_tell(alice, agent, accounts):
    """T22: nothing is known of the account as yet; the code stays good meanwhile."""
    code = code_for(alice, agent)
    accounts.wrong = TimeoutError()
    assert error(answered := redeem(code, agent)) == LATER
    assert answered["Retry-After"] and not get_access_token_model().objects.exists()
    upstream_accounts._failed.clear()
    accounts.wrong = None
    assert redeem(code, agent).status_code == 200


def test_it_is_not_asked_at_once_again_and_then_it_is(alice, agent, accounts, monkeypatch):
    tokens = issued(alice, agent)
    accounts.wrong = OSError()
    age(accounts.max_age + 1)
    assert refresh(tokens["refresh_token"], agent).status_code == 200
    assert upstream_accounts.failed_recently(alice, "id:alice")
    monkeypatch.setattr(upstream_accounts, "ERROR_RETRY_SECONDS", 0.0)
    assert not upstream_accounts.failed_recently(alice, "id:alice")


def test_what_the_project_raises_is_logged_by_its_name_alone(alice, agent, accounts, caplog):
    """T25: its words may hold a token of theirs."""
    tokens = issued(alice, agent)
    accounts.wrong = OSError("Bearer s3cret")
    with caplog.at_level(logging.DEBUG):
        refresh(tokens["refresh_token"], agent)
    assert "OSError" in caplog.text and "s3cret" not in caplog.text


def test_what_was_asked_in_vain_is_not_kept_for_ever(alice, accounts, monkeypatch):
    monkeypatch.setattr(upstream_accounts, "MAX_REMEMBERED_FAILURES", 3)
    accounts.wrong = OSError()
    for number in range(5):
        upstream_accounts.check_account(accounts(), alice, f"id:{number}")
    assert [account for _, account in upstream_accounts._failed] == ["id:2", "id:3", "id:4"]
    assert not upstream_accounts._running


@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_who_comes_while_it_is_being_asked_does_not_ask(accounts, monkeypatch):
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


# What is open.


def stands(*owners: Any) -> list[bool]:
    keys = [f"{user.pk}:{client.pk}:" for user, client in owners]
    told = VERIFIER.still_valid(keys)
    return [told[key] for key in keys]


def test_for_what_is_open_it_is_asked_in_time(alice, agent, accounts, begun):
    """T24, T22: though nobody sends a request any more."""
    issued(alice, agent)
    assert stands((alice, agent)) == [True] and begun == []
    age(accounts.max_age + 1)
    assert stands((alice, agent)) == [True] and len(begun) == 1
    accounts.gone.add("id:alice")
    begun.pop()()
    assert stands((alice, agent)) == [False] and begun == []


def test_what_is_open_does_not_go_on_where_nobody_can_tell(alice, agent, accounts, begun):
    """T24, T22: after the grace."""
    issued(alice, agent)
    accounts.wrong = OSError()
    age(accounts.max_age + 1)
    assert stands((alice, agent)) == [True]
    begun.pop()()
    assert stands((alice, agent)) == [True] and begun == []  # in vain just now
    age(accounts.max_age + accounts.grace + 1)
    assert stands((alice, agent)) == [False]


def test_what_is_open_is_asked_for_once_and_a_few_at_a_look(
    alice, agent, accounts, begun, monkeypatch
):
    monkeypatch.setattr(upstream_accounts, "MIN_CHECKS_PER_ROUND", 2)
    for account in ("id:1", "id:1", "id:2", "id:3"):
        accounts.by = account
        issued(alice, agent)
    age(accounts.max_age + 1)
    accounts.wrong = OSError()
    for expected in (2, 1, 0):  # who was asked for in vain is in nobody's way
        stands((alice, agent))
        assert len(begun) == expected
        while begun:
            begun.pop()()
    assert sorted(accounts.asked[4:]) == ["id:1", "id:2", "id:3"]


def test_where_there_is_too_much_to_do_it_is_asked_later(alice, agent, accounts, monkeypatch):
    def busy(function: Any, owner: str) -> None:
        tried.append(owner)
        raise Busy

    tried: list[str] = []

    monkeypatch.setattr(threads.verifiers, "run_in_background", busy)
    issued(alice, agent)
    accounts.by = "id:alice too"
    issued(alice, agent)
    age(accounts.max_age + 1)
    for number in (1, 2):  # who was not asked for is wanted again; the rest waits meanwhile
        assert stands((alice, agent)) == [True] and len(tried) == number


# Where there is no grace.


@pytest.fixture
def strict(accounts, monkeypatch):
    """What is known is good for as long as it is known, and no longer."""
    monkeypatch.setattr(accounts, "grace", 0.0)
    return accounts


def goes_on(seconds: float, begun: list[Any], *owner: Any) -> bool:
    """Whether what is open was at every look for so long, each question being answered at once."""
    for _ in range(int(seconds / CHECK_INTERVAL_SECONDS)):
        for row in TokenBinding.objects.all():
            TokenBinding.objects.filter(pk=row.pk).update(
                checked=row.checked - timedelta(seconds=CHECK_INTERVAL_SECONDS)
            )
        if stands(owner) != [True]:
            return False
        while begun:
            begun.pop()()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("max_age", [10.0, 11.0, 15.0, 100.0, 300.0])
def test_without_a_grace_what_is_open_goes_on_as_long_as_the_account_stands(
    alice, agent, strict, begun, monkeypatch, max_age
):
    """T24: nor is it asked for at each look."""
    monkeypatch.setattr(strict, "max_age", max_age)
    issued(alice, agent)
    assert goes_on(3 * max_age + CHECK_INTERVAL_SECONDS, begun, alice, agent)
    assert 3 <= len(strict.asked) - 1 <= 8
    strict.gone.add("id:alice")
    assert not goes_on(max_age + CHECK_INTERVAL_SECONDS, begun, alice, agent)


def test_without_a_grace_what_is_open_ends_where_nobody_can_tell(alice, agent, strict, begun):
    """T24: at a look after it is known no more."""
    issued(alice, agent)
    strict.wrong = OSError()
    assert goes_on(strict.max_age - 4 * CHECK_INTERVAL_SECONDS, begun, alice, agent)
    assert not goes_on(5 * CHECK_INTERVAL_SECONDS, begun, alice, agent)


def test_for_a_request_it_is_asked_no_earlier(alice, agent, strict):
    tokens = issued(alice, agent)
    age(strict.max_age - 5)
    assert opens(tokens)


def test_the_more_are_due_the_more_are_asked_for(alice, agent, strict, begun, monkeypatch):
    """So that none is late, however many are open."""
    monkeypatch.setattr(upstream_accounts, "MIN_CHECKS_PER_ROUND", 1)
    for number in range(12):
        strict.by = f"id:{number}"
        issued(alice, agent)
    del strict.asked[:]
    age(strict.max_age / 2 + 1)
    for expected in (3, 2, 2, 1, 1, 1, 1, 1, 0):
        stands((alice, agent))
        assert len(begun) == expected
        while begun:
            begun.pop()()
    assert len(strict.asked) == 12 == len(set(strict.asked))


def test_what_waits_for_its_turn_is_not_begun_again(alice, agent, accounts, begun, monkeypatch):
    """Until it must have been lost."""
    issued(alice, agent)
    age(accounts.max_age + 1)
    for _ in range(3):
        stands((alice, agent))
    assert len(begun) == 1
    monkeypatch.setattr(upstream_accounts, "CHECK_TIMEOUT_SECONDS", 0.0)
    stands((alice, agent))
    assert len(begun) == 2


@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_what_nobody_waits_for_leaves_threads_to_others(accounts):
    """However many accounts are due, and however long they take to tell."""
    alice = get_user_model().objects.create_user("alice")
    accounts.gate.clear()
    with override_settings(DJANGO_MCP={**settings.DJANGO_MCP, "THREADS": 4, "QUEUE": 100}):
        pool, before = ThreadPool("verify", lambda: 4), threads.verifiers
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


def test_what_no_token_needs_is_forgotten(alice, agent):
    kept, _ = issued(alice, agent), code_for(alice, agent)
    assert delete_old_bindings() == 0
    TokenBinding.objects.update(created=timezone.now() - BINDING_RETENTION - timedelta(seconds=1))
    assert delete_old_bindings() == 1 and opens(kept)
    get_refresh_token_model().objects.all().delete()
    assert delete_old_bindings() == 1 and not TokenBinding.objects.exists()
