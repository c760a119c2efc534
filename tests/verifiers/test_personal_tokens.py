"""Personal access tokens: accepted and rejected tokens, queries, last-used times and revocation."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import UserManager
from django.core.exceptions import ValidationError
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.auth import last_used as uses
from django_mcp.exceptions import Busy
from django_mcp.models import Token
from django_mcp.runtime import threads
from django_mcp.verifiers import personal_tokens as tokens
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens, check_scopes, revoke

VERIFIER = PersonalAccessTokens()
SECOND = timedelta(seconds=1)


def make_token(user, **options) -> tuple[Token, str]:
    return Token.make(user, "laptop", **options)


@pytest.fixture(autouse=True)
def _no_noted_uses():
    tokens.uses._noted.clear()
    yield
    tokens.uses._noted.clear()


# Accepted tokens.


def test_verifier_implements_the_protocol():
    assert isinstance(VERIFIER, mcp.TokenVerifier)


async def test_token_gives_the_principal_of_its_user(alice, server):
    ends = timezone.now() + timedelta(days=1)
    token, secret = await threads.tools.run(
        make_token, alice, scopes=["read", "write"], expires=ends
    )
    principal = await VERIFIER.verify(secret, server)
    assert principal.user == alice and principal.is_authenticated
    assert principal.auth.scopes == {"read", "write"} and principal.auth.application is None
    assert principal.auth.expires == ends
    assert principal.key == f"{alice.pk}::token-{token.pk}"


def test_lookup_makes_one_query(alice, server, django_assert_num_queries):
    _, secret = make_token(alice)
    with django_assert_num_queries(1):
        principal = VERIFIER.lookup(secret, server)
        assert principal.user.username == "alice" and principal.user.is_active


def test_each_token_has_its_own_principal_key(alice, bob, server):
    keys = {VERIFIER.lookup(make_token(user)[1], server).key for user in (alice, alice, bob)}
    assert len(keys) == 3


def test_permissions_are_read_at_each_lookup(alice, server):
    _, secret = make_token(alice)
    assert VERIFIER.lookup(secret, server).user.has_perm("shop.change_invoice")
    alice.user_permissions.clear()
    assert not VERIFIER.lookup(secret, server).user.has_perm("shop.change_invoice")


def test_token_can_be_limited_to_one_server(alice, server):
    _, secret = make_token(alice, server=server.name)
    assert VERIFIER.lookup(secret, server) is not None
    assert VERIFIER.lookup(secret, mcp.server) is None
    assert VERIFIER.lookup(make_token(alice, server=server.name.upper())[1], server) is None


# Rejected tokens.


GARBAGE = [
    "", "mcp_", "x", "mcp_" + "a" * 42, "mcp_" + "a" * 44, "mcp_" + "a" * 42 + "=",
    "mcp_" + "a" * 42 + "\n", "MCP_" + "a" * 43, " mcp_" + "a" * 43, "mcp_" + "é" * 43,
    "mcp_" + "a" * 43 + "\n", "mcp_" + "a" * 42 + "\0", "Bearer mcp_" + "a" * 43,
    "mcp_" + "\u0663" * 43, "a" * 1_000_000, "mcp_" * 250_000,
]  # fmt: skip


@pytest.mark.parametrize("token", GARBAGE, ids=lambda token: repr(token[:12]))
def test_malformed_token_makes_no_query(token, server):
    """The database fixture is absent, so a query would raise."""
    assert VERIFIER.lookup(token, server) is None


@given(st.text(max_size=60))
def test_text_that_is_no_token_is_rejected(token):
    assert VERIFIER.lookup(token, mcp.server) is None


def test_rejecting_a_long_text_is_fast(server):
    def seconds(token: str) -> float:
        began = time.perf_counter()
        for _ in range(200):
            VERIFIER.lookup(token, server)
        return time.perf_counter() - began

    assert min(seconds("mcp_" + "a" * 10_000_000) for _ in range(5)) < 0.2


def test_tokens_are_compared_by_digest(alice, server):
    """A nearly correct guess has a different digest, and the SQL contains only digests."""
    _, secret = make_token(alice)
    near = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    with CaptureQueriesContext(connection) as queries:
        assert VERIFIER.lookup(near, server) is None
        assert VERIFIER.lookup(secret.swapcase().replace("MCP_", "mcp_"), server) is None
    assert len(queries) == 2
    for query in queries:
        assert secret[:20] not in query["sql"] and near not in query["sql"]
        assert "digest" in query["sql"]


def test_expired_token_is_rejected(alice, server):
    now = timezone.now()
    assert VERIFIER.lookup(make_token(alice, expires=now - SECOND)[1], server) is None
    assert (
        VERIFIER.lookup(make_token(alice, expires=now + timedelta(minutes=5))[1], server)
        is not None
    )


def test_token_is_rejected_from_the_moment_it_expires(alice, server, monkeypatch):
    ends = timezone.now()
    _, secret = make_token(alice, expires=ends)
    moments = {
        ends - timedelta(microseconds=1): True, ends: False, ends + SECOND: False,
    }  # fmt: skip
    for moment, valid in moments.items():
        monkeypatch.setattr(timezone, "now", lambda moment=moment: moment)
        assert (VERIFIER.lookup(secret, server) is not None) == valid


async def test_revoked_token_is_rejected(alice, server):
    token, secret = await threads.tools.run(make_token, alice)
    assert await VERIFIER.verify(secret, server)
    assert await threads.tools.run(revoke, Token.objects.filter(pk=token.pk)) == 1
    assert await VERIFIER.verify(secret, server) is None


def test_token_of_an_inactive_user_is_rejected(alice, server):
    _, secret = make_token(alice)
    assert VERIFIER.lookup(secret, server)
    get_user_model().objects.filter(pk=alice.pk).update(is_active=False)
    assert VERIFIER.lookup(secret, server) is None


def test_token_of_a_deleted_user_is_deleted(alice, server):
    _, secret = make_token(alice)
    alice.delete()
    assert VERIFIER.lookup(secret, server) is None and not Token.objects.exists()


def test_token_of_a_user_hidden_by_the_default_manager_is_rejected(alice, bob, server, monkeypatch):
    """As at Django's login: a project may hide users instead of deleting them."""

    class Visible(UserManager[Any]):
        def get_queryset(self) -> Any:
            return super().get_queryset().exclude(username="alice")

    model = get_user_model()
    manager = Visible()
    manager.model = model
    monkeypatch.setattr(model._meta, "default_manager", manager, raising=False)
    hidden, shown = make_token(alice)[1], make_token(bob)[1]
    with CaptureQueriesContext(connection) as queries:
        assert VERIFIER.lookup(hidden, server) is None
        assert VERIFIER.lookup(shown, server).user == bob
    assert len(queries) == 2


