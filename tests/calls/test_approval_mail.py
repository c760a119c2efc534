"""Mail to approvers: who gets it, and what it does not contain."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.core import mail

from django_mcp.calls import approvals
from django_mcp.calls.approval_mail import send_approval_mail
from django_mcp.models import Approval
from django_mcp.runtime import threads

pytestmark = pytest.mark.urls("tests.admin.urls")


@pytest.fixture
def approver(db):
    """Return a function that makes a user with the permission to approve."""

    def approver(name: str, **fields) -> User:
        user = User.objects.create_user(name, email=f"{name}@shop.example", **fields)
        user.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
        return user

    return approver


@pytest.fixture
def requested(server, connect, alice):
    @server.tool(approval="shop.delete_invoice")
    def close(request, name: str) -> str:
        return "closed"

    connect(alice, server=server).failure("close", name="a secret plan")
    return Approval.objects.get()


def test_active_approvers_get_a_link_and_no_arguments(requested, approver, alice, bob):
    approver("carol"), approver("dave", is_active=False)
    User.objects.create_superuser("root", email="root@shop.example")
    User.objects.filter(pk=bob.pk).update(email="bob@shop.example")
    alice.email = "alice@shop.example"
    alice.is_superuser = True
    alice.save()
    send_approval_mail(requested.pk)
    assert [one.to for one in mail.outbox] == [["carol@shop.example"], ["root@shop.example"]]
    assert mail.outbox[0].subject == "Approval needed: close"
    body = mail.outbox[0].body
    assert f"https://shop.example/admin/django_mcp/approval/{requested.pk}/change/" in body
    assert "alice" in body and "a secret plan" not in body


def test_request_that_was_deleted_sends_no_mail(requested, approver):
    approver("carol")
    Approval.objects.all().delete()
    send_approval_mail(requested.pk)
    assert mail.outbox == []


@pytest.mark.parametrize("is_on", [True, False])
def test_one_mail_is_sent_in_the_background_if_configured(
    server, connect, alice, monkeypatch, settings, is_on
):
    sent = []
    monkeypatch.setattr(threads.mail, "run_in_background", lambda job: sent.append(job.args))
    if is_on:
        settings.DJANGO_MCP = settings.DJANGO_MCP | {"APPROVALS": {"MAIL": True}}

    @server.tool(approval="shop.delete_invoice")
    def close(request) -> str:
        return "closed"

    client = connect(alice, server=server)
    for _ in range(2):
        client.failure("close")
    pk = Approval.objects.get().pk
    assert sent == ([(pk,)] if is_on else [])
    assert approvals.setting("WAIT") == 45
