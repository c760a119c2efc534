"""``mcp_token``: what it makes, shows and ends; what it refuses, and with which words and code."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_mcp.models import Token
from django_mcp.verifiers.personal_tokens import SECRET, PersonalAccessTokens
from tests.spec.process import ROOT, command, environment


@pytest.fixture
def run(capsys):
    """Runs the command; what it wrote to stdout and to stderr."""

    def run(*arguments):
        call_command("mcp_token", *map(str, arguments))
        said = capsys.readouterr()
        return said.out, said.err

    return run


def create(run, *arguments, user="alice", name="laptop"):
    out, err = run("create", "--user", user, "--name", name, *arguments)
    return out.strip(), err


def told(run, *arguments):
    """The words with which it refuses."""
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    return str(refused.value)


# Making.


def test_a_token_is_made_and_shown_alone_on_stdout(alice, run, server):
    out, err = run("create", "--user", "alice", "--name", "my laptop")
    secret = out.removesuffix("\n")
    assert SECRET.fullmatch(secret) and "not shown again" in err and secret not in err
    token = Token.objects.get()
    assert (token.user, token.name, token.server, token.scopes) == (alice, "my laptop", "", [])
    assert PersonalAccessTokens().lookup(secret, server).user == alice


def test_it_expires_after_ninety_days_unless_told_otherwise(alice, run):
    for arguments, days in (((), 90), (("--days", 7), 7), (("--days", 36500), 36500)):
        _, err = create(run, *arguments)
        left = Token.objects.latest("pk").expires - timezone.now()
        assert timedelta(days=days, minutes=-1) < left <= timedelta(days=days)
        assert "expires 2" in err
    _, err = create(run, "--days", 0)
    assert Token.objects.latest("pk").expires is None and "never expires" in err


def test_scopes_and_a_server(alice, run, server):
    create(run, "--scope", "read", "write", "--scope", "read", "--server", server.name)
    token = Token.objects.get()
    assert token.scopes == ["read", "write"] and token.server == server.name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--user", "nobody", "--name", "x"), "There is no user 'nobody'"),
        (("--user", "alice", "--name", ""), "1 to 100 characters"),
        (("--user", "alice", "--name", "x" * 101), "1 to 100 characters"),
        (("--user", "alice", "--name", "a\x1b[31mb"), "1 to 100 characters"),
        (("--user", "alice", "--name", "x", "--scope", "a b"), "'a b' is not a valid scope"),
        (("--user", "alice", "--name", "x", "--server", "nonsense"), "there are: tests"),
        (("--user", "alice", "--name", "x", "--days", "-1"), "--days"),
        (("--user", "alice", "--name", "x", "--days", "1000000"), "--days"),
        (("--user", "alice", "--name", "x", "--days", "soon"), "--days"),
        (("--user", "alice"), "--name"),
        (("--name", "x"), "--user"),
    ],
)
def test_what_is_refused_makes_nothing(alice, run, arguments, words):
    assert words in told(run, "create", *arguments)
    assert not Token.objects.exists()


def test_who_is_not_active_gets_none(alice, run):
    alice.is_active = False
    alice.save()
    assert "'alice' is not active" in told(run, "create", "--user", "alice", "--name", "x")
    assert not Token.objects.exists()


# Listing.


def test_the_list_shows_what_is_valid_and_no_secret(alice, bob, run):
    secrets = [create(run, user=user, name=f"of {user}")[0] for user in ("alice", "bob")]
    out, err = run("list")
    header, first, second = out.splitlines()
    assert header.split()[:4] == ["ID", "USER", "NAME", "TOKEN"] and header.endswith("  STATE")
    assert "of alice" in first and first.endswith("valid") and "of bob" in second and err == ""
    assert all(secret[:8] in out and secret[:9] not in out for secret in secrets)
    assert all(token.digest not in out for token in Token.objects.all())
    assert "of alice" not in run("list", "--user", "bob")[0]


def test_what_is_not_valid_is_listed_when_asked_for(alice, bob, run):
    now = timezone.now()
    Token.make(alice, "old", expires=now - timedelta(seconds=1))
    Token.make(alice, "ended")
    Token.objects.filter(name="ended").update(revoked=now)
    Token.make(bob, "of nobody")
    bob.is_active = False
    bob.save()
    out, err = run("list")
    assert out == "" and "--all" in err
    cells = [re.split(r"\s{2,}", line) for line in run("list", "--all")[0].splitlines()]
    states = {cell[2]: cell[-1] for cell in cells}
    assert states.pop("NAME") == "STATE"
    assert states == {"old": "expired", "ended": "revoked", "of nobody": "user not active"}


def test_nothing_to_list(alice, run):
    assert run("list", "--all") == ("", "No tokens.\n")
    assert "There is no user 'nobody'" in told(run, "list", "--user", "nobody")


def test_a_name_does_not_reach_the_terminal_as_a_command(alice, run):
    Token.make(alice, "a\x1b[31mb\n0")
    out, _ = run("list")
    assert "a?[31mb?0" in out and "\x1b" not in out and len(out.splitlines()) == 2


# Revoking.


def test_list_names_the_server_as_other_commands_do(alice, run):
    create(run, "--server", "tests")  # the default server, by its public name
    assert Token.objects.get().server == "default"
    assert " tests " in run("list")[0]


def test_tokens_are_revoked_by_id(alice, run, server):
    secrets = [create(run)[0] for _ in range(3)]
    first, second, third = Token.objects.order_by("pk")
    assert run("revoke", first.pk, second.pk)[1] == "Revoked: 2. Revoked before: 0.\n"
    valid = [PersonalAccessTokens().lookup(secret, server) is not None for secret in secrets]
    assert valid == [False, False, True]
    assert run("revoke", first.pk, third.pk)[1] == "Revoked: 1. Revoked before: 1.\n"


def test_a_token_that_was_found_is_revoked_by_itself(alice, run, server):
    secret, _ = create(run)
    out, err = run("revoke", secret)
    assert err == "Revoked: 1. Revoked before: 0.\n" and out == ""
    assert PersonalAccessTokens().lookup(secret, server) is None


def test_all_of_a_users_are_revoked(alice, bob, run):
    for user in (alice, alice, bob):
        Token.make(user, "x")
    assert run("revoke", "--user", "alice")[1] == "Revoked: 2. Revoked before: 0.\n"
    assert [token.user for token in Token.objects.filter(revoked=None)] == [bob]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "or a user with --user"),
        (("1", "--user", "alice"), "or a user with --user"),
        (("123456",), "There is no token 123456"),
        (("9" * 19,), "named by its ID"),
        (("--user", "nobody"), "There is no user 'nobody'"),
    ],
)
def test_what_cannot_be_revoked(alice, run, arguments, words):
    token, _ = Token.make(alice, "x")
    assert words in told(run, "revoke", *arguments)
    token.refresh_from_db()
    assert token.revoked is None


@pytest.mark.parametrize("text", ["mcp_" + "a" * 43, "mcp_" + "b" * 42, "a secret of another kind"])
def test_what_was_given_is_not_repeated(alice, run, text):
    words = told(run, "revoke", text)
    assert text not in words and "list --all" in words


def test_all_or_nothing_is_revoked(alice, run):
    token, _ = Token.make(alice, "x")
    assert "There is no token" in told(run, "revoke", token.pk, token.pk + 1)
    assert Token.objects.get().revoked is None


# The process.


def quiet(path, **more):
    return environment(path, DJANGO_SETTINGS_MODULE="tests.management.quiet", **more)


def mcp_token(path, *arguments):
    return subprocess.run(
        command("mcp_token", *arguments), cwd=ROOT, capture_output=True, text=True, env=quiet(path)
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens.sqlite3"
    subprocess.run(command("migrate", "-v0"), cwd=ROOT, env=quiet(path), check=True)
    subprocess.run(
        command("createsuperuser", "--noinput", "--username=carol", "--email=c@example.com"),
        cwd=ROOT, env=quiet(path, DJANGO_SUPERUSER_PASSWORD=os.urandom(8).hex()), check=True,
        capture_output=True,
    )  # fmt: skip
    return path


@pytest.mark.slow
def test_the_secret_can_be_piped(database):
    done = mcp_token(database, "create", "--user", "carol", "--name", "ci")
    assert done.returncode == 0 and SECRET.fullmatch(done.stdout.removesuffix("\n"))
    done = mcp_token(database, "list")
    assert done.returncode == 0 and " ci " in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "--user", "nobody", "--name", "x"], 1, "There is no user 'nobody'"),
        (["create", "--name", "x"], 2, "the following arguments are required: --user"),
        (["revoke"], 2, "Name tokens to revoke"),
        ([], 2, "ACTION"),
        (["nonsense"], 2, "invalid choice"),
    ],
)
def test_exit_codes(database, arguments, code, words):
    done = mcp_token(database, *arguments)
    assert done.returncode == code and words in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_help(database):
    done = mcp_token(database, "--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("create", "list", "revoke", "Authorization"))
    assert "(default: 90)" in " ".join(mcp_token(database, "create", "--help").stdout.split())


def test_a_database_without_tables(tmp_path):
    done = mcp_token(tmp_path / "empty.sqlite3", "list")
    assert done.returncode == 1 and "manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr
