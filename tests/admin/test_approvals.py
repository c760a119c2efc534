"""The admin of approvals: who sees and decides what, and dry runs that leave nothing behind."""

from __future__ import annotations

import importlib
import time
from html import unescape

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, connections, transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.test import Client
from django.urls import clear_url_caches, reverse
from django.utils import translation

import django_mcp as mcp
from django_mcp.calls.approval_mail import send_approval_mail
from django_mcp.models import Approval, ApprovalStatus, Session
from tests.admin import urls
from tests.shop.models import Company, Customer, Invoice, Note, Tag

pytestmark = [pytest.mark.urls("tests.admin.urls"), pytest.mark.django_db]
LIST = "/admin/django_mcp/approval/"
APPROVE, DRY_RUN = {"_approve": "1"}, {"_dry_run": "1"}


def staff(name: str, *codenames: str, **fields) -> Client:
    user = User.objects.create_user(name, password="x", is_staff=True, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def page(approval: Approval) -> str:
    return reverse("admin:django_mcp_approval_change", args=[approval.pk])


@pytest.fixture
def approver():
    return staff("carol", "delete_invoice")


@pytest.fixture
def called(connect, server, alice):
    """Return a function that calls a tool as Alice, and returns the request for approval."""

    def called(tool, **arguments) -> Approval:
        before = {*Approval.objects.values_list("pk", flat=True)}
        assert "must be approved by" in connect(alice, server=server).failure(tool, **arguments)
        return Approval.objects.exclude(pk__in=before).get()

    return called


@pytest.fixture
def tool(server):
    """Return a function that declares a tool with an approval."""

    def tool(function=None, **options):
        options = {"approval": "shop.delete_invoice", "transactional": True} | options
        return server.tool(**options)(function) if function else server.tool(**options)

    return tool


@pytest.fixture
def close(tool, called):
    @tool
    def close(request, name: str = "", note: str = "") -> str:
        """Close a company for ever."""
        return "closed"

    return lambda **arguments: called("close", **arguments)


# Who sees and decides.


def test_approver_sees_and_decides_only_calls_of_their_permission(tool, called, approver):
    @tool(approval="shop.delete_company")
    def other(request) -> str:
        return ""

    @tool
    def mine(request) -> str:
        return ""

    others, own = called("other"), called("mine")
    assert "Approvals" in approver.get("/admin/").text
    text = approver.get(LIST).text
    assert page(own) in text and page(others) not in text
    assert approver.get(page(own)).status_code == 200
    assert approver.get(page(others)).status_code == 302
    assert approver.post(page(others), APPROVE).status_code == 302
    others.refresh_from_db()
    assert others.status == ApprovalStatus.PENDING


def test_queryset_of_the_project_hides_calls_of_other_companies_in_the_admin(
    close, approver, alice, settings
):
    """It applies to approvers, to staff who look at all approvals, and to superusers."""
    path = "tests.shop.approvals.calls_of_colleagues"
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"APPROVALS": {"QUERYSET": path}}
    row = close(name="Acme")
    company = Company.objects.create(name="A")
    company.members.add(alice)
    room = "/admin/django_mcp/session/control-room/"
    viewer = staff("vera", "view_approval", "view_session")
    root = staff("root", is_superuser=True)
    for client in (approver, viewer, root):
        assert page(row) not in client.get(LIST).text
        assert page(row) not in client.get(room).text
        for action in (None, APPROVE, DRY_RUN, {"_refuse": "1"}):
            answer = client.get(page(row)) if action is None else client.post(page(row), action)
            assert answer.status_code in (302, 403) and "Acme" not in answer.text
    row.refresh_from_db()
    assert row.status == ApprovalStatus.PENDING
    company.members.set(User.objects.all())
    for client in (approver, viewer, root):
        assert page(row) in client.get(LIST).text
        assert "Acme" in client.get(page(row)).text
    assert approver.post(page(row), APPROVE).status_code == 302
    row.refresh_from_db()
    assert row.status == ApprovalStatus.APPROVED


