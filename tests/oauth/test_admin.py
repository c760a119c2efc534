"""The admin pages of OAuth clients, consents and activity: what they show and who may change it."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import override_settings
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from django_mcp.declarations.server import default_server
from django_mcp.oauth.models import Activity, ClientProfile, Consent
from django_mcp.oauth.verifier import OAuthTokens

from .flows import asked, browser, code_for, error, issued, redeem, refresh, registered

CLIENTS, CONSENTS = "/admin/django_mcp_oauth/clientprofile/", "/admin/django_mcp_oauth/consent/"
ACTIVITIES = "/admin/django_mcp_oauth/activity/"
APPLICATIONS = "/admin/oauth2_provider/application/"
ALL = {
    f"{what}_{model}"
    for what in ("view", "change", "delete", "add")
    for model in ("clientprofile", "consent")
}
CIMD = "https://bücher.example/client.json"


@pytest.fixture(autouse=True)
def _pages(in_public):
    cache.clear()
    with override_settings(ROOT_URLCONF="tests.oauth.admin_urls"):
        yield


def staff(*codenames, **fields):
    """Sign in a new staff user who has these permissions."""
    name = f"sam {User.objects.count()}"
    user = User.objects.create_user(name, password="x", is_staff=True, **fields)
    apps = ("django_mcp_oauth", "oauth2_provider", "auth")
    wanted = Permission.objects.filter(content_type__app_label__in=apps, codename__in=codenames)
    assert wanted.count() == len(codenames)
    user.user_permissions.set(wanted)
    return browser(user)


def client(source="dcr", name="Agent", **fields):
    """Return a self-registered client with its profile."""
    made = registered(source, name=name, **fields)
    kept = {"source": source, "name": name, "address": "a" * 64, "digest": "d" * 64}
    ClientProfile.objects.update_or_create(client_id=made.client_id, defaults=kept)
    return made


def profile(made):
    return ClientProfile.objects.get(client_id=made.client_id)


def run_action(web, page, action, *rows):
    chosen = [row.pk for row in rows]
    return web.post(page, {"action": action, "_selected_action": chosen}, follow=True)


def is_accepted(tokens):
    return OAuthTokens().lookup(tokens["access_token"], default_server) is not None


@pytest.fixture
def agent(db):
    return client()


# Change lists and detail pages.


def test_client_list_shows_how_each_client_registered(db):
    client(name="Claude <b>Code</b>\u202eevil")
    client("cimd", client_id=CIMD, name="Books")
    html = staff("view_clientprofile").get(CLIENTS).text
    assert "Claude &lt;b&gt;Code&lt;/b&gt;evil" in html and "\u202e" not in html
    assert "unverified" in html and "registered itself" in html
    assert "xn--bcher-kva.example" in html and "by its metadata document" in html


def test_number_of_queries_does_not_grow_with_clients(django_assert_max_num_queries, db):
    web = staff("view_clientprofile", "change_clientprofile")
    for number in range(50):
        client(name=f"Agent {number}")
    with django_assert_max_num_queries(7):
        html = web.get(CLIENTS).text
    assert all(f">Agent {number}<" in html for number in range(50))
    assert html.count(f'<a href="{APPLICATIONS}') == 50


def test_number_of_queries_does_not_grow_with_consents(django_assert_max_num_queries, db):
    web = staff("view_consent", "change_consent")
    for number in range(50):
        user, made = User.objects.create_user(f"user {number}"), client(name=f"Agent {number}")
        Consent.objects.create(user=user, client_id=made.client_id, resource="https://shop.example")
    with django_assert_max_num_queries(7):
        html = web.get(CONSENTS).text
    assert all(f"user {number}<" in html and f">Agent {number}<" in html for number in range(50))


def test_clients_can_be_searched_and_filtered(db):
    first, second = client(name="Claude"), client("cimd", client_id=CIMD, name="Books")
    ClientProfile.objects.filter(client_id=first.client_id).update(blocked=timezone.now())
    web = staff("view_clientprofile")
    for query, found in (
        ({"q": "clau"}, first), ({"q": first.client_id}, first), ({"q": "client.json"}, second),
        ({"source": "cimd"}, second), ({"blocked__isempty": "0"}, first),
        ({"blocked__isempty": "1"}, second),
    ):  # fmt: skip
        rows = web.get(CLIENTS, query).context["cl"].result_list
        assert [row.client_id for row in rows] == [found.client_id], query
    assert len(web.get(CLIENTS, {"last_authorized__isempty": "1"}).context["cl"].result_list) == 2


def test_consent_pages_show_user_client_server_scope_and_redirect(alice, agent):
    issued(alice, agent)
    web = staff("view_consent")
    page = web.get(f"{CONSENTS}{Consent.objects.get().pk}/change/").text
    for html in (web.get(CONSENTS).text, page):
        for told in ("alice", "Agent", "https://shop.example/mcp", "mcp", "127.0.0.1:7777"):
            assert told in html, told
    for query in ({"q": "alice"}, {"q": agent.client_id}, {"client_id": agent.client_id}):
        assert web.get(CONSENTS, query).context["cl"].result_count == 1
    for query in ({"q": "bob"}, {"client_id": "x"}, {"revoked__isempty": "0"}):
        assert web.get(CONSENTS, query).context["cl"].result_count == 0


def test_client_page_shows_id_redirect_uris_and_link_to_consents(alice, agent):
    page = staff("view_clientprofile").get(f"{CLIENTS}{profile(agent).pk}/change/").text
    assert agent.client_id in page and "http://127.0.0.1:7777/callback" in page
    assert f"{CONSENTS}?client_id={agent.client_id}" in page


def test_client_whose_application_was_deleted_stays_listed(db):
    made = client("cimd", client_id=CIMD, name="Books")
    ClientProfile.objects.update(blocked=timezone.now())
    made.delete()
    web = staff("view_clientprofile")
    assert "Books" in web.get(CLIENTS).text
    assert web.get(f"{CLIENTS}{ClientProfile.objects.get().pk}/change/").status_code == 200


def test_pages_logs_and_history_contain_no_secrets(alice, agent, caplog):
    tokens, code = issued(alice, agent), code_for(alice, agent)
    caplog.set_level(logging.DEBUG)
    root = browser(User.objects.create_superuser("root"))
    pages = [CLIENTS, CONSENTS, f"{CLIENTS}{profile(agent).pk}/change/"]
    pages.append(f"{CONSENTS}{Consent.objects.first().pk}/change/")
    told = "".join(root.get(page).text for page in pages)
    told += run_action(root, CLIENTS, "revoke", profile(agent)).text + caplog.text
    told += "".join(map(str, LogEntry.objects.values_list("object_repr", "change_message")))
    stored = get_refresh_token_model().objects.values_list("token_checksum", flat=True)
    secrets = [tokens["access_token"], tokens["refresh_token"], code, agent.client_secret, *stored]
    for secret in [*secrets, "a" * 20, "d" * 20]:
        assert secret[:12] not in told


@pytest.mark.parametrize("column", ["address", "digest"])
@pytest.mark.parametrize("how", ["", "__startswith", "__gt", "__regex"])
def test_hidden_columns_cannot_be_used_as_filters(agent, column, how):
    """Attack: guess a value by whether the filtered list is empty."""
    web = staff("view_clientprofile", "view_consent")
    for page in (CLIENTS, CONSENTS):
        for guess in ("a" * 64, "d" * 64, "", "[ad]"):
            answer = web.get(page, {f"{column}{how}": guess})
            assert answer.status_code != 200 or not answer.context["cl"].result_count
    for lookup in ("user__password__startswith", "user__email"):
        assert web.get(CONSENTS, {lookup: ""}).status_code != 200


# Permissions.


def test_clients_and_consents_cannot_be_added_edited_or_deleted(alice, agent):
    issued(alice, agent)
    row, given = profile(agent), Consent.objects.get()
    for web in (staff(*ALL), browser(User.objects.create_superuser("root"))):
        for page, one in ((CLIENTS, row), (CONSENTS, given)):
            assert web.get(f"{page}add/").status_code == 403
            assert web.post(f"{page}add/", {"client_id": "x"}).status_code == 403
            assert 'name="_save"' not in web.get(f"{page}{one.pk}/change/").text
            assert web.post(f"{page}{one.pk}/change/", {"name": "x"}).status_code == 403
            assert web.post(f"{page}{one.pk}/delete/", {"post": "yes"}).status_code == 403
            body = {"action": "delete_selected", "_selected_action": one.pk, "post": "yes"}
            web.post(page, body)
    assert profile(agent).name == "Agent" and Consent.objects.get().revoked is None


def test_pages_are_forbidden_without_the_view_permission(agent):
    web = staff()
    for page in (CLIENTS, CONSENTS, f"{CLIENTS}{profile(agent).pk}/change/"):
        assert web.get(page).status_code == 403


@pytest.mark.parametrize("action", ["block", "unblock", "revoke", "forget"])
@pytest.mark.parametrize("rights", [
    {"view_clientprofile"}, ALL - {"change_clientprofile", "delete_clientprofile"},
])  # fmt: skip
def test_client_actions_need_more_than_the_view_permission(alice, agent, action, rights):
    tokens = issued(alice, agent)
    never = client(name="Never")
    web = staff(*rights)
    assert f'value="{action}"' not in web.get(CLIENTS).text
    run_action(web, CLIENTS, action, profile(agent), profile(never))
    assert is_accepted(tokens) and ClientProfile.objects.filter(blocked=None).count() == 2
    assert not LogEntry.objects.exists()


def test_change_and_delete_permissions_of_clients_are_separate(agent):
    changer = staff("view_clientprofile", "change_clientprofile")
    run_action(changer, CLIENTS, "forget", profile(agent))
    run_action(
        staff("view_clientprofile", "delete_clientprofile"), CLIENTS, "block", profile(agent)
    )
    assert profile(agent).blocked is None and not LogEntry.objects.exists()


def test_revoking_a_consent_needs_the_change_permission(alice, agent):
    tokens = issued(alice, agent)
    web = staff(*(ALL - {"change_consent"}))
    assert 'value="revoke"' not in web.get(CONSENTS).text
    run_action(web, CONSENTS, "revoke", Consent.objects.get())
    assert is_accepted(tokens) and Consent.objects.get().revoked is None


def test_action_without_csrf_token_is_rejected(alice, agent):
    web = staff(*ALL)
    web.handler.enforce_csrf_checks = True
    for action in ("block", "revoke"):
        assert run_action(web, CLIENTS, action, profile(agent)).status_code == 403
    assert profile(agent).blocked is None


def test_client_page_links_to_the_form_of_a_kill_switch(agent):
    row = profile(agent)
    page = f"{CLIENTS}{row.pk}/change/"
    link = f'href="/admin/django_mcp/switch/add/?client={agent.client_id}"'
    root = browser(User.objects.create_superuser("root"))
    assert link in root.get(page).text
    assert link not in staff("view_clientprofile").get(page).text


def test_link_to_register_a_client_needs_the_add_application_permission(db):
    may = staff("view_clientprofile", "add_application")
    assert f'href="{APPLICATIONS}add/"' in may.get(CLIENTS).text
    assert may.get(f"{APPLICATIONS}add/").status_code == 200
    assert f"{APPLICATIONS}add/" not in staff("view_clientprofile").get(CLIENTS).text


# Blocking, revoking and deleting.


def test_blocking_a_client_revokes_everything_and_rejects_its_requests(
    alice, bob_with_client, agent
):
    bob, other = bob_with_client
    tokens, code, others = issued(alice, agent), code_for(alice, agent), issued(bob, other)
    web = staff("view_clientprofile", "change_clientprofile")
    assert "1 client was blocked." in run_action(web, CLIENTS, "block", profile(agent)).text
    assert profile(agent).blocked and not Consent.objects.filter(
        client_id=agent.client_id, revoked=None
    )
    assert not is_accepted(tokens) and not get_grant_model().objects.exists()
    assert error(refresh(tokens["refresh_token"], agent)) == (401, "invalid_client")
    assert error(redeem(code, agent)) == (401, "invalid_client")
    assert asked(alice, agent).status_code == 400
    assert is_accepted(others) and profile(other).blocked is None
    entry = LogEntry.objects.get()
    assert entry.is_change() and entry.change_message == "Blocked." and entry.object_repr == "Agent"
    assert "0 clients were blocked." in run_action(web, CLIENTS, "block", profile(agent)).text
    assert LogEntry.objects.count() == 1


@pytest.fixture
def bob_with_client(db):
    return User.objects.create_user("bob", password="secret"), client(name="Other")


def test_unblocked_client_needs_a_new_consent(alice, agent):
    tokens = issued(alice, agent)
    web = staff("view_clientprofile", "change_clientprofile")
    run_action(web, CLIENTS, "block", profile(agent))
    assert "1 client was unblocked." in run_action(web, CLIENTS, "unblock", profile(agent)).text
    assert profile(agent).blocked is None
    assert not is_accepted(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == (400, "invalid_grant")
    assert is_accepted(issued(alice, agent))


def test_token_issued_during_blocking_is_invalid_after_unblocking(alice, agent):
    """The request was authorized before the client was blocked, and answered afterwards."""
    tokens = issued(alice, agent)
    ClientProfile.objects.update(blocked=timezone.now())
    assert not is_accepted(tokens)
    run_action(staff(*ALL), CLIENTS, "unblock", profile(agent))
    assert profile(agent).blocked is None and not is_accepted(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == (400, "invalid_grant")


def test_revoke_action_ends_all_tokens_of_one_client(alice, bob_with_client, agent):
    bob, other = bob_with_client
    mine, his, others = issued(alice, agent), issued(bob, agent), issued(bob, other)
    code = code_for(alice, agent)
    web = staff("view_clientprofile", "change_clientprofile")
    assert (
        "The tokens of 1 client were revoked."
        in run_action(web, CLIENTS, "revoke", profile(agent)).text
    )
    assert [is_accepted(tokens) for tokens in (mine, his, others)] == [False, False, True]
    assert error(redeem(code, agent)) == (400, "invalid_grant")
    assert is_accepted(issued(alice, agent))  # it may come again


def test_revoking_a_consent_ends_the_tokens_of_that_user_and_client(alice, bob_with_client, agent):
    """Other users of the client and other clients of the user keep their tokens."""
    bob, other = bob_with_client
    mine, again, his, elsewhere = (
        issued(alice, agent), issued(alice, agent), issued(bob, agent), issued(alice, other),
    )  # fmt: skip
    code = code_for(alice, agent)
    web = staff("view_consent", "change_consent")
    row = Consent.objects.filter(user=alice, client_id=agent.client_id).first()
    assert "1 consent was revoked." in run_action(web, CONSENTS, "revoke", row).text
    assert [is_accepted(t) for t in (mine, again, his, elsewhere)] == [False, False, True, True]
    assert error(refresh(mine["refresh_token"], agent)) == (400, "invalid_grant")
    assert error(redeem(code, agent)) == (400, "invalid_grant")
    assert refresh(his["refresh_token"], agent).status_code == 200
    left = Consent.objects.filter(revoked=None).values_list("user", "client_id")
    assert set(left) == {(bob.pk, agent.client_id), (alice.pk, other.client_id)}
    assert LogEntry.objects.get().change_message == "Revoked."


def test_revoking_an_already_revoked_consent_revokes_remaining_tokens(alice, agent):
    """The consent was revoked because the client's document changed; its tokens stayed valid."""
    tokens = issued(alice, agent)
    Consent.objects.update(revoked=timezone.now())
    assert is_accepted(tokens)
    run_action(staff(*ALL), CONSENTS, "revoke", Consent.objects.get())
    assert not is_accepted(tokens)


