"""Personal access tokens: who comes in, who does not, and what that costs and leaves behind."""

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


def made(user, **options) -> tuple[Token, str]:
    return Token.make(user, "laptop", **options)


@pytest.fixture(autouse=True)
def _nothing_noted():
    tokens.uses._noted.clear()
    yield
    tokens.uses._noted.clear()


# Who comes in.


def test_it_is_a_verifier():
    assert isinstance(VERIFIER, mcp.TokenVerifier)


async def test_a_token_speaks_for_its_user(alice, server):
    ends = timezone.now() + timedelta(days=1)
    token, secret = await threads.tools.run(made, alice, scopes=["read", "write"], expires=ends)
    principal = await VERIFIER.verify(secret, server)
    assert principal.user == alice and principal.is_authenticated
    assert principal.auth.scopes == {"read", "write"} and principal.auth.application is None
    assert principal.auth.expires == ends
    assert principal.key == f"{alice.pk}::token-{token.pk}"


def test_the_user_is_loaded_with_the_token_in_one_query(alice, server, django_assert_num_queries):
    _, secret = made(alice)
    with django_assert_num_queries(1):
        principal = VERIFIER.lookup(secret, server)
        assert principal.user.username == "alice" and principal.user.is_active


def test_what_one_token_began_no_other_goes_on_with(alice, bob, server):
    keys = {VERIFIER.lookup(made(user)[1], server).key for user in (alice, alice, bob)}
    assert len(keys) == 3


def test_permissions_are_those_of_this_moment(alice, server):
    _, secret = made(alice)
    assert VERIFIER.lookup(secret, server).user.has_perm("shop.change_invoice")
    alice.user_permissions.clear()
    assert not VERIFIER.lookup(secret, server).user.has_perm("shop.change_invoice")


def test_a_token_may_be_for_one_server(alice, server):
    _, secret = made(alice, server=server.name)
    assert VERIFIER.lookup(secret, server) is not None
    assert VERIFIER.lookup(secret, mcp.server) is None
    assert VERIFIER.lookup(made(alice, server=server.name.upper())[1], server) is None


# Who does not.


GARBAGE = [
    "", "mcp_", "x", "mcp_" + "a" * 42, "mcp_" + "a" * 44, "mcp_" + "a" * 42 + "=",
    "mcp_" + "a" * 42 + "\n", "MCP_" + "a" * 43, " mcp_" + "a" * 43, "mcp_" + "é" * 43,
    "mcp_" + "a" * 43 + "\n", "mcp_" + "a" * 42 + "\0", "Bearer mcp_" + "a" * 43,
    "mcp_" + "\u0663" * 43, "a" * 1_000_000, "mcp_" * 250_000,
]  # fmt: skip


@pytest.mark.parametrize("token", GARBAGE, ids=lambda token: repr(token[:12]))
def test_what_cannot_be_a_token_costs_no_query(token, server):
    """The database fixture is absent: a query would be an error."""
    assert VERIFIER.lookup(token, server) is None


@given(st.text(max_size=60))
def test_no_text_is_more_than_nobody(token):
    assert VERIFIER.lookup(token, mcp.server) is None


def test_garbage_costs_the_same_however_long(server):
    def seconds(token: str) -> float:
        began = time.perf_counter()
        for _ in range(200):
            VERIFIER.lookup(token, server)
        return time.perf_counter() - began

    assert min(seconds("mcp_" + "a" * 10_000_000) for _ in range(5)) < 0.2


def test_a_guess_is_compared_by_its_digest_alone(alice, server):
    """What is nearly right is no nearer: the database sees a digest, and that is another one."""
    _, secret = made(alice)
    near = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    with CaptureQueriesContext(connection) as queries:
        assert VERIFIER.lookup(near, server) is None
        assert VERIFIER.lookup(secret.swapcase().replace("MCP_", "mcp_"), server) is None
    assert len(queries) == 2
    for query in queries:
        assert secret[:20] not in query["sql"] and near not in query["sql"]
        assert "digest" in query["sql"]


def test_a_token_that_has_expired(alice, server):
    now = timezone.now()
    assert VERIFIER.lookup(made(alice, expires=now - SECOND)[1], server) is None
    assert VERIFIER.lookup(made(alice, expires=now + timedelta(minutes=5))[1], server) is not None


