"""Personal access tokens in the admin: creating, showing the secret once, and revoking."""

from __future__ import annotations

import logging
import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.urls import reverse
from django.utils import timezone

import django_mcp as mcp
from django_mcp.models import Token
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens

from ..verifiers.test_personal_tokens import everything_stored

pytestmark = pytest.mark.urls("tests.admin.urls")

LIST, ADD = (f"/admin/django_mcp/token/{end}" for end in ("", "add/"))
FOUND = re.compile(r"mcp_[A-Za-z0-9_-]{43}")


def page(token, name="change"):
    return reverse(f"admin:django_mcp_token_{name}", args=[token.pk])


def form(**fields):
    ends = timezone.now() + timedelta(days=30)
    given = {
        "name": "laptop", "server": "", "scopes": "", "expires_0": f"{ends:%Y-%m-%d}",
        "expires_1": "12:00:00",
    }  # fmt: skip
    return given | fields


def secret_of(answer):
    (secret,) = FOUND.findall(answer.content.decode())
    return secret


# Creating.


def test_created_token_is_shown(staff, server):
    client = staff("add_token", "view_token")
    answer = client.post(ADD, form(name="my laptop", scopes="write  read"))
    assert answer.status_code == 200 and "not shown again" in answer.text
    principal = PersonalAccessTokens().lookup(secret_of(answer), server)
    assert principal.user.username == "sam" and principal.auth.scopes == {"read", "write"}
    token = Token.objects.get()
    assert token.name == "my laptop" and token.scopes == ["read", "write"]
    assert timedelta(days=29) < token.expires - timezone.now() < timedelta(days=31)


def test_secret_is_shown_only_once(staff):
    """Not in a URL, a cookie, a message, the session, the history, or on any later page."""
    client = staff("add_token", "view_token", "revoke_token")
    answer = client.post(ADD, form())
    secret = secret_of(answer)
    assert not answer.has_header("Location") and not list(get_messages(answer.wsgi_request))
    told = [str(answer.headers), str(client.cookies), str(dict(client.session))]
    told += [client.get(address).text for address in (ADD, LIST, "/admin/")]
    token = Token.objects.get()
    told += [client.get(page(token)).text, client.get(page(token, "history")).text]
    told += [everything_stored()]
    for text in told:
        assert secret[8:] not in text and secret[:12] not in text
    assert f"{token.prefix}…" in told[-3]


def test_pages_do_not_show_the_digest(staff, root):
    token, _ = Token.make(User.objects.get(username="root"), "x")
    for client in (root, staff("view_token", "revoke_token", "add_token")):
        for address in (LIST, page(token), page(token, "history"), ADD):
            assert token.digest[:12] not in client.get(address).text


def test_secret_is_not_logged(staff, caplog):
    caplog.set_level(logging.DEBUG)
    secret = secret_of(staff("add_token").post(ADD, form()))
    assert secret[:12] not in caplog.text


def test_page_with_the_secret_is_not_cached(staff):
    answer = staff("add_token").post(ADD, form())
    assert "no-store" in answer.headers["Cache-Control"]
    assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_every_save_button_shows_the_secret(staff):
    client = staff("add_token", "view_token")
    html = client.get(ADD).text
    assert 'name="_save"' in html
    for button in ("_continue", "_addanother"):
        assert f'name="{button}"' not in html
        assert FOUND.search(client.post(ADD, form(**{button: "1"})).text)
    assert FOUND.search(client.post(f"{ADD}?_popup=1", form(_popup="1")).text)


