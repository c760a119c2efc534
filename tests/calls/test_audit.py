"""The audit log: an entry for each call of an audited server, without secrets."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Annotated
from unittest.mock import ANY

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.utils import timezone
from pydantic import BaseModel, Field, SecretStr

import django_mcp as mcp
from django_mcp.calls import audit
from django_mcp.calls.throttling import ProcessCounts
from django_mcp.declarations.throttles import Rate
from django_mcp.models import AuditEntry
from django_mcp.storage import audit_log
from tests.client import CLIENT_INFO, RpcError
from tests.shop.models import Invoice

pytestmark = pytest.mark.django_db
SECRET = "hunter2-hunter2"


class Card(BaseModel):
    holder: str
    number: Annotated[str, Field(json_schema_extra={"writeOnly": True})]


@pytest.fixture
def audited(server):
    server.audit = True

    @server.tool
    def rename(request: mcp.Request, to: str) -> str:
        User.objects.filter(pk=request.user.pk).update(first_name=to)
        return to

    @server.tool
    def fail(request: mcp.Request, to: str) -> str:
        User.objects.filter(pk=request.user.pk).update(first_name=to)
        raise KeyError(SECRET)

    @server.tool(permission="shop.refund_invoice")
    def refund(request: mcp.Request, number: int) -> str:
        return "refunded"

    @server.tool
    async def pay(
        request: mcp.Request, code: SecretStr, api_key: str, cards: list[Card], note: str = ""
    ) -> str:
        return "paid"

    @server.tool(audit=False)
    def ping(request: mcp.Request) -> str:
        return "pong"

    @server.resource("policy://{name}")
    def policy(request: mcp.Request, name: str) -> str:
        return "text"

    @server.resource("reset://{token}")
    def reset(request: mcp.Request, token: str) -> str:
        return "text"

    @server.resource("invite://{code}")
    def invite(request: mcp.Request, code: SecretStr) -> str:
        return "text"

    @server.prompt
    def greet(request: mcp.Request, name: str) -> str:
        return name

    return server


def tried(client, method, **params):
    try:
        return client.request(method, **params)
    except RpcError:
        return None


def new_entry(name):
    return audit_log.NewEntry(
        timezone.now(), "default", "tools/call", name, None, "", "", "", None, "http",
        "2025-11-25", None, None, "ok", "", 0.1, 0, 0, "",
    )  # fmt: skip


def entries(*names):
    return list(AuditEntry.objects.order_by("pk").values_list(*names))


def test_every_call_and_denied_attempt_has_an_entry(connect, revision, audited, alice):
    client = connect(alice, server=audited, revision=revision)
    tried(client, "tools/list")
    tried(client, "tools/call", name="rename", arguments={"to": "A"})
    tried(client, "tools/call", name="rename", arguments={"to": 5})
    tried(client, "tools/call", name="fail", arguments={"to": "B"})
    tried(client, "tools/call", name="refund", arguments={"number": 1})
    tried(client, "tools/call", name="nothing", arguments={"x": SECRET})
    tried(client, "tools/call", name="ping")
    tried(client, "prompts/get", name="greet", arguments={"name": "Bob"})
    tried(client, "resources/read", uri="policy://leave")
    tried(client, "resources/read", uri=f"reset://{SECRET}")
    assert entries("method", "name", "outcome", "arguments") == [
        ("tools/call", "rename", "ok", {"to": "A"}),
        ("tools/call", "rename", "error", {"to": 5}),
        ("tools/call", "fail", "failed", {"to": "B"}),
        ("tools/call", "refund", "denied", {"number": 1}),
        ("tools/call", "nothing", "denied", {"x": "***"}),
        ("prompts/get", "greet", "ok", {"name": "Bob"}),
        ("resources/read", "policy://{name}", "ok", {"uri": "policy://leave"}),
        ("resources/read", "reset://{token}", "ok", {"uri": "***"}),
    ]
    assert set(entries("server", "user", "username", "transport", "revision")) == {
        (audited.name, str(alice.pk), "alice", "stdio", revision)
    }
    assert SECRET not in repr(list(AuditEntry.objects.values()))


def test_secrets_are_not_stored(connect, audited, alice):
    arguments = {
        "code": SECRET, "api_key": SECRET, "cards": [{"holder": "A", "number": SECRET}],
        "note": "x" * 1_000, "password": SECRET, "typo": SECRET,
    }  # fmt: skip
    client = connect(alice, server=audited)
    tried(client, "tools/call", name="pay", arguments=arguments)
    del arguments["typo"], arguments["password"]
    tried(client, "tools/call", name="pay", arguments=arguments)
    first, second = [row[0] for row in entries("arguments")]
    assert second["cards"] == [{"holder": "A", "number": "***"}]
    assert second["note"] == "x" * 500 + "... (1000 characters)"
    assert SECRET not in json.dumps([first, second])


@pytest.mark.parametrize("uri", [
    f"reset://{SECRET}", f"reset://a/{SECRET}", f"RESET:{SECRET}", f"invite://{SECRET}",
    f"invite://a/{SECRET}", f"other://user:{SECRET}@host/a", f"other://host?token={SECRET}",
    f"other://host#{SECRET}",
])  # fmt: skip
def test_secrets_in_uris_are_not_stored_or_logged(connect, audited, alice, caplog, uri):
    caplog.set_level("INFO", logger="django_mcp.calls")
    tried(connect(alice, server=audited), "resources/read", uri=uri)
    (entry,) = AuditEntry.objects.values()
    assert entry["name"].startswith(uri.partition(":")[0].lower())
    assert SECRET not in repr(entry) and SECRET not in caplog.text
    assert "Call finished" in caplog.text


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "a\u202eb"])
def test_clients_cannot_avoid_or_forge_entries_by_characters(
    connect, audited, alice, monkeypatch, name
):
    """Attack: NUL makes an INSERT fail on PostgreSQL, and line breaks look like other entries."""
    monkeypatch.setitem(CLIENT_INFO, "name", name)
    client = connect(alice, server=audited)
    tried(client, "tools/call", name="rename", arguments={"to": name})
    tried(client, "tools/call", name=name, arguments={name: name})
    tried(client, "prompts/get", name="greet", arguments={"name": name})
    tried(client, "resources/read", uri=f"none://{name}")
    escaped = name.encode("unicode_escape").decode()
    assert entries("name", "client_name") == [
        ("rename", escaped), (escaped, escaped), ("greet", escaped), (f"none://{escaped}", escaped),
    ]  # fmt: skip


def test_unknown_names_store_little(connect, audited, alice):
    arguments = {f"{number}" + "x" * 1_000: "y" * 1_000 for number in range(1_000)}
    tried(connect(alice, server=audited), "tools/call", name="z" * 10_000, arguments=arguments)
    (entry,) = AuditEntry.objects.all()
    assert len(entry.name) == 200 and len(json.dumps(entry.arguments)) < 10_000


def test_entries_of_rejected_calls_are_limited(connect, audited, alice, monkeypatch, caplog):
    """Attack: make the log grow by calls that cost the client nothing."""
    monkeypatch.setattr(audit, "REJECTED_PER_CALLER", Rate(3, 60))
    monkeypatch.setattr(audit, "_rejected", ProcessCounts())
    client = connect(alice, server=audited)
    for number in range(10):
        tried(client, "tools/call", name=f"unknown-{number}")
    tried(client, "tools/call", name="rename", arguments={"to": "A"})
    assert entries("name") == [("unknown-0",), ("unknown-1",), ("unknown-2",), ("rename",)]
    assert caplog.text.count("Audit entries of rejected calls are left out") == 1


@pytest.mark.parametrize("params", [{}, {"name": ""}, {"name": 5}, {"name": "x", "arguments": 5}])
def test_entries_of_calls_without_a_valid_name_are_limited(
    connect, audited, alice, monkeypatch, params
):
    monkeypatch.setattr(audit, "REJECTED_PER_CALLER", Rate(3, 60))
    monkeypatch.setattr(audit, "_rejected", ProcessCounts())
    client = connect(alice, server=audited)
    for _ in range(5):
        tried(client, "tools/call", **params)
    assert entries("outcome") == [("denied",)] * 3


@pytest.mark.parametrize("is_signed_in", [True, False])
def test_forbidden_and_missing_tools_share_the_limit(
    connect, audited, alice, monkeypatch, is_signed_in
):
    """Attack: reach the limit with invented names. Calls that still wait for an INSERT exist."""
    monkeypatch.setattr(audit, "REJECTED_PER_CALLER", Rate(2, 60))
    monkeypatch.setattr(audit, "_rejected", ProcessCounts())
    client = connect(alice if is_signed_in else None, server=audited)
    for name in ("refund", "unknown", "refund", "unknown"):
        tried(client, "tools/call", name=name, arguments={"number": 1})
    assert entries("name") == [("refund",), ("unknown",)]


def test_cancelled_call_leaves_the_entries_of_others(shared_db, audited, alice):
    """A batch of entries is written, also if one of the calls that wait for it is cancelled."""

    async def write():
        writer = audit_log.AuditWriter()
        first, second = (
            asyncio.create_task(writer.write(new_entry(name))) for name in ("first", "second")
        )
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    asyncio.run(write())
    assert entries("name") == [("first",), ("second",)]


def test_entry_that_cannot_be_stored_does_not_store_others_twice(shared_db, audited, alice, caplog):
    names = [f"call {number}" for number in range(60)]
    written = [new_entry(name) for name in names]
    written[55] = written[55]._replace(server=None)

    async def write():
        writer = audit_log.AuditWriter()
        await asyncio.gather(*map(writer.write, written))

    asyncio.run(write())
    assert entries("name") == [(name,) for name in names if name != "call 55"]
    assert "Audit entry not stored: method=tools/call name='call 55'" in caplog.text


def test_entries_of_a_commit_whose_outcome_is_unknown_are_stored_again(
    shared_db, audited, alice, monkeypatch, caplog
):
    """The connection breaks after the commit. A second entry is better than none."""
    insert, broken = audit_log.insert, [OperationalError("The server is gone.")]

    def insert_and_break(entries, alias=None):
        insert(entries, alias)
        if broken:
            raise broken.pop()

    monkeypatch.setattr(audit_log, "insert", insert_and_break)

    async def write():
        await audit_log.AuditWriter().write(new_entry("call"))

    asyncio.run(write())
    assert entries("name") == [("call",), ("call",)] and not caplog.records


def test_new_entry_has_the_columns_of_the_model():
    fields = [field.name for field in AuditEntry._meta.concrete_fields if not field.primary_key]
    assert list(audit_log.NewEntry._fields) == fields


def test_entry_counts_queries_rows_and_time(connect, audited, alice):
    tried(
        connect(alice, server=audited), "tools/call", name="rename", arguments={"to": "A"},
        _meta={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    )  # fmt: skip
    (entry,) = AuditEntry.objects.all()
    assert (entry.queries, entry.rows_written, entry.error) == (1, 1, "")
    assert entry.duration > 0 and entry.trace_id == "0af7651916cd43dd8448eb211c80319c"


def test_rows_of_raw_sql_are_counted(connect, audited, alice):
    @audited.tool
    def rename_all(request: mcp.Request) -> str:
        with connection.cursor() as cursor:
            cursor.execute("\n  update auth_user set first_name = 'A' where id = %s", [alice.pk])
        return "done"

    tried(connect(alice, server=audited), "tools/call", name="rename_all")
    assert entries("outcome", "queries", "rows_written") == [("ok", 1, 1)]


def test_tool_of_an_unaudited_server_may_be_audited(connect, server, alice):
    @server.tool(audit=True)
    def look(request: mcp.Request) -> str:
        return "it"

    @server.tool
    def other(request: mcp.Request) -> str:
        return "it"

    client = connect(alice, server=server)
    for name in ("look", "other", "nothing"):
        tried(client, "tools/call", name=name)
    assert entries("name") == [("look",)]


def test_tools_of_a_model_resource_follow_its_audit(connect, server, invoice, alice):
    @server.register(Invoice)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        audit = True
        fields = ["number"]
        search_fields = ["number"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    tried(connect(alice, server=server), "tools/call", name="search_invoice")
    assert entries("name") == [("search_invoice",)]


def test_attribute_of_a_function_does_not_turn_the_audit_log_on(connect, server, alice):
    def look(request: mcp.Request) -> str:
        return "it"

    look.audit = True
    server.tool(look)
    tried(connect(alice, server=server), "tools/call", name="look")
    assert entries("name") == []


def test_entry_and_work_of_a_tool_are_committed_together(connect, audited, alice, monkeypatch):
    def broken(rows, alias=None):
        raise RuntimeError("no disk")

    monkeypatch.setattr(audit_log, "insert", broken)
    client = connect(alice, server=audited)
    tried(client, "tools/call", name="rename", arguments={"to": "A"})
    alice.refresh_from_db()
    assert alice.first_name == ""


def test_failed_commit_leaves_one_entry(shared_db, connect, audited, alice):
    """The entry "ok" is in the transaction that is rolled back, so it is not stored.

    SQLite and PostgreSQL check the foreign key at the commit, MariaDB at the statement.
    """

    @audited.tool
    def note(request: mcp.Request, user: int) -> str:
        LogEntry.objects.create(user_id=user, action_flag=1, object_repr="row", change_message="")
        return "noted"

    client = connect(alice, server=audited)
    for user in (999_999, alice.pk):
        tried(client, "tools/call", name="note", arguments={"user": user})
    assert entries("outcome", "error", "rows_written", "arguments") == [
        ("failed", "IntegrityError", ANY, {"user": 999_999}),
        ("ok", "", ANY, {"user": alice.pk}),
    ]
    assert LogEntry.objects.get().user == alice


def test_failed_insert_does_not_fail_other_calls(connect, audited, alice, monkeypatch, caplog):
    def broken(rows, alias=None):
        raise RuntimeError("no disk")

    monkeypatch.setattr(audit_log, "insert", broken)
    client = connect(alice, server=audited)
    assert tried(client, "prompts/get", name="greet", arguments={"name": "Bob"})
    assert "Audit entry not stored: method=prompts/get name='greet'" in caplog.text


def test_old_entries_are_deleted(connect, audited, alice, settings):
    client = connect(alice, server=audited)
    tried(client, "tools/call", name="rename", arguments={"to": "A"})
    tried(client, "tools/call", name="rename", arguments={"to": "B"})
    oldest = AuditEntry.objects.earliest("pk")
    AuditEntry.objects.filter(pk=oldest.pk).update(at=oldest.at - timedelta(days=400))
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "AUDIT_DAYS": None}
    assert audit_log.delete_expired_entries() == 0
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "AUDIT_DAYS": 365}
    assert audit_log.delete_expired_entries() == 1
    assert entries("arguments") == [({"to": "B"},)]