def test_staff_without_permission_see_nothing(close):
    client, row = staff("sam", "view_session"), close()
    assert "Approvals" not in client.get("/admin/").text
    assert client.get(LIST).status_code == 403
    assert client.post(page(row), APPROVE).status_code in (302, 403)
    row.refresh_from_db()
    assert row.status == ApprovalStatus.PENDING


def test_page_list_and_mail_show_who_acts_as_the_user(close, approver, mailoutbox):
    """Otherwise an approver would believe that Alice herself has made the call."""
    sam, row = User.objects.create_user("sam"), close()
    User.objects.filter(username="carol").update(email="carol@shop.example")
    Approval.objects.update(caller=row.caller | {"impersonator": str(sam.pk)})
    send_approval_mail(row.pk)
    texts = [approver.get(page(row)).text, approver.get(LIST).text, mailoutbox[0].body]
    assert all("sam, as alice in the inspector" in text for text in texts)
    key = sam.pk
    sam.delete()
    assert f"user {key}, as alice in the inspector" in approver.get(page(row)).text


def test_viewer_looks_and_does_not_decide(close):
    viewer, row = staff("vera", "view_approval"), close(name="Acme")
    assert page(row) in viewer.get(LIST).text
    shown = viewer.get(page(row)).text
    assert "Acme" in shown and "You need the permission shop.delete_invoice" in shown
    assert "_approve" not in shown and "_dry_run" not in shown
    for action in (APPROVE, DRY_RUN, {"_refuse": "1"}):
        assert viewer.post(page(row), action).status_code == 403
    row.refresh_from_db()
    assert row.status == ApprovalStatus.PENDING


def test_superuser_does_not_decide_about_own_call(close, alice):
    User.objects.filter(pk=alice.pk).update(is_superuser=True, is_staff=True)
    client, row = Client(), close()
    client.force_login(alice)
    assert "Somebody else must decide" in client.get(page(row)).text
    for action in (APPROVE, DRY_RUN, {"_refuse": "1"}):
        assert client.post(page(row), action).status_code == 403
    row.refresh_from_db()
    assert row.status == ApprovalStatus.PENDING


def test_approval_is_recorded_in_the_history(close, approver):
    row = close()
    assert approver.post(page(row), APPROVE).url == LIST
    row.refresh_from_db()
    assert (row.status, row.decided_by.username) == (ApprovalStatus.APPROVED, "carol")
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message, entry.user.username) == (
        str(row.pk), "Approved.", "carol"
    )  # fmt: skip
    assert "_approve" not in approver.get(page(row)).text
    assert "decided by somebody else" in approver.post(page(row), APPROVE, follow=True).text
    assert LogEntry.objects.count() == 1


def test_refusal_needs_a_short_reason_and_records_it(close, approver):
    row = close()
    long = approver.post(page(row), {"_refuse": "1", "reason": "x" * 1001})
    assert long.status_code == 200 and "at most 1000 characters" in long.text
    approver.post(page(row), {"_refuse": "1", "reason": "They still owe us."})
    row.refresh_from_db()
    assert (row.status, row.reason) == (ApprovalStatus.REFUSED, "They still owe us.")
    assert LogEntry.objects.get().change_message == "Refused. They still owe us."


def test_history_is_in_the_language_of_the_site(close, approver, settings):
    settings.LANGUAGE_CODE = "de"
    row = close()
    with translation.override("fr"):  # the language of the approver
        approver.post(page(row), APPROVE)
        approver.post(page(row), {"_refuse": "1", "reason": "They still owe us."})
        Approval.objects.update(status=ApprovalStatus.PENDING)
        approver.post(page(row), {"_refuse": "1"})
    found = LogEntry.objects.order_by("pk").values_list("change_message", flat=True)
    assert list(found) == ["Freigegeben.", "Abgelehnt. They still owe us.", "Abgelehnt."]