def test_consent_to_a_deleted_client_can_be_revoked(alice):
    row = Consent.objects.create(user=alice, client_id="gone", resource="https://shop.example/mcp")
    run_action(staff(*ALL), CONSENTS, "revoke", row)
    assert Consent.objects.get().revoked


def test_forget_action_deletes_clients_that_were_never_authorized(alice, agent):
    issued(alice, agent)
    Consent.objects.all().delete()
    ClientProfile.objects.update(last_authorized=None)
    never, old, barred = client(name="Never"), client(name="Old"), client(name="Barred")
    hours = timezone.now() - timedelta(days=2)
    ClientProfile.objects.filter(client_id=old.client_id).update(created=hours)
    ClientProfile.objects.filter(client_id=barred.client_id).update(blocked=timezone.now())
    web = staff("view_clientprofile", "delete_clientprofile")
    rows = list(ClientProfile.objects.all())
    assert "2 clients were deleted." in run_action(web, CLIENTS, "forget", *rows).text
    left = {agent.client_id, barred.client_id}
    assert set(ClientProfile.objects.values_list("client_id", flat=True)) == left
    assert set(get_application_model().objects.values_list("client_id", flat=True)) == left
    assert get_access_token_model().objects.count() == 1
    assert {entry.object_repr for entry in LogEntry.objects.all()} == {"Never", "Old"}
    assert all(entry.is_deletion() for entry in LogEntry.objects.all())
    assert never.client_id not in left


