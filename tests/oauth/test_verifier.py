"""The verifier of OAuth access tokens: accepted and rejected tokens, queries and revocation."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import UserManager
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given as let
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.auth.principal import Auth, ChallengingVerifier, Principal, RevokingVerifier
from django_mcp.oauth import verifier
from django_mcp.oauth.models import ClientProfile
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.runtime import threads
from django_mcp.storage import compiled_queries
from django_mcp.verifiers.protected_resource import resource
from tests.storage.rows import given

from .tokens import application, issued, refresh

VERIFIER = OAuthTokens()
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def background_jobs(monkeypatch):
    """Collect background writes, and record no last-used times."""
    verifier.client_uses._noted.clear()
    monkeypatch.setattr(verifier.consent_uses, "note", lambda pair: None)  # tested in test_activity
    begun: list[Any] = []
    monkeypatch.setattr(threads.background, "run_in_background", begun.append)
    yield begun
    verifier.client_uses._noted.clear()


@pytest.fixture
def bob(db):
    return get_user_model().objects.create_user("bob", password="secret")


@pytest.fixture
def row(alice, public_client, server):
    return issued(alice, public_client, server)[0]


def profile_of(client, **columns: Any) -> ClientProfile:
    if columns:
        ClientProfile.objects.filter(client_id=client.client_id).update(**columns)
    return ClientProfile.objects.get(client_id=client.client_id)


def is_accepted(secret, server) -> bool:
    return VERIFIER.lookup(secret, server) is not None


# Accepted tokens.


def test_verifier_implements_the_challenging_and_revoking_protocols():
    assert isinstance(VERIFIER, mcp.TokenVerifier)
    assert isinstance(VERIFIER, ChallengingVerifier) and isinstance(VERIFIER, RevokingVerifier)


async def test_token_gives_the_principal_of_its_user_and_client(alice, public_client, server):
    made = await threads.tools.run(issued, alice, public_client, server)
    principal = await VERIFIER.verify(made[1], server)
    assert principal.user == alice and principal.is_authenticated
    assert principal.auth.scopes == {"mcp"} and principal.auth.application == public_client
    assert principal.auth.expires == made[0].expires
    assert principal.key == f"{alice.pk}:{public_client.pk}:"


def test_tokens_of_one_client_have_the_same_principal_key(alice, public_client, server):
    secrets = [issued(alice, public_client, server)[1] for _ in range(2)]
    other = issued(alice, application("Other"), server)[1]
    keys = [VERIFIER.lookup(secret, server).key for secret in (*secrets, other)]
    assert keys[0] == keys[1] != keys[2]


def test_lookup_makes_one_query(alice, public_client, server, django_assert_num_queries):
    _, secret = issued(alice, public_client, server)
    with django_assert_num_queries(1):
        principal = VERIFIER.lookup(secret, server)
        assert principal.user.username == "alice" and principal.user.is_active
        assert principal.auth.application.name == "Agent" and principal.key


def test_lookup_returns_the_same_values_as_the_orm(alice, bob, server, django_assert_num_queries):
    """On every database, with the types of its columns."""
    client = application("Robot", user=bob, cimd_expires_at=timezone.now())
    made, secret = issued(alice, client, server)
    (found,), named = VERIFIER.find([secret]), [resource(server)]
    assert found == verifier.FoundToken(
        made.pk, "mcp", made.expires, named, alice, client, bob, False, verifier.NEVER
    )
    for one in (found.user, found.application, found.owner):
        stored = type(one)._base_manager.get(pk=one.pk)
        assert attribute_values(one) == attribute_values(stored) and not one._state.adding
        assert one._state.db == stored._state.db
    with django_assert_num_queries(0):
        assert found.application.user == bob


def attribute_values(instance):
    """Return the values with their types: a boolean is not a number."""
    fields = instance._meta.concrete_fields
    return {field.attname: repr(getattr(instance, field.attname)) for field in fields}


def test_sql_statement_is_cached(alice, public_client, server, monkeypatch):
    secrets = [issued(alice, public_client, server)[1] for _ in range(2)]
    assert is_accepted(secrets[0], server)
    monkeypatch.setattr(compiled_queries, "_compile", None)
    assert is_accepted(secrets[1], server) and not is_accepted(secrets[0][1:], server)


def test_user_hidden_by_the_manager_at_that_moment_is_rejected(
    alice, public_client, server, monkeypatch
):
    _, secret = issued(alice, public_client, server)
    hidden = hide_users(monkeypatch, "nobody")
    for name, comes_in in (("nobody", True), ("alice", False), ("nobody", True)):
        hidden[:] = [name]
        assert is_accepted(secret, server) == comes_in


@pytest.mark.parametrize(
    "named",
    ["{}", "{}/", "HTTPS://SHOP.EXAMPLE:443/mcp/a%20test's%20own", "{}///"],
)
def test_resource_of_a_token_is_normalized(alice, public_client, named):
    server = mcp.Server("spelled", path="mcp/a test's own")
    _, secret = issued(alice, public_client, resource=[named.format(resource(server))])
    assert is_accepted(secret, server)


def test_token_is_accepted_by_each_of_its_servers(alice, public_client, server):
    _, secret = issued(alice, public_client, server, mcp.server)
    assert is_accepted(secret, server) and is_accepted(secret, mcp.server)


# Rejected tokens.


GARBAGE = ["", "é", "a b", 'a"', "a\n", "a\0", "=", "a=b", "\ud800", "'--", "{}", "\u0663" * 30]


@pytest.mark.parametrize("token", GARBAGE, ids=repr)
def test_malformed_token_makes_no_query(token, server):
    """The database fixture is absent, so a query would raise."""
    assert VERIFIER.lookup(token, server) is None


@let(st.text(max_size=60).filter(lambda text: not verifier.TOKEN.fullmatch(text)))
def test_text_that_is_no_token_is_rejected(token):
    assert VERIFIER.lookup(token, mcp.server) is None


def test_token_is_not_in_the_sql(alice, public_client, server):
    _, secret = issued(alice, public_client, server)
    with CaptureQueriesContext(connection) as queries:
        assert not is_accepted(secret[:-1], server) and not is_accepted(secret.swapcase(), server)
    assert all(secret[:12] not in query["sql"] for query in queries)


def test_token_is_rejected_from_the_moment_it_expires(alice, public_client, server, monkeypatch):
    ends = timezone.now()
    _, secret = issued(alice, public_client, server, expires=ends)
    for moment, valid in ((ends - SECOND / 1e6, True), (ends, False), (ends + SECOND, False)):
        monkeypatch.setattr(timezone, "now", lambda moment=moment: moment)
        assert is_accepted(secret, server) == valid


def test_token_of_a_blocked_client_is_rejected(alice, public_client, server):
    _, secret = issued(alice, public_client, server)
    profile = profile_of(public_client)
    assert is_accepted(secret, server)
    profile.blocked = timezone.now()
    profile.save()
    assert not is_accepted(secret, server)


def test_token_without_a_client_is_rejected(alice, server):
    assert not is_accepted(issued(alice, None, server)[1], server)


def test_token_of_an_inactive_or_deleted_user_is_rejected(alice, public_client, server):
    _, secret = issued(alice, public_client, server)
    get_user_model().objects.update(is_active=False)
    assert not is_accepted(secret, server)
    get_user_model().objects.update(is_active=True)
    assert is_accepted(secret, server)
    alice.delete()
    assert not is_accepted(secret, server)


def test_token_of_a_user_hidden_by_the_default_manager_is_rejected(
    alice, bob, public_client, server, monkeypatch, django_assert_num_queries
):
    secrets = [issued(user, public_client, server)[1] for user in (alice, bob)]
    own = issued(None, machine_client(alice), server)[1]
    keys = [VERIFIER.lookup(secret, server).key for secret in secrets]
    hide_users(monkeypatch, "alice")
    with django_assert_num_queries(3):
        assert [is_accepted(secret, server) for secret in (*secrets, own)] == [False, True, False]
    assert VERIFIER.still_valid(keys) == {keys[0]: False, keys[1]: True}


def hide_users(monkeypatch, *names):
    """Hide the users in the returned list from the default manager."""
    hidden = list(names)

    class Visible(UserManager[Any]):
        def get_queryset(self) -> Any:
            return super().get_queryset().exclude(username__in=hidden)

    model, manager = get_user_model(), Visible()
    manager.model = model
    monkeypatch.setattr(model._meta, "default_manager", manager, raising=False)
    return hidden


# Machine clients.


def machine_client(user, **fields):
    return application(
        "Robot", user=user, client_type="confidential",
        authorization_grant_type="client-credentials", **fields,
    )  # fmt: skip


def test_machine_client_acts_as_its_owner(alice, server):
    robot = machine_client(alice)
    principal = VERIFIER.lookup(issued(None, robot, server)[1], server)
    assert principal.user == alice and principal.key == f"{alice.pk}:{robot.pk}:"


def test_machine_client_without_an_owner_is_rejected(alice, server):
    assert not is_accepted(issued(None, machine_client(None), server)[1], server)


@pytest.mark.parametrize(
    "fields",
    [
        {"authorization_grant_type": "authorization-code"}, {"registration_source": "dcr"},
        {"registration_source": "cimd"},
    ],
)  # fmt: skip
def test_client_credentials_token_of_another_kind_of_client_is_rejected(alice, server, fields):
    client = machine_client(alice)
    for name, value in fields.items():
        setattr(client, name, value)
    client.save()
    assert not is_accepted(issued(None, client, server)[1], server)


# Logs, challenges and last-used times.


def test_reason_of_a_rejection_is_only_logged(alice, public_client, server, caplog):
    caplog.set_level(logging.DEBUG, "django_mcp")
    wrong = {
        "expired": {"expires": timezone.now()},
        f"not for {server.name!r}": {"resource": []},
        "it has none of our scopes": {"scope": "photos"},
        "it is for a registration": {"scope": "mcp oauth2_provider:registration"},
    }
    made = [issued(alice, public_client, server, **fields) for fields in wrong.values()]
    assert not any(is_accepted(secret, server) for _, secret in made)
    told = [record.getMessage() for record in caplog.records if record.name == "django_mcp.oauth"]
    assert told == [
        f"OAuth access token rejected: token={row.pk} reason={why}"
        for (row, _), why in zip(made, wrong, strict=True)
    ]
    assert all(secret not in caplog.text for _, secret in made)


def test_challenge_contains_the_metadata_url_and_the_first_scope(server):
    assert VERIFIER.challenge(server) == {
        "resource_metadata": "https://shop.example/.well-known/oauth-protected-resource"
        "/mcp/a%20test's%20own",
        "scope": "mcp",
    }
    with given(SCOPES={"read": "Look", "write": "Change"}):
        assert VERIFIER.challenge(server)["scope"] == "read"


def test_use_of_a_client_is_noted_once_a_minute(
    alice, public_client, server, background_jobs, django_assert_num_queries
):
    day = timezone.now() - timedelta(days=1)
    profile = profile_of(public_client, created=day)
    _, secret = issued(alice, public_client, server)
    is_accepted(secret, server)
    with django_assert_num_queries(1):
        verifier.client_uses.write()
    profile.refresh_from_db()
    assert timezone.now() - profile.last_used < timedelta(minutes=1)
    for _ in range(3):
        is_accepted(secret, server)
    assert len(background_jobs) == 1
    ClientProfile.objects.update(last_used=timezone.now() - timedelta(seconds=61))
    is_accepted(secret, server)
    assert len(background_jobs) == 2


def test_use_of_a_client_without_a_profile_is_not_noted(
    alice, public_client, server, background_jobs
):
    _, secret = issued(alice, public_client, server)
    profile_of(public_client).delete()
    assert is_accepted(secret, server) and not background_jobs


def test_rejected_token_does_not_count_as_use(alice, public_client, server, background_jobs):
    day = timezone.now() - timedelta(days=1)
    profile_of(public_client, created=day)
    assert not is_accepted(issued(alice, public_client)[1], server) and not background_jobs


def test_first_use_of_a_new_client_is_noted(alice, public_client, server, background_jobs):
    assert is_accepted(issued(alice, public_client, server)[1], server)
    assert background_jobs == [verifier.client_uses.write]
    verifier.client_uses.write()
    assert profile_of(public_client).last_used


# still_valid.


def key(user, client, name="") -> str:
    return Principal(user, Auth(application=client, key=name)).key


def test_still_valid_is_true_only_for_the_user_and_client_of_a_token(
    alice, bob, public_client, server
):
    issued(alice, public_client, server)
    keys = [key(user, client) for user in (alice, bob) for client in (public_client, other())]
    assert VERIFIER.still_valid(keys) == {keys[0]: True} | dict.fromkeys(keys[1:], False)


def other():
    return application("Other")


def test_still_valid_does_not_combine_user_and_client_of_two_tokens(
    alice, bob, public_client, server
):
    client = other()
    issued(alice, public_client, server)
    issued(bob, client, server)
    assert VERIFIER.still_valid([key(alice, client)]) == {key(alice, client): False}


def test_still_valid_makes_one_query(alice, bob, public_client, server, django_assert_num_queries):
    issued(alice, public_client, server)
    refresh(bob, other())
    keys = [key(user, public_client) for user in (alice, bob)]
    with django_assert_num_queries(1):
        assert VERIFIER.still_valid(keys) == {keys[0]: True, keys[1]: False}
    with django_assert_num_queries(0):
        VERIFIER.still_valid([])


def test_still_valid_splits_long_lists_into_several_queries(
    alice, public_client, server, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(verifier, "PAIRS_PER_QUERY", 2)
    issued(alice, public_client, server)
    keys = [f"{alice.pk}:{public_client.pk + n}:" for n in range(5)]
    with django_assert_num_queries(3):
        told = VERIFIER.still_valid(keys)
    assert list(told.values()) == [True, False, False, False, False]


def test_still_valid_ignores_expiry(alice, public_client, server, row):
    type(row).objects.update(expires=timezone.now() - timedelta(days=1))
    assert all(VERIFIER.still_valid([key(alice, public_client)]).values())


def test_still_valid_counts_refresh_tokens_until_they_are_revoked(alice, public_client):
    row, mine = refresh(alice, public_client), key(alice, public_client)
    assert VERIFIER.still_valid([mine]) == {mine: True}
    type(row).objects.update(revoked=timezone.now())
    assert VERIFIER.still_valid([mine]) == {mine: False}


def test_still_valid_is_false_for_blocked_clients_and_inactive_users(
    alice, public_client, server, row
):
    mine = key(alice, public_client)
    profile = profile_of(public_client)
    profile.blocked = timezone.now()
    profile.save()
    assert VERIFIER.still_valid([mine]) == {mine: False}
    profile.delete()
    assert VERIFIER.still_valid([mine]) == {mine: True}
    get_user_model().objects.update(is_active=False)
    assert VERIFIER.still_valid([mine]) == {mine: False}


def test_still_valid_of_a_machine_client_follows_its_token(alice, server):
    robot = machine_client(alice)
    row, _ = issued(None, robot, server)
    mine = key(alice, robot)
    assert VERIFIER.still_valid([mine]) == {mine: True}
    row.delete()
    assert VERIFIER.still_valid([mine]) == {mine: False}


OTHERS = ["1::token-7", "1:2:x", "1:abc:", "abc:1:", ":1:", "1::", "ff" * 32, f"1:{9**30}:"]


@pytest.mark.parametrize("others", OTHERS)
def test_still_valid_ignores_keys_of_other_verifiers(db, others, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert VERIFIER.still_valid([others]) == {}


def test_user_model_without_is_active_is_supported(alice, public_client, row, monkeypatch):
    from django.core.exceptions import FieldDoesNotExist

    def unknown(name: str) -> None:
        raise FieldDoesNotExist

    monkeypatch.setattr(type(alice)._meta, "get_field", unknown)
    assert verifier._active_users().query.where.children == []


# Background work.


def test_applications_returns_the_client_of_each_key(
    alice, bob, public_client, server, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(verifier, "PAIRS_PER_QUERY", 2)
    client, gone = other(), public_client.pk + 99
    keys = [key(alice, public_client), key(bob, client), f"{alice.pk}:{gone}:"]
    with django_assert_num_queries(2):
        found = VERIFIER.applications([*keys, f"{alice.pk}::token-1", "no key"])
    assert found == dict(zip(keys, (public_client, client, None), strict=True))
