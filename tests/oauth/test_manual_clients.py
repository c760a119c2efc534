"""Clients that staff or users registered manually: listing, labelling and blocking."""

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
from .test_admin import CLIENTS, run_action, staff

pytestmark = pytest.mark.django_db
SECRET = "the machine's own"


@pytest.fixture(autouse=True)
def _pages(in_public, settings):
    settings.ROOT_URLCONF = "tests.oauth.admin_urls"


def profiles() -> list[tuple[str, str, str]]:
    return list(ClientProfile.objects.values_list("client_id", "source", "name"))


def client_without_profile(**fields):
    """Return a client whose profile was never created."""
    made = registered("manual", **fields)
    ClientProfile.objects.all().delete()
    return made


def test_manual_client_has_a_profile_that_follows_its_name():
    made = registered("manual", name="Reports")
    assert profiles() == [(made.client_id, "manual", "Reports")]
    made.name = "Reports \u202e2"
    made.save()
    assert profiles() == [(made.client_id, "manual", "Reports 2")]
    made.delete()
    assert profiles() == []


@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_saving_a_self_registered_client_creates_no_profile(source):
    get_application_model().objects.create(client_id="x", registration_source=source)
    assert profiles() == []


def test_loading_a_fixture_creates_no_profile():
    now = timezone.now()
    made = get_application_model()(client_id="x", registration_source="manual")
    made.created = made.updated = now
    made.save_base(raw=True)
    assert profiles() == []


def test_older_manual_client_gets_a_profile_when_it_is_authorized(alice):
    made = client_without_profile(name="Reports")
    issued(alice, made)
    known = ClientProfile.objects.get()
    assert (known.client_id, known.source, known.name) == (made.client_id, "manual", "Reports")
    assert known.last_authorized is not None


def test_older_machine_client_gets_a_profile_when_it_gets_a_token(alice, client):
    made = client_without_profile(
        client_type="confidential", authorization_grant_type="client-credentials", user=alice,
        client_secret=SECRET, hash_client_secret=False,
    )  # fmt: skip
    form = {"grant_type": "client_credentials", "client_id": made.client_id}
    for _ in range(2):
        answer = client.post("/oauth/token", form | {"client_secret": SECRET})
        assert answer.status_code == 200, answer.content
    assert [found[0] for found in profiles()] == [made.client_id]


def test_manual_client_can_be_blocked_and_unblocked(alice):
    made = registered("manual")
    tokens = issued(alice, made)
    known, web = ClientProfile.objects.get(), staff("view_clientprofile", "change_clientprofile")
    run_action(web, CLIENTS, "block", known)
    assert OAuthTokens().lookup(tokens["access_token"], default_server) is None
    assert asked(User.objects.create_user("bob"), made).status_code == 400
    run_action(web, CLIENTS, "unblock", known)
    assert issued(alice, made)["access_token"]


# Which clients the consent page shows as registered by the site.


@pytest.fixture
def made_by(django_user_model):
    """Return a function that makes a client owned by a user with these flags and permissions."""

    def make(*permissions: str, **flags: bool):
        owner = django_user_model.objects.create_user("mallory", **flags)
        owner.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        return registered("manual", user=owner, name="Your bank", redirect_uris=SITE)

    return make


def consent_text(alice, client) -> str:
    return " ".join(unescape(strip_tags(asked(alice, client, redirect_uri=SITE).text)).split())


def test_client_registered_by_an_ordinary_user_is_unverified(alice, settings):
    settings.ROOT_URLCONF = "tests.oauth.urls_with_toolkit"
    bob = User.objects.create_user("bob")
    said = {
        "name": "Your bank", "client_id": "bobs", "client_secret": "x", "client_type": "public",
        "authorization_grant_type": "authorization-code", "redirect_uris": SITE, "algorithm": "",
    }  # fmt: skip
    assert browser(bob).post("/o/applications/register/", said).status_code == 302
    made = get_application_model().objects.get(client_id="bobs")
    assert made.registration_source == "manual" and made.user == bob
    told = consent_text(alice, made)
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
def test_client_of_staff_with_the_add_permission_is_verified(
    alice, made_by, permissions, flags, vouched
):
    """T12: any user may register a client on django-oauth-toolkit's pages, by any name."""
    told = consent_text(alice, made_by(*permissions, **flags))
    assert ("unverified" in told) is not vouched
    assert ("Connect Your bank to your account?" in told) is vouched


def test_client_without_an_owner_is_verified(alice):
    assert "Connect Agent to your account?" in consent_text(
        alice, registered("manual", redirect_uris=SITE)
    )


def test_client_of_a_user_cannot_skip_the_consent_page(alice, made_by):
    client = made_by()
    type(client).objects.update(skip_authorization=True)
    assert asked(alice, client, redirect_uri=SITE).status_code == 200
    code_for(alice, client, redirect_uri=SITE)
    assert [one.skips_consent for one in connections(alice)] == [False]


def test_error_does_not_redirect_to_the_client_of_a_user(alice, made_by):
    response = asked(alice, made_by(), redirect_uri=SITE, scope="unheard")
    assert response.status_code == 400 and "Location" not in response


def test_admin_shows_the_owner_of_a_client(made_by):
    registered("manual", name="Ours")
    made_by()
    page = staff("view_clientprofile").get(CLIENTS).text
    assert "mallory" in page and "this site" in page