def test_a_token_expires_at_its_moment_and_not_after(alice, server, monkeypatch):
    ends = timezone.now()
    _, secret = made(alice, expires=ends)
    moments = {
        ends - timedelta(microseconds=1): True, ends: False, ends + SECOND: False,
    }  # fmt: skip
    for moment, valid in moments.items():
        monkeypatch.setattr(timezone, "now", lambda moment=moment: moment)
        assert (VERIFIER.lookup(secret, server) is not None) == valid


async def test_a_token_revoked_while_in_use(alice, server):
    token, secret = await threads.tools.run(made, alice)
    assert await VERIFIER.verify(secret, server)
    assert await threads.tools.run(revoke, Token.objects.filter(pk=token.pk)) == 1
    assert await VERIFIER.verify(secret, server) is None


def test_a_token_of_a_user_who_is_no_longer_active(alice, server):
    _, secret = made(alice)
    assert VERIFIER.lookup(secret, server)
    get_user_model().objects.filter(pk=alice.pk).update(is_active=False)
    assert VERIFIER.lookup(secret, server) is None


def test_a_token_of_a_user_who_is_gone(alice, server):
    _, secret = made(alice)
    alice.delete()
    assert VERIFIER.lookup(secret, server) is None and not Token.objects.exists()


def test_whom_the_projects_manager_hides_does_not_come_in(alice, bob, server, monkeypatch):
    """As in Django's own sign-in: a project may hide users instead of deleting them."""

    class Visible(UserManager[Any]):
        def get_queryset(self) -> Any:
            return super().get_queryset().exclude(username="alice")

    model = get_user_model()
    manager = Visible()
    manager.model = model
    monkeypatch.setattr(model._meta, "default_manager", manager, raising=False)
    hidden, shown = made(alice)[1], made(bob)[1]
    with CaptureQueriesContext(connection) as queries:
        assert VERIFIER.lookup(hidden, server) is None
        assert VERIFIER.lookup(shown, server).user == bob
    assert len(queries) == 2


def test_nobody_is_told_why_but_the_log(alice, server, caplog):
    caplog.set_level(logging.DEBUG, "django_mcp")
    past = timezone.now() - SECOND
    token, secret = made(alice, expires=past)
    VERIFIER.lookup(secret, server)
    _, elsewhere = made(alice, server="elsewhere")
    VERIFIER.lookup(elsewhere, server)
    revoked = made(alice)
    revoke(Token.objects.filter(pk=revoked[0].pk))
    VERIFIER.lookup(revoked[1], server)
    get_user_model().objects.update(is_active=False)
    _, inactive = made(alice)
    VERIFIER.lookup(inactive, server)
    told = [record.getMessage() for record in caplog.records if record.name == "django_mcp"]
    assert told[0] == f"Access token {token.pk} was refused: expired"
    assert [message.partition(": ")[2] for message in told[1:]] == [
        f"for the server 'elsewhere', not for {server.name!r}",
        "revoked",
        "user not active",
    ]
    assert all(one not in caplog.text for one in (secret, elsewhere, revoked[1], inactive))


# What it leaves behind.


def everything_stored() -> str:
    """Every row of every table, as text."""
    found = []
    for one in connections.all():
        with one.cursor() as cursor:
            for table in one.introspection.table_names(cursor):
                cursor.execute(f"SELECT * FROM {one.ops.quote_name(table)}")
                found.extend(map(repr, cursor.fetchall()))
    return "\n".join(found)


def test_the_secret_is_nowhere(alice, server, caplog):
    caplog.set_level(logging.DEBUG)
    with CaptureQueriesContext(connection) as queries:
        token, secret = made(alice, scopes=["read"])
        principal = VERIFIER.lookup(secret, server)
        tokens.uses.write()
    said = [repr(token), str(token), repr(principal), repr(principal.auth), caplog.text]
    said += [repr(vars(token)), repr(VERIFIER), repr(tokens.uses)]
    said += [query["sql"] for query in queries]
    stored = everything_stored()
    assert token.digest in stored
    assert all(secret[:12] not in text for text in [*said, stored])
    assert token.digest not in f"{token!r} {token} {principal!r} {principal.key}"


def test_a_secret_is_random_and_long(alice):
    found = {made(alice)[1] for _ in range(50)}
    assert len(found) == 50 and len({secret[:12] for secret in found}) == 50
    assert all(tokens.SECRET.fullmatch(secret) for secret in found)


# When it was used.


def last_used(token: Token) -> Any:
    return Token.objects.get(pk=token.pk).last_used


