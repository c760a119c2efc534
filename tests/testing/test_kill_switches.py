"""Kill switches: disabled declarations are unknown over every transport."""

from __future__ import annotations

import asyncio
import threading

import pytest

from django_mcp.auth import kill_switches
from django_mcp.auth.kill_switches import ActiveKillSwitch
from django_mcp.auth.principal import anonymous
from django_mcp.models import Switch
from django_mcp.runtime.runtime import Environment
from django_mcp.testing.environment import TestEnvironment

TOOLS = ("tool:refund", "refund")


def switch_off(thing, server="default", **audience):
    return Switch.objects.create(server=server, thing=thing, reason="It is broken.", **audience)


def is_off(thing):
    return kill_switches.find("default", thing, anonymous()) is not None


def test_disabled_tool_is_unknown(anonymous_client, alice, invoice):
    client = anonymous_client.acting_as(alice)
    assert "refund" in client.tools()
    row = switch_off("tool:refund")
    assert "refund" not in client.tools() and "add" in client.tools()
    client.call("refund", invoice=invoice, reason="x").assert_unknown()
    row.delete()
    assert "refund" in client.tools()


def test_disabled_public_tool_is_unknown(anonymous_client):
    anonymous_client.call("add", a=1, b=2).assert_ok()
    switch_off("tool:add")
    assert "add" not in anonymous_client.tools()
    anonymous_client.call("add", a=1, b=2).assert_unknown()


def test_disabled_resource_disables_its_tools_and_bindings(anonymous_client, alice, invoice):
    client = anonymous_client.acting_as(alice)
    client.read(invoice).assert_ok()
    assert "search_invoice" in client.tools()
    switch_off("resource:invoice")
    client.read(invoice).assert_unknown()
    assert "search_invoice" not in client.tools()
    client.call("refund", invoice=invoice, reason="x").assert_error("There is no invoice")


def test_disabled_server_has_no_tools(anonymous_client, alice):
    client = anonymous_client.acting_as(alice)
    switch_off("")
    assert not list(client.tools())
    client.call("add", a=1, b=2).assert_unknown()


def test_switches_of_another_server_have_no_effect(anonymous_client):
    switch_off("", server="another")
    switch_off("tool:add", server="another")
    anonymous_client.call("add", a=1, b=2).assert_ok()


def test_switches_are_queried_only_after_a_change(anonymous_client, django_assert_num_queries):
    anonymous_client.call("add", a=1, b=2).assert_ok()
    with django_assert_num_queries(0):
        kill_switches.refresh()
    switch_off("tool:nothing")
    with django_assert_num_queries(1):
        kill_switches.refresh()
        kill_switches.refresh()


def test_end_of_a_test_clears_the_cached_switches(db):
    switch_off("tool:add")
    kill_switches.refresh()
    assert is_off("tool:add")
    with TestEnvironment().installed():
        pass
    assert not is_off("tool:add")


@pytest.mark.django_db(transaction=True)
def test_switch_of_another_process_is_noticed_after_the_cache_time(monkeypatch):
    """``bulk_create`` sends no signals, as a change by another process."""
    now = [100.0]
    monkeypatch.setattr(kill_switches, "monotonic", lambda: now[0])
    monkeypatch.setattr(TestEnvironment, "is_shared", Environment.is_shared)
    kill_switches.forget()
    kill_switches.refresh()
    Switch.objects.bulk_create([Switch(server="default", thing="tool:add")])
    kill_switches.refresh()
    assert not is_off("tool:add")
    now[0] += kill_switches.CACHE_SECONDS
    kill_switches.refresh()
    assert is_off("tool:add")
    kill_switches.forget()


def test_concurrent_calls_share_one_query(shared_db, monkeypatch):
    """Otherwise calls without a database could block the threads that look up tokens."""
    queries, release = [], threading.Event()

    def load_switches():
        queries.append(threading.get_ident())
        release.wait(10)
        return frozenset()

    async def many_calls():
        waiting = [asyncio.ensure_future(kill_switches.arefresh()) for _ in range(5000)]
        await asyncio.sleep(0)
        release.set()
        return await asyncio.gather(*waiting)

    monkeypatch.setattr(kill_switches, "source", [load_switches])
    monkeypatch.setattr(TestEnvironment, "is_shared", Environment.is_shared)
    kill_switches.forget()
    assert set(asyncio.run(many_calls())) == {None}
    assert len(queries) == 1
    kill_switches.forget()


def test_change_during_a_query_causes_another_query(shared_db, monkeypatch):
    queries = []

    def load_switches():
        queries.append(1)
        if len(queries) == 1:
            kill_switches.mark_stale()
        return frozenset({ActiveKillSwitch("default", "tool:add")} if len(queries) > 1 else ())

    monkeypatch.setattr(kill_switches, "source", [load_switches])
    kill_switches.forget()
    kill_switches.mark_stale()
    asyncio.run(kill_switches.arefresh())
    assert is_off("tool:add") and len(queries) == 2
    kill_switches.forget()


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError])
def test_error_while_loading_switches_is_raised(monkeypatch, kind):
    """It must not be mistaken for the guard of ``unittest`` against database access."""

    def fails():
        raise kind("It fails.")

    monkeypatch.setattr(kill_switches, "source", [fails])
    kill_switches.forget()
    with pytest.raises(kind):
        kill_switches.refresh()
    kill_switches.forget()


@pytest.mark.django_db(transaction=True)
def test_missing_table_means_that_nothing_is_disabled(monkeypatch):
    """Without migrations there are no switches."""
    # Django caches the table's name in each field. The copies are made before the name changes,
    # because later `get_col` would cache the wrong name, and the restoration would keep it.
    columns = [(field, field.get_col("no_such_table")) for field in Switch._meta.fields]
    for field, column in columns:
        monkeypatch.setitem(vars(field), "cached_col", column)
    monkeypatch.setattr(Switch._meta, "db_table", "no_such_table")
    kill_switches.mark_stale()
    kill_switches.refresh()
    assert not is_off("tool:add")
