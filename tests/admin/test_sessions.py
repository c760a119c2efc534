"""The admin pages of sessions, streams, events and calls: permissions and privacy."""

from __future__ import annotations

import json

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from django_mcp.admin.log import MAX_VALUE_LENGTH, as_text
from django_mcp.models import (
    Approval,
    AuditEntry,
    Call,
    Event,
    Inspector,
    Session,
    Stream,
    Switch,
    Token,
)
from django_mcp.storage import sessions
from django_mcp.storage.databases import rows

from ..test_public_api import modules, project
from .conftest import SECRET

pytestmark = pytest.mark.urls("tests.admin.urls")

LOG = [Session, Stream, Event, Call]
VIEW_PERMISSIONS = [f"view_{model._meta.model_name}" for model in LOG]


def page(model, name, *args):
    return reverse(f"admin:django_mcp_{model._meta.model_name}_{name}", args=args)


def pages(recorded_session):
    """Every list, and the page of every row."""
    made = [
        recorded_session.session,
        recorded_session.stream,
        recorded_session.event,
        recorded_session.call,
    ]
    for row in made:
        yield page(type(row), "changelist")
        yield page(type(row), "change", row.pk)


def test_registered_models():
    ours = {model for model in admin.site._registry if model._meta.app_label == "django_mcp"}
    assert ours == {Approval, AuditEntry, Session, Stream, Event, Call, Switch, Token, Inspector}


def test_pages_are_shown_with_the_view_permissions(recorded_session, staff):
    client = staff(*VIEW_PERMISSIONS)
    for address in pages(recorded_session):
        assert client.get(address).status_code == 200, address


def test_pages_are_forbidden_without_the_view_permissions(recorded_session, staff):
    client = staff()
    for address in pages(recorded_session):
        assert client.get(address).status_code == 403, address


def test_contents_of_messages_are_shown_only_to_superusers(recorded_session, staff, root):
    client = staff(*VIEW_PERMISSIONS, "end_session")
    for address in pages(recorded_session):
        assert SECRET not in client.get(address).content.decode(), address
    told = [SECRET in root.get(address).content.decode() for address in pages(recorded_session)]
    assert told == [False, False, False, False, False, True, False, True]


def test_private_columns_are_deferred(recorded_session, staff, root, django_assert_max_num_queries):
    client = staff(*VIEW_PERMISSIONS)
    for model in (Session, Event, Call):
        private = admin.site._registry[model].private.values()
        assert private
        for reader in (client, root):
            (row,) = reader.get(page(model, "changelist")).context["cl"].result_list
            assert row.get_deferred_fields() >= set(private)


def test_session_ids_are_shown_as_the_start_of_their_digest(recorded_session, root):
    for address in pages(recorded_session):
        html = root.get(address).content.decode()
        assert recorded_session.id not in html and recorded_session.session.digest not in html
    assert (
        recorded_session.session.digest[:12]
        in root.get(page(Session, "change", recorded_session.session.pk)).text
    )


def test_page_links_to_no_list_that_the_project_has_not_registered(recorded_session, root):
    address = page(Session, "change", recorded_session.session.pk)
    calls = f'href="{page(Call, "changelist")}?session='
    assert calls in root.get(address).text
    known = admin.site._registry.pop(Call)
    try:
        assert calls not in root.get(address).text
    finally:
        admin.site._registry[Call] = known


def test_client_info_is_escaped(recorded_session, root):
    html = root.get(page(Session, "changelist")).content.decode()
    assert "Inspector &lt;b&gt; 1" in html and "Inspector <b>" not in html


@pytest.mark.parametrize("info", [["a list"], "a text", None, {"name": {"a": 1}}])
def test_malformed_client_info_is_shown(recorded_session, root, info):
    rows(Session).update(client_info=info or {})
    assert root.get(page(Session, "changelist")).status_code == 200
    assert root.get(page(Session, "change", recorded_session.session.pk)).status_code == 200


