"""The admin of the audit log: permissions, filters, dates, the chart and the export."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone
from oauth2_provider.models import get_application_model

from django_mcp.admin.audit import OUTCOMES
from django_mcp.calls.records import CallOutcome
from django_mcp.models import AuditEntry, Switch

pytestmark = [pytest.mark.urls("tests.admin.urls"), pytest.mark.django_db]
LIST = "django_mcp_auditentry_changelist"


def page(name=LIST, *args):
    return reverse(f"admin:{name}", args=args)


def add(**given):
    values = {
        "server": "default", "method": "tools/call", "name": "refund", "user": "7",
        "username": "alice", "client": "app", "client_name": "Agent", "transport": "http",
        "revision": "2025-11-25", "outcome": "ok", "duration": 0.25, "queries": 3,
        "rows_written": 2,
    }  # fmt: skip
    return AuditEntry.objects.create(**values | given)


def listed(client, /, **query):
    response = client.get(page(), query)
    assert response.status_code == 200, query
    return [entry.pk for entry in response.context["cl"].result_list]


def test_pages_need_the_permission_to_view(staff):
    entry = add()
    addresses = [
        page(), page("django_mcp_auditentry_change", entry.pk),
        page("django_mcp_auditentry_by_day"),
    ]  # fmt: skip
    viewer, nobody = staff("view_auditentry"), staff(name="sue")
    for address in addresses:
        assert viewer.get(address).status_code == 200, address
        assert nobody.get(address).status_code == 403, address


def test_tool_of_an_entry_is_switched_off_for_its_client(root, staff):
    """From the list of a client's entries, and from the page of an entry."""
    get_application_model().objects.create(
        client_id="app", client_type="public", authorization_grant_type="authorization-code"
    )
    entry, others = add(), [add(client=""), add(client="token-7")]
    filtered = page() + "?client=app"
    shown = page("django_mcp_auditentry_change", entry.pk)
    form = "/admin/django_mcp/switch/add/?client=app"
    assert links(root, filtered) == [form]
    assert links(root, shown) == [f"{form}&what=default%7Ctool%3Arefund"]
    assert links(root, page()) == []
    for other in others:
        assert links(root, page("django_mcp_auditentry_change", other.pk)) == []
    viewer = staff("view_auditentry")
    assert links(viewer, filtered) == links(viewer, shown) == []
    initial = root.get(links(root, shown)[0]).context["adminform"].form
    root.post(form, {name: initial[name].value() or "" for name in initial.fields})
    switch = Switch.objects.get()
    assert (switch.server, switch.thing, switch.client) == ("default", "tool:refund", "app")


def links(client, address):
    """The links to the form of a kill switch."""
    found = re.findall(r'href="([^"]*/switch/add/[^"]*client=[^"]*)"', client.get(address).text)
    return [html.unescape(one) for one in found]


def test_entries_cannot_be_added_changed_or_deleted(root):
    entry = add()
    assert root.get(page("django_mcp_auditentry_add")).status_code == 403
    address = page("django_mcp_auditentry_change", entry.pk)
    assert root.post(address, {"outcome": "ok"}).status_code == 403
    assert root.post(page("django_mcp_auditentry_delete", entry.pk)).status_code == 403
    root.post(page(), {"action": "delete_selected", "_selected_action": entry.pk, "post": "yes"})
    assert AuditEntry.objects.get().outcome == "ok"


def test_filters_and_search_find_exact_values(root):
    first = add(trace_id="a" * 32, session=5)
    other = add(
        name="look", user=None, username="", client="", outcome="denied", method="prompts/get",
        server="other",
    )  # fmt: skip
    for query in (
        {"user": "7"}, {"username": "alice"}, {"client": "app"}, {"name": "refund"},
        {"session": "5"}, {"trace_id": "a" * 32}, {"outcome": "ok"}, {"method": "tools/call"},
        {"server": "default"}, {"q": "alice"}, {"q": "7"}, {"q": "app"}, {"q": "refund"},
        {"q": "a" * 32},
    ):  # fmt: skip
        assert listed(root, **query) == [first.pk], query
    assert listed(root, q="look", outcome="denied") == [other.pk]
    assert listed(root, q="ali") == listed(root, q="look", outcome="ok") == []
    assert listed(root) == [other.pk, first.pk]
    assert "2 audit entries" in root.get(page()).text


@pytest.mark.parametrize("query", [
    {"user__startswith": "7"}, {"name__regex": "r(e+)+f"}, {"arguments__contains": "a"},
    {"at__month": "1"}, {"at__day": "1"}, {"at__year": "2026", "at__day": "1"},
    {"at__year__in": "2026"}, {"duration__gt": "0"},
])  # fmt: skip
def test_queries_that_read_all_entries_are_rejected(root, query):
    add()
    assert root.get(page(), query).status_code == 400