def test_error_report_does_not_contain_the_secret(staff, monkeypatch):
    """Error pages and mails show the variables of every frame."""
    client = staff("add_token")
    client.raise_request_exception = False
    made = []

    def fail(*args, **kwargs):
        made.append(1)
        raise RuntimeError("the history is full")

    monkeypatch.setattr("django_mcp.admin.tokens.TokenAdmin.log_addition", fail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.DEBUG", True)
        answer = client.post(ADD, form())
    assert made and answer.status_code == 500 and "the history is full" in answer.text
    assert not FOUND.search(answer.text) and not Token.objects.exists()


def test_staff_can_create_tokens_only_for_themselves(staff):
    """A token is as good as signing in as its user."""
    other = User.objects.create_superuser("root", password="x")
    client = staff("add_token", "view_token")
    assert 'name="user"' not in client.get(ADD).text
    client.post(ADD, form(user=other.pk))
    assert Token.objects.get().user.username == "sam"


def test_superuser_can_create_tokens_for_any_user(root, alice):
    assert 'name="user"' in root.get(ADD).text
    answer = root.post(ADD, form(user=alice.pk))
    token = Token.objects.get()
    assert "acts as alice" in answer.text and token.user == alice
    assert token.issued_by.username == "root"
    assert "Issued by" in root.get(page(token)).text


def test_creating_a_token_needs_the_permission(staff):
    client = staff("view_token", "revoke_token")
    assert client.get(ADD).status_code == 403 and client.post(ADD, form()).status_code == 403
    assert not Token.objects.exists()


def test_creating_a_token_needs_a_csrf_token(staff):
    client = staff("add_token")
    client.handler.enforce_csrf_checks = True
    assert client.post(ADD, form()).status_code == 403 and not Token.objects.exists()


def test_query_parameters_do_not_prefill_the_form(root, alice):
    """A link would choose which user the token acts for."""
    initial = root.get(f"{ADD}?user={alice.pk}&name=evil&scopes=all").context["adminform"].form
    assert "evil" not in root.get(f"{ADD}?name=evil").text
    assert initial.initial["user"] == User.objects.get(username="root").pk
    assert set(initial.initial) == {"user", "expires"}
    left = initial.initial["expires"] - timezone.now()
    assert timedelta(days=89) < left <= timedelta(days=90)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "This field is required"),
        ({"name": "x" * 101}, "at most 100 characters"),
        ({"server": "nonsense"}, "not one of the available choices"),
        ({"scopes": 'a "b"'}, "is not a valid scope"),
        ({"expires_0": "2020-01-01"}, "This time is in the past."),
        ({"expires_0": "soon"}, "Enter a valid date"),
    ],
)
def test_invalid_fields_are_rejected(staff, fields, words):
    answer = staff("add_token").post(ADD, form(**fields))
    assert words in answer.text.replace("&#x27;", "'") and not Token.objects.exists()


def test_token_can_last_forever_and_be_for_one_server(staff, server):
    staff("add_token").post(ADD, form(server=server.name, expires_0="", expires_1=""))
    token = Token.objects.get()
    assert token.expires is None and token.server == server.name


def test_token_for_an_inactive_user_is_rejected(root, alice):
    User.objects.filter(pk=alice.pk).update(is_active=False)
    answer = root.post(ADD, form(user=alice.pk))
    assert "not active" in answer.text and not Token.objects.exists()


# Lists and pages.


def test_list_shows_the_state_of_each_token(root, alice):
    now = timezone.now()
    user = User.objects.get(username="root")
    for name, fields in {
        "good": {}, "old": {"expires": now - timedelta(seconds=1)}, "ended": {},
    }.items():  # fmt: skip
        Token.make(user, name, **fields)
    Token.objects.filter(name="ended").update(revoked=now)
    Token.make(alice, "nobody")
    User.objects.filter(pk=alice.pk).update(is_active=False)
    states = re.findall(r'field-state">([^<]+)<', root.get(LIST).text)
    assert states == ["user not active", "revoked", "expired", "valid"]


def test_number_of_queries_of_the_list_is_limited(root, django_assert_max_num_queries):
    for number in range(20):
        user = User.objects.create_user(f"user {number}")
        Token.make(user, "x")
    with django_assert_max_num_queries(8):
        root.get(LIST)