def test_link_or_another_site_cannot_decide(close, approver):
    row = close()
    assert approver.get(page(row) + "?_approve=1").status_code == 200
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="carol"))
    assert strict.post(page(row), APPROVE).status_code == 403
    row.refresh_from_db()
    assert row.status == ApprovalStatus.PENDING and not LogEntry.objects.exists()


def test_arguments_cannot_hide_or_execute_anything(close, approver):
    row = close(name="<script>alert(1)</script>", note="pay \u202e001\u202c\u200b € ok")
    text = approver.get(page(row)).text
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert "\\u202e001\\u202c\\u200b € ok" in text and "\u202e" not in text


@pytest.mark.parametrize("invisible", ["\u034f", "\u3164", "\ufe0f", "\uffa0", "\U000e0101"])
def test_marks_and_letters_that_show_nothing_are_escaped(close, approver, invisible):
    """Attack: text that the approver cannot see, in characters that are no control characters."""
    text = approver.get(page(close(name=f"a{invisible}b"))).text
    escaped = invisible.encode("unicode_escape").decode()
    assert f"a{escaped}b" in text and invisible not in text


def test_dry_run_is_recorded_in_the_history(tool, called, approver):
    @tool
    def nothing(request) -> str:
        return ""

    row = called("nothing")
    approver.post(page(row), DRY_RUN)
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message, entry.user.username) == (
        str(row.pk), "Dry run", "carol"
    )  # fmt: skip


def test_waiting_calls_come_first_and_queries_do_not_grow(
    close, approver, django_assert_num_queries
):
    rows = [close(name=str(number)) for number in range(3)]
    rows[2].approve(User.objects.get(username="carol"))
    shown = [one.pk for one in approver.get(LIST).context["cl"].result_list]
    assert shown == [rows[1].pk, rows[0].pk, rows[2].pk]
    with django_assert_num_queries(6):
        approver.get(LIST)
    close(name="another")
    with django_assert_num_queries(6):
        approver.get(LIST)


def test_page_in_german(close, approver):
    row = close()
    with translation.override("de"):
        assert approver.get(page(row), headers={"accept-language": "de"}).status_code == 200


# Dry runs.


@pytest.fixture
def shown_in_admin():
    """Register models in the admin, until the test ends."""
    registered = []

    def register(model, cls=admin.ModelAdmin):
        admin.site.register(model, cls)
        registered.append(model)
        reload_urls()

    yield register
    for model in registered:
        admin.site.unregister(model)
    reload_urls()


def reload_urls():
    """Make the URLs of the admin again, which has one list per app."""
    importlib.reload(urls)
    clear_url_caches()


@pytest.fixture
def hooks():
    return []


@pytest.fixture
def change(tool, called, invoice, hooks):
    """A call that creates, changes and deletes rows, with and without signals."""
    acme = Company.objects.get(name="Acme")
    Customer.objects.create(company=acme, name="Dora")

    @tool
    def change(request, note: str) -> str:
        hooks.append(request.user.username)
        transaction.on_commit(lambda: hooks.append("committed"))
        row = Invoice.objects.get()
        row.status, row.total = Invoice.Status.PAID, F("total") + 1
        row.save()
        row.tags.add(Tag.objects.create(label="late"))
        Note.objects.create(text="nobody reads this")
        Customer.objects.get(name="Dora").delete()
        Customer.objects.update(notes="bulk")
        return "changed"

    return called("change", note="n")


def run(client: Client, approval: Approval):
    response = client.post(page(approval), DRY_RUN)
    assert response.status_code == 200
    return response.context["dry_run"], response.text


def tables(outcome):
    return dict(outcome.tables)


def state():
    return [
        [*model.objects.order_by("pk").values()]
        for model in (Company, Customer, Invoice, Tag, Note)
    ]


