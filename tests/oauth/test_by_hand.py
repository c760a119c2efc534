"""Clients that the project registered itself: on the list, named, blocked as any other."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from oauth2_provider.models import get_application_model

from django_mcp.declare.servers import default_server
from django_mcp.oauth.models import ClientProfile
from django_mcp.oauth.verifier import OAuthTokens

from .flows import asked, issued, registered
from .test_admin import CLIENTS, act, staff

pytestmark = pytest.mark.django_db
SECRET = "the machine's own"


@pytest.fixture(autouse=True)
def _pages(in_public, settings):
    settings.ROOT_URLCONF = "tests.oauth.admin_urls"


def listed() -> list[tuple[str, str, str]]:
    return list(ClientProfile.objects.values_list("client_id", "source", "name"))


def unlisted(**fields):
    """One that was there before anybody listened."""
    made = registered("manual", **fields)
    ClientProfile.objects.all().delete()
    return made


def test_it_is_listed_as_it_is_called_now():
    made = registered("manual", name="Reports")
    assert listed() == [(made.client_id, "manual", "Reports")]
    made.name = "Reports \u202e2"
    made.save()
    assert listed() == [(made.client_id, "manual", "Reports 2")]
    made.delete()
    assert listed() == []


@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_who_came_by_itself_is_listed_by_who_let_it_in(source):
    get_application_model().objects.create(client_id="x", registration_source=source)
    assert listed() == []


def test_a_fixture_says_all_itself():
    now = timezone.now()
    made = get_application_model()(client_id="x", registration_source="manual")
    made.created = made.updated = now
    made.save_base(raw=True)
    assert listed() == []


def test_one_that_was_there_before_is_listed_when_it_is_authorized(alice):
    made = unlisted(name="Reports")
    issued(alice, made)
    known = ClientProfile.objects.get()
    assert (known.client_id, known.source, known.name) == (made.client_id, "manual", "Reports")
    assert known.last_authorized is not None


def test_and_a_machine_when_it_has_a_token(alice, client):
    made = unlisted(
        client_type="confidential", authorization_grant_type="client-credentials", user=alice,
        client_secret=SECRET, hash_client_secret=False,
    )  # fmt: skip
    form = {"grant_type": "client_credentials", "client_id": made.client_id}
    for _ in range(2):
        answer = client.post("/oauth/token", form | {"client_secret": SECRET})
        assert answer.status_code == 200, answer.content
    assert [found[0] for found in listed()] == [made.client_id]


def test_it_is_blocked_and_let_in_as_any_other(alice):
    made = registered("manual")
    tokens = issued(alice, made)
    known, web = ClientProfile.objects.get(), staff("view_clientprofile", "change_clientprofile")
    act(web, CLIENTS, "block", known)
    assert OAuthTokens().lookup(tokens["access_token"], default_server) is None
    assert asked(User.objects.create_user("bob"), made).status_code == 400
    act(web, CLIENTS, "let_in", known)
    assert issued(alice, made)["access_token"]
