"""Kill switches with a rate: which calls they limit, and that they hide nothing."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group
from django.core.cache.backends.locmem import LocMemCache
from django.http import Http404

import django_mcp as mcp
from django_mcp import apps
from django_mcp.auth import kill_switches
from django_mcp.auth.principal import Auth, Principal, anonymous
from django_mcp.calls import throttling
from django_mcp.declarations.server import servers
from django_mcp.models import AuditEntry, Switch, Token
from tests.client import RpcError
from tests.shop.models import Article, Company

from .test_switch_audiences import PrincipalClient

AGENT, OTHER = (SimpleNamespace(pk=pk, client_id=f"client {pk}") for pk in (1, 2))
TOOLS = ["act", "aact"]  # a function in a thread, and a coroutine that needs no database


@pytest.fixture
def limited(server, db):
    """Return a server with two tools, a prompt and a resource, which declare no throttle."""
    server.tool(name="act", permission=mcp.PUBLIC)(lambda request: "done")

    async def aact(request):
        return "done"

    server.tool(name="aact", permission=mcp.PUBLIC)(aact)
    server.prompt(name="say", permission=mcp.PUBLIC)(lambda request: "said")
    server.resource("shop://it", name="it", permission=mcp.PUBLIC)(lambda request: "it")
    return server


@pytest.fixture
def connect_as(limited):
    """Return a function that makes clients with a user and an OAuth application, over a pipe."""
    with ExitStack() as stack:

        def made(user=None, application=None):
            auth = None if application is None else Auth(frozenset(), application)
            principal = Principal(user or anonymous().user, auth)
            return stack.enter_context(PrincipalClient(principal, server=limited))

        yield made


@pytest.fixture
def interns(alice):
    group = Group.objects.create(name="interns")
    alice.groups.add(group)
    return group


def limit(server, thing="", rate="2/month", **audience):
    return Switch.objects.create(server=server.name, thing=thing, rate=rate, **audience)


def can_call(client, tool="act", at_most=5):
    """Return how many calls of a tool succeed, one after the other."""
    for number in range(at_most):
        result = client.call(tool)
        if result.get("isError"):
            assert "Too many calls" in result["content"][0]["text"]
            return number
    return at_most


@pytest.mark.parametrize("tool", TOOLS)
def test_limited_client_is_throttled_and_others_are_not(limited, connect_as, alice, bob, tool):
    limit(limited, f"tool:{tool}", client=AGENT.client_id)
    assert can_call(connect_as(alice, AGENT), tool) == 2
    assert can_call(connect_as(bob, AGENT), tool) == 0  # all calls of the client count together
    for other in (connect_as(alice, OTHER), connect_as(alice), connect_as()):
        assert can_call(other, tool) == 5
    failure = connect_as(alice, AGENT).call(tool)
    assert failure["content"][0]["text"].startswith(f"Too many calls of {tool}: 2 per 30 days.")
    assert failure["_meta"]["django-modelcontext/retryAfter"] >= 1


@pytest.mark.parametrize("tool", TOOLS)
def test_limit_of_a_group_concerns_its_members(limited, connect_as, alice, bob, interns, tool):
    limit(limited, group=str(interns.pk))
    assert can_call(connect_as(alice, AGENT), tool) == 2
    assert can_call(connect_as(alice), tool) == 0
    assert can_call(connect_as(bob, AGENT), tool) == can_call(connect_as(), tool) == 5


def test_limit_of_a_group_queries_in_a_thread_only_when_calls_are_counted(limited, interns):
    limit(limited, group=str(interns.pk))
    kill_switches.refresh()
    assert len(kill_switches.limits(limited.name)) == 1
    assert not kill_switches.may_query(limited.name)
    assert not kill_switches.has_audiences(limited.name)


@pytest.mark.parametrize("tool", TOOLS)
def test_limit_of_everybody_counts_all_callers_together(limited, connect_as, alice, bob, tool):
    limit(limited, rate="3/month")
    callers = [connect_as(alice), connect_as(bob, AGENT), connect_as()]
    assert [can_call(caller, tool, at_most=1) for caller in callers] == [1, 1, 1]
    assert [can_call(caller, tool) for caller in callers] == [0, 0, 0]


@pytest.mark.parametrize("tool", TOOLS)
def test_each_of_several_limits_must_allow_a_call(limited, connect_as, tool):
    limit(limited, rate="4/month")
    limit(limited, f"tool:{tool}", rate="3/month")
    client = connect_as()
    assert can_call(client, tool) == 3
    # Calls that the tool's limit has rejected do not count for the server's limit.
    assert can_call(client, {"act": "aact", "aact": "act"}[tool]) == 1


def test_declared_throttles_apply_too(limited, connect_as):
    limited.throttle = "1/month"
    limit(limited, rate="3/month")
    assert can_call(connect_as()) == 1


def test_switched_off_tool_with_a_limit_of_the_server_stays_off(limited, connect_as):
    limit(limited)
    Switch.objects.create(server=limited.name, thing="tool:act")
    with pytest.raises(RpcError, match="Unknown tool: act"):
        connect_as().call("act")
    assert can_call(connect_as(), "aact") == 2


def test_limit_of_another_server_has_no_effect(limited, connect_as):
    Switch.objects.create(server="another", thing="", rate="1/month")
    assert can_call(connect_as()) == 5


def test_limits_hide_nothing(limited, connect_as, alice, interns):
    client = connect_as(alice, AGENT)
    methods = ("tools/list", "prompts/list", "resources/list")
    before = [client.request(method) for method in methods]
    for audience in ({}, {"client": AGENT.client_id}, {"group": str(interns.pk)}):
        limit(limited, rate="1/month", **audience)
        limit(limited, "tool:act", rate="1/month", **audience)
    assert can_call(client) == 1 and can_call(client) == 0
    assert [client.request(method) for method in methods] == before


def test_deleted_row_ends_the_limit_at_once(limited, connect_as):
    row = limit(limited, "tool:act")
    client = connect_as()
    assert can_call(client) == 2
    row.delete()
    assert can_call(client) == 5


@pytest.mark.parametrize("rate", ["ten/min", "0/min", "10/MIN", " ", "10"])
def test_invalid_rate_switches_off_and_is_logged_once(limited, connect_as, caplog, rate):
    """Code other than the form can write one. A limit that does nothing would fail open."""
    apps.valid_rate.cache_clear()
    row = limit(limited, "tool:act", rate=rate, client=AGENT.client_id)
    client = connect_as(None, AGENT)
    for _ in range(2):
        kill_switches.mark_stale()
        with pytest.raises(RpcError, match="Unknown tool: act"):
            client.call("act")
    assert can_call(connect_as()) == can_call(client, "aact") == 5
    (record,) = [one for one in caplog.records if "invalid limit" in one.message]
    assert repr(rate) in record.message
    row.delete()
    assert can_call(client) == 5


def test_prompts_and_resources_are_limited(limited, connect_as):
    limit(limited, rate="2/month")
    client = connect_as()
    requests = {"prompts/get": {"name": "say"}, "resources/read": {"uri": "shop://it"}}
    for method, params in requests.items():
        client.request(method, **params)
    for method, params in requests.items():
        with pytest.raises(RpcError, match="Too many calls: 2 per 30 days") as refused:
            client.request(method, **params)
        assert refused.value.data["retryAfter"] > 0


def test_read_that_several_templates_match_counts_once(limited, connect_as):
    @limited.resource("shop://{name}", permission=mcp.PUBLIC)
    def by_name(request, name: str) -> str:
        raise Http404

    @limited.resource("shop://{key}", permission=mcp.PUBLIC)
    def by_key(request, key: str) -> str:
        raise Http404

    limit(limited)
    client = connect_as()
    for _ in range(2):
        with pytest.raises(RpcError, match="Resource not found"):
            client.request("resources/read", uri="shop://x")
    with pytest.raises(RpcError, match="Too many calls: 2"):
        client.request("resources/read", uri="shop://x")


def test_limit_of_a_model_resource_counts_its_tools(connect, alice, invoice):
    client = connect(alice)
    Switch.objects.create(server="default", thing="resource:invoice", rate="2/month")
    client.text("search_invoice")
    client.text("search_invoice")
    failure = client.failure("search_invoice")
    assert failure.startswith("Too many calls of invoice: 2 per 30 days")


def test_limits_do_not_tell_a_forbidden_tool_from_a_missing_one(limited, connect_as):
    """Attack: call it until a limit would say that it exists."""
    limited.tool(name="secret", permission="shop.view_invoice")(lambda request: "secret")
    limit(limited, "tool:secret", rate="1/month")
    limit(limited, rate="3/month")
    client = connect_as()
    for _ in range(5):
        for name in ("secret", "missing"):
            with pytest.raises(RpcError, match=f"Unknown tool: {name}"):
                client.call(name)
    assert can_call(client) == 3  # no rejected call has counted


def test_lowered_limit_takes_effect_at_once(limited, connect_as, monkeypatch):
    """Attack: use the calls that a worker has reserved before the limit was lowered."""
    shared = LocMemCache("lowered limit", {})
    monkeypatch.setattr(throttling, "cache_of", lambda alias: shared)
    row = limit(limited, rate="10000/month")  # a worker reserves 100 calls at once
    client = connect_as()
    assert can_call(client, at_most=2) == 2
    row.delete()
    limit(limited, rate="1/month")
    assert can_call(client) == 0


@pytest.mark.parametrize("thing", ["tool:search_rows", ""])
def test_limits_do_not_tell_a_forbidden_model_from_a_missing_one(server, connect, alice, thing):
    """Attack: name models to a generic tool until its limit is used up."""

    class Articles(mcp.ModelResource):
        fields = ["title"]
        search_fields = ["title"]

    class Companies(mcp.ModelResource):
        fields = ["name"]
        search_fields = ["name"]
        permission = mcp.AUTHENTICATED

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    server.register(Article, Articles)
    server.register(Company, Companies)
    mcp.register_models("shop", generic=True, server=server)
    limit(server, thing, rate="1/month")
    client = connect(alice, server=server)
    for used_up in (False, True):
        for _ in range(2):
            for model in ("article", "missing"):
                failure = client.failure("search_rows", model=model)
                assert failure.startswith(f"There is no model '{model}'")
        failed = client.call("search_rows", model="company")["isError"]
        assert failed == used_up


def test_processes_share_the_count_through_the_cache(limited, connect_as, monkeypatch):
    shared = LocMemCache("administrator's limits", {})
    monkeypatch.setattr(throttling, "cache_of", lambda alias: shared)
    limit(limited, rate="4/month")
    done = 0
    for _ in range(3):
        # What is in memory is lost, as in another process.
        throttling.reserved_calls.clear()
        throttling.process_counts.clear()
        done += can_call(connect_as(), at_most=2)
    assert done == 4


@pytest.mark.parametrize("tool", TOOLS)
def test_cache_over_the_network_counts_in_a_thread(limited, connect_as, monkeypatch, tool):
    monkeypatch.setattr(throttling, "_is_in_memory", lambda alias: False)
    limit(limited, rate="300/month")  # a worker reserves three calls at once
    assert can_call(connect_as(), tool) == 5


@pytest.mark.parametrize("tool", TOOLS)
def test_limits_apply_over_http_and_are_audited(limited, http, alice, interns, tool):
    limited.audit = True
    limit(limited, group=str(interns.pk))
    client = http(Token.make(alice, "x")[1], server=limited)
    assert can_call(client, tool) == 2
    assert can_call(http(server=limited), tool) == 5  # anonymous
    outcomes = AuditEntry.objects.filter(user=str(alice.pk)).order_by("pk")
    assert list(outcomes.values_list("outcome", flat=True)) == ["ok", "ok", "throttled"]


def test_calls_are_counted_only_while_there_is_a_limit(limited):
    kill_switches.refresh()
    tool = limited._catalog.tools["act"]
    assert not throttling.is_limited(limited, tool)
    limit(limited)
    kill_switches.refresh()
    assert throttling.is_limited(limited, tool)


def test_limits_of_every_declaration_can_be_found(db):
    run = SimpleNamespace(is_counted=False)
    for server in servers():
        run.server = server
        for declaration in server._catalog._declarations():
            assert throttling._limits(run, declaration) == []