def test_dry_run_shows_changed_rows_and_changes_nothing(change, approver, shown_in_admin, hooks):
    carol = User.objects.get(username="carol")
    carol.user_permissions.add(
        *Permission.objects.filter(codename__in=["view_invoice", "view_customer", "view_tag"])
    )
    for model in (Invoice, Customer, Tag):
        shown_in_admin(model)
    before = state()
    outcome, text = run(approver, change)
    assert state() == before and hooks == ["alice"]
    found = {(row.model, row.action): row for row in outcome.rows}
    assert not outcome.problem and not outcome.is_cut
    values = {one.name: (one.before, one.after) for one in found[Invoice, "changed"].fields}
    tag = found[Tag, "created"]
    assert values == {
        "status": ("open", "paid"), "total": ("12.50", "13.50"), "tags": ("[]", f"[{tag.key}]")
    }  # fmt: skip
    assert {one.name: one.after for one in tag.fields}["label"] == "late"
    deleted = {one.name: (one.before, one.after) for one in found[Customer, "deleted"].fields}
    assert deleted["name"] == ("Dora", None)
    # Not in the admin: only its model and key are shown.
    note = found[Note, "created"]
    assert note.is_hidden and note.fields == ()
    assert "You may not view this row." in text and "13.50" in text and "nobody reads" not in text
    # ``update()`` sends no signal, so it shows only among the numbers.
    assert tables(outcome)["shop_customer"] == 2 and tables(outcome)["shop_invoice"] == 1
    assert tables(outcome)["shop_note"] == 1
    change.refresh_from_db()
    assert change.status == ApprovalStatus.PENDING


def test_dry_run_shows_rows_and_fields_only_as_the_admin_does(change, approver, shown_in_admin):
    class Restricted(admin.ModelAdmin):
        fields = ["number"]

    class Nobodys(admin.ModelAdmin):
        def get_queryset(self, request):
            return super().get_queryset(request).none()

    carol = User.objects.get(username="carol")
    carol.user_permissions.set(
        Permission.objects.filter(codename__in=["view_invoice", "view_customer", "delete_invoice"])
    )
    shown_in_admin(Invoice, Restricted)
    shown_in_admin(Customer, Nobodys)
    shown_in_admin(Tag)  # without permission
    outcome, text = run(approver, change)
    found = {(row.model, row.action): row for row in outcome.rows}
    assert found[Invoice, "changed"].fields == () and "13.50" not in text
    assert "You may not view the changed fields." in text
    for key in ((Customer, "deleted"), (Tag, "created")):
        assert found[key].is_hidden
    assert "Dora" not in text and "late" not in text


def test_dry_run_shows_the_error_of_the_call(tool, called, approver, invoice):
    @tool
    def fail(request) -> str:
        Company.objects.create(name="Never")
        raise mcp.ToolError("It is paid already.")

    @tool
    def bug(request) -> str:
        raise ValueError("a secret of the code")

    outcome, text = run(approver, called("fail"))
    assert outcome.problem == "It is paid already." and outcome.problem in text
    outcome, text = run(approver, called("bug"))
    assert outcome.problem == "ValueError" and "a secret of the code" not in text
    assert not Company.objects.filter(name="Never").exists()


def test_dry_run_stops_at_questions_and_steps(tool, called, approver):
    done = []

    @tool
    def ask(request) -> str:
        Company.objects.create(name="Before")
        request.elicit("Which company?", str)
        Company.objects.create(name="After")
        return ""

    @tool
    def step(request) -> str:
        request.once("charge", lambda: done.append("charged"))
        return ""

    outcome, text = run(approver, called("ask"))
    assert outcome.question == "Which company?" and "Which company?" in text
    assert tables(outcome) == {"shop_company": 1} and len(outcome.rows) == 1
    outcome, text = run(approver, called("step"))
    assert outcome.step == "charge" and done == []
    assert not Company.objects.filter(name="Before").exists()


