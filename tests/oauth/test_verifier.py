"""Tokens of the authorization server at the endpoint: who comes in, and what that costs."""

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
from django_mcp.oauth import verifier as rows
from django_mcp.oauth.models import ClientProfile
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.runtime import threads
from django_mcp.verifiers.protected_resource import resource
from tests.storage.rows import given

from .tokens import application, issued, refresh

VERIFIER = OAuthTokens()
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch):
    """What is to be written is written when a test says so."""
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


def enters(secret, server) -> bool:
    return VERIFIER.lookup(secret, server) is not None


# Who comes in.


def test_it_is_a_verifier_that_tells_where_tokens_are_had_and_which_were_taken_back():
    assert isinstance(VERIFIER, mcp.TokenVerifier)
    assert isinstance(VERIFIER, ChallengingVerifier) and isinstance(VERIFIER, RevokingVerifier)


async def test_a_token_speaks_for_its_user_by_its_client(alice, public_client, server):
    made = await threads.tools.run(issued, alice, public_client, server)
    principal = await VERIFIER.verify(made[1], server)
    assert principal.user == alice and principal.is_authenticated
    assert principal.auth.scopes == {"mcp"} and principal.auth.application == public_client
    assert principal.auth.expires == made[0].expires
    assert principal.key == f"{alice.pk}:{public_client.pk}:"


def test_a_refreshed_token_is_the_same_principal_and_another_clients_is_not(
    alice, public_client, server
):
    secrets = [issued(alice, public_client, server)[1] for _ in range(2)]
    other = issued(alice, application("Other"), server)[1]
    keys = [VERIFIER.lookup(secret, server).key for secret in (*secrets, other)]
    assert keys[0] == keys[1] != keys[2]


def test_all_is_known_by_one_query(alice, public_client, server, django_assert_num_queries):
    _, secret = issued(alice, public_client, server)
    with django_assert_num_queries(1):
        principal = VERIFIER.lookup(secret, server)
        assert principal.user.username == "alice" and principal.user.is_active
        assert principal.auth.application.name == "Agent" and principal.key


def test_what_comes_is_what_the_orm_would_give(alice, bob, server, django_assert_num_queries):
    """On every database, with the types of its columns."""
    client = application("Robot", user=bob, cimd_expires_at=timezone.now())
    made, secret = issued(alice, client, server)
    found, named = rows.find(secret), [resource(server)]
    assert found == rows.FoundToken(
        made.pk, "mcp", made.expires, named, alice, client, bob, False, rows.NEVER
    )
    for one in (found.user, found.application, found.owner):
        stored = type(one)._base_manager.get(pk=one.pk)
        assert values(one) == values(stored) and not one._state.adding
        assert one._state.db == stored._state.db
    with django_assert_num_queries(0):
        assert found.application.user == bob


def values(instance):
    """With their types: a boolean is no number."""
    fields = instance._meta.concrete_fields
    return {field.attname: repr(getattr(instance, field.attname)) for field in fields}


def test_the_statement_is_compiled_once(alice, public_client, server, monkeypatch):
    secrets = [issued(alice, public_client, server)[1] for _ in range(2)]
    assert enters(secrets[0], server)
    monkeypatch.setattr(rows, "_compile", None)
    assert enters(secrets[1], server) and not enters(secrets[0][1:], server)


def test_whom_a_manager_hides_may_depend_on_the_moment(alice, public_client, server, monkeypatch):
    _, secret = issued(alice, public_client, server)
    hidden = hide(monkeypatch, "nobody")
    for name, comes_in in (("nobody", True), ("alice", False), ("nobody", True)):
        hidden[:] = [name]
        assert enters(secret, server) == comes_in


@pytest.mark.parametrize(
    "named",
    ["{}", "{}/", "HTTPS://SHOP.EXAMPLE:443/mcp/a%20test's%20own", "{}///"],
)
def test_every_spelling_of_a_server_is_the_server(alice, public_client, named):
    server = mcp.Server("spelled", path="mcp/a test's own")
    _, secret = issued(alice, public_client, resource=[named.format(resource(server))])
    assert enters(secret, server)


