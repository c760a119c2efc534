"""``mcp_token``: creating, listing and revoking tokens, error messages and exit codes."""

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
    """Return a function that runs the command and returns stdout and stderr."""

    def run(*arguments):
        call_command("mcp_token", *map(str, arguments))
        said = capsys.readouterr()
        return said.out, said.err

    return run


def create(run, *arguments, user="alice", name="laptop"):
    out, err = run("create", "--user", user, "--name", name, *arguments)
    return out.strip(), err


def error_message(run, *arguments):
    """Return the message of the command's error."""
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    return str(refused.value)


# Creating.


def test_stdout_contains_only_the_new_token(alice, run, server):
    out, err = run("create", "--user", "alice", "--name", "my laptop")
    secret = out.removesuffix("\n")
    assert SECRET.fullmatch(secret) and "not shown again" in err and secret not in err
    token = Token.objects.get()
    assert (token.user, token.name, token.server, token.scopes) == (alice, "my laptop", "", [])
    assert PersonalAccessTokens().lookup(secret, server).user == alice


def test_token_expires_after_90_days_by_default(alice, run):
    for arguments, days in (((), 90), (("--days", 7), 7), (("--days", 36500), 36500)):
        _, err = create(run, *arguments)
        left = Token.objects.latest("pk").expires - timezone.now()
        assert timedelta(days=days, minutes=-1) < left <= timedelta(days=days)
        assert "expires 2" in err
    _, err = create(run, "--days", 0)
    assert Token.objects.latest("pk").expires is None and "never expires" in err


def test_scopes_and_server_options(alice, run, server):
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
def test_invalid_options_create_no_token(alice, run, arguments, words):
    assert words in error_message(run, "create", *arguments)
    assert not Token.objects.exists()


def test_inactive_user_gets_no_token(alice, run):
    alice.is_active = False
    alice.save()
    assert "'alice' is inactive" in error_message(run, "create", "--user", "alice", "--name", "x")
    assert not Token.objects.exists()


# Listing.


def test_list_shows_valid_tokens_without_secrets(alice, bob, run):
    secrets = [create(run, user=user, name=f"of {user}")[0] for user in ("alice", "bob")]
    out, err = run("list")
    header, first, second = out.splitlines()
    assert header.split()[:4] == ["ID", "USER", "NAME", "TOKEN"] and header.endswith("  STATE")
    assert "of alice" in first and first.endswith("valid") and "of bob" in second and err == ""
    assert all(secret[:8] in out and secret[:9] not in out for secret in secrets)
    assert all(token.digest not in out for token in Token.objects.all())
    assert "of alice" not in run("list", "--user", "bob")[0]


def test_all_option_lists_invalid_tokens(alice, bob, run):
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


def test_empty_list(alice, run):
    assert run("list", "--all") == ("", "No tokens.\n")
    assert "There is no user 'nobody'" in error_message(run, "list", "--user", "nobody")


def test_control_characters_in_names_are_replaced(alice, run):
    Token.make(alice, "a\x1b[31mb\n0")
    out, _ = run("list")
    assert "a?[31mb?0" in out and "\x1b" not in out and len(out.splitlines()) == 2


# Revoking.


def test_list_shows_the_public_name_of_the_server(alice, run):
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


def test_token_is_revoked_by_its_secret(alice, run, server):
    secret, _ = create(run)
    out, err = run("revoke", secret)
    assert err == "Revoked: 1. Revoked before: 0.\n" and out == ""
    assert PersonalAccessTokens().lookup(secret, server) is None


def test_user_option_revokes_all_tokens_of_a_user(alice, bob, run):
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
        (("9" * 19,), "Give the ID of a token"),
        (("--user", "nobody"), "There is no user 'nobody'"),
    ],
)
def test_invalid_revocations_are_errors(alice, run, arguments, words):
    token, _ = Token.make(alice, "x")
    assert words in error_message(run, "revoke", *arguments)
    token.refresh_from_db()
    assert token.revoked is None


@pytest.mark.parametrize("text", ["mcp_" + "a" * 43, "mcp_" + "b" * 42, "a secret of another kind"])
def test_error_does_not_repeat_the_given_text(alice, run, text):
    words = error_message(run, "revoke", text)
    assert text not in words and "list --all" in words


def test_unknown_id_revokes_nothing(alice, run):
    token, _ = Token.make(alice, "x")
    assert "There is no token" in error_message(run, "revoke", token.pk, token.pk + 1)
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
def test_secret_can_be_piped(database):
    done = mcp_token(database, "create", "--user", "carol", "--name", "ci")
    assert done.returncode == 0 and SECRET.fullmatch(done.stdout.removesuffix("\n"))
    done = mcp_token(database, "list")
    assert done.returncode == 0 and " ci " in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "--user", "nobody", "--name", "x"], 1, "There is no user 'nobody'"),
        (["create", "--name", "x"], 2, "the following arguments are required: --user"),
        (["revoke"], 2, "Give IDs of tokens"),
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


def test_database_without_tables_is_an_error(tmp_path):
    done = mcp_token(tmp_path / "empty.sqlite3", "list")
    assert done.returncode == 1 and "manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr
