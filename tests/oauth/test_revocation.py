"""Revocation when a user or a client changes or is deleted, and what must not revoke."""

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
    make_consent(alice, client)
    return client


def make_consent(user, client):
    return Consent.objects.create(
        user=user, client_id=client.client_id, resource="r", redirect_host="127.0.0.1"
    )


def tokens_are_valid() -> bool:
    return AccessToken.objects.exists() and RefreshToken.objects.filter(revoked=None).exists()


def alice_from_database():
    return get_user_model().objects.get(username="alice")


# Users.


@pytest.mark.usefixtures("agent")
def test_saving_other_fields_of_a_user_revokes_nothing():
    user = alice_from_database()
    user.first_name = "Alice"
    user.save()
    user.save(update_fields=["first_name"])
    user.last_login = timezone.now()
    user.save(update_fields=["last_login"])
    assert tokens_are_valid()


@pytest.mark.usefixtures("agent")
def test_signing_in_revokes_nothing(client):
    client.force_login(alice_from_database())
    assert client.login(username="alice", password="secret") and tokens_are_valid()


@pytest.mark.usefixtures("agent")
def test_rehashing_the_password_revokes_nothing(client):
    get_user_model().objects.update(password=make_password("secret", hasher="default"))
    hashers = ["django.contrib.auth.hashers.PBKDF2PasswordHasher",
               "django.contrib.auth.hashers.MD5PasswordHasher"]  # fmt: skip
    before = alice_from_database().password
    with override_settings(PASSWORD_HASHERS=hashers):
        assert client.login(username="alice", password="secret")
    assert alice_from_database().password != before and tokens_are_valid()


@pytest.mark.usefixtures("agent")
def test_loading_fixtures_revokes_nothing():
    row = serializers.serialize("json", get_user_model().objects.all())
    for one in serializers.deserialize("json", row):
        one.object.password = "another"
        one.save()
    assert alice_from_database().password == "another" and tokens_are_valid()


@pytest.mark.usefixtures("agent")
def test_password_change_by_a_proxy_model_revokes_tokens():
    class Member(get_user_model()):
        class Meta:
            proxy = True
            app_label = "shop"

    member = Member.objects.get(username="alice")
    member.set_password("another")
    member.save()
    assert not tokens_are_valid()


@pytest.mark.usefixtures("agent")
def test_deferred_password_is_read_to_compare():
    user = get_user_model().objects.defer("password").get(username="alice")
    user.first_name = "Alice"
    user.save()
    assert tokens_are_valid()
    user = get_user_model()(pk=user.pk, username="alice", password="another")
    user.save()
    assert not tokens_are_valid()


def test_user_without_clients_costs_no_extra_query(alice, django_assert_num_queries, monkeypatch):
    monkeypatch.setattr(capture, "has_followers", lambda: False)  # no client of another test's
    user = alice_from_database()
    with django_assert_num_queries(1):
        user.save(update_fields=["last_login"])
    with django_assert_num_queries(2):
        user.save()


def test_new_user_revokes_nothing(agent):
    get_user_model().objects.create_user("bob", password="x", is_active=False)
    assert tokens_are_valid()


# Clients.


def test_deleting_a_client_deletes_profile_consents_and_tokens(alice, agent):
    other = registered("dcr")
    make_consent(alice, other)
    for client in (agent, other):
        ClientProfile.objects.create(client_id=client.client_id, source="dcr")
    agent.delete()
    assert ClientProfile.objects.get().client_id == other.client_id
    assert Consent.objects.get().client_id == other.client_id
    assert not AccessToken.objects.exists()


def test_profile_of_a_deleted_client_stays_if_it_was_blocked(agent):
    ClientProfile.objects.create(client_id=agent.client_id, source="cimd", blocked=timezone.now())
    agent.delete()
    assert ClientProfile.objects.get().blocked and not Consent.objects.exists()


# Functions that revoke.


def test_revoke_client_ends_everything_of_one_client(alice, agent):
    other = registered("dcr")
    issued(alice, other)
    code_for(alice, agent)
    assert revoke_client(agent.client_id) == 1 and revoke_client(agent.client_id) == 0
    assert AccessToken.objects.get().application == other
    assert RefreshToken.objects.get(revoked=None).application == other
    assert not get_grant_model().objects.exists() and Consent.objects.get().revoked


def test_revoke_client_of_an_unknown_client_revokes_nothing(agent):
    assert revoke_client("nobody") == 0 and tokens_are_valid()


def test_revoke_user_keeps_tokens_of_other_apis(alice, agent):
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


def test_end_family_of_none_revokes_nothing(agent):
    RefreshToken.objects.update(token_family=None)
    end_family(None)
    assert tokens_are_valid()
