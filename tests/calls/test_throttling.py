"""Counting of calls: sliding windows in memory and in caches, throttles and outages."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace
from typing import Literal

import pytest
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from django.core.management import call_command
from django.http import Http404

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal, anonymous
from django_mcp.calls import throttling
from django_mcp.calls.throttling import (
    CacheCounts,
    ProcessCounts,
    count_calls,
    count_in_process,
    declared_throttles,
)
from django_mcp.checks import check_declarations
from django_mcp.declarations.request import Request
from django_mcp.declarations.throttles import Rate
from django_mcp.exceptions import Throttled
from django_mcp.models import AuditEntry
from tests.client import RpcError
from tests.redis import a_redis
from tests.shop.models import Company, Invoice

YES = {"action": "accept", "content": {"answer": True}}
ELICITS = {"elicitation": {}}
REFUSED = r"Too many calls of a?act: 2 per 30 days\. Try again in \d+ (days|hours|minutes|s)\."


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with a_redis(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
def clock(monkeypatch):
    """Set the clock of the counts, which starts at the beginning of a minute."""
    times = [600.0]
    now = lambda: times[0]  # noqa: E731
    monkeypatch.setattr(throttling, "time", SimpleNamespace(time=now, monotonic=now))
    return lambda seconds: times.__setitem__(0, 600.0 + seconds)


@pytest.fixture(params=["memory", "locmem", "redis"])
def counts(request):
    if request.param == "memory":
        return ProcessCounts()
    if request.param == "locmem":
        return CacheCounts(LocMemCache(request.node.name, {}))
    return CacheCounts(RedisCache(f"redis://127.0.0.1:{request.getfixturevalue('redis').port}", {}))


@pytest.fixture
def caches(settings, redis):
    def use(name="locmem"):
        backends = {
            "locmem": ("locmem.LocMemCache", f"tests-{id(settings)}"),
            "redis": ("redis.RedisCache", f"redis://127.0.0.1:{redis.port}"),
            "away": ("redis.RedisCache", "redis://127.0.0.1:1"),
            "dummy": ("dummy.DummyCache", ""),
            "database": ("db.DatabaseCache", "cache_table"),
        }
        backend, location = backends[name]
        backend = f"django.core.cache.backends.{backend}"
        settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": location}}

    return use


def fits(counts, rate, number=1, key="key"):
    return count_calls(counts, key, rate, number)[0]


# Windows.


def test_limit_slides_from_one_window_to_the_next(counts, clock, request):
    rate, key = Rate(4, 60), request.node.name
    clock(30)
    assert [fits(counts, rate, key=key) for _ in range(6)] == [1, 1, 1, 1, 0, 0]
    assert count_calls(counts, key, rate)[1] == pytest.approx(30, abs=0.1)
    clock(60.5)  # nearly all of the previous window counts: floor(4 * 0.99) calls
    assert [fits(counts, rate, key=key) for _ in range(2)] == [1, 0]
    assert count_calls(counts, key, rate)[1] == pytest.approx(14.5, abs=0.1)
    clock(75.1)  # 2 of the previous window count
    assert [fits(counts, rate, key=key) for _ in range(2)] == [1, 0]
    clock(300)
    assert [fits(counts, rate, key=key) for _ in range(5)] == [1, 1, 1, 1, 0]


def test_call_fits_after_the_seconds_that_a_rejection_names(counts, clock, request):
    rate, key = Rate(7, 60), request.node.name
    at = 11.0
    for _ in range(30):
        clock(at)
        fit, seconds = count_calls(counts, key, rate)
        if not fit:
            at += seconds + 0.001
            clock(at)
            assert fits(counts, rate, key=key) == 1
        at += 1.0


def test_part_of_a_block_fits(counts, clock, request):
    rate, key = Rate(10, 60), request.node.name
    assert [fits(counts, rate, 4, key) for _ in range(4)] == [4, 4, 2, 0]


@pytest.mark.parametrize("number", [1, 3])
def test_workers_together_never_exceed_the_limit(counts, clock, request, number):
    rate, taken = Rate(50, 60), []

    def work():
        taken.extend(fits(counts, rate, number, request.node.name) for _ in range(40))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A worker that adds its calls for a moment may make another one reject at the limit.
    assert 50 - 3 * number <= sum(taken) <= 50
    taken.clear()
    work()
    assert sum(taken) <= 3 * number


def test_counts_expire_in_the_cache(counts, clock, request, redis):
    if not isinstance(counts, CacheCounts) or not isinstance(counts._cache, RedisCache):
        pytest.skip("Only Redis tells its timeouts.")
    count_calls(counts, request.node.name, Rate(5, 60))
    client = counts._cache._cache.get_client()
    names = [name for name in client.keys("*") if request.node.name.encode() in name]
    assert names and all(60 < client.ttl(name) <= 180 for name in names)


# The limits of the process.


@pytest.fixture
def rates(settings):
    def given(**kinds):
        settings.DJANGO_MCP = {"THROTTLES": kinds}

    return given


def test_rates_are_read_when_used(rates, clock):
    assert next(n for n in range(100_000) if count_in_process("completions", "somebody")) == 6_000
    throttling.forget()
    rates(calls="5/min", progress="7/s")
    assert next(n for n in range(100) if count_in_process("calls", "somebody")) == 5
    assert next(n for n in range(100) if count_in_process("progress", "somebody")) == 7


def test_each_principal_server_and_kind_has_its_own_count(rates):
    rates(calls="1/month", log="1/month")
    assert count_in_process("calls", "alice", "shop") == 0
    assert count_in_process("calls", "alice", "shop") > 0
    assert (
        count_in_process("calls", "bob", "shop") == count_in_process("calls", "alice", "other") == 0
    )
    assert count_in_process("log", "alice", "shop") == 0
    throttling.forget()
    assert count_in_process("calls", "alice", "shop") == 0


def test_rate_none_is_unlimited(rates):
    rates(calls=None)
    assert not any(count_in_process("calls", "alice") for _ in range(1000))
    assert not len(throttling.process_counts)


def test_number_of_keys_in_memory_is_limited(monkeypatch, rates):
    monkeypatch.setattr(throttling, "MAX_KEYS", 3)
    rates(calls="10/month")
    for number in range(10):
        count_in_process("calls", "first")
        count_in_process("calls", str(number))
        throttling.reserved_calls.keep(str(number), 60, 1)
    assert len(throttling.process_counts) == len(throttling.reserved_calls._reservations) == 3
    assert count_in_process("calls", "first") > 0  # the key that is used was not dropped


# Throttles of declarations and servers.


@pytest.fixture
def act(server):
    """Declare a tool of every kind, a prompt and a resource, each with the same throttle."""

    def declare(throttle="2/month", **options):
        options = {"permission": mcp.PUBLIC, "throttle": throttle, **options}
        server.tool(name="act", read_only=True, **options)(lambda request: "done")

        async def aact(request):
            return "done"

        server.tool(name="aact", **options)(aact)
        server.prompt(name="say", **options)(lambda request: "said")
        server.resource("shop://it", name="it", **options)(lambda request: "it")
        return server

    return declare


@pytest.mark.parametrize("cache", ["locmem", "redis", "away"])
@pytest.mark.parametrize("tool", ["act", "aact"])
def test_throttled_tool_tells_the_model_when_to_try_again(connect, act, caches, tool, cache, db):
    caches(cache)
    client = connect(server=act())
    assert [client.text(tool) for _ in range(2)] == ["done"] * 2
    for _ in range(2):
        assert re.fullmatch(REFUSED, client.failure(tool))
    assert client.call(tool)["_meta"]["django-modelcontext/retryAfter"] >= 1  # for programs
    assert client.text({"act": "aact", "aact": "act"}[tool]) == "done"  # has a count of its own


def test_throttled_prompt_and_resource_are_overload_errors(connect, act, db):
    client = connect(server=act("1/month"))
    requests = {"prompts/get": {"name": "say"}, "resources/read": {"uri": "shop://it"}}
    for method, params in requests.items():
        client.request(method, **params)
        with pytest.raises(RpcError, match="Too many calls of") as refused:
            client.request(method, **params)
        assert refused.value.code == -32603 and refused.value.data["retryAfter"] > 0


def test_workers_share_the_count(connect, act, caches, db):
    """Each worker has a memory of its own and the same Redis."""
    caches("redis")
    client, ran = connect(server=act("500/month")), 0
    for worker in range(1, 6):
        # What is in memory is lost, as with another process. Calls that it held stay counted.
        throttling.reserved_calls.clear()
        throttling.process_counts.clear()
        while ran < 110 * worker and not client.call("act").get("isError"):
            ran += 1
    assert 480 <= ran <= 500


@pytest.mark.parametrize("tool", ["act", "aact"])
def test_throttles_do_not_tell_a_forbidden_tool_from_a_missing_one(connect, act, tool, db):
    """Attack: call it until a throttle would say that it exists."""
    server = act("1/month", permission="shop.view_invoice")
    server.throttle = "3/month"
    client = connect(server=server)
    for _ in range(5):
        for name in (tool, "missing"):
            with pytest.raises(RpcError, match=f"Unknown tool: {name}"):
                client.call(name)


def test_rejected_call_counts_for_no_throttle(connect, act, db):
    server = act("1/month")
    server.throttle = "3/month"
    client = connect(server=server)
    assert client.text("act") == "done"
    for _ in range(5):
        assert "of act" in client.failure("act")
    assert client.text("aact") == "done"
    client.request("prompts/get", name="say")
    with pytest.raises(RpcError, match="Too many calls: 3 per 30 days"):
        client.request("resources/read", uri="shop://it")


def test_read_that_several_templates_match_counts_once_for_the_server(connect, server, db):
    @server.resource("shop://{name}", permission=mcp.PUBLIC)
    def by_name(request, name: str) -> str:
        raise Http404

    @server.resource("shop://{key}", permission=mcp.PUBLIC, name="other")
    def by_key(request, key: str) -> str:
        raise Http404

    server.throttle = "2/month"
    client = connect(server=server)
    for _ in range(2):
        with pytest.raises(RpcError, match="Resource not found"):
            client.request("resources/read", uri="shop://x")
    with pytest.raises(RpcError, match="Too many calls: 2"):
        client.request("resources/read", uri="shop://x")


def test_setting_limits_the_calls_of_all_workers(connect, act, settings, db):
    settings.DJANGO_MCP = {"THROTTLES": {"calls": "2/month", "completions": "1/month"}}
    server = act(None)
    client = connect(server=server)
    for _ in range(2):
        throttling.process_counts.clear()  # another worker, which has no count in memory
        assert client.text("act") == "done"
    throttling.process_counts.clear()
    assert "Too many calls: 2 per 30 days" in client.failure("act")
    server.throttle = []  # replaces the setting
    throttling.process_counts.clear()
    assert client.text("act") == "done"


def test_setting_limits_the_completions_of_all_workers(connect, server, settings, db):
    settings.DJANGO_MCP = {"THROTTLES": {"completions": "1/month"}}

    @server.prompt(permission=mcp.PUBLIC)
    def say(request, word: Literal["yes", "no"]) -> str: ...

    client = connect(server=server)
    params = {
        "ref": {"type": "ref/prompt", "name": "say"}, "argument": {"name": "word", "value": "y"}
    }  # fmt: skip
    client.request("completion/complete", **params)
    throttling.process_counts.clear()
    with pytest.raises(RpcError, match="Too many completions: 1 per 30 days"):
        client.request("completion/complete", **params)


def caller(user, application=None, key=""):
    app = SimpleNamespace(pk=application) if application else None
    return Principal(user, Auth(application=app, key=key) if app or key else None)


@pytest.mark.parametrize(("throttle", "together"), [
    (mcp.UserThrottle, {"alice", "alice's app", "alice's token", "alice's other app"}),
    (mcp.ClientThrottle, {"alice's app", "bob's app"}),
    (mcp.TotalThrottle, None),
])  # fmt: skip
def test_keys_of_throttles(throttle, together, alice, bob, server):
    callers = {
        "alice": caller(alice), "alice's app": caller(alice, 1), "bob's app": caller(bob, 1),
        "alice's other app": caller(alice, 2), "alice's token": caller(alice, key="t"),
        "network": anonymous("1"), "other network": anonymous("2"),
    }  # fmt: skip
    keys = {name: throttle("1/s").get_key(Request(one, server)) for name, one in callers.items()}
    together = together or {*keys}
    assert len({keys[name] for name in together}) == 1
    assert len({*keys.values()}) == 1 + len({*keys} - together)


@pytest.mark.parametrize("tool", ["act", "aact"])
def test_project_chooses_key_and_rate(connect, act, alice, bob, tool):
    class PlanThrottle(mcp.Throttle):
        def get_key(self, request):
            assert Company.objects.exists()  # may query the database
            return None if request.user.is_superuser else str(request.user.pk)

        def get_rate(self, request):
            return "3/month" if request.user == alice else "1/month"

    server = act(PlanThrottle, permission=mcp.AUTHENTICATED)
    client = connect(alice, server=server)
    assert [client.text(tool) for _ in range(3)] == ["done"] * 3
    assert "3 per 30 days" in client.failure(tool)
    client = connect(bob, server=server)
    assert client.text(tool) == "done"
    assert "1 per 30 days" in client.failure(tool)
    bob.is_superuser = True
    bob.save()
    assert connect(bob, server=server).text(tool) == "done"


def test_throttles_of_one_name_count_together(connect, act, db):
    server = act([mcp.UserThrottle("2/month", name="exports"), mcp.TotalThrottle("1000/day")])
    client = connect(server=server)
    assert client.text("act") == client.text("aact") == "done"
    assert "2 per 30 days" in client.failure("act") and "2 per 30 days" in client.failure("aact")


def test_tools_of_a_model_resource_count_together_with_its_reads(connect, server, invoice, alice):
    @server.register(Invoice)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        throttle = "2/month"
        fields = ["number"]
        search_fields = ["number"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    client = connect(alice, server=server)
    client.call("search_invoice", query="A")
    client.request("resources/read", uri=f"model://shop/invoice/{invoice.pk}")
    assert "Too many calls of invoice" in client.failure("search_invoice", query="A")


# Calls that ask.


@pytest.fixture
def asking(server):
    @server.tool(permission=mcp.PUBLIC, throttle="1/month")
    def ask(request) -> str:
        first = request.elicit("First?", key="first")
        second = request.elicit("Second?", key="second")
        return f"{first} {second}"

    return server


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("rates", [{}, {"calls": "1/month"}])
def test_call_counts_once_however_often_it_asks(connect, asking, revision, settings, rates, db):
    settings.DJANGO_MCP = {"THROTTLES": rates}
    answers = {"elicitation/create": lambda params: YES}
    client = connect(server=asking, revision=revision, answers=answers, capabilities=ELICITS)
    assert client.text("ask") == "True True"
    assert "Too many calls" in client.failure("ask")


def test_repeated_retry_with_one_state_counts(connect, asking, db):
    """Attack: call a tool again and again with the state of one call that was counted."""
    client = connect(server=asking, capabilities=ELICITS)
    params = {"name": "ask", "arguments": {}}
    asked = client.request("tools/call", **params)
    more = {"requestState": asked["requestState"], "inputResponses": {"first": YES}}
    again = client.request("tools/call", **params, **more)
    assert again["resultType"] == "input_required"
    throttling.process_counts.clear()  # in another worker
    for _ in range(2):
        refused = client.request("tools/call", **params, **more)
        assert "Too many calls of ask" in refused["content"][0]["text"]
    done = client.request("tools/call", **params, requestState=again["requestState"],
                          inputResponses={"second": YES})  # fmt: skip
    assert done["content"][0]["text"] == "True True"


# Outages of the cache.


def test_each_worker_counts_alone_while_the_cache_is_away(connect, act, caches, caplog, clock, db):
    caches("away")
    client = connect(server=act())
    assert [client.text("act") for _ in range(2)] == ["done"] * 2
    assert "Too many calls" in client.failure("act")
    failures = [one for one in caplog.records if "the cache failed" in one.message]
    assert len(failures) == 1 and failures[0].levelname == "ERROR"
    assert "cache=default" in failures[0].message
    clock(throttling.OUTAGE_SECONDS + 1)  # it is tried again, and fails again
    assert "Too many calls" in client.failure("act")
    assert caplog.text.count("the cache failed") == 2


# For the control room.


def test_throttles_of_a_server_and_its_declarations_are_listed(act):
    server = act(permission=mcp.AUTHENTICATED)
    server.throttle = mcp.TotalThrottle("1000/day")
    names = [one.declaration and one.declaration.name for one in declared_throttles(server)]
    assert names[0] is None and sorted(names[1:]) == ["aact", "act", "it", "say"]


# Checks.


class NoKey(mcp.Throttle):
    rate = "1/s"


class AsyncKey(mcp.Throttle):
    rate = "1/s"

    async def get_key(self, request): ...


class FromRestFramework(mcp.UserThrottle):
    rate, scope = "1/s", "burst"

    def get_cache_key(self, request, view): ...


@pytest.mark.parametrize(("throttle", "message", "hint"), [
    ("60", "'60' is not a rate", 'such as "5/s"'),
    ("60/mins", "'60/mins' is not a rate", "Did you mean 'min'?"),
    ("0/min", "'0/min' is not a rate", "Write a number"),
    (60, "60 is not a rate or an mcp.Throttle", "ClientThrottle"),
    (mcp.UserThrottle, "'' is not a rate", "Write a number"),
    (["60/min", "90/min"], "two of UserThrottle count the same calls", "Remove one"),
    (NoKey, "NoKey has no get_key", "mcp.UserThrottle"),
    (AsyncKey, "AsyncKey.get_key is asynchronous", "Write def."),
    (FromRestFramework, "FromRestFramework.scope has no effect", "get_rate"),
    (FromRestFramework, "FromRestFramework.get_cache_key has no effect", "get_key"),
    (mcp.UserThrottle("1/s", cache="nope"), "there is no cache 'nope'", "CACHES has: default"),
    (mcp.UserThrottle("1/s", cache=["a"]), "there is no cache ['a']", "CACHES has: default"),
    (mcp.UserThrottle("1/s", name=["a"]), "the name ['a'] is not a text", "Write a string."),
    (mcp.UserThrottle(["1/s"]), "['1/s'] is not a rate", "60/min"),
])  # fmt: skip
def test_wrong_throttles_are_errors(act, throttle, message, hint):
    server = act(throttle)
    server.throttle = throttle
    for number, found in ((66, 4), (156, 1)):
        messages = [one for one in server.check() if one.id == f"django_mcp.E{number:03}"]
        said = [one for one in messages if message in one.msg]
        assert len(said) == found and all(hint in one.hint for one in said)


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize(("cache", "problem"), [
    ("locmem", "each counts alone"), ("redis", None),
    ("dummy", "not atomic"), ("database", "not atomic"),
])  # fmt: skip
def test_cache_that_cannot_count_for_all_workers_is_a_warning(
    act, caches, settings, cache, problem, debug
):
    caches(cache)
    settings.DEBUG = debug
    act()
    found = [one for one in check_declarations() if one.id == "django_mcp.W157"]
    assert bool(found) == (problem is not None and not debug)
    assert not found or problem in found[0].msg


@pytest.mark.parametrize("rate", [5, ["1/s"]])
def test_wrong_rate_in_the_settings_does_not_break_other_checks(act, settings, rate):
    act()
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"THROTTLES": {"calls": rate}}
    assert "django_mcp.W157" not in {one.id for one in check_declarations()}


def test_wrong_rate_of_the_project_fails_the_call(connect, act, db, caplog):
    class Wrong(mcp.UserThrottle):
        def get_rate(self, request):
            return "many"

    assert "went wrong" in connect(server=act(Wrong)).failure("act")
    assert "'many' is not a rate" in caplog.text


def test_durations_are_in_words():
    words = {0.2: "1 s", 12: "12 s", 119.5: "120 s", 120: "2 minutes", 7_201: "3 hours",
             200_000: "3 days"}  # fmt: skip
    for seconds, said in words.items():
        assert str(Throttled("No.", wait=seconds)) == f"No. Try again in {said}."
    assert Throttled(wait=3).message == "This was called too often. Try again in 3 s."


def test_counts_in_a_database_are_no_rows_of_the_tool(connect, server, alice, caches):
    """They would be in the audit log as rows that the tool has written."""
    caches("database")
    call_command("createcachetable", verbosity=0)

    @server.tool(audit=True, throttle="60/min")
    def rename(request) -> str:
        type(alice).objects.filter(pk=alice.pk).update(first_name="A")
        return "renamed"

    assert connect(alice, server=server).text("rename") == "renamed"
    assert AuditEntry.objects.values_list("rows_written", "queries").get() == (1, 1)
