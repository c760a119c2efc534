"""A client with too narrow a token: the official one asks for more, and goes on where it was."""

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


async def named(client, to):
    return text(await client.call_tool("rename", {"to": to}))


MODES = ["legacy", "auto"]


@pytest.mark.parametrize("mode", MODES)
def test_from_403_to_success(site, mode):
    """In one call of the client: asked for more, agreed to, called again."""
    alice = Person("alice")

    async def does(made):
        async with made.opened(mode) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            before = made.memory.tokens.scope
            said = await named(client, "Alicia")
            after = text(await client.call_tool("whoami", {}))
        return listed, before, said, after

    made = agent(site, alice)
    listed, before, said, after = asyncio.run(does(made))
    assert listed == {"whoami", "rename"} and before == "basic"
    assert said == "alice is Alicia" and after == "alice"
    assert set(made.memory.tokens.scope.split()) == {"basic", "write"}
    assert made.answers("/mcp").count(403) == 1 and len(made.asked) == 2
    first, second = alice.read
    assert "It may Know who you are" in first and "Change users" not in first
    assert "New permissions Change users Existing permissions Know who you are" in second


def test_who_may_not_is_not_asked(site):
    """What the user may not do is not there, whatever the token is."""
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


def test_a_person_who_says_no_loses_nothing(site):
    alice = Person("alice")

    async def refused(made):
        async with made.opened() as client:
            text(await client.call_tool("whoami", {}))
            alice.allow = False
            await named(client, "Alicia")

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


def test_a_client_that_forgets_who_it_is_and_registers_again(site):
    """As clients do that keep tokens and no registration: it ends with all that it needs."""
    alice = Person("alice")

    async def does(made, to):
        async with made.opened() as client:
            said = await named(client, to)
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


def test_another_person_in_the_same_client_has_none_of_the_first_ones_scopes(site):
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