def test_forget_action_deletes_clients_unused_for_90_days(alice, agent):
    issued(alice, agent)
    long_ago, old = timezone.now() - timedelta(days=91), client(name="Old")
    ClientProfile.objects.filter(client_id=old.client_id).update(last_authorized=long_ago)
    Consent.objects.create(user=alice, client_id=old.client_id, resource="x", redirect_host="y")
    web = staff("view_clientprofile", "delete_clientprofile")
    rows = list(ClientProfile.objects.all())
    assert "1 client was deleted." in run_action(web, CLIENTS, "forget", *rows).text
    assert ClientProfile.objects.get().client_id == agent.client_id
    assert Consent.objects.get().client_id == agent.client_id


@pytest.mark.parametrize("may", [True, False])
def test_deleting_a_user_with_consents_needs_permission_to_revoke_them(alice, may):
    Consent.objects.create(user=alice, client_id="x", resource="https://shop.example/mcp")
    web = staff("delete_user", "view_user", "view_consent", *(["change_consent"] if may else []))
    web.post(f"/admin/auth/user/{alice.pk}/delete/", {"post": "yes"})
    assert User.objects.filter(pk=alice.pk).exists() is not may


def test_admin_pages_of_django_oauth_toolkit_still_work(db):
    root = browser(User.objects.create_superuser("root"))
    for name in ("application", "accesstoken", "refreshtoken", "grant"):
        assert root.get(f"/admin/oauth2_provider/{name}/").status_code == 200


