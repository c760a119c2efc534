"""What administrators switch off: gone from lists and calls, of whatever transport."""

from __future__ import annotations

import asyncio
import threading

import pytest

from django_mcp.auth import kill_switches
from django_mcp.models import Switch
from django_mcp.testing.environment import TestEnvironment

TOOLS = ("tool:refund", "refund")


def off(thing, server="default"):
    return Switch.objects.create(server=server, thing=thing, reason="It is broken.")


def test_a_tool_is_gone_for_everybody(anywhere, alice, invoice):
    client = anywhere.acting_as(alice)
    assert "refund" in client.tools()
    row = off("tool:refund")
    assert "refund" not in client.tools() and "add" in client.tools()
    client.call("refund", invoice=invoice, reason="x").assert_unknown()
    row.delete()
    assert "refund" in client.tools()


def test_what_is_public_and_needs_no_database_is_gone_too(anywhere):
    anywhere.call("add", a=1, b=2).assert_ok()
    off("tool:add")
    assert "add" not in anywhere.tools()
    anywhere.call("add", a=1, b=2).assert_unknown()


def test_with_a_resource_goes_what_rests_on_it(anywhere, alice, invoice):
    client = anywhere.acting_as(alice)
    client.read(invoice).assert_ok()
    assert "search_invoice" in client.tools()
    off("resource:invoice")
    client.read(invoice).assert_unknown()
    assert "search_invoice" not in client.tools()
    client.call("refund", invoice=invoice, reason="x").assert_error("There is no invoice")


def test_a_whole_server_is_closed(anywhere, alice):
    client = anywhere.acting_as(alice)
    off("")
    assert not list(client.tools())
    client.call("add", a=1, b=2).assert_unknown()


def test_another_server_is_not(anywhere):
    off("", server="another")
    off("tool:add", server="another")
    anywhere.call("add", a=1, b=2).assert_ok()


def test_no_query_more_while_nothing_changed(anywhere, django_assert_num_queries):
    anywhere.call("add", a=1, b=2).assert_ok()
    with django_assert_num_queries(0):
        kill_switches.look()
    off("tool:nothing")
    with django_assert_num_queries(1):
        kill_switches.look()
        kill_switches.look()


def test_what_a_test_switched_is_not_the_next_ones(db):
    off("tool:add")
    kill_switches.look()
    assert kill_switches.is_off("default", "tool:add")
    with TestEnvironment().installed():
        pass
    assert not kill_switches.is_off("default", "tool:add")


@pytest.mark.django_db(transaction=True)
def test_what_another_process_switched_is_known_in_half_a_second(monkeypatch):
    """Rows that no signal told of."""
    now = [100.0]
    monkeypatch.setattr(kill_switches, "monotonic", lambda: now[0])
    monkeypatch.setattr(TestEnvironment, "shares_database", True)
    kill_switches.forget()
    kill_switches.look()
    Switch.objects.bulk_create([Switch(server="default", thing="tool:add")])
    kill_switches.look()
    assert not kill_switches.is_off("default", "tool:add")
    now[0] += kill_switches.CACHE_SECONDS
    kill_switches.look()
    assert kill_switches.is_off("default", "tool:add")
    kill_switches.forget()


def test_however_many_wait_it_is_looked_at_once(shared_db, monkeypatch):
    """Attack: calls that need no database fill the threads in which tokens are looked up."""
    looked, go_on = [], threading.Event()

    def known():
        looked.append(threading.get_ident())
        go_on.wait(10)
        return frozenset()

    async def crowd():
        waiting = [asyncio.ensure_future(kill_switches.fresh()) for _ in range(5000)]
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(*waiting)

    monkeypatch.setattr(kill_switches, "source", [known])
    monkeypatch.setattr(TestEnvironment, "shares_database", True)
    kill_switches.forget()
    assert set(asyncio.run(crowd())) == {None}
    assert len(looked) == 1
    kill_switches.forget()


def test_what_changes_while_it_is_looked_at_is_looked_at_again(shared_db, monkeypatch):
    looked = []

    def known():
        looked.append(1)
        if len(looked) == 1:
            kill_switches.changed()
        return frozenset({("default", "tool:add")} if len(looked) > 1 else ())

    monkeypatch.setattr(kill_switches, "source", [known])
    kill_switches.forget()
    kill_switches.changed()
    asyncio.run(kill_switches.fresh())
    assert kill_switches.is_off("default", "tool:add") and len(looked) == 2
    kill_switches.forget()


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError])
def test_whoever_cannot_tell_lets_nobody_in(monkeypatch, kind):
    """Outside of tests ``unittest`` may be there as well: what fails is no guard of theirs."""

    def fails():
        raise kind("It fails.")

    monkeypatch.setattr(kill_switches, "source", [fails])
    kill_switches.forget()
    with pytest.raises(kind):
        kill_switches.look()
    kill_switches.forget()


@pytest.mark.django_db(transaction=True)
def test_nobody_knows_before_the_table_is_there(monkeypatch):
    """Where nothing was migrated nothing can be off; where nobody can ask, nothing is known."""
    # Django caches the table's name in each field. The copies are made before the name changes:
    # after it, `get_col` would cache the wrong name, and undoing would restore that.
    columns = [(field, field.get_col("no_such_table")) for field in Switch._meta.fields]
    for field, column in columns:
        monkeypatch.setitem(vars(field), "cached_col", column)
    monkeypatch.setattr(Switch._meta, "db_table", "no_such_table")
    kill_switches.changed()
    kill_switches.look()
    assert not kill_switches.is_off("default", "tool:add")
