"""Revoked tokens are found for all open connections by one query."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls import callers as module
from django_mcp.calls.callers import find_revoked, revocation_checker
from django_mcp.models import Token
from django_mcp.runtime.runtime import Environment
from django_mcp.testing.environment import TestEnvironment
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens, revoke

pytestmark = pytest.mark.django_db


def key_of(secret: str) -> str:
    return PersonalAccessTokens().lookup(secret, type("Any", (), {"name": ""})).key


@pytest.fixture
def owners(alice, bob):
    """The keys of three tokens, by their names."""
    made = {
        name: Token.make(user, name) for name, user in (("a", alice), ("aa", alice), ("b", bob))
    }
    return {name: key_of(secret) for name, (_, secret) in made.items()}


def test_revoked_token_is_found(owners):
    assert find_revoked(owners.values()) == set()
    revoke(Token.objects.filter(name="a"))
    assert find_revoked(owners.values()) == {owners["a"]}
    assert find_revoked([]) == set()


def test_tokens_of_an_inactive_user_are_found(owners, alice):
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert find_revoked(owners.values()) == {owners["a"], owners["aa"]}


def test_deleted_tokens_and_tokens_of_deleted_users_are_found(owners, alice, bob):
    Token.objects.filter(name="a").delete()
    bob.delete()
    assert find_revoked(owners.values()) == {owners["a"], owners["b"]}


def test_expired_token_is_not_reported_as_revoked(owners):
    Token.objects.update(expires="2020-01-01T00:00:00Z")
    assert find_revoked(owners.values()) == set()


def test_revocations_take_one_query(owners, django_assert_num_queries):
    with django_assert_num_queries(1):
        find_revoked([*owners.values()])


def test_token_with_another_user_is_revoked(owners, bob):
    user, application, token = owners["a"].split(":")
    assert find_revoked([f"{bob.pk}::{token}"]) == {f"{bob.pk}::{token}"}


# Verifiers of the project.


class KnowsRevocations:
    """A verifier that knows which of its tokens it revoked."""

    async def verify(self, token, server):
        return None

    def still_valid(self, keys):
        return {key: "bad" not in key for key in keys if "mine" in key}


@pytest.fixture
def use(settings):
    def used(*names):
        settings.DJANGO_MCP = {"VERIFIERS": [f"{__name__}.{name}" for name in names]}

    return used


class KnowsNoRevocations:
    """A verifier that cannot check revocations."""

    async def verify(self, token, server):
        return None


def test_verifier_decides_about_its_own_tokens(use, alice, django_assert_num_queries):
    use("KnowsNoRevocations", "KnowsRevocations")
    good, bad = (Principal(alice, Auth(key=f"mine {n}")).key for n in ("good", "bad"))
    with django_assert_num_queries(0):
        assert find_revoked([good, bad]) == {bad}


class FailingVerifier(KnowsRevocations):
    """A verifier whose service is unreachable."""

    def still_valid(self, keys):
        raise ConnectionError("not today")


def test_failed_verifier_does_not_stop_the_others(use, alice, bob, caplog):
    """Attack: make one verifier fail, so that no token can be revoked any more."""
    use("FailingVerifier", "KnowsRevocations", "KnowsNoRevocations")
    bad, gone = (Principal(user, Auth(key=k)).key for user, k in ((alice, "mine bad"), (bob, "x")))
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert find_revoked([bad, gone]) == {bad, gone}
    assert "not checked: verifier=FailingVerifier" in caplog.text


def test_users_are_checked_for_tokens_that_no_verifier_checks(
    use, alice, bob, django_assert_num_queries
):
    use("KnowsNoRevocations")
    keys = [Principal(user, Auth(key="x")).key for user in (alice, bob)]
    User.objects.filter(pk=bob.pk).update(is_active=False)
    with django_assert_num_queries(1):
        assert find_revoked(keys) == {keys[1]}
    assert find_revoked(["no number::x"]) == {"no number::x"}
    assert find_revoked(["7:token", "ff" * 32]) == set()  # nobody that is known, and no name


# Open connections.


class OpenConnection:
    def __init__(self, owner):
        self.owner, self.ended = owner, 0

    def revoke(self):
        self.ended += 1


def test_open_connections_of_revoked_tokens_are_closed(loop, owners):
    mine, others, nobodys = (
        OpenConnection(owners["a"]),
        OpenConnection(owners["b"]),
        OpenConnection(""),
    )
    loop.do(lambda: revocation_checker().sources.append(lambda: [mine, others, nobodys]))
    revoke(Token.objects.filter(name="a"))

    async def look():
        await revocation_checker().check()

    loop.run(look())
    assert (mine.ended, others.ended, nobodys.ended) == (1, 0, 0)


def test_check_repeats_while_connections_are_open(loop, owners, monkeypatch):
    monkeypatch.setattr(module, "CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(TestEnvironment, "start_background", Environment.start_background)
    looked, held = [], [OpenConnection(owners["a"])]

    async def look():
        looked.append(1)

    def begin():
        mine = revocation_checker()
        mine.check = look
        mine.sources.append(lambda: held)
        mine.start_if_needed()
        mine.start_if_needed()
        return mine

    mine = loop.do(begin)
    loop.until(lambda: len(looked) > 2)
    held.clear()
    loop.until(lambda: mine._task is None)


def test_failed_check_is_logged(loop, owners, monkeypatch, caplog):
    def broken(owners):
        raise RuntimeError("no")

    monkeypatch.setattr(module, "find_revoked", broken)
    mine = loop.do(revocation_checker)
    mine.sources.append(lambda: [OpenConnection(owners["a"])])
    loop.run(mine._check_and_log_errors())
    assert "Check for revoked tokens failed" in caplog.text