# Activity.


def activity_of(user, made, name="refund"):
    return Activity.objects.create(
        key=f"{user.pk} {name} {made.pk}", user=user, client_id=made.client_id, server="default",
        method="tools/call", name=name, count=3, at=timezone.now(),
    )  # fmt: skip


def test_activity_pages_need_the_view_activity_permission(alice, agent):
    row = activity_of(alice, agent)
    web = staff("view_activity")
    html = web.get(ACTIVITIES).text
    assert ">refund<" in html and ">Agent<" in html and "alice" in html
    assert web.get(f"{ACTIVITIES}?q=refund").text.count("refund") > 1
    assert web.get(f"{ACTIVITIES}?client_id={agent.client_id}").status_code == 200
    assert web.get(f"{ACTIVITIES}{row.pk}/change/").status_code == 200
    assert staff("view_consent").get(ACTIVITIES).status_code == 403
    assert "ctivities" not in staff("view_consent").get("/admin/").text


def test_activity_cannot_be_added_edited_or_deleted(alice, agent):
    row = activity_of(alice, agent)
    root = browser(User.objects.create_superuser("root"))
    for path in (f"{ACTIVITIES}add/", f"{ACTIVITIES}{row.pk}/delete/"):
        assert root.get(path).status_code == root.post(path, {"post": "yes"}).status_code == 403
    assert root.post(f"{ACTIVITIES}{row.pk}/change/", {"name": "x"}).status_code == 403
    run_action(root, ACTIVITIES, "delete_selected", row)
    assert Activity.objects.get().name == "refund"


def test_number_of_queries_does_not_grow_with_activity(django_assert_max_num_queries, alice, agent):
    web = staff("view_activity")
    for number in range(50):
        activity_of(alice, agent, f"tool_{number}")
    with django_assert_max_num_queries(7):
        html = web.get(ACTIVITIES).text
    assert all(f">tool_{number}<" in html for number in range(50))


def test_user_with_activity_can_be_deleted(alice, agent):
    activity_of(alice, agent)
    web = staff("delete_user", "view_user")
    web.post(f"/admin/auth/user/{alice.pk}/delete/", {"post": "yes"})
    assert not User.objects.filter(pk=alice.pk).exists() and not Activity.objects.exists()
