"""What ends when a user or a client goes, and what does not."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.core import serializers
from django.test import override_settings
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model

from django_mcp.changes import capture
from django_mcp.oauth.models import ClientProfile, Consent
from django_mcp.oauth.revocation import end_family, revoke_client, revoke_user

from .flows import code_for, issued, registered

AccessToken, RefreshToken = get_access_token_model(), get_refresh_token_model()


@pytest.fixture(autouse=True)
def _endpoints(in_public):
    with override_settings(ROOT_URLCONF="tests.oauth.tokens_urls"):
        yield


@pytest.fixture
def agent(alice):
    client = registered("dcr")
    issued(alice, client)
    consented(alice, client)
    return client


def consented(user, client):
    return Consent.objects.create(
        user=user, client_id=client.client_id, resource="r", redirect_host="127.0.0.1"
    )


def stands() -> bool:
    return AccessToken.objects.exists() and RefreshToken.objects.filter(revoked=None).exists()


def fresh():
    return get_user_model().objects.get(username="alice")


# Users.


@pytest.mark.usefixtures("agent")
def test_what_is_written_otherwise_ends_nothing():
    user = fresh()
    user.first_name = "Alice"
    user.save()
    user.save(update_fields=["first_name"])
    user.last_login = timezone.now()
    user.save(update_fields=["last_login"])
    assert stands()


@pytest.mark.usefixtures("agent")
def test_signing_in_ends_nothing(client):
    client.force_login(fresh())
    assert client.login(username="alice", password="secret") and stands()


@pytest.mark.usefixtures("agent")
def test_the_same_password_in_another_hash_ends_nothing(client):
    get_user_model().objects.update(password=make_password("secret", hasher="default"))
    hashers = ["django.contrib.auth.hashers.PBKDF2PasswordHasher",
               "django.contrib.auth.hashers.MD5PasswordHasher"]  # fmt: skip
    before = fresh().password
    with override_settings(PASSWORD_HASHERS=hashers):
        assert client.login(username="alice", password="secret")
    assert fresh().password != before and stands()


@pytest.mark.usefixtures("agent")
def test_fixtures_end_nothing():
    row = serializers.serialize("json", get_user_model().objects.all())
    for one in serializers.deserialize("json", row):
        one.object.password = "another"
        one.save()
    assert fresh().password == "another" and stands()


@pytest.mark.usefixtures("agent")
def test_a_user_that_is_saved_by_a_proxy_is_seen():
    class Member(get_user_model()):
        class Meta:
            proxy = True
            app_label = "shop"

    member = Member.objects.get(username="alice")
    member.set_password("another")
    member.save()
    assert not stands()


@pytest.mark.usefixtures("agent")
def test_of_a_user_whose_password_is_not_loaded_it_is_asked():
    user = get_user_model().objects.defer("password").get(username="alice")
    user.first_name = "Alice"
    user.save()
    assert stands()
    user = get_user_model()(pk=user.pk, username="alice", password="another")
    user.save()
    assert not stands()


def test_comparing_costs_no_query_where_nothing_is_to_compare(
    alice, django_assert_num_queries, monkeypatch
):
    monkeypatch.setattr(capture, "has_clients", lambda: False)  # no client of another test's
    user = fresh()
    with django_assert_num_queries(1):
        user.save(update_fields=["last_login"])
    with django_assert_num_queries(2):
        user.save()


def test_a_new_user_ends_nothing(agent):
    get_user_model().objects.create_user("bob", password="x", is_active=False)
    assert stands()


# Clients.


def test_a_client_that_is_deleted_takes_along_what_is_known_of_it(alice, agent):
    other = registered("dcr")
    consented(alice, other)
    for client in (agent, other):
        ClientProfile.objects.create(client_id=client.client_id, source="dcr")
    agent.delete()
    assert ClientProfile.objects.get().client_id == other.client_id
    assert Consent.objects.get().client_id == other.client_id
    assert not AccessToken.objects.exists()


def test_that_a_client_was_blocked_outlives_it(agent):
    ClientProfile.objects.create(client_id=agent.client_id, source="cimd", blocked=timezone.now())
    agent.delete()
    assert ClientProfile.objects.get().blocked and not Consent.objects.exists()


# Ending things.


def test_a_client_loses_everything_and_others_nothing(alice, agent):
    other = registered("dcr")
    issued(alice, other)
    code_for(alice, agent)
    assert revoke_client(agent.client_id) == 1 and revoke_client(agent.client_id) == 0
    assert AccessToken.objects.get().application == other
    assert RefreshToken.objects.get(revoked=None).application == other
    assert not get_grant_model().objects.exists() and Consent.objects.get().revoked


def test_of_an_unknown_client_nothing_is_ended(agent):
    assert revoke_client("nobody") == 0 and stands()


def test_a_user_loses_what_is_for_mcp_servers_and_keeps_the_rest(alice, agent):
    manual, other = registered("manual"), registered("manual")
    issued(alice, manual)
    kept = issued(alice, other, scope="read", resource=None)
    bob = get_user_model().objects.create_user("bob")
    issued(bob, agent)
    assert revoke_user(alice) == 2
    assert {row.application for row in AccessToken.objects.filter(user=alice)} == {other}
    assert RefreshToken.objects.get(user=alice, revoked=None).application == other
    assert AccessToken.objects.filter(user=bob).exists() and kept
    assert Consent.objects.get().revoked


def test_a_token_without_a_family_ends_no_other(agent):
    RefreshToken.objects.update(token_family=None)
    end_family(None)
    assert stands()
