"""Kill switches in the admin, and the page that explains access decisions."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import override_settings
from django.urls import reverse
from django.utils.translation import override
from oauth2_provider.models import get_application_model

from django_mcp.auth import kill_switches
from django_mcp.auth.principal import anonymous
from django_mcp.conf import Scope
from django_mcp.models import Switch

pytestmark = pytest.mark.urls("tests.admin.urls")

LIST, ADD, DECISIONS = (f"/admin/django_mcp/switch/{end}" for end in ("", "add/", "decisions/"))
REFUND = {"what": "default|tool:refund", "reason": "It is broken."}


def is_off(thing):
    kill_switches.refresh()
    return kill_switches.find("default", thing, anonymous()) is not None


def form(answer):
    return answer.context["adminform"].form


def row_of(answer, name):
    (found,) = (one for one in answer.context["access_report"] if one.name == name)
    return found


def test_tool_is_switched_off_and_on(staff):
    client = staff("add_switch", "view_switch", "delete_switch")
    assert client.post(ADD, REFUND).status_code == 302
    row = Switch.objects.get()
    assert (row.server, row.thing, row.reason) == ("default", "tool:refund", "It is broken.")
    assert row.by.username == "sam"
    assert is_off("tool:refund")
    assert "tool:refund" in client.get(LIST).text
    away = reverse("admin:django_mcp_switch_delete", args=[row.pk])
    assert client.post(away, {"post": "yes"}).status_code == 302
    assert not is_off("tool:refund")
    assert [entry.action_flag for entry in LogEntry.objects.order_by("pk")] == [1, 3]


def test_pages_have_titles_of_their_models(staff):
    client = staff("add_switch", "view_switch", "add_token", "view_token")
    assert "Add kill switch" in client.get(LIST).text
    index = client.get("/admin/").text
    assert "Kill switches" in index and "Personal access tokens" in index


def test_only_existing_declarations_can_be_chosen(staff):
    client = staff("add_switch", "view_switch")
    chosen = dict(form(client.get(ADD)).fields["what"].choices)
    values = [value for group in chosen.values() for value, _words in group]
    for known in ("default|", "default|tool:refund", "default|resource:invoice",
                  "default|prompt:reminder"):  # fmt: skip
        assert known in values
    for unknown in ("default|tool:nothing", "nowhere|", "x"):
        answer = client.post(ADD, REFUND | {"what": unknown})
        assert answer.status_code == 200 and form(answer).errors["what"]
    assert not Switch.objects.exists()


def test_declaration_cannot_be_switched_off_twice(staff):
    client = staff("add_switch", "view_switch")
    client.post(ADD, REFUND)
    answer = client.post(ADD, REFUND)
    assert "already switched off" in str(form(answer).errors)
    assert Switch.objects.count() == 1


def test_tool_is_switched_off_for_a_group_and_a_client(staff, alice):
    interns = Group.objects.create(name="<b>interns</b>")
    Application = get_application_model()
    agent = Application.objects.create(client_type="public", authorization_grant_type="password")
    client = staff("add_switch", "view_switch")
    for audience in ({"group": interns.pk}, {"client": agent.client_id}, {}):
        assert client.post(ADD, REFUND | audience).status_code == 302
        answer = client.post(ADD, REFUND | audience)
        assert "already switched off" in str(form(answer).errors)
    rows = Switch.objects.order_by("pk").values_list("group", "client")
    assert list(rows) == [(str(interns.pk), ""), ("", agent.client_id), ("", "")]
    page = client.get(LIST).text
    assert "the group &lt;b&gt;interns&lt;/b&gt;" in page and "everybody" in page
    assert f"the client {agent.client_id}" in page
    key = interns.pk
    interns.delete()
    assert f"the group {key}" in client.get(LIST).text


def test_tool_is_limited_and_is_not_off(staff, alice):
    client = staff("add_switch", "view_switch", "view_user", "delete_switch")
    assert client.post(ADD, REFUND | {"rate": " 10/min "}).status_code == 302
    row = Switch.objects.get()
    assert (row.thing, row.rate, row.by.username) == ("tool:refund", "10/min", "sam")
    assert not is_off("tool:refund")
    assert "limited to 10/min" in client.get(LIST).text
    decisions = client.get(DECISIONS, {"user": "alice", "server": "default"})
    assert row_of(decisions, "refund").allowed and "switched off" not in decisions.text
    # One row is either off or limited.
    for rate in ("", "20/min"):
        answer = client.post(ADD, REFUND | {"rate": rate})
        assert "already switched off or limited" in str(form(answer).errors)
    away = reverse("admin:django_mcp_switch_delete", args=[row.pk])
    assert client.post(away, {"post": "yes"}).status_code == 302
    entries = LogEntry.objects.order_by("pk")
    assert {entry.object_repr for entry in entries} == {"tool:refund of default, limit 10/min"}
    assert [entry.action_flag for entry in entries] == [1, 3]


@pytest.mark.parametrize(
    "cache, warns", [("locmem.LocMemCache", True), ("redis.RedisCache", False)]
)
def test_limit_warns_if_the_cache_does_not_count_for_all_processes(staff, settings, cache, warns):
    backend = f"django.core.cache.backends.{cache}"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://127.0.0.1:1"}}
    client = staff("add_switch", "view_switch")
    answer = client.post(ADD, REFUND | {"rate": "10/min"}, follow=True)
    assert ("cannot count calls for all processes" in answer.text) == warns
    answer = client.post(ADD, REFUND | {"what": "default|tool:add"}, follow=True)
    assert Switch.objects.count() == 2 and "cannot count calls" not in answer.text


@pytest.mark.parametrize("rate", ["ten/min", "0/min", "10", "10/fortnight", "<b>", "1" * 40])
def test_invalid_rate_is_rejected(staff, rate):
    client = staff("add_switch", "view_switch")
    answer = client.post(ADD, REFUND | {"rate": rate})
    assert form(answer).errors["rate"] and not Switch.objects.exists()
    if len(rate) < 40:
        assert "not a rate" in str(form(answer).errors["rate"]) and "60/min" in answer.text
        with override("de"):
            assert "keine Rate" in str(form(client.post(ADD, REFUND | {"rate": rate})).errors)


def test_switch_for_an_unknown_client_or_group_is_rejected(staff):
    """It would apply to nobody, and the administrator would rely on it."""
    client = staff("add_switch", "view_switch")
    for name in ("client", "group"):
        assert form(client.post(ADD, REFUND | {name: "99"})).errors[name]
    assert not Switch.objects.exists()


@pytest.mark.parametrize("held", [[], ["view_switch"]])
def test_add_view_and_delete_need_their_permissions(staff, held):
    client = staff(*held)
    assert client.post(ADD, REFUND).status_code == 403 and not Switch.objects.exists()
    row = Switch.objects.create(server="default", thing="tool:add")
    away = reverse("admin:django_mcp_switch_delete", args=[row.pk])
    assert client.post(away, {"post": "yes"}).status_code == 403
    assert client.get(LIST).status_code == (200 if held else 403)
    assert Switch.objects.count() == 1


def test_switch_cannot_be_edited(root):
    row = Switch.objects.create(server="default", thing="tool:add")
    page = reverse("admin:django_mcp_switch_change", args=[row.pk])
    assert root.get(page).status_code == 200
    assert root.post(page, {"thing": "tool:refund"}).status_code == 403


# Permissions by user.


def test_page_shows_every_decision_with_its_reason(staff, alice):
    client = staff("view_switch", "view_user")
    Switch.objects.create(server="default", thing="tool:add")
    answer = client.get(DECISIONS, {"user": "alice", "server": "default"})
    assert answer.status_code == 200
    refund, add = row_of(answer, "refund"), row_of(answer, "add")
    assert refund.allowed and refund.reason == "shop.change_invoice: given to the user"
    assert not add.allowed and "switched off" in add.reason
    assert "shop.change_invoice resource:invoice" in answer.text


def test_page_shows_decisions_for_a_token_with_scopes(staff, alice):
    scopes = {
        "read": Scope("Look", covers=["*view*", "resource:*"]),
        "write": Scope("Change", covers=["*.change_*"]),
    }
    client = staff("view_switch", "view_user")
    with override_settings(DJANGO_MCP={"URL": "http://localhost", "SCOPES": scopes}):
        asked = {"user": "alice", "server": "default", "scopes": ["read"]}
        found = row_of(client.get(DECISIONS, asked), "refund")
        assert not found.allowed and "told to request write read" in found.reason
        broad = row_of(client.get(DECISIONS, asked | {"scopes": ["read", "write"]}), "refund")
        assert broad.allowed


def test_page_shows_decisions_for_a_client(staff, alice):
    Switch.objects.create(server="default", thing="tool:refund", client="agent")
    client = staff("view_switch", "view_user")
    asked = {"user": "alice", "server": "default"}
    assert row_of(client.get(DECISIONS, asked | {"client": "other"}), "refund").allowed
    found = row_of(client.get(DECISIONS, asked | {"client": "agent"}), "refund")
    assert not found.allowed and found.reason.endswith("tool:refund, for the client agent")


def test_page_shows_decisions_for_anonymous_clients(staff):
    client = staff("view_switch", "view_user")
    answer = client.get(DECISIONS, {"user": "", "server": "default"})
    assert row_of(answer, "add").allowed and not row_of(answer, "refund").allowed


def test_unknown_user_is_reported(staff):
    client = staff("view_switch", "view_user")
    answer = client.get(DECISIONS, {"user": "mallory", "server": "default"})
    assert "There is no such user" in answer.text and answer.context["access_report"] is None


def test_only_superusers_see_decisions_of_superusers(staff, root):
    User.objects.create_superuser("boss")
    asked = {"user": "boss", "server": "default"}
    answer = staff("view_switch", "view_user").get(DECISIONS, asked)
    assert answer.context["access_report"] is None and "Only superusers" in answer.text
    assert row_of(root.get(DECISIONS, asked), "refund").allowed


def test_switched_off_resource_does_not_affect_tools_that_take_its_rows(staff, alice):
    """It stays listed, because a switched-off resource is no reason against the tool."""
    Switch.objects.create(server="default", thing="resource:invoice")
    client = staff("view_switch", "view_user")
    answer = client.get(DECISIONS, {"user": "alice", "server": "default"})
    takes, rests = row_of(answer, "refund"), row_of(answer, "search_invoice")
    assert takes.allowed and "switched off" not in takes.reason
    assert not rests.allowed and "switched off resource:invoice" in rests.reason


@pytest.mark.parametrize("held", [[], ["view_switch"], ["view_user"]])
def test_decisions_need_permission_to_view_users_and_switches(staff, alice, held):
    client = staff(*held)
    answer = client.get(DECISIONS, {"user": "alice", "server": "default"})
    assert answer.status_code == 403 and "refund" not in answer.text
    assert "decisions/" not in client.get(LIST).text


@pytest.mark.slow
def test_names_are_escaped(staff, server):
    @server.tool(description="<script>alert(1)</script>")
    def odd(request) -> str:
        return ""

    User.objects.create_user("<b>eve</b>")
    client = staff("view_switch", "view_user")
    answer = client.get(DECISIONS, {"user": "<b>eve</b>", "server": server.name})
    assert "<b>eve</b>" not in answer.text and answer.status_code == 200
