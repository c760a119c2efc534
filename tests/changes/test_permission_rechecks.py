"""Running calls are checked again when permissions change."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from django.contrib.auth.models import Permission

from django_mcp.auth.principal import Principal
from django_mcp.calls.call_state import CallRun
from django_mcp.changes import permission_rechecks
from django_mcp.changes.change_set import ChangeSet
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.revisions import REVISIONS


def test_recheck_of_a_cancelled_call_still_reads_its_permissions(alice, server, settings):
    """The stop flag of the call does not stop the query of the check."""
    alice.user_permissions.add(Permission.objects.get(codename="view_group"))

    @server.tool(permission="auth.view_group")
    def tool(request) -> str:
        return ""

    work = SimpleNamespace(declaration=server._catalog.tools["tool"])
    call = ClientCall(1, "tools/call", {}, REVISIONS["2026-07-28"])
    run = CallRun(call, server, Principal(alice), None)
    run.work = work
    run.stop.set()
    assert asyncio.run(permission_rechecks._is_permitted(run, Principal(alice))) is True


def test_failed_recheck_is_retried(monkeypatch, caplog):
    """A revoked permission takes effect even if the first check fails."""
    monkeypatch.setattr(permission_rechecks, "ERROR_RETRY_SECONDS", 0.0)
    seen = []

    async def look_at(news):
        seen.append(dict(news.users))
        if len(seen) == 1:
            raise LookupError("something unexpected")

    async def looked() -> None:
        one = permission_rechecks.PermissionRechecker()
        monkeypatch.setattr(one, "_check_calls", look_at)
        one._check_soon(ChangeSet(users={"7": None}))
        await one._task

    asyncio.run(looked())
    assert seen == [{"7": None}] * 2 and "are retried" in caplog.text
