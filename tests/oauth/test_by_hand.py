"""Clients that the project registered itself: on the list, named, blocked as any other."""

from __future__ import annotations

from html import unescape

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from django.utils.html import strip_tags
from oauth2_provider.models import get_application_model

from django_mcp.declarations.server import default_server
from django_mcp.oauth.connected_apps import connections
from django_mcp.oauth.models import ClientProfile
from django_mcp.oauth.verifier import OAuthTokens

from .consent import SITE
from .flows import asked, browser, code_for, issued, registered
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


# Whom the site vouches for.


@pytest.fixture
def made_by(django_user_model):
    """Makes a client with a site, owned by a user with these flags and permissions."""

    def make(*permissions: str, **flags: bool):
        owner = django_user_model.objects.create_user("mallory", **flags)
        owner.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        return registered("manual", user=owner, name="Your bank", redirect_uris=SITE)

    return make


def shown(alice, client) -> str:
    return " ".join(unescape(strip_tags(asked(alice, client, redirect_uri=SITE).text)).split())


def test_client_that_a_user_registered_at_the_toolkits_page_is_unverified(alice, settings):
    settings.ROOT_URLCONF = "tests.oauth.urls_with_toolkit"
    bob = User.objects.create_user("bob")
    said = {
        "name": "Your bank", "client_id": "bobs", "client_secret": "x", "client_type": "public",
        "authorization_grant_type": "authorization-code", "redirect_uris": SITE, "algorithm": "",
    }  # fmt: skip
    assert browser(bob).post("/o/applications/register/", said).status_code == 302
    made = get_application_model().objects.get(client_id="bobs")
    assert made.registration_source == "manual" and made.user == bob
    told = shown(alice, made)
    assert "Your bank unverified" in told and "Connect an application to your account?" in told
    assert "the staff of this site" not in told


@pytest.mark.parametrize(
    ("permissions", "flags", "vouched"),
    [
        ((), {"is_staff": True, "is_superuser": True}, True),
        (("add_application",), {"is_staff": True}, True),
        (("change_application",), {"is_staff": True}, False),
        ((), {"is_staff": True}, False),
        (("add_application",), {}, False),
        (("add_application",), {"is_staff": True, "is_active": False}, False),
    ],
)
def test_site_vouches_for_clients_of_staff_with_the_permission(
    alice, made_by, permissions, flags, vouched
):
    """T12: any user may register a client on django-oauth-toolkit's pages, by any name."""
    told = shown(alice, made_by(*permissions, **flags))
    assert ("unverified" in told) is not vouched
    assert ("Connect Your bank to your account?" in told) is vouched


def test_site_vouches_for_clients_without_an_owner(alice):
    assert "Connect Agent to your account?" in shown(
        alice, registered("manual", redirect_uris=SITE)
    )


def test_client_of_a_user_asks_though_it_may_skip_the_page(alice, made_by):
    client = made_by()
    type(client).objects.update(skip_authorization=True)
    assert asked(alice, client, redirect_uri=SITE).status_code == 200
    code_for(alice, client, redirect_uri=SITE)
    assert [one.skips_consent for one in connections(alice)] == [False]


def test_error_does_not_redirect_to_the_site_of_a_users_client(alice, made_by):
    response = asked(alice, made_by(), redirect_uri=SITE, scope="unheard")
    assert response.status_code == 400 and "Location" not in response


def test_admin_shows_whose_client_it_is(made_by):
    registered("manual", name="Ours")
    made_by()
    page = staff("view_clientprofile").get(CLIENTS).text
    assert "mallory" in page and "this site" in page