@pytest.mark.parametrize("query", [
    {"at__year": "99999"}, {"at__year": "0"}, {"at__year": "2026", "at__month": "13"},
    {"at__year": "x"}, {"at__year": "2026", "at__month": "13", "at__day": "1"},
    {"at__year": "2026", "at__month": "2", "at__day": "30"},
    {"at__year": "1"}, {"at__year": "9999"}, {"at__year": "9999", "at__month": "12"},
    {"at__year": "9999", "at__month": "12", "at__day": "31"},
])  # fmt: skip
def test_impossible_dates_are_no_error(root, query, settings):
    settings.TIME_ZONE = "Europe/Berlin"  # the year 1 begins there before the first year of UTC
    add()
    assert root.get(page(), query, follow=True).status_code == 200


def test_dates_lead_from_years_to_days(root, settings):
    settings.TIME_ZONE = "UTC"
    days = [datetime(2024, 12, 31, 23), datetime(2025, 3, 1), datetime(2025, 3, 31, 23)]
    keys = [add(at=timezone.make_aware(day)).pk for day in days]

    def links(**query):
        context = root.get(page(), query).context
        return [text for _, text in [*filter(None, [context["back"]]), *context["dates"]]]

    assert links() == ["2024", "2025"]
    assert links(at__year=2025) == ["All dates", "January 2025", "February 2025", "March 2025"]
    assert len(links(at__year=2025, at__month=3)) == 32
    assert links(at__year=2025, at__month=3, at__day=1) == ["March 2025"]
    assert listed(root, at__year=2024) == [keys[0]]
    assert listed(root, at__year=2025, at__month=3) == [keys[2], keys[1]]
    assert listed(root, at__year=2025, at__month=3, at__day=31) == [keys[2]]
    assert listed(root, at__year=2025, at__month=2) == []
    response = root.get(page(), {"at__year": 2025, "outcome": "ok", "p": 1})
    address, _ = response.context["dates"][-1]
    assert f'href="{address.replace("&", "&amp;")}"' in response.text
    assert listed(root, **dict(one.split("=") for one in address[1:].split("&"))) == keys[:0:-1]


def test_every_outcome_has_a_label_and_a_filter(root):
    entries = {outcome: add(outcome=outcome) for outcome in CallOutcome}
    assert set(OUTCOMES) == set(CallOutcome)
    html = root.get(page()).text
    for outcome, entry in entries.items():
        assert listed(root, outcome=outcome) == [entry.pk]
        assert html.count(str(OUTCOMES[outcome])) >= 2, outcome  # the filter and the row


def test_list_runs_few_queries_and_no_query_of_all_dates(root, django_assert_max_num_queries):
    for number in range(60):
        add(name=f"tool {number}", user=str(number), client=f"impersonator:{number}")
    with django_assert_max_num_queries(8) as captured:
        assert len(listed(root)) == 50
    sql = " ".join(query["sql"] for query in captured)
    assert "DISTINCT" not in sql and '"arguments"' not in sql


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases plan by statistics.")
@pytest.mark.parametrize("dates", [{}, {"at__year": 2026, "at__month": 5}])
@pytest.mark.parametrize("query", [
    {"outcome": "failed"}, {"method": "prompts/get"}, {"server": "default"}, {"session": "5"},
    {"outcome": "failed", "method": "tools/call"}, {"user": "7"}, {"client": "app"},
    {"name": "refund"}, {"trace_id": "5"}, {"q": "alice"}, {"user": "7", "outcome": "failed"},
])  # fmt: skip
def test_filters_read_an_index_in_its_order(root, dates, query):
    add(at=datetime(2026, 5, 7, tzinfo=UTC))
    found = root.get(page(), dates | query).context["cl"].queryset
    plan = found.explain()
    assert "USING INDEX mcp_audit_" in plan and "TEMP B-TREE" not in plan


def test_entry_is_shown_escaped_with_links(root, recorded_session, alice):
    entry = add(
        arguments={"note": "<script>"}, user=str(alice.pk), session=recorded_session.session.pk,
        trace_id="b" * 32, name="<img>",
    )  # fmt: skip
    html = root.get(page("django_mcp_auditentry_change", entry.pk)).text
    assert "&quot;note&quot;: &quot;&lt;script&gt;&quot;" in html and '<script>"' not in html
    assert "<img>" not in html and "250.0 ms" in html
    for address in (
        page("auth_user_change", alice.pk),
        page("django_mcp_session_change", recorded_session.session.pk),
        f"{page()}?session={recorded_session.session.pk}",
        f"{page()}?trace_id={'b' * 32}",
        f"{page()}?user={alice.pk}",
    ):
        assert f'href="{address}"' in html