def test_a_token_may_be_for_several_servers(alice, public_client, server):
    _, secret = issued(alice, public_client, server, mcp.server)
    assert enters(secret, server) and enters(secret, mcp.server)


# Who does not.


GARBAGE = ["", "é", "a b", 'a"', "a\n", "a\0", "=", "a=b", "\ud800", "'--", "{}", "\u0663" * 30]


@pytest.mark.parametrize("token", GARBAGE, ids=repr)
def test_what_cannot_be_a_token_costs_no_query(token, server):
    """The database fixture is absent: a query would be an error."""
    assert VERIFIER.lookup(token, server) is None


@let(st.text(max_size=60).filter(lambda text: not verifier.TOKEN.fullmatch(text)))
def test_no_text_is_more_than_nobody(token):
    assert VERIFIER.lookup(token, mcp.server) is None


def test_a_guess_is_compared_by_its_digest_alone(alice, public_client, server):
    _, secret = issued(alice, public_client, server)
    with CaptureQueriesContext(connection) as queries:
        assert not enters(secret[:-1], server) and not enters(secret.swapcase(), server)
    assert all(secret[:12] not in query["sql"] for query in queries)


def test_a_token_expires_at_its_moment_and_not_after(alice, public_client, server, monkeypatch):
    ends = timezone.now()
    _, secret = issued(alice, public_client, server, expires=ends)
    for moment, valid in ((ends - SECOND / 1e6, True), (ends, False), (ends + SECOND, False)):
        monkeypatch.setattr(timezone, "now", lambda moment=moment: moment)
        assert enters(secret, server) == valid


def test_a_client_that_is_blocked(alice, public_client, server):
    _, secret = issued(alice, public_client, server)
    profile = profile_of(public_client)
    assert enters(secret, server)
    profile.blocked = timezone.now()
    profile.save()
    assert not enters(secret, server)


def test_a_token_of_no_client(alice, server):
    assert not enters(issued(alice, None, server)[1], server)


def test_a_user_who_is_no_longer_active_or_no_longer_there(alice, public_client, server):
    _, secret = issued(alice, public_client, server)
    get_user_model().objects.update(is_active=False)
    assert not enters(secret, server)
    get_user_model().objects.update(is_active=True)
    assert enters(secret, server)
    alice.delete()
    assert not enters(secret, server)


def test_whom_the_projects_manager_hides_does_not_come_in(
    alice, bob, public_client, server, monkeypatch, django_assert_num_queries
):
    secrets = [issued(user, public_client, server)[1] for user in (alice, bob)]
    own = issued(None, on_its_own(alice), server)[1]
    keys = [VERIFIER.lookup(secret, server).key for secret in secrets]
    hide(monkeypatch, "alice")
    with django_assert_num_queries(3):
        assert [enters(secret, server) for secret in (*secrets, own)] == [False, True, False]
    assert VERIFIER.still_valid(keys) == {keys[0]: False, keys[1]: True}


def hide(monkeypatch, *names):
    """The project's manager of users hides those in the list, whoever that is by then."""
    hidden = list(names)

    class Visible(UserManager[Any]):
        def get_queryset(self) -> Any:
            return super().get_queryset().exclude(username__in=hidden)

    model, manager = get_user_model(), Visible()
    manager.model = model
    monkeypatch.setattr(model._meta, "default_manager", manager, raising=False)
    return hidden


# Clients on their own.


def on_its_own(user, **fields):
    return application(
        "Robot", user=user, client_type="confidential",
        authorization_grant_type="client-credentials", **fields,
    )  # fmt: skip


