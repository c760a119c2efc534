"""Kill switches for a group or an OAuth client: who can still use the tool, and at what cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.auth import kill_switches
from django_mcp.auth.principal import Auth, Principal, anonymous
from django_mcp.declarations.declaration import decide
from django_mcp.declarations.request import Request
from django_mcp.declarations.server import default_server
from django_mcp.models import Switch
from tests.client import Client, RpcError

AGENT, OTHER = (SimpleNamespace(pk=pk, client_id=f"client {pk}") for pk in (1, 2))
UNKNOWN = r"Unknown tool: "
# A function in a thread, and a coroutine that needs no database.
TOOLS = {"add": {"a": 1, "b": 2}, "slow_add": {"a": 1, "b": 2, "steps": 1}}


class PrincipalClient(Client):
    """A client with a user and a token. Its user is loaded for each request."""

    def __init__(self, principal: Principal, **options: Any) -> None:
        self.principal = principal
        super().__init__(principal.user, **options)

    async def _principal(self) -> Principal:
        user = self.principal.user
        if user.pk is not None:
            user = await User.objects.aget(pk=user.pk)
        return Principal(user, self.principal.auth)


@pytest.fixture
def can_use():
    """Return a function that returns which of ``TOOLS`` a caller sees. Calls agree with it."""
    held = []

    def tools(user, application=None):
        auth = None if application is None else Auth(frozenset(), application)
        client = PrincipalClient(Principal(user or anonymous().user, auth))
        held.append(client)
        client.__enter__()
        listed = {tool["name"] for tool in client.request("tools/list")["tools"]} & TOOLS.keys()
        for name, arguments in TOOLS.items():
            if name in listed:
                assert client.request("tools/call", name=name, arguments=arguments)["content"]
            else:
                with pytest.raises(RpcError, match=UNKNOWN + name):
                    client.request("tools/call", name=name, arguments=arguments)
        return listed

    yield tools
    for client in held:
        client.__exit__(None, None, None)


def switch_off(thing="tool:add", **audience):
    return Switch.objects.create(server="default", thing=thing, **audience)


@pytest.fixture
def interns(alice):
    group = Group.objects.create(name="interns")
    alice.groups.add(group, Group.objects.create(name="accounting"))
    return group


@pytest.mark.parametrize("name", TOOLS)
def test_switch_for_a_client_concerns_its_tokens_only(alice, can_use, name):
    switch_off(f"tool:{name}", client=AGENT.client_id)
    assert can_use(alice, AGENT) == TOOLS.keys() - {name}
    assert can_use(alice, OTHER) == TOOLS.keys()  # another application
    assert can_use(alice, SimpleNamespace(pk=9)) == TOOLS.keys()  # one without a client id
    assert can_use(alice) == TOOLS.keys()  # no token
    assert can_use(None) == TOOLS.keys()  # anonymous


@pytest.mark.parametrize("name", TOOLS)
def test_switch_for_a_group_concerns_its_members_with_any_client(alice, interns, can_use, name):
    switch_off(f"tool:{name}", group=str(interns.pk))
    left = TOOLS.keys() - {name}
    assert can_use(alice) == can_use(alice, AGENT) == can_use(alice, OTHER) == left
    bob = User.objects.create_user("bob")
    bob.groups.add(Group.objects.get(name="accounting"))
    assert can_use(bob) == can_use(None) == TOOLS.keys()
    boss = User.objects.create_superuser("boss")
    boss.groups.add(interns)
    assert can_use(boss) == left


def test_switch_for_a_group_and_a_client_needs_both(alice, interns, can_use):
    switch_off(group=str(interns.pk), client=AGENT.client_id)
    assert can_use(alice, AGENT) == {"slow_add"}
    assert can_use(alice, OTHER) == can_use(User.objects.create_user("bob"), AGENT) == TOOLS.keys()


def test_switch_of_a_server_applies_to_an_audience(alice, interns, can_use):
    switch_off("", group=str(interns.pk))
    assert can_use(alice) == set() and can_use(None) == TOOLS.keys()


def test_deleted_group_switches_nothing_on_for_its_former_number(alice, interns, can_use):
    """A later group does not get the primary key, and the row stays visible to administrators."""
    switch_off(group=str(interns.pk))
    interns.delete()
    assert can_use(alice) == TOOLS.keys() and Switch.objects.exists()


def test_user_model_without_groups_is_affected_by_a_switch_for_a_group(db):
    """Whether such a user is a member cannot be known, so the switch must apply."""
    switch_off(group="7")
    kill_switches.refresh()
    user = SimpleNamespace(pk=1, is_authenticated=True, is_active=True)
    found = kill_switches.find("default", "tool:add", Principal(user))
    assert found is not None and found.group == "7"


@pytest.mark.parametrize("audience, queries", [({}, 0), ({"client": "x"}, 0), ({"group": "7"}, 1)])
def test_a_request_queries_groups_once_and_only_for_switches_of_groups(alice, audience, queries):
    for thing in ("tool:add", "tool:slow_add", "prompt:reminder"):
        switch_off(thing, **audience)
    kill_switches.refresh()
    request = Request(Principal(User.objects.get(pk=alice.pk)), default_server)
    tools = default_server._catalog.tools
    with CaptureQueriesContext(
        connection,
    ) as ran:
        for name in ("add", "slow_add", "wait"):
            decide(tools[name], request)
    assert len(ran) == queries


def test_lists_and_reads_are_not_for_shared_caches_while_audiences_differ(db, connect):
    client = connect()

    def scopes():
        page = (
            client.request("prompts/list"),
            client.request("resources/read", uri="policy://returns"),
        )
        return [one["cacheScope"] for one in page]

    before = scopes()
    row = switch_off("resource:opening_hours", client=AGENT.client_id)
    assert "public" in before and scopes() == ["private", "private"]
    row.delete()
    assert scopes() == before


def test_server_that_needs_no_database_queries_groups_in_a_thread(
    server, interns, alice, mcp_client
):
    @server.tool(permission=mcp.PUBLIC)
    async def now(request) -> str:
        return "now"

    client = mcp_client.acting_as(alice, server=server)
    Switch.objects.create(server=server.name, thing="tool:other", group=str(interns.pk))
    assert "now" in client.tools()
    client.call("now").assert_ok()
    Switch.objects.create(server=server.name, thing="tool:now", group=str(interns.pk))
    assert "now" not in client.tools()
    client.call("now").assert_unknown()


def test_reason_of_a_decision_names_the_audience(alice, interns):
    switch_off(group=str(interns.pk), client=AGENT.client_id)
    kill_switches.refresh()
    request = Request(Principal(alice, Auth(application=AGENT)), default_server)
    reason = decide(default_server._catalog.tools["add"], request).reason
    assert f"tool:add, for members of the group {interns.pk}, for the client client 1" in reason