def test_reason_of_a_rejection_is_only_logged(alice, server, caplog):
    caplog.set_level(logging.DEBUG, "django_mcp")
    past = timezone.now() - SECOND
    token, secret = make_token(alice, expires=past)
    VERIFIER.lookup(secret, server)
    _, elsewhere = make_token(alice, server="elsewhere")
    VERIFIER.lookup(elsewhere, server)
    revoked = make_token(alice)
    revoke(Token.objects.filter(pk=revoked[0].pk))
    VERIFIER.lookup(revoked[1], server)
    get_user_model().objects.update(is_active=False)
    _, inactive = make_token(alice)
    VERIFIER.lookup(inactive, server)
    told = [record.getMessage() for record in caplog.records if record.name == "django_mcp.oauth"]
    assert told[0] == f"Access token rejected: token={token.pk} reason=expired"
    assert [message.partition(" reason=")[2] for message in told[1:]] == [
        f"for the server 'elsewhere', not for {server.name!r}",
        "revoked",
        "user not active",
    ]
    assert all(one not in caplog.text for one in (secret, elsewhere, revoked[1], inactive))


# Secrets.


def everything_stored() -> str:
    """Return every row of every table, as text."""
    found = []
    for one in connections.all():
        with one.cursor() as cursor:
            for table in one.introspection.table_names(cursor):
                cursor.execute(f"SELECT * FROM {one.ops.quote_name(table)}")
                found.extend(map(repr, cursor.fetchall()))
    return "\n".join(found)


def test_secret_is_neither_stored_nor_shown_nor_logged(alice, server, caplog):
    caplog.set_level(logging.DEBUG)
    with CaptureQueriesContext(connection) as queries:
        token, secret = make_token(alice, scopes=["read"])
        principal = VERIFIER.lookup(secret, server)
        tokens.uses.write()
    said = [repr(token), str(token), repr(principal), repr(principal.auth), caplog.text]
    said += [repr(vars(token)), repr(VERIFIER), repr(tokens.uses)]
    said += [query["sql"] for query in queries]
    stored = everything_stored()
    assert token.digest in stored
    assert all(secret[:12] not in text for text in [*said, stored])
    assert token.digest not in f"{token!r} {token} {principal!r} {principal.key}"


def test_secrets_are_long_and_random(alice):
    found = {make_token(alice)[1] for _ in range(50)}
    assert len(found) == 50 and len({secret[:12] for secret in found}) == 50
    assert all(tokens.SECRET.fullmatch(secret) for secret in found)


# Last-used times.


def last_used(token: Token) -> Any:
    return Token.objects.get(pk=token.pk).last_used


def test_lookup_writes_nothing(alice, server, django_assert_num_queries):
    token, secret = make_token(alice)
    with django_assert_num_queries(1):
        VERIFIER.lookup(secret, server)
    assert last_used(token) is None


def test_noted_uses_are_written_in_one_query(alice, server, django_assert_num_queries):
    pairs = [make_token(alice) for _ in range(3)]
    for _, secret in pairs:
        VERIFIER.lookup(secret, server)
    with django_assert_num_queries(1):
        tokens.uses.write()
    assert all(timezone.now() - last_used(token) < timedelta(minutes=1) for token, _ in pairs)
    with django_assert_num_queries(0):
        tokens.uses.write()