def test_a_client_on_its_own_acts_as_the_user_to_whom_it_belongs(alice, server):
    robot = on_its_own(alice)
    principal = VERIFIER.lookup(issued(None, robot, server)[1], server)
    assert principal.user == alice and principal.key == f"{alice.pk}:{robot.pk}:"


def test_and_as_nobody_if_it_belongs_to_nobody(alice, server):
    assert not enters(issued(None, on_its_own(None), server)[1], server)


@pytest.mark.parametrize(
    "fields",
    [
        {"authorization_grant_type": "authorization-code"}, {"registration_source": "dcr"},
        {"registration_source": "cimd"},
    ],
)  # fmt: skip
def test_who_registered_a_client_for_others_is_not_its_user(alice, server, fields):
    client = on_its_own(alice)
    for name, value in fields.items():
        setattr(client, name, value)
    client.save()
    assert not enters(issued(None, client, server)[1], server)


# What is told, and kept.


def test_nobody_is_told_why_but_the_log(alice, public_client, server, caplog):
    caplog.set_level(logging.DEBUG, "django_mcp")
    wrong = {
        "expired": {"expires": timezone.now()},
        f"not for {server.name!r}": {"resource": []},
        "it has none of our scopes": {"scope": "photos"},
        "it is for a registration": {"scope": "mcp oauth2_provider:registration"},
    }
    made = [issued(alice, public_client, server, **fields) for fields in wrong.values()]
    assert not any(enters(secret, server) for _, secret in made)
    told = [record.getMessage() for record in caplog.records if record.name == "django_mcp"]
    assert told == [
        f"OAuth access token {row.pk} was refused: {why}"
        for (row, _), why in zip(made, wrong, strict=True)
    ]
    assert all(secret not in caplog.text for _, secret in made)


def test_the_challenge_tells_where_tokens_are_had_and_the_least_scope(server):
    assert VERIFIER.challenge(server) == {
        "resource_metadata": "https://shop.example/.well-known/oauth-protected-resource"
        "/mcp/a%20test's%20own",
        "scope": "mcp",
    }
    with given(SCOPES={"read": "Look", "write": "Change"}):
        assert VERIFIER.challenge(server)["scope"] == "read"


def test_that_a_client_was_used_is_noted_once_a_minute(
    alice, public_client, server, nothing_noted, django_assert_num_queries
):
    day = timezone.now() - timedelta(days=1)
    profile = profile_of(public_client, created=day)
    _, secret = issued(alice, public_client, server)
    enters(secret, server)
    with django_assert_num_queries(1):
        verifier.client_uses.write()
    profile.refresh_from_db()
    assert timezone.now() - profile.last_used < timedelta(minutes=1)
    for _ in range(3):
        enters(secret, server)
    assert len(nothing_noted) == 1
    ClientProfile.objects.update(last_used=timezone.now() - timedelta(seconds=61))
    enters(secret, server)
    assert len(nothing_noted) == 2


def test_of_a_client_of_whom_nothing_is_kept_nothing_is_noted(
    alice, public_client, server, nothing_noted
):
    _, secret = issued(alice, public_client, server)
    profile_of(public_client).delete()
    assert enters(secret, server) and not nothing_noted


def test_a_client_that_is_refused_was_not_used(alice, public_client, server, nothing_noted):
    day = timezone.now() - timedelta(days=1)
    profile_of(public_client, created=day)
    assert not enters(issued(alice, public_client)[1], server) and not nothing_noted


def test_the_first_use_is_noted_however_new_the_client_is(
    alice, public_client, server, nothing_noted
):
    assert enters(issued(alice, public_client, server)[1], server)
    assert nothing_noted == [verifier.client_uses.write]
    verifier.client_uses.write()
    assert profile_of(public_client).last_used


# What was taken back.


def key(user, client, name="") -> str:
    return Principal(user, Auth(application=client, key=name)).key


def test_what_holds_and_what_does_not(alice, bob, public_client, server):
    issued(alice, public_client, server)
    keys = [key(user, client) for user in (alice, bob) for client in (public_client, other())]
    assert VERIFIER.still_valid(keys) == {keys[0]: True} | dict.fromkeys(keys[1:], False)