def test_list_and_page_show_who_acts_as_the_user(root, django_user_model, alice):
    sam = django_user_model.objects.create_user("sam")
    entry = add(user=str(alice.pk), username="alice", client=f"impersonator:{sam.pk}")
    for address in (page(), page("django_mcp_auditentry_change", entry.pk)):
        text = html.unescape(root.get(address).text)
        assert "sam, as alice" in text and "in the inspector" in text


def test_links_lead_only_to_pages_that_the_viewer_may_see(staff, recorded_session, alice):
    entry = add(user=str(alice.pk), session=recorded_session.session.pk)
    gone = add(user="0", session=0)
    viewer = staff("view_auditentry")
    for one in (entry, gone):
        html = viewer.get(page("django_mcp_auditentry_change", one.pk)).text
        assert "/admin/auth/user/" not in html and "/admin/django_mcp/session/" not in html


def test_chart_counts_calls_errors_and_denied_calls_by_day(root):
    now = timezone.now()
    for outcome, days in (
        ("ok", 0), ("failed", 0), ("error", 0), ("denied", 0), ("ok", 2), ("ok", 31),
    ):  # fmt: skip
        add(outcome=outcome, at=now - timedelta(days=days))
    response = root.get(page("django_mcp_auditentry_by_day"))
    days = response.context["days"]
    counts = [(day["calls"], day["errors"], day["denied"]) for day in days]
    assert counts == [(4, 2, 1), (0, 0, 0), (1, 0, 0), *[(0, 0, 0)] * 27]
    assert (days[0]["calls_width"], days[0]["errors_width"], days[2]["calls_width"]) == (
        400,
        200,
        100,
    )
    assert len(listed(root, **dict(one.split("=") for one in days[0]["query"].split("&")))) == 4


# Export.


def export(client, format="csv", query=""):
    return client.post(f"{page('django_mcp_auditentry_export')}{query}", {"format": format})


def test_export_needs_its_permission(staff):
    add()
    viewer, other = staff("view_auditentry"), staff("export_auditentry", name="sue")
    assert "Export as CSV" not in viewer.get(page()).text
    assert export(viewer).status_code == export(other).status_code == 403
    exporter = staff("view_auditentry", "export_auditentry", name="tom")
    assert "Export as CSV" in exporter.get(page()).text
    assert export(exporter).status_code == 200
    assert exporter.get(page("django_mcp_auditentry_export")).status_code == 400
    assert export(exporter, "xml").status_code == 400


def test_export_has_the_entries_of_the_filters(root, monkeypatch):
    monkeypatch.setattr("django_mcp.management.audit_export.ENTRIES_PER_PAGE", 2)
    keys = [add(arguments={"n": number}).pk for number in range(5)]
    add(outcome="failed")
    response = export(root, query="?outcome=ok")
    assert response["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(response).decode())))
    assert [int(row["id"]) for row in rows] == keys
    assert json.loads(rows[4]["arguments"]) == {"n": 4} and rows[4]["outcome"] == "ok"
    assert datetime.fromisoformat(rows[4]["at"]).tzinfo is not None
    lines = b"".join(export(root, "jsonl")).decode().splitlines()
    assert [json.loads(line)["id"] for line in lines][:5] == keys and len(lines) == 6
    first = LogEntry.objects.earliest("pk")
    assert first.user.username == "root"
    assert first.get_change_message() == "Exported as csv: outcome=ok"
    assert export(root, query="?arguments__contains=a").status_code == 400


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_exported_cells_are_no_formulas(root, start):
    """Attack: a client calls itself so that the spreadsheet of an administrator runs a formula."""
    text = f"{start}HYPERLINK(1)"
    add(client_name=text, name=text, username=text)
    (row,) = csv.DictReader(io.StringIO(b"".join(export(root)).decode(), newline=""))
    assert row["client_name"] == row["name"] == row["username"] == f"'{text}"


def test_export_is_streamed_under_asgi(shared_db, root, monkeypatch):
    """Django reads a synchronous iterator to its end before it sends anything."""
    monkeypatch.setattr("django_mcp.management.audit_export.ENTRIES_PER_PAGE", 1)
    for _ in range(3):
        add()
    client = AsyncClient()
    client.cookies = root.cookies

    async def parts():
        address = page("django_mcp_auditentry_export")
        response = await client.post(address, {"format": "jsonl"})
        assert response.is_async
        return [part async for part in response]

    assert len(async_to_sync(parts)()) == 3
