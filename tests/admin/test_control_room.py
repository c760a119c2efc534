"""The control room, the messages of a stream, and the cost of pages over many rows."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.translation import override

from django_mcp.admin import log
from django_mcp.conf import settings
from django_mcp.models import Approval, Ask, AuditEntry, Call, Session, Switch
from django_mcp.storage import event_log, sessions
from django_mcp.storage.databases import rows

from .conftest import SECRET
from .test_sessions import page

pytestmark = pytest.mark.urls("tests.admin.urls")

ROOM, INDEX = "/admin/django_mcp/session/control-room/", "/admin/django_mcp/"
VIEWS = ("view_session", "view_call", "view_switch", "view_auditentry")


def sections(answer):
    return {section.title: section for section in answer.context["sections"]}


@pytest.fixture
def busy(recorded_session, alice):
    """A session of alice with a running call and a call that waits for an answer."""
    rows(Session).update(user=str(alice.pk))
    rows(Call).update(user=str(alice.pk), name="refund")
    parked = Call.objects.create(
        session=recorded_session.session, stream=recorded_session.stream, request_id="2",
        request_digest="e" * 64, method="tools/call", name="ask", state="parked",
    )  # fmt: skip
    Ask.objects.create(
        id="a" * 32, call=parked, digest="d" * 64, wire={"text": SECRET}, seconds=60,
        deadline=timezone.now() + timedelta(minutes=1),
    )  # fmt: skip
    Switch.objects.create(server="default", thing="tool:add", reason="It is broken.")
    for outcome in ("denied", "ok"):
        AuditEntry.objects.create(
            server="default", method="tools/call", name=f"{outcome} tool", username="eve",
            outcome=outcome, duration=0, queries=0, rows_written=0,
        )  # fmt: skip
    return recorded_session


def test_outcomes_are_shown_in_the_language_of_the_page(busy, staff):
    client = staff(*VIEWS)
    with override("de"):  # without LocaleMiddleware, requests keep the language of the thread
        shown = sections(client.get(ROOM))
    (failed,) = list(shown.values())[4].cells
    assert failed[5] == "abgelehnt"


def test_page_shows_what_happens_now(busy, staff):
    client = staff(*VIEWS)
    answer = client.get(ROOM)
    shown = sections(answer)
    assert [part.count for part in shown.values()] == ["1", "2", "1", "1", "", ""]
    (session,) = shown["Active sessions"].cells
    assert session[1:6] == ("alice", "Inspector <b> 1", "default", "2025-11-25", "http")
    names = [cells[1] for cells in shown["Calls in progress"].cells]
    assert names == ["refund", "ask"]
    assert shown["Kill switches"].cells[0][1:3] == ("off", "It is broken.")
    (failed,) = shown["Latest denied, failed and throttled calls"].cells
    assert failed[4:6] == ("denied tool", "denied")
    assert "Inspector &lt;b&gt;" in answer.text and SECRET not in answer.text
    assert (
        "not stored while they run" in answer.text
        and "<script" not in answer.text.split('<div id="content-main">')[1].split("</main>")[0]
    )


def test_page_needs_a_permission_and_shows_only_permitted_sections(busy, staff):
    assert staff("view_token").get(ROOM).status_code == 403
    shown = sections(staff("view_call", name="sue").get(ROOM))
    assert [*shown] == ["Calls in progress", "Questions without an answer", "Throttles"]
    assert "<a" not in str(shown["Calls in progress"].cells[0][3])  # no link to the session


def test_page_shows_the_declared_throttles(server, staff):
    server.throttle = "100/s"
    server.tool(lambda request: "", name="slow", throttle="60/min")
    server.tool(lambda request: "", name="free")
    rows_of_server = [
        cells for cells in sections(staff("view_call").get(ROOM))["Throttles"].cells
        if cells[1] == server.public_name
    ]  # fmt: skip
    assert rows_of_server == [
        ("UserThrottle('100/s')", server.public_name, "all declarations"),
        ("UserThrottle('60/min')", server.public_name, "tool:slow"),
    ]


def test_page_shows_the_limits_of_administrators(staff):
    Switch.objects.create(server="default", thing="tool:add", rate="10/min")
    Switch.objects.create(server="default", thing="tool:refund", rate="ten/min")  # not by the form
    answer = staff("view_call", "view_switch").get(ROOM)
    effects = {str(cells[1]) for cells in sections(answer)["Kill switches"].cells}
    assert effects == {"limited to 10/min", "off, because ten/min is not a rate"}
    assert "tool:add of default, limit 10/min" in answer.text


def test_index_of_the_app_links_to_the_page(staff):
    assert f'href="{ROOM}"' in staff("view_session").get(INDEX).text
    assert ROOM not in staff("view_token", name="sue").get(INDEX).text


def test_sessions_that_were_not_seen_lately_are_not_active(busy, staff):
    long_ago = timezone.now() - timedelta(hours=1)
    rows(Session).update(last_seen=long_ago)
    client = staff("view_session")
    assert sections(client.get(ROOM))["Active sessions"].cells == []
    for query, found in (({"active": "yes"}, 0), ({"active": "no"}, 1), ({}, 1)):
        answer = client.get(page(Session, "changelist"), query)
        assert answer.context["cl"].result_count == found


def test_active_sessions_come_first(busy, staff):
    idle, seen = (
        sessions.create(server="default", owner="", user=None, revision="2025-11-25",
                        client_info={}, capabilities={})[1]
        for _ in range(2)
    )  # fmt: skip
    rows(Session).filter(pk=idle.pk).update(last_seen=timezone.now() - timedelta(hours=1))
    rows(Session).filter(pk=seen.pk).update(last_seen=timezone.now() - timedelta(minutes=1))
    listed = staff("view_session").get(page(Session, "changelist")).context["cl"].result_list
    assert [row.pk for row in listed] == [busy.session.pk, seen.pk, idle.pk]


# The buttons of a row's page.


def test_row_is_ended_by_a_button_of_its_page(busy, staff):
    client = staff("view_session", "end_session")
    html = client.get(page(Session, "change", busy.session.pk)).text
    assert f'formaction="{page(Session, "changelist")}"' in html and "End this session" in html
    client.post(page(Session, "changelist"), {"action": "end", "_selected_action": busy.session.pk})
    assert not rows(Session).exists()


def test_page_of_a_row_offers_no_action_without_its_permission(busy, staff):
    client = staff("view_session", "view_call")
    for row in (busy.session, busy.call):
        assert "formaction" not in client.get(page(type(row), "change", row.pk)).text


# Messages of a stream.


@pytest.fixture
def long_stream(recorded_session):
    """A stream with 121 messages, of which the last is a response."""
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"message": SECRET}}
    event_log.append_unlimited(recorded_session.stream.pk, [json.dumps(progress)] * 119)
    event_log.append_unlimited(
        recorded_session.stream.pk, ['{"jsonrpc": "2.0", "id": 1, "error": {}}']
    )
    return f"/admin/django_mcp/stream/{recorded_session.stream.pk}/messages/"


def test_messages_are_shown_in_order_page_by_page(long_stream, staff):
    client, numbers, kinds, query = staff("view_stream", "view_event"), [], set(), {}
    while True:
        answer = client.get(long_stream, query)
        assert SECRET not in answer.text and "Only superusers" in answer.text
        numbers += [one.seq for one in answer.context["events"]]
        kinds |= {one.kind for one in answer.context["events"]}
        if answer.context["is_last"]:
            break
        query = {"after": answer.context["following"]}
        assert f'?after={query["after"]}"' in answer.text
    assert numbers == [*range(1, 122)]
    assert kinds == {"response", "notifications/progress", "error response"}


def test_superusers_see_the_content_of_messages(long_stream, root):
    answer = root.get(long_stream)
    assert SECRET in answer.text and answer.context["calls"][0].method == "tools/call"
    for after in ("x", "-1", "9" * 30, "²"):
        assert root.get(long_stream, {"after": after}).context["events"][0].seq == 1
    assert root.get("/admin/django_mcp/stream/999/messages/").status_code == 404


@pytest.mark.parametrize("held", [[], ["view_stream"], ["view_event"]])
def test_messages_need_the_permissions_to_view_streams_and_events(long_stream, staff, held):
    assert staff(*held).get(long_stream).status_code == 403


def test_calls_are_shown_only_with_the_permission_to_view_them(long_stream, staff):
    assert "calls" not in staff("view_stream", "view_event").get(long_stream).context


# Many rows.


def test_no_page_counts_all_rows_or_reads_filter_values_from_the_table(busy, root, monkeypatch):
    monkeypatch.setattr(log, "MAX_COUNTED_ROWS", 3)
    for number in range(6):
        sessions.create(
            server="default", owner="", user=None, revision="2025-11-25",
            client_info={"number": number}, capabilities={},
        )  # fmt: skip
    ours = [model for model in admin.site._registry if model._meta.app_label == "django_mcp"]
    for address in (ROOM, *(page(model, "changelist") for model in ours)):
        with CaptureQueriesContext(connections[settings.DATABASE]) as ran:
            answer = root.get(address)
        assert answer.status_code == 200 and len(ran) <= 16, address
        for query in ran:
            sql = query["sql"].upper()
            assert "COUNT(" not in sql or "LIMIT" in sql, (address, sql)
            assert "DISTINCT" not in sql, (address, sql)
    answer = root.get(page(Session, "changelist"))
    assert answer.context["cl"].result_count == 3 and "ends after 3 rows" in answer.text


def test_action_on_all_rows_concerns_no_more_than_the_list_counts(busy, root, monkeypatch):
    monkeypatch.setattr(log, "MAX_COUNTED_ROWS", 2)
    for _ in range(3):
        sessions.create(
            server="default", owner="", user=None, revision="2025-11-25", client_info={},
            capabilities={},
        )  # fmt: skip
    body = {"action": "end", "select_across": "1", "_selected_action": [busy.session.pk]}
    root.post(page(Session, "changelist"), body)
    assert rows(Session).count() == 2


def test_calls_waiting_for_approval_are_shown_to_those_who_may_see_them(staff, alice, server):
    @server.tool(approval="shop.delete_invoice")
    def refund(request) -> None:
        """Refund an order."""

    later = timezone.now() + timedelta(hours=1)
    for tool, permission, expires in (
        ("refund", "shop.delete_invoice", later),
        ("close", "shop.delete_company", later),
        ("expired", "shop.delete_invoice", timezone.now()),
    ):
        Approval.objects.create(
            server="default", tool=tool, permission=permission, user=alice, digest=tool,
            expires=expires,
        )  # fmt: skip
    title = "Calls waiting for approval"

    def tools(client):
        return [cells[1] for cells in sections(client.get(ROOM))[title].cells]

    assert tools(staff("view_session", "view_approval")) == ["refund", "close"]
    sue = staff("view_session", name="sue")
    assert title not in sections(sue.get(ROOM))
    user = User.objects.get(username="sue")
    user.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
    assert tools(sue) == ["refund"]  # calls that she may decide about
