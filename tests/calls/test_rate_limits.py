"""Rate limits: token buckets for each principal, server and kind of request."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

import django_mcp as mcp
from django_mcp.calls import rate_limits
from django_mcp.calls.rate_limits import wait
from tests.client import RpcError


@pytest.fixture
def rates(settings):
    def given(**kinds):
        settings.DJANGO_MCP = {"RATES": kinds}

    return given


@pytest.fixture
def clock(monkeypatch):
    """Set the monotonic clock of the limits, which starts at 100 seconds."""
    times = [100.0]
    monkeypatch.setattr(rate_limits, "time", SimpleNamespace(monotonic=lambda: times[0]))
    return lambda now: times.__setitem__(0, now)


def test_bucket_empties_and_refills(rates, clock):
    rates(calls="3/6")
    assert [wait("calls", "alice") for _ in range(3)] == [0, 0, 0]
    assert wait("calls", "alice") == 2
    clock(101.0)
    assert wait("calls", "alice") == 1  # asking again costs nothing
    clock(102.0)
    assert wait("calls", "alice") == 0
    clock(1000.0)
    assert [wait("calls", "alice") for _ in range(4)] == [0, 0, 0, 2]  # never beyond full


def taken(kind: str) -> int:
    """Return how many tokens a bucket gives out at once."""
    return next(number for number in range(20_000) if wait(kind, "somebody"))


def test_rates_are_read_when_used(rates, clock):
    assert taken("calls") == 10_000 and wait("calls", "somebody") == 0.001
    rate_limits.forget()
    rates(calls="5/10", progress="7")
    assert taken("calls") == 5 and wait("calls", "somebody") == 2
    assert taken("progress") == 7 and wait("progress", "somebody") == pytest.approx(1 / 7)
    assert taken("completions") == 1_000 and wait("completions", "somebody") == 0.01


def test_each_principal_server_and_kind_has_its_own_bucket(rates):
    rates(calls="1/1000", log="1/1000")
    assert wait("calls", "alice", "shop") == 0
    assert wait("calls", "alice", "shop") > 0
    assert wait("calls", "bob", "shop") == wait("calls", "alice", "other") == 0
    assert wait("log", "alice", "shop") == 0
    rate_limits.forget()
    assert wait("calls", "alice", "shop") == 0


def test_rate_none_is_unlimited(rates):
    rates(calls=None)
    assert not any(wait("calls", "alice") for _ in range(1000)) and not rate_limits._buckets


def test_number_of_buckets_is_limited(monkeypatch):
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 3)
    for number in range(10):
        wait("calls", "first")
        wait("calls", str(number))
    assert list(rate_limits._buckets) == [("calls", "8"), ("calls", "first"), ("calls", "9")]


def test_threads_share_one_bucket(rates):
    rates(calls="50/100000")
    taken: list[float] = []

    def take() -> None:
        taken.extend(wait("calls", "alice") for _ in range(50))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken.count(0.0) == 50


def test_calls_over_the_limit_are_rejected_without_effect(
    connect, server, rates, revision, db, alice
):
    rates(calls="2/100")
    done: list[str] = []

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        done.append("tool")
        return "done"

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> str:
        done.append("prompt")
        return "done"

    @server.resource("shop://x", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> str:
        done.append("resource")
        return "done"

    client = connect(server=server, revision=revision)
    assert client.text("tool") == client.text("tool") == "done"
    assert client.failure("tool") == "Too many calls. Try again in 50 s."
    for method, params in (
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "shop://x"}),
    ):
        with pytest.raises(RpcError, match="Too many calls") as refused:
            client.request(method, **params)
        assert refused.value.code == -32603
    assert client.request("tools/list")["tools"]
    assert done == ["tool", "tool"]
    assert connect(alice, server=server, revision=revision).text("tool") == "done"


def test_completions_over_the_limit_are_rejected(connect, rates, revision):
    rates(completions="1/100")
    client = connect(revision=revision)
    ref = {"type": "ref/prompt", "name": "visit"}
    asked = {"ref": ref, "argument": {"name": "country", "value": "f"}}
    assert client.request("completion/complete", **asked)["completion"]["values"] == ["fr"]
    with pytest.raises(RpcError, match="Too many completions"):
        client.request("completion/complete", **asked)


def test_rate_of_zero_rejects_everything(connect, server, rates, caplog):
    rates(calls="0/10", log="0/10", progress="0")

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def tool(request: mcp.Request) -> str:
        return "done"

    assert "Too many calls" in connect(server=server).failure("tool")
    assert wait("log", "alice") > 0 and wait("progress", "alice") > 0
