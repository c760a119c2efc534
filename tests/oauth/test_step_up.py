"""Step-up authorization: after a 403 the official client asks for another scope."""

from __future__ import annotations

import asyncio

import pytest

from .agent import Agent, Memory, Person, text
from .site import Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"), SITE_SCOPES="1")
    made.permit("alice", "change_user")
    with made.serve():
        yield made


def agent(site, person, memory=None, **more):
    made = Agent(site.endpoint, person.sent, **more)
    if memory is not None:
        made.memory = made.provider.context.storage = memory
    return made


async def rename_to(client, to):
    return text(await client.call_tool("rename", {"to": to}))


MODES = ["legacy", "auto"]


@pytest.mark.parametrize("mode", MODES)
def test_client_gets_the_missing_scope_and_repeats_the_call(site, mode):
    """Within one call of the client: 403, consent, repeated call."""
    alice = Person("alice")

    async def does(made):
        async with made.opened(mode) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            before = made.memory.tokens.scope
            said = await rename_to(client, "Alicia")
            after = text(await client.call_tool("whoami", {}))
        return listed, before, said, after

    made = agent(site, alice)
    listed, before, said, after = asyncio.run(does(made))
    assert listed == {"whoami", "rename"} and before == "basic"
    assert said == "alice is Alicia" and after == "alice"
    assert set(made.memory.tokens.scope.split()) == {"basic", "write"}
    assert made.answers("/mcp").count(403) == 1 and len(made.asked) == 2
    first, second = alice.read
    assert "Allowed actions Know who you are" in first and "Change users" not in first
    assert "New permissions Change users Existing permissions Know who you are" in second


def test_user_without_the_permission_is_not_asked_for_a_scope(site):
    """A tool that the user may not use is not listed, whatever the token's scopes are."""
    bob = Person("bob")

    async def does(made):
        async with made.opened() as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            with pytest.raises(Exception, match="Unknown tool: rename"):
                await client.call_tool("rename", {"to": "Robert"})
        return listed

    made = agent(site, bob)
    assert asyncio.run(does(made)) == {"whoami"}
    assert 403 not in made.answers("/mcp") and len(made.asked) == 1


def test_cancelling_keeps_the_existing_scopes(site):
    alice = Person("alice")

    async def refused(made):
        async with made.opened() as client:
            text(await client.call_tool("whoami", {}))
            alice.allow = False
            await rename_to(client, "Alicia")

    async def again(made):
        async with made.opened() as client:
            return text(await client.call_tool("whoami", {}))

    memory = Memory()
    made = agent(site, alice, memory)
    with pytest.raises(ExceptionGroup):
        asyncio.run(refused(made))
    assert made.told[-1]["error"] == "access_denied" and memory.tokens.scope == "basic"
    alice.allow = True
    assert asyncio.run(again(agent(site, alice, memory))) == "alice"


def test_client_that_registers_again_gets_all_needed_scopes(site):
    """Some clients store tokens but not their registration."""
    alice = Person("alice")

    async def does(made, to):
        async with made.opened() as client:
            said = await rename_to(client, to)
            return said, text(await client.call_tool("whoami", {}))

    async def reads(made):
        async with made.opened() as client:
            return text(await client.call_tool("whoami", {}))

    memory = Memory()
    assert asyncio.run(reads(agent(site, alice, memory))) == "alice"
    memory.client = None
    made = agent(site, alice, memory)
    assert asyncio.run(does(made, "Ally")) == ("alice is Ally", "alice")
    assert set(memory.tokens.scope.split()) == {"basic", "write"}
    assert made.answers("/mcp").count(403) <= 2  # one for each thing that it was not given


def test_second_user_of_a_client_does_not_get_scopes_of_the_first(site):
    """The browser is bob's now: nothing of what alice agreed to is his client's."""
    site.permit("bob", "view_user")  # nothing that would let him rename
    people = [Person("alice"), Person("bob")]
    memory = Memory()

    async def reads(made):
        async with made.opened() as client:
            return text(await client.call_tool("whoami", {}))

    assert asyncio.run(reads(agent(site, people[0], memory))) == "alice"
    memory.tokens = None
    assert asyncio.run(reads(agent(site, people[1], memory))) == "bob"
    assert memory.tokens.scope == "basic" and "Existing permissions" not in people[1].read[-1]