def test_a_look_up_writes_nothing(alice, server, django_assert_num_queries):
    token, secret = made(alice)
    with django_assert_num_queries(1):
        VERIFIER.lookup(secret, server)
    assert last_used(token) is None


def test_what_was_noted_is_written_at_once_for_all(alice, server, django_assert_num_queries):
    pairs = [made(alice) for _ in range(3)]
    for _, secret in pairs:
        VERIFIER.lookup(secret, server)
    with django_assert_num_queries(1):
        tokens.uses.write()
    assert all(timezone.now() - last_used(token) < timedelta(minutes=1) for token, _ in pairs)
    with django_assert_num_queries(0):
        tokens.uses.write()


def test_many_are_written_in_statements_that_every_database_takes(
    alice, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(uses, "ROWS_PER_UPDATE", 2)
    pairs = [made(alice) for _ in range(5)]
    for token, _ in pairs:
        tokens.uses.note(token.pk, None)
    with django_assert_num_queries(3):
        tokens.uses.write()
    assert all(last_used(token) for token, _ in pairs)


def begun(monkeypatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(threads.background, "run_in_background", found.append)
    return found


def test_it_is_noted_once_a_minute(alice, server, monkeypatch):
    found = begun(monkeypatch)
    _, secret = made(alice)
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


def test_a_token_that_is_refused_was_not_used(alice, server, monkeypatch):
    found = begun(monkeypatch)
    VERIFIER.lookup(made(alice, expires=timezone.now() - SECOND)[1], server)
    assert found == []


@pytest.mark.parametrize("error", [Busy("full"), RuntimeError("after interpreter shutdown")])
def test_no_room_to_write_it_is_no_reason_to_refuse(alice, server, monkeypatch, error):
    def refuse(job: Any) -> None:
        raise error

    monkeypatch.setattr(threads.background, "run_in_background", refuse)
    assert VERIFIER.lookup(made(alice)[1], server) is not None


def locked(*query: Any) -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY"
    raise OperationalError(*error.args) from error


def test_what_cannot_be_written_waits_for_a_minute(shared_db, alice, server, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "django_mcp")
    found = begun(monkeypatch)
    token, secret = made(alice)
    VERIFIER.lookup(secret, server)
    with connection.execute_wrapper(locked):
        tokens.uses.write()
    assert "could not be stored" in caplog.text and last_used(token) is None
    VERIFIER.lookup(secret, server)
    assert len(found) == 1
    monkeypatch.setattr(uses, "UPDATE_INTERVAL_SECONDS", 0)
    VERIFIER.lookup(secret, server)
    assert len(found) == 2
    tokens.uses.write()
    assert last_used(token) is not None


async def test_it_is_written_by_itself(shared_db, server):
    user = await threads.tools.run(get_user_model().objects.create_user, "carol")
    token, secret = await threads.tools.run(made, user)
    assert await VERIFIER.verify(secret, server)
    await threads.background.run(lambda: None)  # after what was begun before
    assert await threads.tools.run(last_used, token) is not None


async def test_a_database_that_is_being_written_to_keeps_nobody_out(shared_db, server):
    """SQLite has one writer: while a tool is it, whoever comes in does not wait for it."""
    user = await threads.tools.run(get_user_model().objects.create_user, "carol")
    token, secret = await threads.tools.run(made, user)
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


# Ending, and what they may be made with.


def test_to_revoke_is_to_end_once(alice, bob):
    first, second = made(alice)[0], made(bob)[0]
    mine = Token.objects.filter(user=alice)
    assert revoke(mine) == 1
    moment = Token.objects.get(pk=first.pk).revoked
    assert moment is not None and revoke(mine) == 0
    assert Token.objects.get(pk=first.pk).revoked == moment
    assert Token.objects.get(pk=second.pk).revoked is None


@pytest.mark.parametrize("scope", ["read", "billing:write", "https://x/y", "a.b-c_d!", "~"])
def test_what_a_scope_may_be(scope):
    check_scopes([scope])


@pytest.mark.parametrize("scope", ["", "a b", 'a"b', "a\\b", "é", "a\n", "a\0", "\x7f"])
def test_what_no_scope_is(scope):
    with pytest.raises(ValidationError, match="is not a valid scope"):
        check_scopes(["read", scope])


def test_secrets_come_from_where_secrets_come_from(alice, monkeypatch):
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: "a" * 43 if size == 32 else "")
    assert made(alice)[1] == "mcp_" + "a" * 43