def test_tokens_can_be_searched(root, alice, bob):
    first, _ = Token.make(alice, "laptop")
    second, _ = Token.make(bob, "server")
    for text, found in {"alice": first, "server": second, first.prefix: first}.items():
        assert [row.pk for row in root.get(LIST, {"q": text}).context["cl"].result_list] == [
            found.pk
        ]


def test_tokens_cannot_be_edited_or_deleted(root, staff):
    token, _ = Token.make(User.objects.get(username="root"), "x")
    for client in (root, staff("add_token", "view_token", "revoke_token")):
        assert 'name="_save"' not in client.get(page(token)).text
        assert client.post(page(token), form(name="y")).status_code == 403
        assert client.post(page(token, "delete"), {"post": "yes"}).status_code == 403
        body = {"action": "delete_selected", "_selected_action": token.pk, "post": "yes"}
        client.post(LIST, body)
    assert Token.objects.get().name == "x"


# Revoking.


def revoke(client, *tokens):
    chosen = [token.pk for token in tokens]
    return client.post(LIST, {"action": "end", "_selected_action": chosen}, follow=True)


def test_tokens_are_revoked_with_the_permission(staff, alice, server):
    client = staff("view_token", "revoke_token")
    pairs = [Token.make(alice, name) for name in ("first", "second", "third")]
    answer = revoke(client, pairs[0][0], pairs[1][0])
    assert "2 tokens were revoked." in answer.text
    valid = [PersonalAccessTokens().lookup(secret, server) is not None for _, secret in pairs]
    assert valid == [False, False, True]
    assert "0 tokens were revoked." in revoke(client, pairs[0][0]).text
    entries = LogEntry.objects.all()
    told = sorted(entry.object_repr for entry in entries)
    assert told == sorted(str(token) for token, _ in pairs[:2])
    assert all(entry.is_change() and "Revoked" in entry.change_message for entry in entries)


def test_revoking_needs_more_than_the_view_permission(staff, alice):
    client = staff("view_token", "add_token")
    token, _ = Token.make(alice, "x")
    assert "Revoke selected tokens" not in client.get(LIST).text
    revoke(client, token)
    assert Token.objects.get().revoked is None and not LogEntry.objects.exists()


@pytest.mark.parametrize("way", ["page", "action"])
def test_user_with_tokens_can_be_deleted(staff, alice, way):
    """Tokens cannot be deleted in their list, but this must not prevent deleting a user."""
    Token.make(alice, "x")
    client = staff("delete_user", "view_user", "revoke_token", "view_token")
    if way == "page":
        client.post(reverse("admin:auth_user_delete", args=[alice.pk]), {"post": "yes"})
    else:
        body = {"action": "delete_selected", "_selected_action": alice.pk, "post": "yes"}
        client.post(reverse("admin:auth_user_changelist"), body)
    assert not User.objects.filter(pk=alice.pk).exists() and not Token.objects.exists()


def test_deleting_a_user_with_tokens_needs_permission_to_revoke_them(staff, alice):
    Token.make(alice, "x")
    client = staff("delete_user", "view_user", "view_token")
    client.post(reverse("admin:auth_user_delete", args=[alice.pk]), {"post": "yes"})
    assert User.objects.filter(pk=alice.pk).exists() and Token.objects.exists()


def test_form_lists_the_servers_of_the_project(staff, server):
    html = staff("add_token").get(ADD).text
    assert f'value="{mcp.server.name}"' in html and "every server" in html


@pytest.mark.parametrize("how", ["__startswith", "__gt", ""])
def test_digest_cannot_be_used_as_a_filter(staff, alice, how):
    token, _ = Token.make(alice, "x")
    sam = staff("view_token")
    for guess in (token.digest[:9], token.digest, ""):
        address = reverse("admin:django_mcp_token_changelist")
        answer = sam.get(address, {f"digest{how}": guess})
        assert answer.status_code != 200 or not answer.context["cl"].result_count
    assert sam.get(address, {"revoked__isempty": "1"}).context["cl"].result_count == 1