def other():
    return application("Other")


def test_a_pair_is_not_made_of_halves_of_two(alice, bob, public_client, server):
    client = other()
    issued(alice, public_client, server)
    issued(bob, client, server)
    assert VERIFIER.still_valid([key(alice, client)]) == {key(alice, client): False}


def test_it_takes_one_query_however_many_there_are(
    alice, bob, public_client, server, django_assert_num_queries
):
    issued(alice, public_client, server)
    refresh(bob, other())
    keys = [key(user, public_client) for user in (alice, bob)]
    with django_assert_num_queries(1):
        assert VERIFIER.still_valid(keys) == {keys[0]: True, keys[1]: False}
    with django_assert_num_queries(0):
        VERIFIER.still_valid([])


def test_many_are_asked_for_in_statements_that_every_database_takes(
    alice, public_client, server, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(verifier, "PAIRS_PER_QUERY", 2)
    issued(alice, public_client, server)
    keys = [f"{alice.pk}:{public_client.pk + n}:" for n in range(5)]
    with django_assert_num_queries(3):
        told = VERIFIER.still_valid(keys)
    assert list(told.values()) == [True, False, False, False, False]


def test_an_expiry_takes_nothing_back(alice, public_client, server, row):
    type(row).objects.update(expires=timezone.now() - timedelta(days=1))
    assert all(VERIFIER.still_valid([key(alice, public_client)]).values())


def test_a_refresh_token_holds_until_it_is_revoked(alice, public_client):
    row, mine = refresh(alice, public_client), key(alice, public_client)
    assert VERIFIER.still_valid([mine]) == {mine: True}
    type(row).objects.update(revoked=timezone.now())
    assert VERIFIER.still_valid([mine]) == {mine: False}


def test_a_user_or_a_client_that_may_not_come_any_more(alice, public_client, server, row):
    mine = key(alice, public_client)
    profile = profile_of(public_client)
    profile.blocked = timezone.now()
    profile.save()
    assert VERIFIER.still_valid([mine]) == {mine: False}
    profile.delete()
    assert VERIFIER.still_valid([mine]) == {mine: True}
    get_user_model().objects.update(is_active=False)
    assert VERIFIER.still_valid([mine]) == {mine: False}


def test_a_client_on_its_own_holds_as_long_as_its_token(alice, server):
    robot = on_its_own(alice)
    row, _ = issued(None, robot, server)
    mine = key(alice, robot)
    assert VERIFIER.still_valid([mine]) == {mine: True}
    row.delete()
    assert VERIFIER.still_valid([mine]) == {mine: False}


OTHERS = ["1::token-7", "1:2:x", "1:abc:", "abc:1:", ":1:", "1::", "ff" * 32, f"1:{9**30}:"]


@pytest.mark.parametrize("others", OTHERS)
def test_what_other_verifiers_named_is_theirs_to_tell(db, others, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert VERIFIER.still_valid([others]) == {}


def test_users_whose_model_does_not_know_who_is_active(alice, public_client, row, monkeypatch):
    from django.core.exceptions import FieldDoesNotExist

    def unknown(name: str) -> None:
        raise FieldDoesNotExist

    monkeypatch.setattr(type(alice)._meta, "get_field", unknown)
    assert verifier._active_users().query.where.children == []


# What goes on without its request.


def test_a_key_leads_back_to_its_client(
    alice, bob, public_client, server, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(verifier, "PAIRS_PER_QUERY", 2)
    client, gone = other(), public_client.pk + 99
    keys = [key(alice, public_client), key(bob, client), f"{alice.pk}:{gone}:"]
    with django_assert_num_queries(2):
        found = VERIFIER.applications([*keys, f"{alice.pk}::token-1", "no key"])
    assert found == dict(zip(keys, (public_client, client, None), strict=True))