@pytest.mark.parametrize("options", [{"transactional": False}, {"name": "pay"}])
def test_call_with_other_effects_or_secrets_has_no_dry_run(tool, called, approver, options):
    done = []

    @tool(**{"name": "plain"} | options)
    def plain(request, password: str = "", amount: int = 1) -> str:
        done.append("sent")
        return ""

    secret = {"password": "x"} if "transactional" not in options else {}
    row = called(options.get("name", "plain"), **secret)
    assert "_dry_run" not in approver.get(page(row)).text
    outcome, text = run(approver, row)
    assert outcome is None and done == []


def test_dry_run_refuses_to_write_to_another_database(tool, called, approver, settings):
    if "mcp" not in connections:
        pytest.skip("There is one database.")

    @tool
    def elsewhere(request) -> str:
        with connections["mcp"].cursor() as cursor:
            cursor.execute("DELETE FROM django_mcp_process")
        return ""

    outcome, _ = run(approver, called("elsewhere"))
    assert "writes to the database 'mcp'" in outcome.problem


@pytest.fixture
def other_database():
    """The alias of another database than that of the tool's transaction, with its own connection.

    It is the session database if that is another one, or else the same database again.
    """
    if "mcp" in connections:
        yield "mcp"
        return
    connections.settings["other"] = connections.settings["default"]
    # Django's tests reject ``ensure_connection`` for a database that they do not know.
    connections["other"].connect()
    yield "other"
    connections["other"].close()
    del connections["other"], connections.settings["other"]


def qualified(rows):
    """A filter on a window function, which Django compiles to nested SELECTs."""
    newest = Window(RowNumber(), partition_by="server", order_by="-pk")
    return rows.annotate(number=newest).filter(number=1)


def analyzed(rows):
    """The option with which the database executes the statement, unless it is SQLite."""
    return {"analyze": True} if connections[rows.db].vendor != "sqlite" else {}


READS = {
    "union": lambda one, two: [*one.union(two)],
    "ordered union": lambda one, two: [*one.union(two, all=True).order_by("pk")[:3]],
    "nested union": lambda one, two: [*one.union(two).union(two.union(one))],
    "intersection": lambda one, two: [*one.intersection(two)],
    "difference": lambda one, two: [*one.difference(two)],
    "count": lambda one, two: one.union(two).count(),
    "exists": lambda one, two: one.union(two).exists(),
    "subquery": lambda one, two: [*one.filter(pk__in=two.values("pk"))],
    "window": lambda one, two: [*qualified(one)],
    "iterator": lambda one, two: [*one.union(two).iterator()],
    "explain": lambda one, two: one.explain(),
    "explain analyze": lambda one, two: one.explain(**analyzed(one)),
    "explain union": lambda one, two: one.union(two).explain(),
}


@pytest.mark.parametrize("kind", READS)
def test_dry_run_reads_from_another_database(tool, called, approver, other_database, kind):
    @tool
    def look(request) -> str:
        rows = Session.objects.using(other_database)
        READS[kind](rows.filter(pk__gt=1), rows.filter(pk__gt=2))
        return "looked"

    outcome, _ = run(approver, called("look"))
    assert outcome.problem == ""


@pytest.mark.parametrize(
    "statement",
    [
        "WITH gone AS (DELETE FROM django_mcp_process RETURNING id) SELECT id FROM gone",
        "(WITH gone AS (DELETE FROM django_mcp_process RETURNING id) SELECT id FROM gone)",
        "/*! DELETE FROM django_mcp_process */",  # MariaDB executes this comment
        "/* read */ DELETE FROM django_mcp_process",
        "-- SELECT\nDELETE FROM django_mcp_process",
        "(DELETE FROM django_mcp_process)",
        "EXPLAIN ANALYZE DELETE FROM django_mcp_process",
        "EXPLAIN (ANALYZE) UPDATE django_mcp_process SET id = (SELECT id FROM django_mcp_process)",
        "ANALYZE DELETE FROM django_mcp_process",
    ],
)
def test_dry_run_refuses_a_statement_that_may_write_to_another_database(
    tool, called, approver, other_database, statement
):
    @tool
    def elsewhere(request) -> str:
        with connections[other_database].cursor() as cursor:
            cursor.execute(statement)
        return ""

    outcome, _ = run(approver, called("elsewhere"))
    assert outcome.problem.startswith(f"The tool writes to the database {other_database!r}")


