"""Calls that a second person must approve: who can approve what, and that it runs once."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, connections, transaction
from django.utils import timezone
from pydantic import BaseModel, SecretStr

import django_mcp as mcp
from django_mcp import signals
from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls import approvals
from django_mcp.calls.approval_mail import recipients
from django_mcp.declarations.redaction import MASK
from django_mcp.models import Approval, ApprovalStatus, AuditEntry, Token
from django_mcp.storage import approvals as rows
from django_mcp.storage.retention import prune
from tests.client import CLIENT_INFO, Client, RpcError
from tests.shop.models import Company, Invoice

from ..storage.rows import given
from .session_client import SessionClient, abandoned_call, text

APPROVAL = "shop.delete_invoice"
YES = {"action": "accept", "content": {"answer": True}}
ANSWERS = {"elicitation/create": lambda params: YES}


@pytest.fixture
def carol(db):
    """An approver."""
    user = User.objects.create_user("carol", "carol@shop.example", "x")
    user.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
    return User.objects.get(pk=user.pk)


@pytest.fixture
def server(server, runs):
    @server.tool(approval=APPROVAL)
    def close(request, name: str, note: str = "") -> str:
        """Close a company."""
        runs.append(name)
        Company.objects.create(name=f"{name} {len(runs)}")
        return "closed"

    return server


def only() -> Approval:
    return Approval.objects.get()


def approve(carol, approval=None):
    assert (approval or only()).approve(carol)


def waiting(result: str) -> bool:
    return result.startswith(
        "This call must be approved by somebody with the permission " + APPROVAL
    )


# A call and its decision.


def test_call_runs_once_after_approval_in_every_revision(
    connect, server, alice, carol, runs, revision
):
    client = connect(alice, server=server, revision=revision)
    message = client.failure("close", name="Acme")
    assert waiting(message) and f"(request {only().pk})" in message
    assert message.endswith("Call it again with the same arguments after it has been approved.")
    assert client.failure("close", name="Acme") == message and runs == []
    approve(carol)
    assert client.text("close", name="Acme") == "closed"
    assert runs == ["Acme"] and only().status == ApprovalStatus.USED
    assert waiting(client.failure("close", name="Acme")) and runs == ["Acme"]
    assert Approval.objects.count() == 2


@pytest.mark.parametrize("atomic", [True, False])
def test_audit_entries_name_the_approval(connect, server, alice, carol, atomic):
    server.audit = True
    server._catalog.tools["close"].atomic = atomic
    client = connect(alice, server=server)
    for decide in (approve, lambda carol, approval: approval.refuse(carol)):
        client.failure("close", name="Acme")
        decide(carol, Approval.objects.latest("pk"))
        client.call("close", name="Acme")
    approved, refused = Approval.objects.order_by("pk").values_list("pk", flat=True)
    found = AuditEntry.objects.order_by("pk").values_list("outcome", "approval")
    assert list(found) == [
        ("approval_pending", approved), ("ok", approved),
        ("approval_pending", refused), ("error", refused),
    ]  # fmt: skip


@pytest.mark.parametrize("atomic", [True, False])
def test_audit_entry_counts_only_the_rows_and_queries_of_the_tool(
    connect, server, alice, carol, atomic
):
    """The server itself writes to the approval, and reads the permissions of the approver."""

    @server.tool(atomic=atomic)
    def close_alone(request, name: str) -> str:
        Company.objects.create(name=name)
        return "closed"

    server.audit = True
    server._catalog.tools["close"].atomic = atomic
    client = connect(alice, server=server)
    client.call("close_alone", name="Bolts")
    client.failure("close", name="Acme")
    approve(carol)
    client.call("close", name="Acme")
    alone, _, approved = AuditEntry.objects.order_by("pk").values_list("rows_written", "queries")
    assert alone == approved == (1, 1)


def test_every_decision_is_in_the_history_of_the_admin(connect, server, alice, carol):
    connect(alice, server=server).failure("close", name="Acme")
    approve(carol)
    only().refuse(carol, "They still owe us.")
    entries = LogEntry.objects.filter(object_id=str(only().pk), user=carol).order_by("pk")
    messages = [one.change_message for one in entries]
    assert messages == ["Approved.", "Refused. They still owe us."]


def test_refused_call_does_not_run_and_tells_the_reason(connect, server, alice, carol, runs):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    assert only().refuse(carol, "They still owe us.")
    expected = f"Somebody with the permission {APPROVAL} refused this call (request {only().pk})"
    assert client.failure("close", name="Acme") == f"{expected}: They still owe us."
    assert runs == [] and Approval.objects.count() == 1


def test_approval_can_be_taken_back_until_it_is_used(connect, server, alice, carol, runs):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    assert only().refuse(carol) and not only().approve(carol)
    assert "refused this call" in client.failure("close", name="Acme") and runs == []


def test_outcome_of_a_waiting_call_is_recorded(connect, server, alice):
    outcomes = []

    def receive(sender, record, **kwargs):
        outcomes.append(str(record.outcome))

    signals.call_finished.connect(receive)
    try:
        connect(alice, server=server).failure("close", name="Acme")
    finally:
        signals.call_finished.disconnect(receive)
    assert outcomes == ["approval_pending"]


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "a\u202eb", "a" * 300])
def test_name_of_a_client_fails_no_insert_and_forges_nothing(
    connect, server, alice, monkeypatch, name
):
    """Attack: NUL makes an INSERT fail on PostgreSQL."""
    monkeypatch.setitem(CLIENT_INFO, "name", name)
    assert waiting(connect(alice, server=server).failure("close", name="Acme"))
    escaped = name.encode("unicode_escape").decode()
    assert only().client == f"{escaped} 1"[:255]


class Replica:
    """A router as for a primary database with a read replica."""

    def db_for_read(self, model, **hints):
        return "replica"

    def db_for_write(self, model, **hints):
        return "default"

    def allow_relation(self, one, other, **hints):
        return True


def test_decision_is_written_to_the_primary_database(connect, server, alice, carol, settings):
    """A replica is behind, or rejects writes. A decision there would be lost."""
    connect(alice, server=server).failure("close", name="Acme")
    read = only()
    read._state.db = "replica"  # as a query that the router sends there
    assert carol.has_perm(APPROVAL)  # kept by Django, because there is no replica to ask
    settings.DATABASE_ROUTERS = [Replica()]
    assert read.approve(carol)
    assert Approval.objects.using("default").get().status == ApprovalStatus.APPROVED


# Who may decide.


@pytest.mark.parametrize("is_superuser", [False, True])
def test_nobody_approves_their_own_call(connect, server, alice, runs, is_superuser):
    alice.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
    User.objects.filter(pk=alice.pk).update(is_superuser=is_superuser)
    alice = User.objects.get(pk=alice.pk)
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    for decide in (only().approve, only().refuse):
        with pytest.raises(PermissionDenied, match="Somebody else"):
            decide(alice)
    assert waiting(client.failure("close", name="Acme")) and runs == []


def test_approver_needs_the_permission_and_an_active_account(connect, server, alice, bob, carol):
    connect(alice, server=server).failure("close", name="Acme")
    carol.is_active = False
    for user in (bob, carol):
        with pytest.raises(PermissionDenied, match=APPROVAL):
            only().approve(user)
    assert only().status == ApprovalStatus.PENDING


@pytest.mark.parametrize("loss", ["permission", "account", "deleted"])
def test_approval_ends_with_the_right_of_its_approver(connect, server, alice, carol, runs, loss):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    if loss == "permission":
        carol.user_permissions.clear()
    elif loss == "account":
        User.objects.filter(pk=carol.pk).update(is_active=False)
    else:
        carol.delete()
    assert waiting(client.failure("close", name="Acme")) and runs == []
    assert [*Approval.objects.order_by("pk").values_list("status", flat=True)] == [
        ApprovalStatus.EXPIRED, ApprovalStatus.PENDING
    ]  # fmt: skip


@pytest.fixture
def tenants(settings, alice, carol):
    """Carol approves calls of her company. Alice is in another one. Return both companies."""
    path = "tests.shop.approvals.calls_of_colleagues"
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"APPROVALS": {"QUERYSET": path}}
    of_alice, of_carol = (Company.objects.create(name=name) for name in ("A", "C"))
    of_alice.members.add(alice), of_carol.members.add(carol)
    return of_alice, of_carol


def test_approver_of_another_company_neither_decides_nor_gets_mail(
    connect, server, alice, carol, runs, tenants
):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    assert [*recipients(only())] == []
    for decide in (only().approve, only().refuse):
        with pytest.raises(PermissionDenied, match="You may not decide about this call"):
            decide(carol)
    User.objects.filter(pk=carol.pk).update(is_superuser=True)
    with pytest.raises(PermissionDenied):
        only().approve(User.objects.get(pk=carol.pk))
    tenants[0].members.add(carol)
    assert [*recipients(only())] == [carol.email]
    approve(carol)
    assert client.text("close", name="Acme") == "closed" and runs == ["Acme"]


def test_approval_of_a_person_who_left_the_company_does_not_count(
    connect, server, alice, carol, runs, tenants
):
    tenants[0].members.add(carol)
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    tenants[0].members.remove(carol)
    assert waiting(client.failure("close", name="Acme")) and runs == []


def test_function_that_raises_lets_nobody_decide(
    connect, server, alice, carol, runs, tenants, monkeypatch
):
    tenants[0].members.add(carol)
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    monkeypatch.setattr("tests.shop.approvals.get_user_model", None)
    with pytest.raises((RpcError, AssertionError)):
        client.text("close", name="Acme")
    assert runs == [] and only().status == ApprovalStatus.APPROVED


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("loss", ["permission", "account", "deleted"])
def test_approver_who_loses_the_right_just_before_the_call_does_not_count(
    connect, server, alice, carol, runs, monkeypatch, loss, atomic
):
    """The approver loses it after the call has found the approval and before it uses it."""
    server._catalog.tools["close"].atomic = atomic
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    find = rows.find_or_close

    def find_and_lose(*arguments):
        found = find(*arguments)
        if loss == "permission":
            carol.user_permissions.clear()
        elif loss == "account":
            User.objects.filter(pk=carol.pk).update(is_active=False)
        else:
            User.objects.filter(pk=carol.pk).delete()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(rows, "find_or_close", find_and_lose)
        message = client.failure("close", name="Acme")
    assert message == approvals.NOT_VALID_ANY_MORE and runs == []
    assert waiting(client.failure("close", name="Acme")) and runs == []
    assert [*Approval.objects.order_by("pk").values_list("status", "used")] == [
        (ApprovalStatus.EXPIRED, None), (ApprovalStatus.PENDING, None)
    ]  # fmt: skip


def test_call_of_a_deleted_user_cannot_be_approved(connect, server, alice, carol):
    connect(alice, server=server).failure("close", name="Acme")
    alice.delete()
    with pytest.raises(PermissionDenied, match="was deleted"):
        only().approve(carol)


def test_two_decisions_cannot_both_win(connect, server, alice, carol):
    connect(alice, server=server).failure("close", name="Acme")
    first, second = only(), only()
    assert first.approve(carol) and not second.approve(carol)
    assert first.refuse(carol) and not second.refuse(carol)
    assert only().status == ApprovalStatus.REFUSED


# What is approved.


@pytest.mark.parametrize(
    "arguments",
    [{"name": "Bolts"}, {"name": "Acme "}, {"name": "Acme", "note": ""}, {"name": "acme"}],
)
def test_other_arguments_need_another_approval(connect, server, alice, carol, runs, arguments):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    assert waiting(client.failure("close", **arguments)) and runs == []


class TokenClient(Client):
    """A client with a token."""

    async def _principal(self) -> Principal:
        return Principal(self.user, Auth(key="token 1"))


def test_approval_is_bound_to_user_client_server_and_tool(connect, server, alice, bob, carol, runs):
    @server.tool(approval=APPROVAL)
    def open(request, name: str, note: str = "") -> str:
        runs.append(name)
        return "open"

    another = mcp.Server("another of a test's")
    another._records = server._records
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    with TokenClient(alice, server=server) as other:
        assert waiting(other.failure("close", name="Acme"))
    assert waiting(connect(bob, server=server).failure("close", name="Acme"))
    assert waiting(connect(alice, server=another).failure("close", name="Acme"))
    assert waiting(client.failure("open", name="Acme"))
    assert runs == [] and Approval.objects.count() == 5


def test_changed_permission_of_the_tool_needs_another_approval(connect, server, alice, carol, runs):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    approve(carol)
    server._catalog.tools["close"].approval = "shop.change_company"
    message = client.failure("close", name="Acme")
    assert "somebody with the permission shop.change_company" in message and runs == []


def test_expired_request_and_expired_approval_do_not_count(connect, server, alice, carol, runs):
    client = connect(alice, server=server)
    client.failure("close", name="Acme")
    past = timezone.now() - timedelta(seconds=1)
    Approval.objects.update(created=past, expires=past)
    assert not only().approve(carol)
    client.failure("close", name="Acme")
    expired, current = Approval.objects.order_by("pk")
    assert expired.status == ApprovalStatus.EXPIRED
    approve(carol, current)
    Approval.objects.filter(pk=current.pk).update(expires=past)
    assert waiting(client.failure("close", name="Acme")) and runs == []


def test_lifetime_of_requests_and_decisions_is_configurable(
    connect, server, alice, carol, settings
):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"APPROVALS": {"LIFETIME": 60}}
    connect(alice, server=server).failure("close", name="Acme")
    assert only().expires - only().created == timedelta(seconds=60)
    Approval.objects.update(created=timezone.now() - timedelta(seconds=30))
    Approval.objects.update(expires=timezone.now() + timedelta(seconds=30))
    approve(carol)
    assert abs(only().expires - only().decided - timedelta(seconds=60)) < timedelta(seconds=5)


# What happens before anybody is asked, and after.


def test_nobody_is_asked_about_a_call_that_would_fail(connect, server, alice, bob, invoice):
    @server.tool(permission="shop.change_invoice", approval=APPROVAL)
    def void(request, invoice: Invoice) -> str:
        return "void"

    @mcp.register(Invoice, server=server)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    client = connect(alice, server=server)
    assert "required" in client.failure("void")
    assert "There is no invoice" in client.failure("void", invoice=invoice.pk + 1)
    bob.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    other = connect(User.objects.get(pk=bob.pk), server=server)
    assert "There is no invoice" in other.failure("void", invoice=invoice.pk)
    with pytest.raises(RpcError, match="Unknown tool"):
        connect(User.objects.create_user("dora"), server=server).call("void", invoice=invoice.pk)
    assert not Approval.objects.exists()
    assert waiting(client.failure("void", invoice=invoice.pk))


def test_permission_is_checked_again_when_the_call_runs(connect, server, alice, carol, runs):
    @server.tool(permission="shop.change_invoice", approval=APPROVAL)
    def void(request) -> str:
        runs.append("void")
        return "void"

    client = connect(alice, server=server)
    client.failure("void")
    approve(carol)
    alice.user_permissions.clear()
    client.user = User.objects.get(pk=alice.pk)
    with pytest.raises(RpcError, match="Unknown tool"):
        client.call("void")
    assert runs == [] and only().status == ApprovalStatus.APPROVED


def test_rolled_back_call_gives_its_approval_back(connect, server, alice, carol, runs):
    @server.tool(approval=APPROVAL)
    def fail(request) -> str:
        runs.append("fail")
        if len(runs) == 1:
            raise mcp.ToolError("Not now.")
        return "done"

    client = connect(alice, server=server)
    client.failure("fail")
    approve(carol)
    assert client.failure("fail") == "Not now."
    assert only().status == ApprovalStatus.APPROVED
    assert client.text("fail") == "done" and only().status == ApprovalStatus.USED


@pytest.mark.parametrize("is_async", [False, True])
def test_approval_without_a_transaction_is_used_before_the_function_runs(
    connect, server, alice, carol, runs, is_async
):
    seen = []

    def work():
        runs.append("run")
        raise mcp.ToolError("It may have had effects.")

    if is_async:

        @server.tool(approval=APPROVAL)
        async def fail(request) -> str:
            seen.append(await Approval.objects.values_list("status", flat=True).afirst())
            return work()
    else:

        @server.tool(approval=APPROVAL, atomic=False)
        def fail(request) -> str:
            seen.append(only().status)
            return work()

    client = connect(alice, server=server)
    client.failure("fail")
    approve(carol)
    assert client.failure("fail") == "It may have had effects."
    assert seen == [ApprovalStatus.USED] and only().status == ApprovalStatus.USED
    assert waiting(client.failure("fail")) and runs == ["run"]


def test_approval_is_given_back_if_the_function_was_not_called(
    connect, server, alice, carol, runs, monkeypatch
):
    @server.tool(approval=APPROVAL, atomic=False)
    def plain(request) -> str:
        runs.append("run")
        return "done"

    client = connect(alice, server=server)
    client.failure("plain")
    approve(carol)
    with monkeypatch.context() as patch:

        async def perform(run, work):
            raise mcp.ToolError("Rejected before it began.")

        patch.setattr(approvals, "perform", perform)
        client.failure("plain")
    assert only().status == ApprovalStatus.APPROVED and only().open
    assert client.text("plain") == "done"


# Questions and steps.


@pytest.mark.parametrize("atomic", [True, False])
def test_call_that_asks_needs_one_approval(connect, server, alice, carol, runs, revision, atomic):
    @server.tool(approval=APPROVAL, atomic=atomic)
    def ask(request) -> str:
        runs.append("ask")
        return "yes" if request.elicit("Sure?", bool) else "no"

    if revision < "2025-06-18":
        pytest.skip("This revision has no elicitation.")
    client = connect(alice, server=server, revision=revision, answers=ANSWERS)
    client.failure("ask")
    approve(carol)
    assert client.text("ask") == "yes" and runs == ["ask", "ask"]
    assert only().status == ApprovalStatus.USED


@pytest.mark.parametrize("atomic", [True, False])
def test_abandoned_call_with_a_step_keeps_its_approval_for_itself(
    connect, server, alice, carol, runs, atomic
):
    """Otherwise a client repeats the step by calls that it abandons at the question."""

    @server.tool(approval=APPROVAL, atomic=atomic)
    def pay(request) -> str:
        request.once("pay", lambda: runs.append("paid"))
        return "yes" if request.elicit("A receipt?", bool) else "no"

    client = connect(alice, server=server)
    client.failure("pay")
    approve(carol)
    params = {"name": "pay", "arguments": {}}
    asked = client.result("tools/call", params)
    assert asked["resultType"] == "input_required" and runs == ["paid"]
    assert waiting(client.failure("pay")) and runs == ["paid"]
    first, second = Approval.objects.order_by("pk")
    assert (first.status, second.status) == (ApprovalStatus.EXPIRED, ApprovalStatus.PENDING)
    # The abandoned call has lost its approval, and gets the new one.
    answer = {
        "inputResponses": dict.fromkeys(asked["inputRequests"], YES),
        "requestState": asked["requestState"],
    }
    assert client.result("tools/call", params | answer)["isError"]
    approve(carol, second)
    assert client.result("tools/call", params | answer)["content"][0]["text"] == "yes"
    assert runs == ["paid"]
    # The state of a call that has ended runs nothing again.
    assert client.result("tools/call", params | answer)["isError"] and runs == ["paid"]


def test_step_of_a_call_that_goes_on_uses_its_approval(connect, server, alice, carol, runs):
    @server.tool(approval=APPROVAL)
    def pay(request) -> str:
        request.once("pay", lambda: runs.append("paid"))
        return "yes" if request.elicit("A receipt?", bool) else "no"

    client = connect(alice, server=server, answers=ANSWERS)
    client.failure("pay")
    approve(carol)
    assert client.text("pay") == "yes" and runs == ["paid"]
    assert only().status == ApprovalStatus.USED


# What is stored.


class Card(BaseModel):
    number: str
    pin: SecretStr


def test_secrets_are_not_stored_and_still_count(connect, server, alice, carol, runs):
    @server.tool(approval=APPROVAL)
    def pay(request, card: Card, cards: list[Card], api_key: str, amount: int) -> str:
        runs.append(card.pin.get_secret_value())
        return "paid"

    client = connect(alice, server=server)
    card = {"number": "1", "pin": "1234"}
    arguments = {"card": card, "cards": [card], "api_key": "sk-1", "amount": 5}
    client.failure("pay", **arguments)
    stored = json.dumps(Approval.objects.values()[0], default=str)
    assert "1234" not in stored and "sk-1" not in stored
    assert only().has_secrets and only().arguments["amount"] == 5
    assert only().arguments["card"]["number"] == "1"
    approve(carol)
    assert waiting(client.failure("pay", **arguments | {"api_key": "sk-2"}))
    assert client.text("pay", **arguments) == "paid" and runs == ["1234"]


def test_number_of_waiting_requests_per_user_is_limited(connect, server, alice, bob, monkeypatch):
    monkeypatch.setattr(rows, "MAX_PENDING_PER_USER", 2)
    client = connect(alice, server=server)
    for number in range(2):
        assert waiting(client.failure("close", name=str(number)))
    assert client.failure("close", name="x").startswith(
        "2 calls of this user already wait for an approval."
    )
    assert waiting(client.failure("close", name="0"))
    assert waiting(connect(bob, server=server).failure("close", name="x"))
    assert Approval.objects.count() == 3


def test_limit_of_waiting_requests_holds_for_simultaneous_calls(alice, monkeypatch):
    """Two calls count before either of them inserts its request."""
    monkeypatch.setattr(rows, "MAX_PENDING_PER_USER", 1)

    def request(digest: str) -> Approval:
        return Approval(server="s", tool="t", permission=APPROVAL, user=alice, digest=digest)

    save = Approval.save

    def insert_another_first(approval, **options):
        monkeypatch.setattr(Approval, "save", save)
        rows.create(request("first"), 60)
        save(approval, **options)

    monkeypatch.setattr(Approval, "save", insert_another_first)
    with pytest.raises(mcp.ToolError, match="1 calls of this user"):
        rows.create(request("second"), 60)
    assert only().digest == "first"


def test_arguments_that_nobody_can_read_are_rejected(connect, server, alice, monkeypatch):
    message = connect(alice, server=server).failure("close", name="x" * 20_001)
    assert "too long for somebody to read" in message and not Approval.objects.exists()


def test_two_equal_calls_at_the_same_time_make_one_request(alice, server, monkeypatch):
    def request():
        return Approval(
            server="s", tool="t", permission=APPROVAL, user=alice, digest="d" * 64
        )  # fmt: skip

    first = rows.create(request(), 60)
    assert rows.create(request(), 60) == first and Approval.objects.count() == 1


@pytest.mark.parametrize("is_over_limit", [False, True])
def test_call_whose_equal_request_is_deleted_meanwhile_has_an_outcome(
    alice, monkeypatch, is_over_limit
):
    """The first of two equal calls is over the limit after its insert, and deletes its row.

    The second one has collided with that row before, and no longer finds it.
    """
    monkeypatch.setattr(rows, "MAX_PENDING_PER_USER", 2)

    def request(digest: str) -> Approval:
        return Approval(server="s", tool="t", permission=APPROVAL, user=alice, digest=digest)

    save, find, equal = Approval.save, rows._rows, []

    def insert_equal_first(approval, **options):
        monkeypatch.setattr(Approval, "save", save)
        equal.append(rows.create(request("equal"), 60))
        save(approval, **options)

    def find_after_delete(**conditions):
        if equal and "digest" in conditions:
            equal.pop().delete()
            for number in range(2 * is_over_limit):
                rows.create(request(f"other {number}"), 60)
        return find(**conditions)

    monkeypatch.setattr(Approval, "save", insert_equal_first)
    monkeypatch.setattr(rows, "_rows", find_after_delete)
    if is_over_limit:
        with pytest.raises(mcp.ToolError, match="2 calls of this user"):
            rows.create(request("equal"), 60)
        assert not Approval.objects.filter(digest="equal").exists()
    else:
        assert rows.create(request("equal"), 60) == only()


def test_request_that_cannot_be_stored_raises_the_error_of_the_database(alice):
    """Another error than that of an equal request is not retried without end."""
    request = Approval(tool="t", permission=APPROVAL, user=alice, digest="d")
    request.server = None
    with pytest.raises(IntegrityError):
        rows.create(request, 60)


def test_rows_are_kept_as_long_as_the_audit_log(alice, settings):
    now = timezone.now()

    def made(digest: str, **fields):
        return Approval.objects.create(
            server="s", tool="t", permission=APPROVAL, user=alice, digest=digest, **fields
        )

    waiting = made("a", expires=now + timedelta(days=1))
    late = made("b", expires=now - timedelta(days=364))
    made("c", expires=now - timedelta(days=366))
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "AUDIT_DAYS": None}
    assert prune(now=now)["approvals"] == 0
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "AUDIT_DAYS": 365}
    assert prune(now=now)["approvals"] == 1
    assert {*Approval.objects.values_list("pk", "status")} == {
        (waiting.pk, ApprovalStatus.PENDING), (late.pk, ApprovalStatus.EXPIRED)
    }  # fmt: skip


# With several threads.


@pytest.mark.usefixtures("real_threads")
def test_waiting_call_continues_when_it_is_approved(connect, server, alice, carol, runs):
    client = connect(alice, server=server)
    call = client.start(
        "tools/call", name="close", arguments={"name": "Acme"}, _meta={"progressToken": 1}
    )
    client.until(lambda: client.notes)
    assert waiting(client.notes[0]["params"]["message"])
    approve(carol)
    assert client.wait(call)["result"]["content"][0]["text"] == "closed" and runs == ["Acme"]


@pytest.mark.usefixtures("real_threads")
def test_user_who_is_deactivated_while_a_call_waits_cannot_make_it(
    connect, server, alice, carol, runs
):
    client = connect(alice, server=server)
    call = client.start(
        "tools/call", name="close", arguments={"name": "Acme"}, _meta={"progressToken": 1}
    )
    client.until(lambda: client.notes)
    alice.is_active = False
    client.user = alice
    approve(carol)
    assert "Unknown tool" in client.wait(call)["error"]["message"] and runs == []
    assert only().status == ApprovalStatus.APPROVED


@pytest.mark.usefixtures("real_threads")
def test_cancelled_call_leaves_its_request(connect, server, alice, carol, runs):
    client = connect(alice, server=server)
    call = client.start(
        "tools/call", name="close", arguments={"name": "Acme"}, _meta={"progressToken": 1}
    )
    client.until(lambda: client.notes)
    client.notify("notifications/cancelled", requestId=call)
    client.settle()
    approve(carol)
    assert runs == []
    assert client.text("close", name="Acme") == "closed"


@pytest.mark.usefixtures("real_threads")
@pytest.mark.parametrize("is_async", [False, True])
def test_call_that_is_cancelled_while_it_uses_its_approval_gives_it_back(
    loop, connect, server, alice, carol, runs, monkeypatch, is_async
):
    if is_async:

        @server.tool(approval=APPROVAL)
        async def plain(request) -> str:
            return runs.append("run") or "done"
    else:

        @server.tool(approval=APPROVAL, atomic=False)
        def plain(request) -> str:
            return runs.append("run") or "done"

    begin, used, cancelled = rows.ApprovalUse.begin, threading.Event(), threading.Event()

    def begin_and_wait(use):
        is_begun = begin(use)
        used.set()
        assert cancelled.wait(20)
        return is_begun

    client = SessionClient(loop, server, alice)
    with given(APPROVALS={"WAIT": 0}):
        connect(alice, server=server).failure("plain")
        approve(carol)
        with monkeypatch.context() as patch:
            patch.setattr(rows.ApprovalUse, "begin", begin_and_wait)
            message = client.call("plain")
            client.start(message)
            loop.until(used.is_set)
            assert only().status == ApprovalStatus.USED
            client.cancel(message["id"])
            cancelled.set()
            # The cancelled call may give the approval back a moment later.
            for _ in range(100):
                if only().open:
                    break
                loop.sleep(0.02)
        assert only().status == ApprovalStatus.APPROVED and only().open and runs == []
        assert connect(alice, server=server).text("plain") == "done" and runs == ["run"]


# Sessions, HTTP and processes that end.


@pytest.mark.usefixtures("real_threads")
def test_call_of_a_session_waits_and_continues_in_its_stream(loop, server, alice, carol, runs):
    client = SessionClient(loop, server, alice)
    stream = client.open_stream(client.call("close", _token=1, name="Acme"))
    assert waiting(stream.until(1)[0]["params"]["message"])
    approve(carol)
    assert text(stream.all()[-1]) == "closed" and runs == ["Acme"]
    assert only().status == ApprovalStatus.USED


@pytest.fixture
def pure(server, runs):
    class Pure(mcp.Tool):
        approval = APPROVAL
        idempotent = True

        def handle(self, request) -> str:
            runs.append("pure")
            return "done"

    server.register(Pure)


@pytest.mark.usefixtures("real_threads", "short_grace", "pure")
def test_call_whose_process_dies_while_it_waits_finds_its_request(
    loop, connect, server, alice, carol, runs
):
    client = SessionClient(loop, server, alice)
    with given(APPROVALS={"WAIT": 0}):
        connect(alice, server=server).failure("pure")
        assert waiting(text(abandoned_call(client, "pure", user=str(alice.pk)).all()[-1]))
    assert Approval.objects.count() == 1 and runs == []


@pytest.mark.usefixtures("real_threads", "short_grace", "pure")
def test_call_whose_process_dies_after_its_approval_runs_once(
    loop, connect, server, alice, carol, runs
):
    client = SessionClient(loop, server, alice)
    with given(APPROVALS={"WAIT": 0}):
        connect(alice, server=server).failure("pure")
    approve(carol)
    assert text(abandoned_call(client, "pure", user=str(alice.pk)).all()[-1]) == "done"
    assert runs == ["pure"] and only().status == ApprovalStatus.USED


@pytest.mark.usefixtures("real_threads")
def test_shutdown_ends_waiting_calls_with_an_answer(loop, server, alice, runs):
    client = SessionClient(loop, server, alice)
    stream = client.open_stream(client.call("close", _token=1, name="Acme"))
    stream.until(1)
    loop.do(lambda: approvals.decisions().release())
    assert waiting(text(stream.all()[-1])) and runs == []


def test_call_over_http_runs_once_after_approval(http, server, alice, carol, runs, revision):
    client = http(Token.make(alice, "x")[1], server=server, revision=revision)
    assert waiting(client.failure("close", name="Acme"))
    approve(carol)
    assert client.text("close", name="Acme") == "closed" and runs == ["Acme"]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer.")
@pytest.mark.usefixtures("real_threads")
def test_of_two_concurrent_uses_in_transactions_one_wins(alice, carol):
    row = Approval.objects.create(
        server="s", tool="t", permission=APPROVAL, user=alice, digest="d",
        expires=timezone.now() + timedelta(days=1),
    )  # fmt: skip
    approve(carol, row)
    both, begun, outcomes = threading.Barrier(2), threading.Event(), []

    def first():
        with transaction.atomic():
            outcomes.append(("first", rows.ApprovalUse(row.pk, "1", "", True).begin()))
            begun.set()
            both.wait()
        connections["default"].close()

    def second():
        begun.wait()
        with transaction.atomic():
            both.wait()
            outcomes.append(("second", rows.ApprovalUse(row.pk, "2", "", True).begin()))
        connections["default"].close()

    workers = [threading.Thread(target=one) for one in (first, second)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(outcomes) == [("first", True), ("second", False)]


# Checks.


@pytest.mark.parametrize(
    "options",
    [
        {"approval": "refund"},
        {"approval": APPROVAL, "read_only": True},
        {"approval": APPROVAL, "permission": mcp.PUBLIC},
    ],
)
def test_tool_that_nobody_can_approve_is_an_error(server, options):
    @server.tool(**options)
    def wrong(request) -> str:
        return ""

    assert [message.id for message in server.check()] == ["django_mcp.E031"]


def test_unknown_permission_of_approvers_is_a_warning(server):
    @server.tool(approval="shop.delete_invoices")
    def wrong(request) -> str:
        return ""

    (message,) = server.check()
    assert message.id == "django_mcp.W011" and "shop.delete_invoice" in message.hint


def test_impersonator_in_the_inspector_does_not_approve_the_call(server, alice, carol):
    class Impersonator(Client):
        async def _principal(self) -> Principal:
            return Principal(alice, impersonator=str(carol.pk))

    with Impersonator(server=server) as client:
        assert waiting(client.failure("close", name="Acme"))
    with pytest.raises(PermissionDenied, match="Somebody else"):
        only().approve(carol)


def test_issuer_of_a_token_does_not_approve_calls_made_with_it(http, server, alice, carol):
    """Attack: a superuser makes a token for somebody else, calls with it and approves the call."""
    root = User.objects.create_superuser("root")
    client = http(Token.make(alice, "x", issued_by=root)[1], server=server)
    assert waiting(client.failure("close", name="Acme"))
    with pytest.raises(PermissionDenied, match="a token that you created"):
        only().approve(root)
    assert [*recipients(only())] == [carol.email]
    approve(carol)
    assert client.text("close", name="Acme") == "closed"


@pytest.mark.usefixtures("real_threads", "short_grace", "pure")
def test_call_that_continues_in_another_process_knows_the_issuer_of_its_token(
    loop, server, alice, carol
):
    token, _ = Token.make(alice, "x", issued_by=carol)
    client = SessionClient(loop, server, alice)
    client.session.owner = Principal(alice, Auth(key=token.auth_key)).key
    client.session.save()
    with given(APPROVALS={"WAIT": 0}):
        call = abandoned_call(client, "pure", user=str(alice.pk), scopes=[])
        assert waiting(text(call.all()[-1]))
    with pytest.raises(PermissionDenied, match="a token that you created"):
        only().approve(carol)


def test_only_secrets_are_masked_for_approvers(server):
    @server.tool(approval=APPROVAL)
    def pay(
        request, pair: tuple[str, SecretStr], more: dict[str, Any], either: Card | None = None
    ) -> str:
        return ""

    redaction = server._catalog.tools["pay"]._arguments.redaction
    more = {"x": {"y": ["z" * 600] * 60}, "api_key": "sk-1"}
    given = {"pair": ["visa", "1234"], "either": {"number": "1", "pin": "1234"}, "more": more}
    assert redaction.whole(given) == {
        "pair": ["visa", MASK], "either": {"number": "1", "pin": MASK},
        "more": more | {"api_key": MASK},
    }  # fmt: skip
