"""Rights that are taken back: found for all at once, in one query, and nobody else's."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls import callers as module
from django_mcp.calls.callers import revocations, revoked
from django_mcp.models import Token
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


def test_what_was_revoked_is_found(owners):
    assert revoked(owners.values()) == set()
    revoke(Token.objects.filter(name="a"))
    assert revoked(owners.values()) == {owners["a"]}
    assert revoked([]) == set()


def test_whose_user_may_not_sign_in_is_found(owners, alice):
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert revoked(owners.values()) == {owners["a"], owners["aa"]}


def test_what_was_deleted_is_found(owners, alice, bob):
    Token.objects.filter(name="a").delete()
    bob.delete()
    assert revoked(owners.values()) == {owners["a"], owners["b"]}


def test_an_expiry_takes_nothing_back(owners):
    Token.objects.update(expires="2020-01-01T00:00:00Z")
    assert revoked(owners.values()) == set()


def test_it_takes_one_query(owners, django_assert_num_queries):
    with django_assert_num_queries(1):
        revoked([*owners.values()])


def test_a_token_of_another_user_is_not_this_one(owners, bob):
    user, application, token = owners["a"].split(":")
    assert revoked([f"{bob.pk}::{token}"]) == {f"{bob.pk}::{token}"}


# Tokens of the project's own.


class Told:
    """Knows what it has revoked."""

    async def verify(self, token, server):
        return None

    def still_valid(self, keys):
        return {key: "bad" not in key for key in keys if "mine" in key}


@pytest.fixture
def use(settings):
    def used(*names):
        settings.DJANGO_MCP = {"VERIFIERS": [f"{__name__}.{name}" for name in names]}

    return used


class Silent:
    """Cannot tell."""

    async def verify(self, token, server):
        return None


def test_a_verifier_may_tell(use, alice, django_assert_num_queries):
    use("Silent", "Told")
    good, bad = (Principal(alice, Auth(key=f"mine {n}")).key for n in ("good", "bad"))
    with django_assert_num_queries(0):
        assert revoked([good, bad]) == {bad}


class Broken(Told):
    """Its service is away."""

    def still_valid(self, keys):
        raise ConnectionError("not today")


def test_one_that_fails_keeps_no_other_from_telling(use, alice, bob, caplog):
    """Attack: have one fail, and nobody's token can be taken back any more."""
    use("Broken", "Told", "Silent")
    bad, gone = (Principal(user, Auth(key=k)).key for user, k in ((alice, "mine bad"), (bob, "x")))
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert revoked([bad, gone]) == {bad, gone}
    assert "Broken failed to check" in caplog.text


def test_for_one_that_cannot_the_users_are_looked_at(use, alice, bob, django_assert_num_queries):
    use("Silent")
    keys = [Principal(user, Auth(key="x")).key for user in (alice, bob)]
    User.objects.filter(pk=bob.pk).update(is_active=False)
    with django_assert_num_queries(1):
        assert revoked(keys) == {keys[1]}
    assert revoked(["no number::x"]) == {"no number::x"}
    assert revoked(["7:token", "ff" * 32]) == set()  # nobody that is known, and no name


# What is open.


class Open:
    def __init__(self, owner):
        self.owner, self.ended = owner, 0

    def revoke(self):
        self.ended += 1


def test_what_is_open_is_ended(loop, owners):
    mine, others, nobodys = Open(owners["a"]), Open(owners["b"]), Open("")
    loop.do(lambda: revocations().sources.append(lambda: [mine, others, nobodys]))
    revoke(Token.objects.filter(name="a"))

    async def look():
        await revocations().look()

    loop.run(look())
    assert (mine.ended, others.ended, nobodys.ended) == (1, 0, 0)


def test_it_looks_as_long_as_something_is_open(loop, owners, monkeypatch):
    monkeypatch.setattr(module, "CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(TestEnvironment, "has_background_services", True)
    looked, held = [], [Open(owners["a"])]

    async def look():
        looked.append(1)

    def begin():
        mine = revocations()
        mine.look = look
        mine.sources.append(lambda: held)
        mine.attend()
        mine.attend()
        return mine

    mine = loop.do(begin)
    loop.until(lambda: len(looked) > 2)
    held.clear()
    loop.until(lambda: mine._task is None)


def test_what_fails_is_tried_again(loop, owners, monkeypatch, caplog):
    def broken(owners):
        raise RuntimeError("no")

    monkeypatch.setattr(module, "revoked", broken)
    mine = loop.do(revocations)
    mine.sources.append(lambda: [Open(owners["a"])])
    loop.run(mine._try())
    assert "Check for revoked tokens failed" in caplog.text