def test_many_uses_are_written_in_several_queries(alice, monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(uses, "ROWS_PER_UPDATE", 2)
    pairs = [make_token(alice) for _ in range(5)]
    for token, _ in pairs:
        tokens.uses.note(token.pk, None)
    with django_assert_num_queries(3):
        tokens.uses.write()
    assert all(last_used(token) for token, _ in pairs)


def collect_background_jobs(monkeypatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(threads.background, "run_in_background", found.append)
    return found


def test_use_is_noted_once_a_minute(alice, server, monkeypatch):
    found = collect_background_jobs(monkeypatch)
    _, secret = make_token(alice)
    for _ in range(3):
        VERIFIER.lookup(secret, server)
    tokens.uses.write()
    VERIFIER.lookup(secret, server)
    assert len(found) == 1
    Token.objects.update(last_used=timezone.now() - timedelta(seconds=59))
    VERIFIER.lookup(secret, server)
    assert len(found) == 1
    Token.objects.update(last_used=timezone.now() - timedelta(seconds=61))
    VERIFIER.lookup(secret, server)
    assert len(found) == 2


def test_rejected_token_does_not_count_as_use(alice, server, monkeypatch):
    found = collect_background_jobs(monkeypatch)
    VERIFIER.lookup(make_token(alice, expires=timezone.now() - SECOND)[1], server)
    assert found == []


@pytest.mark.parametrize("error", [Busy("full"), RuntimeError("after interpreter shutdown")])
def test_token_is_accepted_though_its_use_cannot_be_written(alice, server, monkeypatch, error):
    def refuse(job: Any) -> None:
        raise error

    monkeypatch.setattr(threads.background, "run_in_background", refuse)
    assert VERIFIER.lookup(make_token(alice)[1], server) is not None


def raise_locked(*query: Any) -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY"
    raise OperationalError(*error.args) from error


def test_failed_write_is_retried_a_minute_later(shared_db, alice, server, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "django_mcp")
    found = collect_background_jobs(monkeypatch)
    token, secret = make_token(alice)
    VERIFIER.lookup(secret, server)
    with connection.execute_wrapper(raise_locked):
        tokens.uses.write()
    assert "could not be stored" in caplog.text and last_used(token) is None
    VERIFIER.lookup(secret, server)
    assert len(found) == 1
    monkeypatch.setattr(uses, "UPDATE_INTERVAL_SECONDS", 0)
    VERIFIER.lookup(secret, server)
    assert len(found) == 2
    tokens.uses.write()
    assert last_used(token) is not None


async def test_use_is_written_in_the_background(shared_db, server):
    user = await threads.tools.run(get_user_model().objects.create_user, "carol")
    token, secret = await threads.tools.run(make_token, user)
    assert await VERIFIER.verify(secret, server)
    await threads.background.run(lambda: None)  # after what was begun before
    assert await threads.tools.run(last_used, token) is not None


async def test_locked_database_does_not_delay_verification(shared_db, server):
    """SQLite has one writer: a token is verified while a tool holds the lock."""
    user = await threads.tools.run(get_user_model().objects.create_user, "carol")
    token, secret = await threads.tools.run(make_token, user)
    release, holds = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            get_user_model().objects.filter(pk=user.pk).update(first_name="Carol")
            Token.objects.filter(pk=token.pk).update(name="held")
            holds.set()
            release.wait(60)

    holding = threading.Thread(target=_closing(hold))
    holding.start()
    try:
        holds.wait(5)
        began = time.monotonic()
        assert await VERIFIER.verify(secret, server)
        assert await VERIFIER.verify(secret, server)
        assert time.monotonic() - began < 30 and not release.is_set()
    finally:
        release.set()
        holding.join()
    await threads.background.run(lambda: None)
    assert await threads.tools.run(last_used, token) is not None


def _closing(function: Any) -> Any:
    def run() -> None:
        try:
            function()
        finally:
            connections.close_all()

    return run


# Revocation and scopes.


def test_revoking_again_keeps_the_first_time(alice, bob):
    first, second = make_token(alice)[0], make_token(bob)[0]
    mine = Token.objects.filter(user=alice)
    assert revoke(mine) == 1
    moment = Token.objects.get(pk=first.pk).revoked
    assert moment is not None and revoke(mine) == 0
    assert Token.objects.get(pk=first.pk).revoked == moment
    assert Token.objects.get(pk=second.pk).revoked is None


@pytest.mark.parametrize("scope", ["read", "billing:write", "https://x/y", "a.b-c_d!", "~"])
def test_valid_scopes(scope):
    check_scopes([scope])


@pytest.mark.parametrize("scope", ["", "a b", 'a"b', "a\\b", "é", "a\n", "a\0", "\x7f"])
def test_invalid_scopes(scope):
    with pytest.raises(ValidationError, match="is not a valid scope"):
        check_scopes(["read", scope])


def test_secrets_are_made_by_the_secrets_module(alice, monkeypatch):
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: "a" * 43 if size == 32 else "")
    assert make_token(alice)[1] == "mcp_" + "a" * 43
