"""The page on throttles: its declarations are served and limited as the page says."""

from __future__ import annotations

from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.declarations import server as servers

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/limit-calls.md"


@pytest.fixture
def run(server, monkeypatch):
    """Run a block of the page on ``server``."""
    monkeypatch.setattr(servers, "default_server", server)
    monkeypatch.setattr(mcp, "server", server, raising=False)

    def run_block(code: str) -> None:
        namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)

    return run_block


def test_rates_of_the_page_limit_calls(run, server, connect, alice, invoice):
    run(blocks(PAGE, "python")[0])
    assert [str(message) for message in server.check()] == []
    assert server.throttle == "600/min"
    client = connect(alice, server=server)
    for _ in range(5):
        assert client.text("refund", invoice=invoice.pk) == "refunded"
    shown, _ = blocks(PAGE, "text")
    start = shown.partition("12 s")[0]
    assert client.failure("refund", invoice=invoice.pk).startswith(start)


def test_time_limit_of_the_page(run, server, connect, alice):
    code = blocks(PAGE, "python")[3]
    run(f"import django_mcp as mcp\n{code}")
    assert [str(message) for message in server.check()] == []
    assert connect(alice, server=server).text("report", year=2026) == "report of 2026"
    server._forget()
    run(
        "import django_mcp as mcp\nimport time\n"
        + code.replace("def report", "def late").replace("timeout=30", "timeout=0.01")
        .replace("    return", "    while not request.cancelled: time.sleep(0.001)\n    return")
    )  # fmt: skip
    (_, shown) = blocks(PAGE, "text")
    expected = shown.strip().replace("report", "late").replace("30 s", "0.01 s")
    assert connect(alice, server=server).failure("late", year=2026) == expected


def test_caches_of_the_page_are_settings(settings):
    from django.core.cache import caches

    given: dict[str, Any] = {}
    exec(blocks(PAGE, "python")[1], given)
    settings.CACHES = given["CACHES"]
    options = caches["default"]._cache._pool_options
    assert options["socket_timeout"] == options["socket_connect_timeout"] == 1


def test_quota_of_the_page_depends_on_the_plan(run, server, connect, alice, bob, monkeypatch):
    code = (
        blocks(PAGE, "python")[2].replace("1000/month", "1/month").replace("20000/month", "2/month")
    )
    run(code)
    server.tool(name="act", permission=mcp.AUTHENTICATED)(lambda request: "done")
    acme = alice.companies.get()
    acme.members.add(bob)
    bob.companies.exclude(pk=acme.pk).delete()
    monkeypatch.setattr(
        type(acme), "pays", property(lambda self: self.name == "Acme"), raising=False
    )
    for user in (alice, bob):
        assert connect(user, server=server).text("act") == "done"
    assert "2 per 30 days" in connect(alice, server=server).failure("act")
    monkeypatch.setattr(type(acme), "pays", False)
    assert "1 per 30 days" in connect(bob, server=server).failure("act")
    bob.is_staff = True
    bob.save()
    assert connect(bob, server=server).text("act") == "done"


def test_quota_of_the_page_limits_callers_without_a_company(run, server, connect, bob):
    code = (
        blocks(PAGE, "python")[2].replace("1000/month", "1/month").replace("20000/month", "2/month")
    )
    run(code)
    server.tool(name="act", permission=mcp.PUBLIC)(lambda request: "done")
    bob.companies.all().delete()
    assert connect(None, server=server).text("act") == "done"
    assert "1 per 30 days" in connect(bob, server=server).failure("act")