@pytest.mark.parametrize("model", LOG)
def test_rows_cannot_be_added_edited_or_deleted(recorded_session, root, model):
    row = {
        Session: recorded_session.session,
        Stream: recorded_session.stream,
        Event: recorded_session.event,
        Call: recorded_session.call,
    }[model]
    before = rows(model).values().get()
    assert root.get(page(model, "add")).status_code == 403
    assert root.post(page(model, "add"), {}).status_code == 403
    assert root.post(page(model, "change", row.pk), {"server": "x"}).status_code == 403
    assert root.post(page(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    body = {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"}
    root.post(page(model, "changelist"), body)
    assert rows(model).values().get() == before
    html = root.get(page(model, "change", row.pk)).content.decode()
    assert 'name="_save"' not in html and "deletelink" not in html


def test_session_page_links_to_its_streams_and_calls(recorded_session, root):
    other = sessions.create(
        server="other", owner="", user=None, revision="2025-06-18", client_info={},
        capabilities={},
    )[1]  # fmt: skip
    html = root.get(page(Session, "change", recorded_session.session.pk)).content.decode()
    for model, key in ((Stream, "session"), (Call, "session")):
        address = f"{page(model, 'changelist')}?{key}={recorded_session.session.pk}"
        assert f'href="{address}"' in html
        assert len(root.get(address).context["cl"].result_list) == 1
        assert (
            not root.get(f"{page(model, 'changelist')}?{key}={other.pk}").context["cl"].result_list
        )
    html = root.get(page(Stream, "change", recorded_session.stream.pk)).content.decode()
    assert reverse("admin:django_mcp_stream_messages", args=[recorded_session.stream.pk]) in html
    found = root.get(page(Session, "changelist"), {"q": "7"}).context["cl"].result_list
    assert [session.pk for session in found] == [recorded_session.session.pk]


def test_number_of_queries_of_a_list_is_limited(
    recorded_session, root, django_assert_max_num_queries
):
    for _ in range(20):
        sessions.create(
            server="default", owner="", user=None, revision="2025-11-25", client_info={},
            capabilities={},
        )  # fmt: skip
    for model in LOG:
        with django_assert_max_num_queries(9):
            root.get(page(model, "changelist"))


def test_long_value_is_truncated():
    assert as_text("a" * MAX_VALUE_LENGTH) == "a" * MAX_VALUE_LENGTH
    assert as_text("a" * (MAX_VALUE_LENGTH + 1)) == "a" * MAX_VALUE_LENGTH + "…"
    assert as_text({"é": [1]}) == '{\n "é": [\n  1\n ]\n}'


# Ending sessions.


def end_sessions(client, *sessions):
    chosen = [session.pk for session in sessions]
    body = {"action": "end", "_selected_action": chosen}
    return client.post(page(Session, "changelist"), body, follow=True)


def test_session_is_ended_with_the_permission(recorded_session, staff):
    client = staff("view_session", "end_session")
    answer = end_sessions(client, recorded_session.session)
    assert "1 session was ended." in answer.content.decode()
    assert sessions.find(recorded_session.id) is None
    assert not any(rows(model).exists() for model in LOG)
    entry = LogEntry.objects.get()
    assert entry.is_deletion() and entry.user.username == "sam"
    assert entry.object_repr == str(recorded_session.session)


def test_ending_a_session_needs_more_than_the_view_permission(recorded_session, staff):
    client = staff("view_session")
    assert "End selected sessions" not in client.get(page(Session, "changelist")).text
    end_sessions(client, recorded_session.session)
    assert sessions.find(recorded_session.id) is not None and not LogEntry.objects.exists()


def test_ending_a_session_needs_the_view_permission(recorded_session, staff):
    assert end_sessions(staff("end_session"), recorded_session.session).status_code == 403
    assert sessions.find(recorded_session.id) is not None


# Cancelling calls.


def cancel_calls(client, *calls):
    body = {"action": "cancel", "_selected_action": [call.pk for call in calls]}
    return client.post(page(Call, "changelist"), body, follow=True)


def test_call_is_cancelled_with_the_permission(recorded_session, staff):
    client = staff("view_call", "cancel_call")
    assert "1 call was cancelled." in cancel_calls(client, recorded_session.call).text
    call = rows(Call).get()
    assert call.cancelled and call.state == "done"
    response = rows(Event).order_by("seq").last()
    assert response.final and json.loads(response.data) == {
        "jsonrpc": "2.0", "id": "r-1",
        "error": {"code": -32603, "message": "The call was cancelled by an administrator."},
    }  # fmt: skip
    assert rows(Stream).get().closed
    entry = LogEntry.objects.get()
    assert entry.user.username == "sam" and entry.get_change_message() == "Cancelled."
    assert "0 calls were cancelled." in cancel_calls(client, recorded_session.call).text
    assert rows(Event).count() == 2 and LogEntry.objects.count() == 1


def test_cancelling_a_call_needs_its_own_permission(recorded_session, staff):
    client = staff("view_call", "view_session", "end_session")
    assert "Cancel selected calls" not in client.get(page(Call, "changelist")).text
    cancel_calls(client, recorded_session.call)
    assert cancel_calls(staff("cancel_call", name="sue"), recorded_session.call).status_code == 403
    assert rows(Call).get().state == "running" and not LogEntry.objects.exists()


# More about ending sessions.


def test_session_that_has_just_ended_is_not_counted(recorded_session, root, monkeypatch):
    found = sessions.end

    def ended_already(session):
        found(session)
        return found(session)

    monkeypatch.setattr(sessions, "end", ended_already)
    assert "0 sessions were ended." in end_sessions(root, recorded_session.session).content.decode()
    assert not LogEntry.objects.exists()


def test_project_without_the_admin_does_not_import_it(tmp_path):
    brought = modules(project(tmp_path, '"django_mcp"'))
    assert "django_mcp.models" in brought
    assert not [
        name for name in brought if name.startswith(("django_mcp.admin", "django.contrib.admin."))
    ]


@pytest.mark.parametrize("how", ["__contains", "__startswith", "__regex", "__gt", ""])
@pytest.mark.parametrize("place", [
    (Event, "data"), (Call, "params"), (Call, "known"), (Call, "meta"), (Call, "request_id"),
    (Session, "pending_changes"), (Session, "digest"),
])  # fmt: skip
def test_private_columns_cannot_be_used_as_filters(staff, recorded_session, how, place):
    """Attack: guess a value by whether the filtered list is empty."""
    model, column = place
    sam = staff(*VIEW_PERMISSIONS)
    rows(Session).update(pending_changes=[SECRET])
    stored = str(rows(model).values_list(column, flat=True).get())
    for guess in (stored[:12], stored[5:20], "", "~", "[^~]"):
        answer = sam.get(page(model, "changelist"), {f"{column}{how}": guess})
        assert answer.status_code != 200 or not answer.context["cl"].result_count, guess


def test_lists_can_be_filtered_by_visible_columns(staff, recorded_session):
    """As the links between them do."""
    sam = staff(*VIEW_PERMISSIONS)
    for model, query in (
        (Event, {"stream": recorded_session.stream.pk}),
        (Event, {"final__exact": 0}),
        (Stream, {"session": recorded_session.session.pk}),
        (Call, {"session": recorded_session.session.pk, "state": "running"}),
        (Session, {"server": "default", "revision": "2025-11-25"}),
    ):
        answer = sam.get(page(model, "changelist"), query)
        assert answer.status_code == 200 and answer.context["cl"].result_count == 1, query