def test_dry_run_knows_who_acts_as_the_user(tool, called, approver):
    seen = []

    @tool
    def look(request) -> str:
        seen.append(request.principal.impersonator)
        return ""

    row = called("look")
    row.caller["impersonator"] = "7"
    row.save()
    run(approver, row)
    assert seen == ["7"]


def test_dry_run_reports_a_refused_write_whose_error_the_tool_ignores(tool, called, approver):
    if "mcp" not in connections:
        pytest.skip("There is one database.")

    @tool
    def elsewhere(request) -> str:
        try:
            with connections["mcp"].cursor() as cursor:
                cursor.execute("DELETE FROM django_mcp_session")
        except Exception:
            return "ignored"
        return "written"

    outcome, text = run(approver, called("elsewhere"))
    assert "writes to the database 'mcp'" in outcome.problem and outcome.problem in unescape(text)


def wait_until_cancelled(request):
    end = time.monotonic() + 20
    while not request.cancelled and time.monotonic() < end:
        time.sleep(0.01)


def test_dry_run_has_the_time_limit_of_the_tool(tool, called, approver, invoice):
    @tool(timeout=0.05)
    def slow(request) -> str:
        Invoice.objects.update(number="later")
        wait_until_cancelled(request)
        Invoice.objects.update(number="too late")
        return "done"

    outcome, text = run(approver, called("slow"))
    assert outcome.problem == "slow took longer than 0.05 s and was stopped."
    invoice.refresh_from_db()
    assert outcome.problem in text and "late" not in invoice.number


def test_dry_run_without_queries_after_the_time_limit_reports_it(tool, called, approver):
    @tool(timeout=0.05)
    def slow(request) -> str:
        wait_until_cancelled(request)
        return "done"

    outcome, _ = run(approver, called("slow"))
    assert "took longer than 0.05 s" in outcome.problem


def test_dry_run_runs_as_the_caller_with_their_rows(tool, called, approver, server, invoice, bob):
    @mcp.register(Invoice, server=server)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    @tool(permission="shop.change_invoice")
    def void(request, invoice: Invoice) -> str:
        invoice.delete()
        return ""

    row = called("void", invoice=invoice.pk)
    outcome, _ = run(approver, row)
    assert [(one.action, one.key) for one in outcome.rows] == [("deleted", str(invoice.pk))]
    assert Invoice.objects.exists()
    User.objects.get(username="alice").user_permissions.clear()
    outcome, _ = run(approver, row)
    assert "may not use this tool any more" in outcome.problem
    User.objects.filter(username="alice").update(is_active=False)
    assert run(approver, row)[0].problem


def test_dry_run_shows_a_limited_number_of_rows(tool, called, approver):
    @tool
    def many(request) -> str:
        for number in range(203):
            Company.objects.create(name=f"Company {number}")
        return ""

    outcome, text = run(approver, called("many"))
    assert len(outcome.rows) == 200 and outcome.is_cut and "There are more rows" in text
    assert tables(outcome) == {"shop_company": 203}
    assert connection.in_atomic_block  # the test's own transaction is intact


def test_dry_run_of_a_decided_call_does_nothing(close, approver):
    row = close()
    row.refuse(User.objects.get(username="carol"))
    assert run(approver, row)[0] is None


def test_page_of_a_tool_that_is_gone(close, approver):
    row = close()
    Approval.objects.update(tool="gone")
    text = staff("vera", "view_approval", "delete_invoice").get(page(row)).text
    assert "does not have this tool any more" in text
